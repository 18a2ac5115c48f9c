#!/usr/bin/env bash
# The checks and measurements that wait for an NVIDIA GPU, from the first GPU at hand to the files to commit: PENDING-GPU.md says
# what to look at in them. Each step takes less than ten minutes, is stopped after that, and leaves NAME.log in the folder.
#
#   benchmarks/run-on-gpu.sh [FOLDER]                    everything, on this machine's GPUs
#   benchmarks/run-on-gpu.sh --emulated [FOLDER]         on emulated GPUs: what needs no more than them
#   benchmarks/run-on-gpu.sh --only NAME [FOLDER]        one step, such as `mux-bench`; may be given more than once
#   benchmarks/run-on-gpu.sh --build PROGRAMS            builds the programs into a folder, for a machine without Rust
#   benchmarks/run-on-gpu.sh --programs PROGRAMS [...]   takes them from there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

emulated= only=() folder= build= programs=
while [ $# -gt 0 ]; do
    case $1 in
        --emulated) emulated=1 ;;
        --only) only+=("${2:?--only takes the name of a step}") && shift ;;
        --build) build=${2:?--build takes a folder} && shift ;;
        --programs) programs=$(realpath "${2:?--programs takes a folder}") && shift ;;
        -*) echo "unknown option $1: --emulated, --only NAME, --build FOLDER, --programs FOLDER and a folder are taken" >&2 && exit 2 ;;
        *) folder=$1 ;;
    esac
    shift
done

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
downloads=$target/gpu-downloads

# What Cargo is asked for to build a program.
declare -A recipes=(
    [deeppool]="build -p deeppool-cli --bin deeppool --features cuda"
    [deeppool-torch]="build -p deeppool-cli --bin deeppool --features torch"
    [mux-bench]="build -p benches --bin mux-bench --features cuda"
    [op-bench]="build -p benches --bin op-bench --features cuda"
    [gpu-mux-tests]="test --no-run -p gpu-mux --test cuda_gpu"
    [collectives-tests]="test --no-run -p collectives --features nccl --test it"
    [cuda-tests]="test --no-run -p layer-engine --features cuda --test it"
    [torch-tests]="test --no-run -p layer-engine --features torch --test it"
)

# build_program NAME FOLDER
build_program() {
    local recipe=${recipes[$1]} built
    case $recipe in *torch*) use_torch_to_build || return ;; esac
    # shellcheck disable=SC2086
    built=$(cargo $recipe ${profile[@]+"${profile[@]}"} --message-format json-render-diagnostics |
        python3 -c 'import json, sys; print([made["executable"] for made in map(json.loads, sys.stdin) if made.get("executable")][-1])') || return
    mkdir -p "$2" && cp "$built" "$2/$1.part" && mv "$2/$1.part" "$2/$1"
}

# The program, which is built first unless there is a folder of them.
program() {
    if [ -n "$programs" ]; then
        echo "$programs/$1"
    else
        # Where it cannot be built, an older one is not run: `set -e` does not hold inside `$(...)`.
        build_program "$1" "$target/on-gpu" >&2 && echo "$target/on-gpu/$1"
    fi
}

# Any libtorch of the version will do: CUDA's half is opened at run time.
use_torch_to_build() {
    [ -n "${LIBTORCH:-}${LIBTORCH_USE_PYTORCH:-}" ] || eval "$(scripts/libtorch.sh "$downloads/libtorch")"
}

if [ -n "$build" ]; then
    profile=(--release)
    for name in "${!recipes[@]}"; do
        build_program "$name" "$build"
        strip "$build/$name"
    done
    exit
fi

if [ -n "$emulated" ]; then
    card=emulated profile=()
    # Kernels that wait for a time by the device's clock take as long on the emulator's.
    export DEEPPOOL_EMULATED_GPUS=4 CUDA_EMULATOR_KERNEL_NS=50000
    gpus=$DEEPPOOL_EMULATED_GPUS
    [ -n "$programs" ] || cargo build --quiet -p cuda-emulator
    export CUDA_EMULATOR_LIBRARY=${CUDA_EMULATOR_LIBRARY:-$target/debug/libcuda_emulator.so}
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
failed=() done=() skipped=()

# step NAME COMMAND...
step() {
    local name=$1 status=0
    shift
    [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $name "* ]] || return 0
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

# The step ends with this script, also where that is stopped.
limited() {
    timeout --foreground --kill-after 10 580 "$@"
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

# of_python PACKAGE: the folder of a package that this machine's Python has.
of_python() {
    python3 - "$1" 2>/dev/null <<'END'
import importlib.util
import sys

print(importlib.util.find_spec(sys.argv[1]).submodule_search_locations[0])
END
}

facts() {
    # Where the programs come from a folder, their commit may be said.
    echo "commit ${COMMIT:-$(git rev-parse HEAD)}"
    date -u
    if [ -n "$emulated" ]; then
        echo "$gpus emulated GPUs"
    else
        nvidia-smi
        uname -srm
        grep --max-count 1 'model name' /proc/cpuinfo
        python3 -c 'import torch; print("PyTorch", torch.__version__, "NCCL", torch.cuda.nccl.version())' || true
    fi
}

# Pieces and merged graphs do what the graph does, a foreground and a background share, gate and green context.
sharing() {
    local tests
    tests=$(program gpu-mux-tests)
    limited "$tests" --nocapture --test-threads 1
}

use_nccl() {
    [ -z "$emulated" ] && [ -z "${NCCL_LIBRARY:-}" ] || return 0
    local folder
    folder=$(of_python nvidia.nccl) || {
        wheel nvidia-nccl-cu13 nvidia-nccl-cu13==2.28.9
        folder=$downloads/nvidia-nccl-cu13/nvidia/nccl
    }
    export NCCL_LIBRARY=$folder/lib/libnccl.so.2
}

# cuBLASLt and cuDNN, of the machine's Python. Where it has none, our own kernels compute, and reports say so.
use_libraries() {
    [ -z "$emulated" ] || return 0
    local folder
    ! folder=$(of_python nvidia.cu13) || export CUBLASLT_LIBRARY=${CUBLASLT_LIBRARY:-$folder/lib/libcublasLt.so.13}
    ! folder=$(of_python nvidia.cudnn) || export CUDNN_LIBRARY=${CUDNN_LIBRARY:-$folder/lib/libcudnn.so.9}
}

# The laws that hold for every backend, redistribution, memory of another owner, on one GPU.
nccl() {
    local tests
    use_nccl
    tests=$(program collectives-tests)
    limited "$tests" nccl:: --nocapture
}

# job TEST RANKS: one process a GPU, as torchrun would start them.
job() {
    local tests rank ranks=() status=0
    use_nccl
    tests=$(program collectives-tests)
    for ((rank = 0; rank < $2; rank++)); do
        RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
            timeout 120 "$tests" --ignored --nocapture --exact "nccl::$1" >"$folder/$1-$2-rank-$rank.log" 2>&1 &
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
    local folder
    folder=$(of_python nvidia.cu13) || {
        wheel nvidia-cuda-nvrtc nvidia-cuda-nvrtc==13.0.88
        folder=$downloads/nvidia-cuda-nvrtc/nvidia/cu13
    }
    export NVRTC_LIBRARY=$folder/lib/libnvrtc.so.13
}

# mux_bench NAME OPTION...: nothing else may run on the card. The foreground alone is measured before and after each policy.
mux_bench() {
    on_a_card "the times of an emulated GPU's kernels are a table's"
    local name=$1 bench
    shift
    use_nvrtc
    bench=$(program mux-bench)
    limited "$bench" --device cuda "$@" --out "$folder/$name.json" --svg "$folder/$name.svg"
}

# What the gate and the cap on the background's multiprocessors add. A gate needs a hardware queue for each stream.
mux_bench_option() {
    export CUDA_DEVICE_MAX_CONNECTIONS=32
    mux_bench "$@" --iterations 300 --policy default --policy deeppool
}

# The virtual device's parameters from the measurements, and what it then says beside them.
mux_fit() {
    on_a_card "it follows mux-bench"
    local bench
    bench=$(program mux-bench)
    "$bench" fit "$folder/mux-bench.json" --out "$folder/device.json"
    "$bench" --device virtual --parameters "$folder/device.json"
}

# Every kernel, ours and those of cuDNN and cuBLASLt, beside the processor's, layer by layer, and whole networks. On emulated
# GPUs without what `cargo test` runs there with as many cases.
kernels() {
    local tests filters=(cuda::)
    use_libraries
    tests=$(program cuda-tests)
    if [ -n "$emulated" ]; then
        filters=(cuda::sources cuda::layers::convolutions cuda::layers::row cuda::layers::image cuda::layers::sequence)
    else
        export CUDA_ENGINE_ON_GPU=1
    fi
    limited "$tests" "${filters[@]}" --nocapture
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
    local ranks engine deeppool
    use_nccl
    use_libraries
    deeppool=$(program deeppool)
    for ranks in 1 "$((gpus < 8 ? gpus : 8))"; do
        for engine in cpu cuda; do
            limited "$deeppool" train --model digits-cnn --data digits --batch 32 --iterations 30 --ranks "$ranks" \
                --engine "$engine" --json >"$folder/train-$engine-$ranks.json"
        done
        same_losses "$folder/train-cpu-$ranks.json" "$folder/train-cuda-$ranks.json"
    done
}

# A Python with PyTorch, as the variable `python`.
use_pytorch() {
    python=python3
    if ! python3 -c 'import torch, torchvision, safetensors, onnx' 2>/dev/null; then
        [ -d "$downloads/pytorch" ] || python3 -m venv "$downloads/pytorch"
        python=$downloads/pytorch/bin/python
        "$python" -m pip install --quiet torch==2.11.0 torchvision==0.26.0 safetensors==0.8.0 onnx==1.23.2 numpy
    fi
}

# The same networks on one GPU in PyTorch, in its fastest settings and with a CUDA graph an iteration, in each precision:
# times in alternation, their ratio, losses.
train_beside_pytorch() {
    on_a_card "PyTorch's kernels are no PTX"
    local deeppool python
    use_nccl
    use_libraries
    deeppool=$(program deeppool)
    use_pytorch
    limited "$python" tests/pytorch/compare.py fastest --bin "$deeppool" --rounds 5 --seconds 500 \
        --out "$folder/train-beside-pytorch.json"
}

# Every kernel of an iteration alone, beside the layers of the same network in PyTorch; on emulated GPUs without PyTorch.
op_bench() {
    local bench python network batch
    use_libraries
    bench=$(program op-bench)
    if [ -n "$emulated" ]; then
        limited "$bench" --model digits-cnn --batch 2 --out "$folder/op-bench-digits-cnn.json"
        return
    fi
    use_pytorch
    # As in tests/pytorch/networks.py.
    for network in vgg11-cifar:32 resnet-18-cifar:128 resnet-18:8 resnet-50:16 vit-b-16:16; do
        batch=${network#*:} network=${network%:*}
        timeout --foreground --kill-after 10 110 "$python" tests/pytorch/op-bench.py "$network" --batch "$batch" --bin "$bench" \
            --out "$folder/op-bench-$network.json"
    done
}

# Every kernel of an iteration with channels first and with channels last, in the precisions with tensor cores.
image_layouts() {
    local bench run network precision layout networks="resnet-18:32 resnet-50:16"
    use_libraries
    bench=$(program op-bench)
    [ -z "$emulated" ] || networks=digits-cnn:2
    for run in $networks; do
        network=${run%:*}
        for precision in tf32 bf16; do
            for layout in channels-first channels-last; do
                timeout --foreground --kill-after 10 70 "$bench" --model "$network" --batch "${run#*:}" --precision "$precision" \
                    --image-layout "$layout" --out "$folder/op-bench-$network-$precision-$layout.json"
            done
        done
    done
}

# Peak memory of PyTorch on the card beside what its memory tracker says, and two predictions.
pytorch_memory() {
    on_a_card "PyTorch's kernels are no PTX"
    limited python3 benchmarks/pytorch-memory.py --batches 8 32 --out "$folder/pytorch-memory.json"
}

# Ranks that are processes, by torchrun's variables.
train_processes() {
    on_a_card "emulated GPUs are one process's"
    local deeppool ranks=$((gpus < 8 ? gpus : 8)) rank pids=() status=0
    use_nccl
    use_libraries
    deeppool=$(program deeppool)
    for ((rank = 0; rank < ranks; rank++)); do
        RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
            timeout 300 "$deeppool" train --model digits-cnn --data digits --batch 32 \
            --iterations 30 --engine cuda --json >"$folder/train-process-$rank.json" &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do
        wait "$rank" || status=1
    done
    [ "$status" = 0 ] && same_losses "$folder/train-cpu-$ranks.json" "$folder/train-process-0.json"
}

# libtorch with CUDA: of this machine's Python where that has PyTorch 2.11, or 2.5 GB.
use_torch() {
    on_a_card "libtorch's kernels are no PTX"
    local folder
    if folder=$(of_python torch) && [ -e "$folder/lib/libtorch_cuda.so" ] && [[ $(<"$folder/version.py") == *"'2.11."* ]]; then
        export LIBTORCH_USE_PYTORCH=1 LD_LIBRARY_PATH=$folder/lib:${LD_LIBRARY_PATH:-}
    else
        eval "$(scripts/libtorch.sh --cuda "$downloads/libtorch")"
    fi
}

# Every kind of layer, then every layer of the zoo, in single precision and with 16-bit factors; capture and replay.
torch() {
    local tests
    use_torch
    tests=$(program torch-tests)
    limited "$tests" torch::engine torch::layers --include-ignored --nocapture
}

# layer_times MODEL BATCHES
layer_times() {
    local deeppool
    use_torch
    deeppool=$(program deeppool-torch)
    limited "$deeppool" profile --model "$1" --engine torch --cuda 0 --batches "$2" -o "$folder/$1.json"
}

# The device's model from the layer times, which says how far it is off.
device_model() {
    on_a_card "it follows the layer times"
    local deeppool model profiles=()
    deeppool=$(program deeppool)
    for model in "${models[@]}" gpt2; do
        [ ! -e "$folder/$model.json" ] || profiles+=(--profile "$folder/$model.json")
    done
    limited "$deeppool" fit "${profiles[@]}" --name "$card" -o "$folder/device-model.json"
}

models=(vgg16 wrn-101-2 inception-v3 resnet-50 vit-b-16)

step facts facts
step sharing sharing
step nccl nccl
step nccl-jobs jobs_of_processes
step nccl-lost-rank lost_rank
step kernels kernels
step train train
step train-processes train_processes
step train-beside-pytorch train_beside_pytorch
step op-bench op_bench
step image-layouts image_layouts
step pytorch-memory pytorch_memory
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
