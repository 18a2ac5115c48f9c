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

#: Bound of the differences of activations with rounded constants, relative or absolute.
TOLERANCE = 1e-7
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
    inputs = units.needs(unit)[1]
    x = _values(units, unit)
    if x is None:
        return None
    island = Writer(units, unit).island(unit.module, unit.steps[-1], inputs, False)
    try:
        with torch.no_grad():
            result = island.execute([], x)
    except RuntimeError:
        return None  # For example, mixed data types because of a constant in single precision.
    for name, function in ACTIVATIONS.items():
        if result.shape == x.shape and torch.allclose(result, function(x), rtol=1e-12, atol=1e-12):
            return Kind(name, (inputs[0],))
    return None


def with_own_gradient(units: Units, unit: Unit) -> Kind | None:
    """Returns the kind of a module that computes an activation and its gradient in its own way.

    The module is called in double precision, and its values and gradients are compared with those of the
    kinds of the graph format. Modules round constants, such as BLOOM that of GELU. Modules with backward
    hooks have no kind, because hooks may do more than change gradients.
    """
    x, module = _values(units, unit), units.modules[unit.module]
    if x is None or not units.program.simple_calls.get(unit.call, False):
        return None
    if module._backward_hooks or module._backward_pre_hooks:
        return None
    generator = torch.Generator().manual_seed(0)
    signs = 2.0 * torch.randint(2, x.shape, generator=generator) - 1
    exponents = 12 * torch.rand(x.shape, generator=generator, dtype=x.dtype) - 6
    # Gradients of the output, of different signs and magnitudes: some functions clip them.
    upstream = signs * 10**exponents
    try:
        result, gradient = _with_gradient(module, x, upstream)
    except RuntimeError:
        return None  # For example, mixed data types because of a constant in single precision.
    for name, function in ACTIVATIONS.items():
        pairs = zip((result, gradient), _with_gradient(function, x, upstream))
        if all(
            one.shape == x.shape and torch.allclose(one, other, TOLERANCE, TOLERANCE) for one, other in pairs
        ):
            return Kind(name, (units.needs(unit)[1][0],))
    return None


def _with_gradient(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, upstream: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the values of a function of each element, and its gradients divided by those of the values."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        result = function(x)
        (gradient,) = torch.autograd.grad(result, x, upstream)
    return result.detach(), gradient / upstream


def _values(units: Units, unit: Unit) -> torch.Tensor | None:
    """Returns samples of small and large numbers for a unit, or ``None`` if it is no candidate."""
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
    return torch.cat([x, *(x[-1:].flatten().roll(count).view_as(x[-1:]) for count in (1, 2))])
