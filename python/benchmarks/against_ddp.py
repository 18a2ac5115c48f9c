"""Compares BurstParallel with DistributedDataParallel, and measures its overhead per layer.

    torchrun --nproc-per-node 2 benchmarks/against_ddp.py [--rounds 9] [--batch 16] [--size 64]
    python benchmarks/against_ddp.py --overhead

Both train torchvision's ResNet-18 with gloo and one thread per process, BurstParallel by a data-parallel
plan. They alternate in the same processes for a few iterations each. The result is the median over rounds
of the ratio of their iteration times.

`--overhead` trains a chain of tiny layers on one process without communication. The result is the median
difference between an iteration of BurstParallel and one of the plain module right after it, per layer. It
is measured with all layers in one segment (no communication between them), and with one segment per layer.
"""

import argparse
import copy
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import deeppool
from deeppool.torch import BurstParallel
from deeppool.tracing import trace

LAYERS = 200


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=3, help="iterations of each contender per round")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=64, help="width and height of images, in pixels")
    parser.add_argument("--overhead", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.overhead:
        overhead(options)
    else:
        against_ddp(options)


def against_ddp(options):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    module = torchvision.models.resnet18()
    theirs = DistributedDataParallel(copy.deepcopy(module))
    traced = trace(module, torch.randn(2, 3, options.size, options.size))
    plan = deeppool.plan(
        traced.network, device="cpu-core", gpus=world, batch=options.batch, mode="data-parallel"
    )
    ours = BurstParallel(traced, plan)
    inputs, targets = (
        torch.randn(options.batch, 3, options.size, options.size),
        torch.randint(1000, (options.batch,)),
    )
    part = slice(rank * options.batch // world, (rank + 1) * options.batch // world)
    optimizers = [torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9) for model in (ours, theirs)]

    def iteration_of_ours():
        optimizers[0].zero_grad()
        ours(inputs, targets).backward()
        optimizers[0].step()

    def iteration_of_theirs():
        optimizers[1].zero_grad()
        nn.functional.cross_entropy(theirs(inputs[part]), targets[part]).backward()
        optimizers[1].step()

    contenders = {"BurstParallel": iteration_of_ours, "DistributedDataParallel": iteration_of_theirs}
    times = {name: [] for name in contenders}
    for round_ in range(options.rounds + 1):
        names = list(contenders) if round_ % 2 == 0 else list(contenders)[::-1]
        for name in names:
            dist.barrier()
            began = time.perf_counter()
            for _ in range(options.iterations):
                contenders[name]()
            dist.barrier()
            if round_ > 0:  # The first round is the warm-up.
                times[name].append((time.perf_counter() - began) / options.iterations * 1e3)
    ratios = [a / b for a, b in zip(*times.values())]
    if rank == 0:
        print(
            json.dumps(
                {
                    "network": "resnet18",
                    "ranks": world,
                    **vars(options),
                    "iteration_ms": times,
                    "median_of_ratios": statistics.median(ratios),
                    "ratios": ratios,
                }
            )
        )
    dist.destroy_process_group()


def overhead(options):
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "gloo", init_method=f"file://{os.path.join(folder, 'store')}", rank=0, world_size=1
        )
        module = nn.Sequential(*(nn.Linear(4, 4) for _ in range(LAYERS)))
        alone = copy.deepcopy(module)
        traced = trace(module, torch.randn(2, 4))
        plan = deeppool.plan(traced.network, device="cpu-core", gpus=1, batch=8, mode="data-parallel")
        inputs, targets = torch.randn(8, 4), torch.randint(4, (8,))
        results = {}
        for key, is_by_layer in (("overhead_us_a_layer", False), ("overhead_us_a_layer_by_itself", True)):
            model = BurstParallel(traced, plan)
            model.record(is_by_layer)

            def iteration_of_ours():
                model.zero_grad()
                model(inputs, targets).backward()

            def iteration_alone():
                alone.zero_grad()
                nn.functional.cross_entropy(alone(inputs), targets).backward()

            times = [(timed(iteration_of_ours), timed(iteration_alone)) for _ in range(20 + 100)][20:]
            results[key] = statistics.median(ours - theirs for ours, theirs in times) / len(traced.layers)
        each = statistics.median(theirs for _, theirs in times) / len(traced.layers)
        print(json.dumps({"layers": len(traced.layers), "module_us_a_layer": each, **results}))
        dist.destroy_process_group()


def timed(function):
    began = time.perf_counter()
    function()
    return (time.perf_counter() - began) * 1e6


if __name__ == "__main__":
    main()
