// What Python sees. The kernel stands in a file of its own, which so does not have to read torch's headers.
#include <cuda_runtime.h>
#include <torch/extension.h>

cudaError_t launch_decode_with_weights(const void* query, const void* key, const void* value, const int32_t* lengths,
                                       void* output, float* weights, int requests, int heads, int kv_heads,
                                       int positions, float scale, uintptr_t stream);

static void decode_with_weights(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                const at::Tensor& lengths, at::Tensor& output, at::Tensor& weights, double scale,
                                uintptr_t stream) {
  for (const at::Tensor& one : {query, key, value, output}) {
    TORCH_CHECK(one.is_cuda() && one.is_contiguous() && one.scalar_type() == at::kBFloat16 && one.size(-1) == 128,
                "query, key, value and output: contiguous bfloat16 on a GPU, heads of 128");
  }
  TORCH_CHECK(lengths.scalar_type() == at::kInt && weights.scalar_type() == at::kFloat && weights.is_contiguous(),
              "lengths: int32; weights: contiguous float32");
  TORCH_CHECK(query.size(1) % key.size(2) == 0, "query heads must be a multiple of the KV heads");
  const cudaError_t error = launch_decode_with_weights(
      query.data_ptr(), key.data_ptr(), value.data_ptr(), lengths.data_ptr<int32_t>(), output.data_ptr(),
      weights.data_ptr<float>(), query.size(0), query.size(1), key.size(2), key.size(1), scale, stream);
  TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("decode_with_weights", &decode_with_weights); }
