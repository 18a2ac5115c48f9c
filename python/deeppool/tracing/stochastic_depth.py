"""Detection of stochastic depth: modules that drop whole samples (Huang et al., 2016)."""

from __future__ import annotations

import math

from deeppool.tracing.kinds import Kind
from deeppool.tracing.program import Ref
from deeppool.tracing.units import Unit, Units


def find(units: Units, unit: Unit) -> Kind | None:
    """Returns the kind of a module that multiplies each sample by zero or by the inverse of a probability.

    Candidates are calls of modules that draw one number of each sample by ``bernoulli``, divide it by its
    probability, and multiply their input by it.
    """
    inputs, steps = units.needs(unit)[1], [units.steps[index] for index in unit.steps]
    named = {step.op.rstrip("_"): step for step in steps if step.op not in ("empty", "new_empty")}
    if not unit.is_call or len(inputs) != 1 or named.keys() != {"bernoulli", "div", "mul"}:
        return None
    drawn, factor, product = named["bernoulli"], named["div"], named["mul"]
    kept = drawn.argument("p")
    if drawn.sample is None or drawn.rows != 1 or math.prod(drawn.sample) != 1:
        return None
    if not isinstance(kept, float) or not 0 < kept < 1:
        return None
    if list(factor.args) != [Ref(drawn.index), kept] or factor.kwargs:
        return None
    first, factors = units.steps[inputs[0]], [Ref(inputs[0]), Ref(factor.index)]
    if first.sample is None or (first.sample, first.rows) != (product.sample, product.rows):
        return None
    if list(product.args) not in (factors, factors[::-1]):
        return None
    return Kind({"dropout": {"probability": 1 - kept, "of_samples": True}}, (inputs[0],))
