"""Handwritten plans, with each layer on given ranks."""

import json
import random


def plan_document(
    network,
    gpus,
    batch,
    ranks,
    *,
    order=None,
    micro_batches=1,
    sync_batch_norm=True,
    bucket_bytes=1 << 14,
    checkpoints=(),
    overlap=True,
):
    """Returns a plan document with arbitrary figures. `ranks` returns a layer's ranks by its name."""
    layers = [
        {"name": layer.name, "gpus": len(ranks(layer.name)), "ranks": list(ranks(layer.name))}
        for layer in network.layers[1:]
    ]
    plan = {
        "schema": "deeppool/plan/v3",
        "model": network.name,
        "batch": batch,
        "gpus": gpus,
        "mode": "bp",
        "profile": {"device": "none", "origin": "modelled"},
        "link": "none",
        "lowering": {
            "overlap_all_reduce": overlap,
            "bucket_bytes": bucket_bytes,
            "micro_batches": micro_batches,
            "sync_batch_norm": sync_batch_norm,
            "checkpoints": list(checkpoints),
        },
        "iteration_us": 1.0,
        "gpu_time_us": float(gpus),
        "single_gpu_us": 1.0,
        "amplification": float(gpus),
        "computing_us": float(gpus),
        "communicating_us": 0.0,
        "idle_us": 0.0,
        "dp": {"iteration_us": 1.0, "amplification": 1.0},
        "layers": layers,
    }
    if order is not None:
        plan["order"] = list(order)
    return json.dumps(plan)


def data_parallel(network, gpus, batch, **options):
    return plan_document(network, gpus, batch, lambda _: range(gpus), **options)


def random_plan(network, gpus, batch, seed, **options):
    """Returns a plan with each layer on random ranks in random order."""
    draw = random.Random(seed)
    ranks = {
        layer.name: draw.sample(range(gpus), draw.randint(1, min(gpus, batch)))
        for layer in network.layers[1:]
    }
    return plan_document(network, gpus, batch, ranks.__getitem__, **options)
