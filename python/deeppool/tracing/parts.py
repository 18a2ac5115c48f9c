"""Layers of units that are several layers, such as an attention with its projections."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from deeppool.tracing.island import Island, of_function
from deeppool.tracing.kinds import Op
from deeppool.tracing.program import Step, Stored
from deeppool.tracing.units import Units


@dataclass
class Part:
    """One of several layers that a unit is split into, such as an attention and its projections."""

    name: str
    op: Op
    #: Indices of values, or names of other layers of the unit.
    inputs: list[int | str]
    island: Island
    #: Operations that draw random numbers.
    draws: list[Step] = field(default_factory=list)


def computes(
    known: dict[Any, bool],
    island: Island,
    samples: list[tuple[int, ...]],
    expected: Callable[[list[torch.Tensor], list[torch.Tensor]], torch.Tensor],
    options: Any,
    tolerance: float = 1e-9,
    is_training: bool = True,
    deviation: float = 1.0,
    masks: Mapping[int, torch.dtype] = MappingProxyType({}),
) -> bool:
    """Returns whether an island computes the expected function, for random parameters and inputs.

    Both are computed with the same random numbers. Attention is not fused: a fused one has random numbers of
    its own.

    Args:
        known: Results for islands of the same structure, to which this one is added.
        island: The island.
        samples: Shapes of the samples of its inputs.
        expected: Function of the inputs and of the stored tensors.
        options: What identifies the expected function, with a ``repr``.
        tolerance: Bound of the difference, relative to the largest result.
        is_training: Whether modules are in training mode.
        deviation: Standard deviation of the parameters.
        masks: Indices and types of the inputs that are 0 or 1, and 1 at first.
    """
    structure = _structure(island)
    if structure is None:
        return _computes(island, samples, expected, tolerance, is_training, deviation, masks)
    key = (structure, tuple(samples), repr(options), tolerance, is_training, deviation, tuple(masks.items()))
    if key not in known:
        known[key] = _computes(island, samples, expected, tolerance, is_training, deviation, masks)
    return known[key]


def _structure(island: Island) -> tuple[Any, ...] | None:
    """Returns the operations of an island, with the shapes of its parameters and the names of its buffers.

    Returns ``None`` if its source does not have all that it computes.
    """
    if island.calls_module or re.search(r"\bconstant(_\d+)?\b", island.source):
        return None
    numbers: dict[str, str] = {}

    def renumbered(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"v{len(numbers)}")

    source = re.sub(r"\bv\d+\b", renumbered, island.source)
    stored = [
        tuple(tensor.shape) if stored.is_parameter else (stored.name, id(stored.constant))
        for (stored, _), tensor in zip(island.stored, island.tensors())
    ]
    return source, tuple(stored)


def _computes(
    island: Island,
    samples: list[tuple[int, ...]],
    expected: Callable[[list[torch.Tensor], list[torch.Tensor]], torch.Tensor],
    tolerance: float,
    is_training: bool,
    deviation: float,
    masks: Mapping[int, torch.dtype],
) -> bool:
    generator = torch.Generator().manual_seed(0)

    def random(shape: tuple[int, ...] | torch.Size) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    tensors = [
        (deviation * random(tensor.shape) if isinstance(tensor, nn.Parameter) else tensor.detach().cpu()).to(
            torch.float64 if tensor.is_floating_point() else tensor.dtype
        )
        for tensor in island.tensors()
    ]
    inputs = [random((2, *sample)) for sample in samples]
    for index, dtype in masks.items():
        inputs[index] = (inputs[index] > 0).to(dtype)
        # Networks differ in what they give a query without a key.
        inputs[index][:, 0] = 1
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=()), sdpa_kernel(SDPBackend.MATH):
            torch.manual_seed(0)
            result = island.execute(tensors, *inputs, is_training=is_training)
            torch.manual_seed(0)
            wanted = expected(inputs, tensors)
    except RuntimeError:
        return False  # For example, mixed data types because of a constant in single precision.
    return result.shape == wanted.shape and bool(
        ((result - wanted).abs().max() <= tolerance * wanted.abs().max()).item()
    )


def stored_of(owner: str, prefix: str, has_bias: bool, suffix: str = "") -> list[Stored]:
    """Returns the weight, and the bias if there is one, of a module."""
    names = [f"{prefix}{name}{suffix}" for name in (("weight", "bias") if has_bias else ("weight",))]
    return [Stored(f"{owner}.{name}" if owner else name, owner, name, True) for name in names]


def linear_part(
    units: Units, name: str, stored: list[Stored], taken: int | str, output: tuple[int, ...]
) -> Part:
    """Returns a linear layer with a weight, and a bias if there is one. ``taken`` is its input."""
    island = of_function(name, F.linear, output, [(one, units.modules[one.owner]) for one in stored])
    op: Op = {"linear": {"out_features": output[-1], "bias": len(stored) == 2}}
    return Part(name, op, [taken], island)
