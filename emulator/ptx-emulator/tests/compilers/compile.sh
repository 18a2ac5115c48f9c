#!/usr/bin/env bash
# Compiles the CUB, Numba and Triton kernels of the tests to PTX: compile.sh FOLDER
# Installs the compilers in FOLDER/venv. They need neither a GPU nor a driver. Existing files are kept.
set -euo pipefail
folder=$(mkdir -p "$1" && realpath "$1")
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
python=$folder/venv/bin/python
if [ ! -e "$folder/venv/complete" ]; then
    rm -rf "$folder/venv"
    python3 -m venv "$folder/venv"
    "$python" -m pip install --quiet numpy triton==3.9.0 numba-cuda==0.30.4 nvidia-nvvm==13.0.88 nvidia-cuda-nvrtc==13.0.88 \
        nvidia-cuda-cccl==13.0.85 nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88
    touch "$folder/venv/complete"
fi
"$python" "$here/nvrtc.py" --cub "$here/cub.cu" "$folder/cub.ptx"
"$python" "$here/numba_kernels.py" "$folder"
"$python" "$here/triton_kernels.py" "$folder" 2>/dev/null
