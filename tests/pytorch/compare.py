#!/usr/bin/env python3
"""Compares training by deeppool with training by PyTorch, on the CPU or on a GPU.

    tests/pytorch/compare.py weights [--bin target/debug/deeppool]          # names of parameters
    tests/pytorch/compare.py losses  [--bin target/debug/deeppool] [--mpi]  # of the first 50 iterations
    tests/pytorch/compare.py speed   --bin target/release/deeppool --mpi    # against one process and DDP
    tests/pytorch/compare.py fastest --bin target/release/deeppool          # against fastest.py on a GPU

Both train the same networks on the same batches. With `--mpi`, deeppool also trains on two processes under
mpirun; the binary needs the feature mpi. `fastest --device cpu` runs the same comparison on the CPU. Needs
Python 3.11 and

    pip install torch==2.11.0 torchvision==0.26.0 safetensors onnx
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torchvision
from fastest import require_cuda
from networks import NETWORKS, ON_CPU, ON_GPU
from safetensors.torch import load_file, save_file

HERE = Path(__file__).resolve().parent
# Maximum relative difference of losses.
TOLERANCE = 1e-3
# Maximum difference from PyTorch's losses in single precision, relative to the largest of them.
LOSS_TOLERANCE = {"f32": 1e-3, "tf32": 1e-2, "bf16": 2e-2}
# Precisions of deeppool's engines by device.
OWN_PRECISIONS = {"cpu": ["f32", "bf16"], "cuda": ["f32", "tf32", "bf16"]}
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
    comparisons = {"weights": weights, "losses": losses, "speed": speed, "fastest": fastest}
    parser.add_argument("comparison", choices=comparisons)
    parser.add_argument("--bin", type=Path, default=HERE.parent.parent / "target/debug/deeppool")
    parser.add_argument("--mpi", action="store_true", help="also train on two processes")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS)
    parser.add_argument("--iterations", type=int, help="of a run: 50 (losses), 30 (fastest)")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each contender (speed, fastest)")
    of_fastest = parser.add_argument_group("fastest")
    of_fastest.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    of_fastest.add_argument("--timed-iterations", type=int, default=12, help="iterations of each setting")
    of_fastest.add_argument("--seconds", type=float, default=3600, help="begin no round that ends later")
    of_fastest.add_argument("--out", type=Path, help="write times, settings and losses to this JSON file")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    on_gpu = options.comparison == "fastest" and options.device == "cuda"
    options.networks = options.networks or (ON_GPU if on_gpu else ON_CPU)
    comparisons[options.comparison](options)


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
            ours, theirs = commands(name, options, Path(folder), options.iterations or 50)
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
    assert len(some) == len(others)
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


def fastest(options):
    """Compares iteration times and losses with PyTorch's fastest settings, in alternation, in each precision.

    The networks share the time of `--seconds`: a network has fewer rounds where they take longer.
    """
    if options.device == "cuda":
        require_cuda()
        for name in set(options.networks) - set(ON_GPU):
            sys.exit(f"{name}: its iterations cannot be captured; networks on a GPU: {', '.join(ON_GPU)}")
    engine = ["--engine", "cuda", "--gpus", 1] if options.device == "cuda" else ["--ranks", 1]
    precisions = {precision: ["--precision", precision] for precision in OWN_PRECISIONS[options.device]}
    end = time.monotonic() + options.seconds
    reports, failed = {}, []
    for index, name in enumerate(options.networks):
        share = (end - time.monotonic()) / (len(options.networks) - index)
        with tempfile.TemporaryDirectory() as folder:
            runs = fastest_rounds(name, options, Path(folder), engine, precisions, time.monotonic() + share)
        facts = {field: runs[0][0][field] for field in ("device", "torch", "cuda", "cudnn", "batch")}
        reports[name] = facts | {"modes": summary(name, *runs, failed)}
    if options.out:
        document = {"command": shlex.join(["tests/pytorch/compare.py", *sys.argv[1:]]), "networks": reports}
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    if failed:
        sys.exit("\n".join(failed))


def fastest_rounds(name, options, folder, engine, precisions, end):
    """Returns PyTorch's reports and deeppool's by precision, one of each round until the given time."""
    ours, theirs = commands(name, options, folder, options.iterations or 30)
    ours = [*ours, *engine, "--sync-batch-norm"]
    ours = {precision: [*ours, *extra] for precision, extra in precisions.items()}
    theirs = [sys.executable, HERE / "fastest.py", *theirs[1:], "--device", options.device]
    settings = folder / "settings.json"
    # This run, which chooses the settings, is the one of the first round.
    settings.write_text(run([*theirs, "--timed-iterations", options.timed_iterations]))
    chosen = json.loads(settings.read_text())
    print(f"{name} on {chosen['device']}, PyTorch {chosen['torch']}, cuDNN {chosen['cudnn']}")
    for mode, of_mode in chosen["modes"].items():
        shown = ", ".join(f"{field} {value}" for field, value in of_mode["fastest"].items())
        print(f"    fastest in {mode}: {shown}", flush=True)
    by_torch, by_us = [chosen], {precision: [] for precision in ours}
    took = 0
    for round_ in range(options.rounds):
        began = time.monotonic()
        if round_ > 0 and began + took > end:
            print(f"    no time for more than {round_} of {options.rounds} rounds")
            break
        contenders = [None, *ours]
        for contender in reversed(contenders) if round_ % 2 else contenders:
            if contender:
                by_us[contender].append(of_deeppool(ours[contender]))
            elif round_ > 0:
                by_torch.append(json.loads(run([*theirs, "--settings", settings])))
        took = max(took, time.monotonic() - began)
    return by_torch, by_us


def summary(name, by_torch, by_us, failed):
    """Prints times, ratios and losses of a network, and returns them as an object of the JSON document."""
    rows = {}
    reference = by_torch[0]["modes"]["f32"]["losses"]
    largest = max(reference)
    for mode in by_torch[0]["modes"]:
        precision = mode.removesuffix("-deterministic")
        theirs = [without_warm_up(report["modes"][mode]["iteration_us"]) for report in by_torch]
        losses = {"PyTorch": [report["modes"][mode]["losses"] for report in by_torch]}
        row = {"fastest": by_torch[0]["modes"][mode]["fastest"], "pytorch_us": theirs}
        row["timed"] = by_torch[0]["modes"][mode]["timed"]
        shown = f"    {mode:<18} PyTorch {spread(theirs)} us"
        if precision in by_us:
            ours = [report["median_us"] for report in by_us[precision]]
            losses["deeppool"] = [report["losses"] for report in by_us[precision]]
            ratios = [own / other for own, other in zip(ours, theirs)]
            row |= {"deeppool_us": ours, "ratios": ratios}
            shown += f", deeppool {spread(ours)} us, ratio {spread(ratios, 3)}"
        row["losses_within"] = {
            trainer: max(difference(reference, each) for each in rounds) / largest
            for trainer, rounds in losses.items()
        }
        print(shown)
        for trainer, within in row["losses_within"].items():
            print(f"        losses of {trainer} within {within:.1e} of PyTorch's in f32")
            if not within <= LOSS_TOLERANCE[precision]:
                failed.append(f"{name}, {mode}: losses of {trainer} differ by {within:.1e}")
        rows[mode] = row
    return rows


def spread(values, digits=0):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


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
    return {"losses": report["losses"], "median_us": without_warm_up(report["iteration_us"])}


def without_warm_up(times):
    """Returns the median of the times but the first ones: those iterations allocate memory."""
    return statistics.median(times[2:])


def run(command):
    """Runs a command and returns its output. A failure ends the comparison."""
    command = [str(word) for word in command]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **MPI})
    if result.returncode:
        sys.exit(f"{' '.join(command)}: exit {result.returncode}\n{result.stderr}")
    return result.stdout


if __name__ == "__main__":
    main()
