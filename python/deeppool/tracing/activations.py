"""Detection of activations that modules compute by a formula, such as GELU by ``tanh``.

A candidate is executed in double precision on small and large values, and compared with the kinds of the
graph format.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional as F

from deeppool.tracing.island import Writer
from deeppool.tracing.kinds import Kind
from deeppool.tracing.units import Unit, Units

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu6": F.relu6,
    "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def find(units: Units, unit: Unit) -> Kind | None:
    """Returns the kind of a module that computes an activation of each element of its input.

    Candidates are calls of leaf modules with one input and one output of the same shape, several operations
    of which one is ``tanh``, ``erf`` or ``sigmoid``, and no stored tensors or random numbers.
    """
    inputs, steps = units.needs(unit)[1], [units.steps[index] for index in unit.steps]
    if not unit.is_call or len(inputs) != 1 or not {"tanh", "erf", "sigmoid"} & {step.op for step in steps}:
        return None
    first, last = units.steps[inputs[0]], steps[-1]
    if first.sample is None or (first.sample, first.rows) != (last.sample, last.rows):
        return None
    if units.stored(unit) or any(step.is_random for step in steps):
        return None
    small, large = torch.linspace(-8, 8, 2048), torch.logspace(0, 6, 512)
    x = torch.cat([small, large, -large]).double()
    size = math.prod(first.sample)
    x = x.repeat(-(-size // len(x))) if size > len(x) else x
    x = x[: len(x) // size * size].view(-1, *first.sample)
    # At least three samples, which differ: a function that mixes them is no activation.
    x = torch.cat([x, *(x[-1:].flatten().roll(count).view_as(x[-1:]) for count in (1, 2))])
    island = Writer(units, unit).island(unit.module, last.index, inputs, False)
    try:
        with torch.no_grad():
            result = island.execute([], x)
    except RuntimeError:
        return None  # For example, mixed data types because of a constant in single precision.
    for name, function in ACTIVATIONS.items():
        if result.shape == x.shape and torch.allclose(result, function(x), rtol=1e-12, atol=1e-12):
            return Kind(name, (inputs[0],))
    return None
