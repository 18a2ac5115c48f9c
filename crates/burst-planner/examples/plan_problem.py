#!/usr/bin/env python3
"""Writes a training problem of the format deeppool/plan-problem/v2, with nothing but the standard library.

    python3 crates/burst-planner/examples/plan_problem_v2.py > problem.json

A fork with two branches and a skip connection, described by an analytic cost function. `PlanProblem::from_json` in the
crate `burst-planner` has the format, field by field.
"""

import json

GPUS = 8
GPU_COUNTS = [1, 2, 4, 8]
BATCH = 32

FLOPS_PER_US = 10e6          # of one GPU that is busy
LAUNCH_US = 20.0             # of a step, however small its share of the batch
BYTES_PER_US = 100e3         # of a link
LATENCY_US = 6.0
MEMORY_BYTES_PER_US = 1e6    # of a GPU's own memory

# Of each layer: FLOPs a sample, forward; bytes of its output a sample; bytes of its parameters.
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
    """The steps of a layer on each of a number of GPUs."""
    flops, _, parameter_bytes = LAYERS[layer]
    forward_us = LAUNCH_US + flops * BATCH / gpus / FLOPS_PER_US
    # The optimiser reads and writes parameters, gradients and two moments.
    update_us = 7 * parameter_bytes / MEMORY_BYTES_PER_US
    return {"gpus": gpus, "forward_us": forward_us, "backward_us": 2 * forward_us, "update_us": update_us}


def move_us(layer, ranks, part):
    """Moving a part of a layer's output, in equal shares, between so many ranks."""
    return LATENCY_US + LAYERS[layer][1] * BATCH * part / ranks / BYTES_PER_US


def transfer(layer, from_gpus, to_gpus):
    fewer, more = sorted([from_gpus, to_gpus])
    # Between two sets of as many ranks: those that they have in common are not known, so everything moves.
    kept = 0 if fewer == more else fewer / more
    return {
        "from_gpus": from_gpus,
        "to_gpus": to_gpus,
        "transfer_us": move_us(layer, fewer, 1 - kept),
        "transfer_disjoint_us": move_us(layer, fewer, 1),
    }


def all_reduce(gpus):
    """A ring: in each round every rank sends one part of the gradient."""
    rounds = 2 * (gpus - 1)
    return {"gpus": gpus, "startup_us": rounds * LATENCY_US, "us_per_byte": rounds / gpus / BYTES_PER_US}


def node(layer):
    # One direction is enough where both take the same.
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


if __name__ == "__main__":
    print(json.dumps(problem(), indent=1))
