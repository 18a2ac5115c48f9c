#!/usr/bin/env bash
# Fetches libtorch for the feature `torch`, and prints the two lines to export:
#
#     scripts/libtorch.sh [--cuda] [FOLDER]        (FOLDER: ./libtorch)
#
# It comes from the Python packages of PyTorch, by pip: 0.5 GB for use on the CPU; with --cuda also the libraries that
# libtorch needs on an NVIDIA GPU, 2.5 GB in all. A complete folder is not fetched again. Wheels that lie in
# $LIBTORCH_WHEELS are taken from there.
#
# Not needed where PyTorch 2.11 is installed: export LIBTORCH_USE_PYTORCH=1 instead, and put its lib folder on
# LD_LIBRARY_PATH.
set -euo pipefail

version=2.11.0
# libtorch_cpu.so does not start without these two.
packages=(torch==$version nvidia-cuda-cupti==13.0.85 nvidia-cuda-runtime==13.0.96)
cuda_packages=(
    nvidia-cublas==13.1.0.3 nvidia-cuda-nvrtc==13.0.88 nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61
    nvidia-cufile==1.15.1.6 nvidia-curand==10.4.0.35 nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3
    nvidia-cusparselt-cu13==0.8.0 nvidia-nccl-cu13==2.28.9 nvidia-nvjitlink==13.0.88 nvidia-nvshmem-cu13==3.4.5
    nvidia-nvtx==13.0.85
)

stop() {
    echo "scripts/libtorch.sh: $1" >&2
    exit 1
}

kind=cpu
if [ "${1:-}" = --cuda ]; then
    kind=cuda
    packages+=("${cuda_packages[@]}")
    shift
fi
[ $# -le 1 ] && [[ "${1:-}" != -* ]] || stop "usage: scripts/libtorch.sh [--cuda] [FOLDER]"
[ "$(uname -sm)" = "Linux x86_64" ] || stop "fetches for Linux on x86-64 only; elsewhere install PyTorch $version and export LIBTORCH_USE_PYTORCH=1"
folder=$(realpath -m "${1:-libtorch}")
complete=$folder/$version-$kind

if [ ! -e "$complete" ]; then
    command -v python3 >/dev/null || stop "needs python3 with pip"
    mkdir -p "$folder"
    wheels=${LIBTORCH_WHEELS:-}
    if [ -z "$wheels" ]; then
        wheels=$folder/wheels
        python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.11 --dest "$wheels" \
            "${packages[@]}" >&2 || stop "pip could not download ${packages[*]}"
    fi
    python3 - "$folder" "$wheels" "${packages[@]}" <<'PYTHON' || stop "the wheels in $wheels could not be unpacked"
import sys, pathlib, zipfile

folder, wheels, *packages = sys.argv[1:]
for package in packages:
    name, version = package.split("==")
    found = list(pathlib.Path(wheels).glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if not found:
        sys.exit(f"no wheel of {package}")
    with zipfile.ZipFile(found[0]) as wheel:
        wanted = ("torch/lib/", "torch/include/", "nvidia/")
        wheel.extractall(folder, [file for file in wheel.namelist() if file.startswith(wanted)])
PYTHON
    [ -n "${LIBTORCH_WHEELS:-}" ] || rm -rf "$wheels"
    touch "$complete"
fi

echo "export LIBTORCH=$folder/torch"
echo "export LD_LIBRARY_PATH=$folder/torch/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
