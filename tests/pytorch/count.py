#!/usr/bin/env python3
"""Counts the launches and the bytes of one training iteration of PyTorch, without a GPU.

    tests/pytorch/count.py > tests/data/pytorch-counts.json    # after a change of this script or of PyTorch
    tests/pytorch/count.py --check tests/data/pytorch-counts.json

An iteration runs on meta tensors, which have shapes but no data: forward pass, cross-entropy loss, backward
pass with gradients set to None, and one fused step of SGD with momentum, in single precision. Each aten
operator is one launch, except views, allocations, and operators that return the given tensor. The backward
pass of a convolution, whose gradients are several kernels on a GPU, is one launch. Attention and dropout are
the fused operators of a GPU. Bytes are those of the operator's tensors: its arguments once, the tensors that
it writes or returns once more. Elements that overlap, such as those of an expanded tensor, count once. Copies
of samples from the host are left out.

Bytes are a linear function of the batch: `fixed` + `a_sample` * batch.
"""

import argparse
import json
import math
import shlex
import sys
from collections import defaultdict
from pathlib import Path
from unittest.mock import patch

import torch
import torchvision
from networks import Vgg11Cifar
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SCHEMA = "deeppool/pytorch-counts/v1"
# Name, constructor and side of the image of each counted network. The names are those of
# `deeppool models`, except `vgg11-cifar`, the network of compare.py.
COUNTED = [
    ("resnet-18", torchvision.models.resnet18, 32),
    ("resnet-18", torchvision.models.resnet18, 224),
    ("vgg11-cifar", Vgg11Cifar, 32),
    ("vgg11", torchvision.models.vgg11, 224),
    ("resnet-50", torchvision.models.resnet50, 224),
    ("vit-b-16", torchvision.models.vit_b_16, 224),
]
ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
# Batches that determine the linear function, and one that checks it.
BATCHES = (2, 3)
CHECKED_BATCH = 32


class Counter(TorchDispatchMode):
    """Counts the operators that run while it is active: launches and bytes by name of the operator."""

    def __init__(self):
        super().__init__()
        self.counts = defaultdict(lambda: [0, 0])

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        read = tensors((args, kwargs))
        written = tensors(
            [
                argument
                for declared, argument in arguments(func, args, kwargs)
                if declared.alias_info is not None and declared.alias_info.is_write
            ]
        )
        written += [tensor for tensor in tensors(result) if all(tensor is not other for other in written)]
        if launches(func, read, written):
            count = self.counts[str(func.overloadpacket).removeprefix("aten.")]
            count[0] += 1
            count[1] += sum(map(size, read + written))
        return result


def arguments(func, args, kwargs):
    """Returns pairs of the declared and the given arguments of a call."""
    for index, declared in enumerate(func._schema.arguments):
        if index < len(args):
            yield declared, args[index]
        elif declared.name in kwargs:
            yield declared, kwargs[declared.name]


def tensors(value):
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def launches(func, read, written):
    """Returns whether a kernel runs: not for views, allocations, and a result that is an argument."""
    if func.is_view or func._schema.name.removeprefix("aten::") in ALLOCATIONS:
        return False
    if func._schema.is_mutable:
        return True
    storages = {tensor.untyped_storage()._cdata for tensor in read}
    return any(tensor.untyped_storage()._cdata not in storages for tensor in written)


def size(tensor):
    """Returns the bytes of the distinct elements of a tensor."""
    lengths = [length for length, stride in zip(tensor.shape, tensor.stride()) if stride != 0]
    return math.prod(lengths) * tensor.element_size() * (tensor.numel() > 0)


def fused_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False):
    """Computes attention by the operator that a GPU has in single precision. Meta tensors have none."""
    operator = torch.ops.aten._scaled_dot_product_efficient_attention
    return operator(query, key, value, attn_mask, True, dropout_p, is_causal)[0]


def fused_dropout(x, p=0.5, training=True, inplace=False):
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


@patch.object(F, "scaled_dot_product_attention", fused_attention)
@patch.object(F, "dropout", fused_dropout)
def phases(make, side, batch):
    """Returns the counts by operator of each phase of an iteration, and the number of parameters."""
    with torch.device("meta"):
        model = make().train()
        inputs, labels = torch.empty(batch, 3, side, side), torch.empty(batch, dtype=torch.int64)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    with Counter() as forward:
        loss = F.cross_entropy(model(inputs), labels)
    with Counter() as backward:
        loss.backward()
    # No meta kernel exists for torch._fused_sgd_. It reads parameters, gradients and momentum and
    # writes parameters and momentum.
    update = {"_fused_sgd_": [1, 5 * 4 * parameters]}
    return {"forward": forward.counts, "backward": backward.counts, "update": update}, parameters


def counted(name, make, side):
    """Returns the counts of a network as an object of the JSON document."""
    of_batch = {}
    for batch in (*BATCHES, CHECKED_BATCH):
        of_batch[batch], parameters = phases(make, side, batch)
    first, second = BATCHES
    operators = []
    for phase, counts in of_batch[first].items():
        for operator, (launched, bytes_first) in sorted(counts.items()):
            launched_too, bytes_second = of_batch[second][phase][operator]
            assert launched == launched_too, f"{name}: {operator}: launches depend on the batch"
            slope = (bytes_second - bytes_first) // (second - first)
            fixed = bytes_first - slope * first
            expected = [launched, fixed + slope * CHECKED_BATCH]
            assert of_batch[CHECKED_BATCH][phase][operator] == expected, f"{name}: {operator}: not linear"
            operators.append(
                {
                    "phase": phase,
                    "operator": operator,
                    "launches": launched,
                    "bytes": {"fixed": fixed, "a_sample": slope},
                }
            )
    return {
        "network": name,
        "input": [3, side, side],
        "parameters": parameters,
        "launches": sum(row["launches"] for row in operators),
        "bytes": {part: sum(row["bytes"][part] for row in operators) for part in ("fixed", "a_sample")},
        "operators": operators,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", type=Path, metavar="FILE", help="fail unless the file has these counts")
    options = parser.parse_args()
    networks = [counted(*network) for network in COUNTED]
    if options.check:
        held = json.loads(options.check.read_text())["networks"]
        for ours, theirs in zip(networks, held, strict=True):
            if ours != theirs:
                sys.exit(f"{options.check}: other counts of {ours['network']} on {ours['input']}")
            print(f"{ours['network']} on {ours['input']}: {ours['launches']} launches as in the file")
        return
    command = shlex.join(["tests/pytorch/count.py", *sys.argv[1:]])
    print(to_json({"schema": SCHEMA, "command": command, **versions(), "networks": networks}))


def versions():
    return {"torch": torch.__version__.split("+")[0], "torchvision": torchvision.__version__.split("+")[0]}


def to_json(document):
    """Returns a document as JSON, with a line for each operator."""
    text = json.dumps(document, indent=1)
    for network in document["networks"]:
        for value in (network["input"], network["bytes"], *network["operators"]):
            for depth in ("\n   ", "\n    "):
                text = text.replace(json.dumps(value, indent=1).replace("\n", depth), json.dumps(value))
    return text


if __name__ == "__main__":
    main()
