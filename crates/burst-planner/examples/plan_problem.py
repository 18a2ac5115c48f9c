#!/usr/bin/env python3
"""Writes a planning problem of the format deeppool/plan-problem/v2, with nothing but the standard library.

    python3 crates/burst-planner/examples/plan_problem.py > problem.json
    python3 crates/burst-planner/examples/plan_problem.py --deeppool target/release/deeppool

The problem is a fork with two branches and a skip connection, with times from an analytic cost function. The
second command plans it and prints the plan. `PlanProblem::from_json` in the crate `burst-planner` documents
each field of the format.
"""

import argparse
import json
import subprocess
import sys

GPUS = 8
GPU_COUNTS = [1, 2, 4, 8]
BATCH = 32

FLOPS_PER_US = 10e6          # of one GPU that is busy
LAUNCH_US = 20.0             # of a step, on top of the work
BYTES_PER_US = 100e3         # of a link
LATENCY_US = 6.0
MEMORY_BYTES_PER_US = 1e6    # of a GPU's own memory

# By layer: forward FLOPs per sample, output bytes per sample, parameter bytes.
LAYERS = {
    "stem": (300e6, 400e3, 40e3),
    "left.conv1": (300e6, 400e3, 2.4e6),
    "left.conv2": (300e6, 400e3, 2.4e6),
    "right.conv": (600e6, 400e3, 2.4e6),
    "join": (20e6, 500e3, 0),
    "classifier": (60e6, 4e3, 60e6),
}
EDGES = [
    ("stem", "left.conv1"),
    ("left.conv1", "left.conv2"),
    ("left.conv2", "join"),
    ("stem", "right.conv"),
    ("right.conv", "join"),
    ("stem", "join"),
    ("join", "classifier"),
]


def option(layer, gpus):
    """Returns the steps of a layer on each of `gpus` GPUs."""
    flops, _, parameter_bytes = LAYERS[layer]
    forward_us = LAUNCH_US + flops * BATCH / gpus / FLOPS_PER_US
    # The optimizer reads and writes parameters, gradients and two moments.
    update_us = 7 * parameter_bytes / MEMORY_BYTES_PER_US
    return {"gpus": gpus, "forward_us": forward_us, "backward_us": 2 * forward_us, "update_us": update_us}


def move_us(layer, ranks, part):
    """Returns the time of moving a part of a layer's output, in equal shares on `ranks` ranks."""
    return LATENCY_US + LAYERS[layer][1] * BATCH * part / ranks / BYTES_PER_US


def transfer(layer, from_gpus, to_gpus):
    fewer, more = sorted([from_gpus, to_gpus])
    # Two different sets of equal size may have no rank in common: everything moves.
    kept = 0 if fewer == more else fewer / more
    return {
        "from_gpus": from_gpus,
        "to_gpus": to_gpus,
        "transfer_us": move_us(layer, fewer, 1 - kept),
        "transfer_disjoint_us": move_us(layer, fewer, 1),
    }


def all_reduce(gpus):
    """Returns the time of a ring all-reduce: in each round every rank sends one part of the gradient."""
    rounds = 2 * (gpus - 1)
    return {"gpus": gpus, "startup_us": rounds * LATENCY_US, "us_per_byte": rounds / gpus / BYTES_PER_US}


def node(layer):
    # Where one direction is listed, it holds for both.
    pairs = [(i, j) for i in GPU_COUNTS for j in GPU_COUNTS if i <= j]
    return {
        "name": layer,
        "gradient_bytes": int(LAYERS[layer][2]),
        "options": [option(layer, gpus) for gpus in GPU_COUNTS],
        "output": [transfer(layer, i, j) for i, j in pairs],
    }


def problem():
    return {
        "schema": "deeppool/plan-problem/v2",
        "gpus": GPUS,
        "bucket_bytes": 1 << 20,
        "metrics_bytes": 8,
        "nodes": [node(layer) for layer in LAYERS],
        "edges": [{"from": producer, "to": consumer} for producer, consumer in EDGES],
        "all_reduce": [all_reduce(gpus) for gpus in GPU_COUNTS if gpus > 1],
    }


def plan(command, amplification):
    """Runs `deeppool plan` and returns its report."""
    command = [command, "plan", "--problem", "-", "--json", "--amplification", str(amplification)]
    done = subprocess.run(command, input=json.dumps(problem()), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deeppool", help="path of the command that plans the problem")
    parser.add_argument("--amplification", type=float, default=1.5, help="limit of the plan")
    arguments = parser.parse_args()
    if arguments.deeppool is None:
        print(json.dumps(problem(), indent=1))
        return

    found = plan(arguments.deeppool, arguments.amplification)
    speedup = found["single_gpu_us"] / found["iteration_us"]
    print(f"iteration {found['iteration_us']:.1f} us, {speedup:.2f} times as fast as one GPU")
    print(f"amplification {found['amplification']:.3f}, limit {found['amplification_limit']}")
    for layer in found["layers"]:
        print(f"  {layer['name']:12} on ranks {layer['ranks']}")


if __name__ == "__main__":
    main()
