"""Handwritten plans, with each layer on given ranks."""

import json
import random

from deeppool import InputError, _deeppool


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
    splits=None,
):
    """Returns a plan document with arbitrary figures.

    `ranks` returns a layer's ranks by its name. `splits` has the split and the number of parts of each split
    layer, by name.
    """
    layers = [
        {"name": layer.name, "gpus": len(ranks(layer.name)), "ranks": list(ranks(layer.name))}
        for layer in network.layers
        if layer.kind != "input"
    ]
    for layer in layers:
        if splits and layer["name"] in splits:
            split, parts = splits[layer["name"]]
            layer["division"] = {"split": split, "parts": parts}
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
        for layer in network.layers
        if layer.kind != "input"
    }
    return plan_document(network, gpus, batch, ranks.__getitem__, **options)


def random_split_plan(network, gpus, batch, seed, splits=(), **options):
    """Returns a plan with each layer on all ranks in random order and, where possible, split at random.

    `splits` are those of some layers. Other layers with shared parameters are not split.
    """
    draw = random.Random(seed)
    order = draw.sample(range(gpus), gpus)
    tied = [layer for layer in network.layers if layer.parameters_of is not None]
    shared = {name for layer in tied for name in (layer.name, layer.parameters_of)}
    splits = dict(splits)
    shared |= set(splits)
    for layer in (layer for layer in network.layers if layer.kind != "input"):
        choices = [
            (split, parts)
            for split in ("features", "inputs", "copies", "positions")
            for parts in range(2, gpus + 1)
            if gpus % parts == 0
        ]
        draw.shuffle(choices)
        if draw.random() < 0.7:
            choices.sort(key=lambda choice: choice[0] == "copies")
        for choice in choices if layer.name not in shared else ():
            plan = plan_document(
                network, gpus, batch, lambda _: order, splits=splits | {layer.name: choice}, **options
            )
            try:
                _deeppool.lower(network.to_json(), plan, 0)
            except InputError:
                continue
            splits[layer.name] = choice
            break
    return plan_document(network, gpus, batch, lambda _: order, splits=splits, **options)
