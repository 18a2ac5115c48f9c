"""Detection of linear layers that modules compute by a product with their transposed weight."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from deeppool.tracing.island import Writer
from deeppool.tracing.kinds import Kind
from deeppool.tracing.parts import computes
from deeppool.tracing.units import Unit, Units

PRODUCTS = {"matmul", "mm", "addmm"}


def find(units: Units, unit: Unit) -> Kind | None:
    """Returns the kind of a module that computes a linear layer of its input.

    Candidates are calls of leaf modules with one input, a matrix product, a weight and maybe a bias.
    """
    steps, inputs = [units.steps[index] for index in unit.steps], units.needs(unit)[1]
    if not unit.is_call or len(inputs) != 1 or sum(step.op in PRODUCTS for step in steps) != 1:
        return None
    stored = {len(units.parameter(one)): one for one in units.stored(unit)}
    sample, output = units.steps[inputs[0]].sample, steps[-1].sample
    has_bias, weight = 1 in stored, stored.get(2)
    if weight is None or sample is None or output is None or len(stored) != len(units.stored(unit)):
        return None
    rows, columns = units.parameter(weight)
    fits = (output[-1], sample[-1]) == (rows, columns) and sample[:-1] == output[:-1]
    if not fits or set(stored) - {1, 2} or has_bias and units.parameter(stored[1]) != (rows,):
        return None
    island = Writer(units, unit).island(unit.module, steps[-1].index, inputs, False)
    order = [one.name for one, _ in island.stored]

    def expected(x: list[torch.Tensor], t: list[torch.Tensor]) -> torch.Tensor:
        by_name = dict(zip(order, t))
        return F.linear(x[0], by_name[weight.name], by_name[stored[1].name] if has_bias else None)

    if not computes(units.known, island, [sample], expected, ("linear", order, has_bias)):
        return None
    return Kind({"linear": {"out_features": rows, "bias": has_bias}}, (inputs[0],))
