// Attention of one token for each request, with the weight of each position: one block for each (request, query head).
// query [requests, query heads, 128] and key, value [requests, positions, KV heads, 128] in bfloat16, contiguous;
// lengths [requests]; output like query; weights [requests, query heads, positions] in float32, zero behind the length.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <flashinfer/math.cuh>
#include <flashinfer/vec_dtypes.cuh>

namespace {

constexpr int kHeadSize = 128;
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kPerLane = kHeadSize / 32;
static_assert(kThreads == kHeadSize, "in the second half each thread has one element of the output");

template <typename Op>
__device__ float reduce_warp(float value, Op op) {
  for (int step = 16; step > 0; step /= 2) value = op(value, __shfl_xor_sync(0xffffffff, value, step));
  return value;
}

template <typename Op>
__device__ float reduce_block(float value, Op op, float* shared) {
  value = reduce_warp(value, op);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float all = shared[0];
  for (int warp = 1; warp < kWarps; ++warp) all = op(all, shared[warp]);
  return all;
}

__global__ void decode_with_weights(const __nv_bfloat16* query, const __nv_bfloat16* key, const __nv_bfloat16* value,
                                    const int32_t* lengths, __nv_bfloat16* output, float* weights, int positions,
                                    int kv_heads, float scale) {
  __shared__ float shared[kWarps];
  const int request = blockIdx.x, head = blockIdx.y, heads = gridDim.y;
  const int kv_head = head / (heads / kv_heads);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int length = lengths[request];
  const size_t row = static_cast<size_t>(request) * heads + head;
  const size_t first = (static_cast<size_t>(request) * positions * kv_heads + kv_head) * kHeadSize;
  const size_t step = static_cast<size_t>(kv_heads) * kHeadSize;
  float* mine = weights + row * positions;

  flashinfer::vec_t<float, kPerLane> q;
  q.cast_load(query + row * kHeadSize + lane * kPerLane);
  float largest = -INFINITY;
  for (int at = warp; at < length; at += kWarps) {
    flashinfer::vec_t<float, kPerLane> k;
    k.cast_load(key + first + at * step + lane * kPerLane);
    float dot = 0.f;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) dot += q[i] * k[i];
    const float score = reduce_warp(dot, [](float a, float b) { return a + b; }) * scale * flashinfer::math::log2e;
    if (lane == 0) mine[at] = score;
    largest = fmaxf(largest, score);
  }
  largest = reduce_block(largest, [](float a, float b) { return fmaxf(a, b); }, shared);

  float sum = 0.f;
  for (int at = threadIdx.x; at < length; at += kThreads) {
    mine[at] = flashinfer::math::ptx_exp2(mine[at] - largest);
    sum += mine[at];
  }
  sum = reduce_block(sum, [](float a, float b) { return a + b; }, shared);
  for (int at = threadIdx.x; at < positions; at += kThreads) mine[at] = at < length ? mine[at] / sum : 0.f;
  __syncthreads();

  float element = 0.f;
  for (int at = 0; at < length; ++at) element += mine[at] * __bfloat162float(value[first + at * step + threadIdx.x]);
  output[row * kHeadSize + threadIdx.x] = __float2bfloat16(element);
}

}  // namespace

// The error of the launch. stream: that of torch, as a number.
cudaError_t launch_decode_with_weights(const void* query, const void* key, const void* value, const int32_t* lengths,
                                       void* output, float* weights, int requests, int heads, int kv_heads,
                                       int positions, float scale, uintptr_t stream) {
  decode_with_weights<<<dim3(requests, heads), kThreads, 0, reinterpret_cast<cudaStream_t>(stream)>>>(
      static_cast<const __nv_bfloat16*>(query), static_cast<const __nv_bfloat16*>(key),
      static_cast<const __nv_bfloat16*>(value), lengths, static_cast<__nv_bfloat16*>(output), weights, positions,
      kv_heads, scale);
  return cudaGetLastError();
}
