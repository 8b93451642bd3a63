#!/usr/bin/env bash
# A CUDA_HOME whose nvcc says that it is of another release and otherwise is the real one.
#   nvcc_that_says.sh FOLDER RELEASE [REAL_CUDA_HOME]      nvcc_that_says.sh /opt/cuda-12.6 12.6 /usr/local/cuda
# FlashInfer's version gates read `nvcc --version`; what is compiled is compiled by the real nvcc with its own headers.
set -euo pipefail
folder=${1:?folder}; release=${2:?release}; real=$(readlink -f "${3:-/usr/local/cuda}")
mkdir -p "$folder/bin"
for entry in "$real"/*; do [ "$(basename "$entry")" = bin ] || ln -sfn "$entry" "$folder/$(basename "$entry")"; done
for entry in "$real"/bin/*; do ln -sfn "$entry" "$folder/bin/$(basename "$entry")"; done
rm -f "$folder/bin/nvcc"
cat > "$folder/bin/nvcc" <<EOF
#!/usr/bin/env bash
for word in "\$@"; do
  if [ "\$word" = --version ] || [ "\$word" = -V ]; then
    "$real/bin/nvcc" --version | sed -E 's/release [0-9.]+, V[0-9.]+/release $release, V$release.77/; s/cuda_[0-9.]+r[0-9.]+/cuda_$release.r$release/'
    exit 0
  fi
done
exec "$real/bin/nvcc" "\$@"
EOF
chmod +x "$folder/bin/nvcc"
