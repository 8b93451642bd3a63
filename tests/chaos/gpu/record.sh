#!/usr/bin/env bash
# Faults of real kernels beside sound probes, on a machine with a GPU: bash tests/chaos/gpu/record.sh FOLDER
# $PYTHON is the interpreter that has torch, triton and FlashInfer. FOLDER gets a report of each, and summary.txt.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: bash tests/chaos/gpu/record.sh FOLDER" >&2; exit 2; }
here=$(dirname "$(readlink -f "$0")")
mkdir -p "$1"
nvidia-smi > "$1/nvidia-smi.txt" 2>&1 || echo "no nvidia-smi" > "$1/nvidia-smi.txt"
code=0
"${PYTHON:-python3}" "$here/record.py" "$1" > "$1/summary.txt" || code=$?
cat "$1/summary.txt"
exit $code
