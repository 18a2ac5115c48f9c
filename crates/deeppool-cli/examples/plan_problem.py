#!/usr/bin/env python3
"""Plans a network that `deeppool` has never heard of, from Python, with nothing but the standard library.

    cargo build --release -p deeppool-cli
    python3 crates/deeppool-cli/examples/plan_problem.py --deeppool target/release/deeppool

A fork with two branches and a skip connection is described by an analytic cost function, written as a problem of the
format deeppool/plan-problem/v1 (see `PlanProblem::from_json` in the crate `burst-planner`), and planned.
"""

import argparse
import json
import subprocess
import sys

GPUS = 8
GPU_COUNTS = [1, 2, 3, 4, 6, 8]
BATCH = 32

FLOPS_PER_US = 10e6          # of one GPU that is busy
LAUNCH_US = 60.0             # of a layer, however small its share of the batch
BYTES_PER_US = 200e3         # of a link
LATENCY_US = 6.0

# Of each layer: FLOPs a sample, forward and backward; bytes of its output a sample; bytes of its parameters.
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


def samples(gpus):
    """The largest share of the batch: it need not divide evenly."""
    return -(-BATCH // gpus)


def option(layer, gpus):
    """What a layer costs on a number of GPUs."""
    flops, output_bytes, parameter_bytes = LAYERS[layer]
    time_us = LAUNCH_US + samples(gpus) * flops / FLOPS_PER_US
    # A ring: each GPU sends nearly twice what there is to reduce.
    all_reduce_us = 0.0
    if gpus > 1 and parameter_bytes > 0:
        all_reduce_us = 2 * (gpus - 1) * (LATENCY_US + parameter_bytes / gpus / BYTES_PER_US)
    return {
        "gpus": gpus,
        "time_us": time_us,
        "backward_us": time_us * 2 / 3,
        "all_reduce_us": all_reduce_us,
        # Outputs with their gradients; parameters with gradients and two moments.
        "memory_bytes": int(2 * samples(gpus) * output_bytes + 4 * parameter_bytes),
    }


def transfer_us(layer, producers, consumers):
    """Activations to the consumer and gradients back, where both ends run on the first ranks."""
    if producers == consumers:
        return 0.0
    # The ranks that both ends have keep a part of their share.
    kept = min(producers, consumers) / max(producers, consumers)
    return move_us(layer, producers, consumers, 1 - kept)


def transfer_disjoint_us(layer, producers, consumers):
    """The same where the two ends share no rank: all is moved."""
    return move_us(layer, producers, consumers, 1.0)


def move_us(layer, producers, consumers, part):
    output_bytes = LAYERS[layer][1]
    share = BATCH * output_bytes * part / min(producers, consumers)
    return 2 * (LATENCY_US + share / BYTES_PER_US)


def problem():
    names = list(LAYERS)

    def matrix(cost, layer):
        return [[cost(layer, i, j) for j in GPU_COUNTS] for i in GPU_COUNTS]

    return {
        "schema": "deeppool/plan-problem/v1",
        "gpus": GPUS,
        "memory_limit_bytes": 2 * 1024**3,
        "nodes": [
            {"name": name, "options": [option(name, gpus) for gpus in GPU_COUNTS]} for name in names
        ],
        "edges": [
            {
                "from": names.index(producer),
                "to": names.index(consumer),
                "transfer_us": matrix(transfer_us, producer),
                "transfer_disjoint_us": matrix(transfer_disjoint_us, producer),
            }
            for producer, consumer in EDGES
        ],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deeppool", default="deeppool", help="the command, if it is not on the path")
    parser.add_argument("--amplification", type=float, default=1.5, help="the limit")
    arguments = parser.parse_args()

    command = [arguments.deeppool, "plan", "--problem", "-", "--json"]
    command += ["--amplification", str(arguments.amplification)]
    done = subprocess.run(command, input=json.dumps(problem()), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    plan = json.loads(done.stdout)

    speedup = plan["single_gpu_us"] / plan["iteration_us"]
    print(f"iteration {plan['iteration_us']:.1f} us, {speedup:.2f} times as fast as one GPU")
    print(f"amplification {plan['amplification']:.3f}, limit {plan['amplification_limit']}")
    for layer in plan["layers"]:
        print(f"  {layer['name']:12} {layer['time_us']:7.1f} us on ranks {layer['ranks']}")


if __name__ == "__main__":
    main()
