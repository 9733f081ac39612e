#!/usr/bin/env bash
# Every measurement on a CUDA device, and the files in docs/results:
#
#   benchmarks/run_cuda.sh h200 [folder]        results go to docs/results, or to the folder
#
# Others' kernels are measured too where they are installed: pip install --no-deps fla-core einops accelerated-scan
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
chip="${1:?which chip is this? its name goes into the names of the files}"
folder="${2:-docs/results}"
python="${PYTHON:-python3}"
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

mkdir -p "$folder"
"$python" benchmarks/kernels.py --device cuda --peers --json "$folder/kernels-$chip.json"
"$python" benchmarks/cuda_layers.py --json "$folder/layers-$chip.json"
"$python" benchmarks/plots.py roofline "$folder/kernels-$chip.json" -o "$folder/kernels-$chip.svg"
