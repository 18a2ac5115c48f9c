#!/usr/bin/env python3
"""Trains the same networks on the same batches with deeppool and with PyTorch, both on the CPU or on a GPU.

    tests/pytorch/compare.py weights [--bin target/debug/deeppool]           # parameters as torchvision names them
    tests/pytorch/compare.py losses  [--bin target/debug/deeppool] [--mpi]   # of the first 50 iterations
    tests/pytorch/compare.py speed   --bin target/release/deeppool --mpi     # in turns, against one process and DDP with gloo
    tests/pytorch/compare.py gpu     --bin target/release/deeppool           # losses and speed on one GPU, against CUDA graphs

`--mpi` says that the binary has the feature mpi, and trains on two processes under mpirun, too. Needs Python 3.11 and

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
# The largest difference of losses.
TOLERANCE = 1e-3
# About the rounding of single precision.
PERTURBATION = 1e-7
MPIRUN = ["mpirun", "-n", 2]
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]

# What `deeppool models` lists, and torchvision has.
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
    parser.add_argument("what", choices=["weights", "losses", "speed", "gpu"])
    parser.add_argument("--bin", type=Path, default=HERE.parent.parent / "target/debug/deeppool")
    parser.add_argument("--mpi", action="store_true", help="train on two processes, too")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=9, help="of speed and gpu: how often each trains")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    {"weights": weights, "losses": losses, "speed": speed, "gpu": gpu}[options.what](options)


def weights(options):
    """torchvision loads what deeppool exports of each network that it has."""
    for name, make in TORCHVISION.items():
        with tempfile.TemporaryDirectory() as folder:
            exported = Path(folder) / "exported.safetensors"
            run([options.bin, "export", "--model", name, "-o", exported])
            tensors = load_file(exported)
            make().load_state_dict(tensors, strict=True)
        print(f"{name:<12}  {len(tensors):>3} tensors", flush=True)


def losses(options):
    """Losses differ by no more than rounding, however many ranks ours are."""
    worst = 0
    for name in options.networks:
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = commands(name, options, Path(folder), ITERATIONS)
            by_torch = of_torch([sys.executable, *theirs])["losses"]
            perturbed = of_torch([sys.executable, *theirs, "--perturb", PERTURBATION])["losses"]
            print(
                f"{name}: losses by PyTorch {by_torch[0]:.4f} .. {by_torch[-1]:.4f}; PyTorch with first weights that differ "
                f"by {PERTURBATION}: within {difference(by_torch, perturbed):.1e}",
                flush=True,
            )
            ways = {
                "1 rank": [*ours, "--ranks", 1],
                "2 threads, data parallel": [*ours, "--ranks", 2, "--mode", "dp"],
                "2 threads, burst plan": [*ours, "--ranks", 2, "--amplification", 1.2],
            }
            if options.mpi:
                ways["2 processes, data parallel"] = [*MPIRUN, *ours, "--mode", "dp"]
            for way, command in ways.items():
                # PyTorch normalises over the whole batch.
                largest = difference(by_torch, of_deeppool([*command, "--sync-batch-norm"])["losses"])
                worst = max(worst, largest)
                print(f"    {way:<27} within {largest:.1e}", flush=True)
    if not worst <= TOLERANCE:
        sys.exit(f"losses differ by {worst:.1e}, more than {TOLERANCE}")


def difference(some, others):
    assert len(some) == len(others) == ITERATIONS
    return max(abs(a - b) for a, b in zip(some, others))


def speed(options):
    """Times of iterations by turns, and the ratios of those of the same round."""
    for name in options.networks:
        if name == "digits-cnn":
            # Its iterations are too short to say anything about kernels.
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
            for turn in range(options.rounds):
                # Not always after the same one.
                names = (
                    list(contenders)[turn % len(contenders) :] + list(contenders)[: turn % len(contenders)]
                )
                for contender in names:
                    measure, command = contenders[contender]
                    times[contender].append(measure(command)["median_us"] / 1e3)
                taken = ", ".join(f"{contender} {of[-1]:.1f} ms" for contender, of in times.items())
                print(f"{name}, round {turn + 1} of {options.rounds}: {taken}", flush=True)
            for contender, taken in times.items():
                print(
                    f"{name}: {contender}: median of {len(taken)} rounds {statistics.median(taken):.1f} ms "
                    f"({min(taken):.1f} to {max(taken):.1f})"
                )
                for peer in ("DDP with gloo, 2 processes", "PyTorch, 2 threads"):
                    if contender != peer:
                        ratios = [a / b for a, b in zip(taken, times[peer])]
                        print(
                            f"    to {peer}: median of ratios {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
                        )


def gpu(options):
    """Losses on a GPU by kernels of our own against those of PyTorch, and the ratio of the iterations' times, by turns."""
    worst = 0
    for name in options.networks:
        if name == "digits-cnn":
            # PyTorch draws its dropout here as ours does, on the processor, which no graph can have in it.
            continue
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = commands(name, options, Path(folder), ITERATIONS)
            ours = [*ours, "--engine", "cuda", "--gpus", 1, "--sync-batch-norm"]
            theirs = [sys.executable, *theirs, "--cuda-graph"]
            ratios = []
            for turn in range(options.rounds):
                if turn % 2:
                    by_torch, own = of_torch(theirs), of_deeppool(ours)
                else:
                    own, by_torch = of_deeppool(ours), of_torch(theirs)
                worst = max(worst, difference(by_torch["losses"], own["losses"]))
                ratios.append(own["median_us"] / by_torch["median_us"])
                print(
                    f"{name}, round {turn + 1} of {options.rounds}: deeppool {own['median_us']:.0f} us, PyTorch by a CUDA graph "
                    f"{by_torch['median_us']:.0f} us an iteration",
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
    """What both are called with to train a network for so many iterations from the same weights and on the same batches."""
    network, initial, saved, data = (
        NETWORKS[name],
        folder / "initial",
        folder / "saved",
        folder / "data.safetensors",
    )
    named = network.arguments(folder)
    run([options.bin, "export", *named, "-o", initial])
    # By way of PyTorch, so that what it saves is read, too.
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
    # The first iterations allocate.
    return {"losses": report["losses"], "median_us": statistics.median(report["iteration_us"][2:])}


def run(command):
    """Runs a command and returns what it prints; a failure ends the comparison."""
    command = [str(word) for word in command]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **MPI})
    if result.returncode:
        sys.exit(f"{' '.join(command)}: exit {result.returncode}\n{result.stderr}")
    return result.stdout


if __name__ == "__main__":
    main()
