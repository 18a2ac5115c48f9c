#!/usr/bin/env python3
"""Compares training by deeppool with training by PyTorch, on the CPU or on a GPU.

    tests/pytorch/compare.py weights [--bin target/debug/deeppool]          # names of parameters
    tests/pytorch/compare.py losses  [--bin target/debug/deeppool] [--mpi]  # of the first 50 iterations
    tests/pytorch/compare.py speed   --bin target/release/deeppool --mpi    # against one process and DDP
    tests/pytorch/compare.py gpu     --bin target/release/deeppool          # against CUDA graphs

Both train the same networks on the same batches. With `--mpi`, deeppool also trains on two processes under
mpirun; the binary needs the feature mpi. Needs Python 3.11 and

    pip install torch==2.11.0 torchvision==0.26.0 safetensors onnx
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torchvision
from networks import NETWORKS
from safetensors.torch import load_file, save_file

HERE = Path(__file__).resolve().parent
ITERATIONS = 50
# Maximum relative difference of losses.
TOLERANCE = 1e-3
# Relative change of the initial weights, about the rounding of single precision.
PERTURBATION = 1e-7
MPIRUN = ["mpirun", "-n", 2]
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]

# Networks of `deeppool models` that torchvision has.
TORCHVISION = {
    "vgg11": torchvision.models.vgg11,
    "vgg13": torchvision.models.vgg13,
    "vgg16": torchvision.models.vgg16,
    "vgg19": torchvision.models.vgg19,
    "resnet-18": torchvision.models.resnet18,
    "resnet-34": torchvision.models.resnet34,
    "resnet-50": torchvision.models.resnet50,
    "wrn-101-2": torchvision.models.wide_resnet101_2,
    "inception-v3": lambda: torchvision.models.inception_v3(init_weights=False, aux_logits=False),
    "vit-b-16": torchvision.models.vit_b_16,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("comparison", choices=["weights", "losses", "speed", "gpu"])
    parser.add_argument("--bin", type=Path, default=HERE.parent.parent / "target/debug/deeppool")
    parser.add_argument("--mpi", action="store_true", help="also train on two processes")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=9, help="runs of each contender (speed, gpu)")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    {"weights": weights, "losses": losses, "speed": speed, "gpu": gpu}[options.comparison](options)


def weights(options):
    """Checks that torchvision loads the weights exported by deeppool, for each common network."""
    for name, make in TORCHVISION.items():
        with tempfile.TemporaryDirectory() as folder:
            exported = Path(folder) / "exported.safetensors"
            run([options.bin, "export", "--model", name, "-o", exported])
            tensors = load_file(exported)
            make().load_state_dict(tensors, strict=True)
        print(f"{name:<12}  {len(tensors):>3} tensors", flush=True)


def losses(options):
    """Checks that losses differ only by rounding, for several numbers of ranks."""
    worst = 0
    for name in options.networks:
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = commands(name, options, Path(folder), ITERATIONS)
            by_torch = of_torch([sys.executable, *theirs])["losses"]
            perturbed = of_torch([sys.executable, *theirs, "--perturb", PERTURBATION])["losses"]
            print(
                f"{name}: losses by PyTorch {by_torch[0]:.4f} .. {by_torch[-1]:.4f}; PyTorch with initial "
                f"weights perturbed by {PERTURBATION}: within {difference(by_torch, perturbed):.1e}",
                flush=True,
            )
            runs = {
                "1 rank": [*ours, "--ranks", 1],
                "2 threads, data parallel": [*ours, "--ranks", 2, "--mode", "dp"],
                "2 threads, burst plan": [*ours, "--ranks", 2, "--amplification", 1.2],
            }
            if options.mpi:
                runs["2 processes, data parallel"] = [*MPIRUN, *ours, "--mode", "dp"]
            for label, command in runs.items():
                # PyTorch's single process normalises over the global batch.
                largest = difference(by_torch, of_deeppool([*command, "--sync-batch-norm"])["losses"])
                worst = max(worst, largest)
                print(f"    {label:<27} within {largest:.1e}", flush=True)
    if not worst <= TOLERANCE:
        sys.exit(f"losses differ by {worst:.1e}, more than {TOLERANCE}")


def difference(some, others):
    assert len(some) == len(others) == ITERATIONS
    return max(abs(a - b) for a, b in zip(some, others))


def speed(options):
    """Measures iteration times in alternation, and their ratios within each round."""
    for name in options.networks:
        if name == "digits-cnn":
            # Its iterations are too short to compare kernels.
            continue
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = commands(name, options, Path(folder), 14)
            contenders = {
                "deeppool, 2 threads": (of_deeppool, [*ours, "--ranks", 2, "--mode", "dp"]),
                "deeppool, 1 rank of 2 threads": (
                    of_deeppool,
                    [*ours, "--ranks", 1, "--threads-per-rank", 2],
                ),
            }
            if options.mpi:
                contenders["deeppool, 2 processes"] = (of_deeppool, [*MPIRUN, *ours, "--mode", "dp"])
            contenders |= {
                "DDP with gloo, 2 processes": (of_torch, [*TORCHRUN, *theirs]),
                "PyTorch, 2 threads": (of_torch, [sys.executable, *theirs, "--threads", 2]),
            }
            times = {contender: [] for contender in contenders}
            for round_ in range(options.rounds):
                # Rotate the order, so that each follows a different one.
                first = round_ % len(contenders)
                names = list(contenders)[first:] + list(contenders)[:first]
                for contender in names:
                    measure, command = contenders[contender]
                    times[contender].append(measure(command)["median_us"] / 1e3)
                latest = ", ".join(f"{contender} {each[-1]:.1f} ms" for contender, each in times.items())
                print(f"{name}, round {round_ + 1} of {options.rounds}: {latest}", flush=True)
            for contender, own in times.items():
                print(
                    f"{name}: {contender}: median of {len(own)} rounds {statistics.median(own):.1f} ms "
                    f"({min(own):.1f} to {max(own):.1f})"
                )
                for peer in ("DDP with gloo, 2 processes", "PyTorch, 2 threads"):
                    if contender != peer:
                        ratios = [a / b for a, b in zip(own, times[peer])]
                        print(
                            f"    to {peer}: median of ratios {statistics.median(ratios):.3f} "
                            f"({min(ratios):.3f} to {max(ratios):.3f})"
                        )


def gpu(options):
    """Compares losses and iteration times of the CUDA engine with PyTorch's on one GPU, in alternation."""
    worst = 0
    for name in options.networks:
        if name == "digits-cnn":
            # PyTorch's dropout is drawn on the CPU here, which a CUDA graph cannot capture.
            continue
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = commands(name, options, Path(folder), ITERATIONS)
            ours = [*ours, "--engine", "cuda", "--gpus", 1, "--sync-batch-norm"]
            theirs = [sys.executable, *theirs, "--cuda-graph"]
            ratios = []
            for round_ in range(options.rounds):
                if round_ % 2:
                    by_torch, own = of_torch(theirs), of_deeppool(ours)
                else:
                    own, by_torch = of_deeppool(ours), of_torch(theirs)
                worst = max(worst, difference(by_torch["losses"], own["losses"]))
                ratios.append(own["median_us"] / by_torch["median_us"])
                print(
                    f"{name}, round {round_ + 1} of {options.rounds}: deeppool {own['median_us']:.0f} us, "
                    f"PyTorch with a CUDA graph {by_torch['median_us']:.0f} us per iteration",
                    flush=True,
                )
            print(
                f"{name}: deeppool / PyTorch: median of {len(ratios)} ratios {statistics.median(ratios):.3f} "
                f"({min(ratios):.3f} to {max(ratios):.3f}); losses within {worst:.1e}",
                flush=True,
            )
    if not worst <= TOLERANCE:
        sys.exit(f"losses differ by {worst:.1e}, more than {TOLERANCE}")


def commands(name, options, folder, iterations):
    """Returns the commands of both for n iterations from the same weights and on the same batches."""
    network, initial, saved, data = (
        NETWORKS[name],
        folder / "initial",
        folder / "saved",
        folder / "data.safetensors",
    )
    named = network.arguments(folder)
    run([options.bin, "export", *named, "-o", initial])
    # Save the weights by PyTorch, so that deeppool reads its file.
    model = network.make()
    model.load_state_dict(load_file(initial), strict=True)
    save_file(model.state_dict(), saved)
    network.write_data(iterations, data)
    ours = [
        options.bin,
        "train",
        *named,
        "--data",
        f"safetensors:{data}",
        "--no-shuffle",
        "--init",
        saved,
        "--lr",
        network.lr,
        "--momentum",
        network.momentum,
        "--batch",
        network.batch,
        "--iterations",
        iterations,
        "--json",
    ]
    theirs = [HERE / "train.py", name, "--initial", initial, "--data", data, "--iterations", iterations]
    return ours, theirs


def of_deeppool(command):
    report = json.loads(run(command))
    return {"losses": report["losses"], "median_us": report["iteration_us"]["median"]}


def of_torch(command):
    report = json.loads(run(command))
    # The first iterations allocate memory.
    return {"losses": report["losses"], "median_us": statistics.median(report["iteration_us"][2:])}


def run(command):
    """Runs a command and returns its output. A failure ends the comparison."""
    command = [str(word) for word in command]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **MPI})
    if result.returncode:
        sys.exit(f"{' '.join(command)}: exit {result.returncode}\n{result.stderr}")
    return result.stdout


if __name__ == "__main__":
    main()
