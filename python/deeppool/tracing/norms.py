"""Detection of root-mean-square normalizations that modules compute by a formula.

A candidate is executed on rows of different sizes, with a random weight, and compared with
:func:`torch.nn.functional.rms_norm`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from deeppool.tracing.island import Writer
from deeppool.tracing.kinds import Kind, rms_norm
from deeppool.tracing.units import Unit, Units


def find(units: Units, unit: Unit) -> Kind | None:
    """Returns the kind of a module that normalizes the innermost dimension by its root mean square.

    Candidates are calls of leaf modules with one input and one output of the same shape, one parameter with
    a number for each feature, no other stored tensors or random numbers, an addition of a number, and the
    operation ``rsqrt`` or ``sqrt``.
    """
    inputs, steps = units.needs(unit)[1], [units.steps[index] for index in unit.steps]
    stored = units.stored(unit)
    if not unit.is_call or len(inputs) != 1 or not {"rsqrt", "sqrt"} & {step.op for step in steps}:
        return None
    first, last = units.steps[inputs[0]], steps[-1]
    if not first.sample or (first.sample, first.rows) != (last.sample, last.rows):
        return None
    features = first.sample[-1]
    if [units.parameter(one) for one in stored] != [(features,)] or any(step.is_random for step in steps):
        return None
    numbers = [leaf for step in steps if step.op == "add" for leaf in step.args if isinstance(leaf, float)]
    if len(numbers) != 1 or numbers[0] <= 0:
        return None
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((8, *first.sample), generator=generator)
    # Small rows depend on epsilon.
    x *= torch.logspace(-4, 2, x.numel() // features).view(*x.shape[:-1], 1)
    weight = torch.randn(features, generator=generator)
    island = Writer(units, unit).island(unit.module, last.index, inputs, False)
    try:
        with torch.no_grad():
            result = island.execute([weight], x)
    except RuntimeError:
        return None
    for unit_offset in (False, True):
        expected = F.rms_norm(x, (features,), weight + 1 if unit_offset else weight, numbers[0])
        if result.shape == x.shape and torch.allclose(result, expected, rtol=1e-5, atol=1e-6):
            return Kind(rms_norm(numbers[0], unit_offset), (inputs[0],))
    return None
