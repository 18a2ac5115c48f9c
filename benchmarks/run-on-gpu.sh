#!/usr/bin/env bash
# The checks and measurements that wait for an NVIDIA GPU, from the first GPU at hand to the files to commit: PENDING-GPU.md says
# what to look at in them. Each step takes less than ten minutes, is stopped after that, and leaves NAME.log in the folder.
#
#   benchmarks/run-on-gpu.sh [FOLDER]               everything, on this machine's GPUs
#   benchmarks/run-on-gpu.sh --emulated [FOLDER]    on emulated GPUs: what needs no more than them
#   benchmarks/run-on-gpu.sh --only NAME [FOLDER]   one step, such as `mux-bench`
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

emulated= only= folder=
while [ $# -gt 0 ]; do
    case $1 in
        --emulated) emulated=1 ;;
        --only) only=${2:?--only takes the name of a step} && shift ;;
        -*) echo "unknown option $1: --emulated, --only NAME and a folder are taken" >&2 && exit 2 ;;
        *) folder=$1 ;;
    esac
    shift
done

if [ -n "$emulated" ]; then
    card=emulated profile=()
    # Kernels that wait for a time by the device's clock take as long on the emulator's.
    export DEEPPOOL_EMULATED_GPUS=4 CUDA_EMULATOR_KERNEL_NS=50000
    gpus=$DEEPPOOL_EMULATED_GPUS
else
    command -v nvidia-smi >/dev/null || {
        echo "no NVIDIA driver is here (nvidia-smi): run it on a machine with a GPU, or with --emulated" >&2
        exit 2
    }
    card=$(nvidia-smi --query-gpu=name --format=csv,noheader --id=0 | tr ' ' '-') profile=(--release)
    gpus=$(nvidia-smi --list-gpus | wc -l)
fi
export GPU_REQUIRED=1
folder=${folder:-benchmarks/$(date +%F)-$card}
mkdir -p "$folder"
folder=$(realpath "$folder")
downloads=$(realpath -m "${CARGO_TARGET_DIR:-target}/gpu-downloads")
failed=() done=() skipped=()

# step NAME COMMAND...
step() {
    local name=$1 status=0
    shift
    [ -z "$only" ] || [ "$only" = "$name" ] || return 0
    echo "== $name"
    # In a shell of its own that stops at the first error, which `||` and `if` would switch off.
    set +e
    (
        set -e
        "$@"
    ) 2>&1 | tee "$folder/$name.log"
    status=${PIPESTATUS[0]}
    set -e
    case $status in
        0) done+=("$name") ;;
        77) skipped+=("$name") ;;
        *) failed+=("$name") ;;
    esac
}

limited() {
    timeout --kill-after 10 580 "$@"
}

# What the emulator does not have, or would only pretend.
on_a_card() {
    [ -n "$emulated" ] || return 0
    echo "SKIPPED: it needs a card: $1"
    exit 77
}

# A wheel's files, for the libraries that NVIDIA publishes so.
wheel() {
    [ -d "$downloads/$1" ] && return
    python3 -m pip download --quiet --no-deps --only-binary=:all: -d "$downloads" "$2" &&
        python3 -m zipfile --extract "$downloads/${1//-/_}"-*.whl "$downloads/$1.part" &&
        mv "$downloads/$1.part" "$downloads/$1"
}

facts() {
    git log -1 --format='commit %H'
    date -u
    if [ -n "$emulated" ]; then
        echo "$gpus emulated GPUs"
    else
        nvidia-smi
    fi
}

# Pieces and merged graphs do what the graph does, a foreground and a background share, gate and green context.
sharing() {
    limited cargo test "${profile[@]}" -p gpu-mux --test cuda_gpu -- --nocapture --test-threads 1
}

use_nccl() {
    [ -n "$emulated" ] && return
    [ -n "${COLLECTIVES_NCCL:-}" ] && return
    wheel nvidia-nccl-cu13 nvidia-nccl-cu13==2.28.9
    export COLLECTIVES_NCCL=$downloads/nvidia-nccl-cu13/nvidia/nccl/lib/libnccl.so.2
}

# The laws that hold for every backend, redistribution, memory of cudarc, on one GPU.
nccl() {
    use_nccl
    limited cargo test "${profile[@]}" -p collectives --features nccl --test it -- nccl:: --nocapture
}

# job TEST RANKS: one process a GPU, as torchrun would start them.
job() {
    use_nccl
    cargo test "${profile[@]}" -p collectives --features nccl --test it --no-run
    local rank ranks=() status=0
    for ((rank = 0; rank < $2; rank++)); do
        RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 COLLECTIVES_JOB_TOKEN=secret \
            timeout 120 cargo test "${profile[@]}" -p collectives --features nccl --test it -- \
            --ignored --nocapture --exact "nccl::$1" >"$folder/$1-$2-rank-$rank.log" 2>&1 &
        ranks+=($!)
    done
    for rank in "${ranks[@]}"; do
        wait "$rank" || status=1
    done
    tail -n 4 "$folder/$1-$2"-rank-*.log
    return "$status"
}

jobs_of_processes() {
    on_a_card "emulated GPUs are one process's"
    job job_of_several_gpus 1 && job job_of_several_gpus "$gpus"
}

lost_rank() {
    on_a_card "emulated GPUs are one process's"
    [ "$gpus" -gt 1 ] || { echo "SKIPPED: there is one GPU" && exit 77; }
    # The rank that ends early passes, and so do those that name it.
    job job_that_loses_a_rank "$gpus"
}

# The kernels are compiled by NVRTC: no newer than the driver (13.0 for driver 580 and later).
use_nvrtc() {
    wheel nvidia-cuda-nvrtc nvidia-cuda-nvrtc==13.0.88
    export LD_LIBRARY_PATH=$downloads/nvidia-cuda-nvrtc/nvidia/cu13/lib:${LD_LIBRARY_PATH:-}
}

# mux_bench NAME OPTION...: nothing else may run on the card. The foreground alone is measured before and after each policy.
mux_bench() {
    on_a_card "the times of an emulated GPU's kernels are a table's"
    local name=$1
    shift
    use_nvrtc
    cargo build --release -p benches --features cuda
    limited target/release/mux-bench --device cuda "$@" --out "$folder/$name.json" --svg "$folder/$name.svg"
}

# What the gate and the cap on the background's multiprocessors add. A gate needs a hardware queue for each stream.
mux_bench_option() {
    export CUDA_DEVICE_MAX_CONNECTIONS=32
    mux_bench "$@" --iterations 1000 --policy default --policy deeppool
}

# The virtual device's parameters from the measurements, and what it then says beside them.
mux_fit() {
    on_a_card "it follows mux-bench"
    target/release/mux-bench fit "$folder/mux-bench.json" --out "$folder/device.json"
    target/release/mux-bench --device virtual --parameters "$folder/device.json"
}

# same_losses CPU GPU: whether two reports have the same losses, up to rounding.
same_losses() {
    python3 - "$@" <<'END'
import json
import sys

cpu, cuda = (json.load(open(path)) for path in sys.argv[1:])
far = max(abs(a - b) / max(abs(a), abs(b)) for a, b in zip(cpu["losses"], cuda["losses"], strict=True))
print(f"{cpu['ranks']} ranks: losses within {far:.1e}; an iteration on the GPU {cuda['iteration_us']['median']:.0f} us")
sys.exit(far > 1e-4)
END
}

# The same losses as on processors, on one GPU and on several: the kernels of our own, and NCCL beside them.
train() {
    use_nccl
    cargo build "${profile[@]}" -p deeppool --features cuda -p cuda-emulator
    local ranks engine bin=${CARGO_TARGET_DIR:-target}/debug
    [ -n "$emulated" ] || bin=${CARGO_TARGET_DIR:-target}/release
    for ranks in 1 "$((gpus < 8 ? gpus : 8))"; do
        for engine in cpu cuda; do
            limited "$bin/deeppool" train --model digits-cnn --data digits --batch 32 --iterations 30 --ranks "$ranks" \
                --engine "$engine" --json >"$folder/train-$engine-$ranks.json"
        done
        same_losses "$folder/train-cpu-$ranks.json" "$folder/train-cuda-$ranks.json"
    done
}

# The same networks on one GPU in PyTorch, whose iterations are launches of one CUDA graph: losses, then the ratio of times.
train_beside_pytorch() {
    on_a_card "PyTorch's kernels are no PTX"
    use_nccl
    cargo build --release -p deeppool --features cuda
    local python=python3
    if ! python3 -c 'import torch, torchvision, safetensors, onnx' 2>/dev/null; then
        [ -d "$downloads/pytorch" ] || python3 -m venv "$downloads/pytorch"
        python=$downloads/pytorch/bin/python
        "$python" -m pip install --quiet torch==2.11.0 torchvision==0.26.0 safetensors==0.8.0 onnx==1.23.2 numpy
    fi
    limited "$python" tests/pytorch/compare.py gpu --bin target/release/deeppool --rounds 5
}

# Ranks that are processes, by torchrun's variables.
train_processes() {
    on_a_card "emulated GPUs are one process's"
    use_nccl
    local ranks=$((gpus < 8 ? gpus : 8)) rank pids=() status=0
    for ((rank = 0; rank < ranks; rank++)); do
        RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
            COLLECTIVES_JOB_TOKEN=secret timeout 300 target/release/deeppool train --model digits-cnn --data digits --batch 32 \
            --iterations 30 --engine cuda --json >"$folder/train-process-$rank.json" &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do
        wait "$rank" || status=1
    done
    [ "$status" = 0 ] && same_losses "$folder/train-cpu-$ranks.json" "$folder/train-process-0.json"
}

use_torch() {
    on_a_card "libtorch's kernels are no PTX"
    # 2.5 GB; or an installed PyTorch 2.11, by LIBTORCH_USE_PYTORCH=1.
    [ -n "${LIBTORCH_USE_PYTORCH:-}" ] || eval "$(scripts/libtorch.sh --cuda)"
}

# Every kind of layer, then every layer of the zoo, in single precision and with 16-bit factors; capture and replay.
torch() {
    use_torch
    limited cargo test --release -p layer-engine --features torch --test it -- torch::engine torch::layers --include-ignored --nocapture
}

# layer_times MODEL BATCHES
layer_times() {
    use_torch
    limited cargo run --release -p deeppool --features torch -- profile --model "$1" --engine torch --cuda 0 \
        --batches "$2" -o "$folder/$1.json"
}

# The device's model from the layer times, which says how far it is off.
device_model() {
    on_a_card "it follows the layer times"
    local model profiles=()
    for model in "${models[@]}" gpt2; do
        profiles+=(--profile "$folder/$model.json")
    done
    limited cargo run --release -p deeppool -- fit "${profiles[@]}" --name "$card" -o "$folder/device-model.json"
}

models=(vgg16 wrn-101-2 inception-v3 resnet-50 vit-b-16)

step facts facts
step sharing sharing
step nccl nccl
step nccl-jobs jobs_of_processes
step nccl-lost-rank lost_rank
step train train
step train-processes train_processes
step train-beside-pytorch train_beside_pytorch
step mux-bench mux_bench mux-bench --iterations 200
step mux-bench-gate mux_bench_option mux-bench-gate --gate
step mux-bench-cap mux_bench_option mux-bench-cap --background-multiprocessors 64
step mux-fit mux_fit
step torch torch
for model in "${models[@]}"; do
    step "layers-$model" layer_times "$model" 1,2,4,8,16,32,64
done
step layers-gpt2 layer_times gpt2 1,2,4,8,16
step device-model device_model

echo "results in $folder: ${#done[@]} steps done, ${#skipped[@]} skipped (${skipped[*]:-none}), ${#failed[@]} failed (${failed[*]:-none})"
[ ${#failed[@]} -eq 0 ] && [ ${#done[@]} -gt 0 ]
