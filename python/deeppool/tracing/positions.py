"""Positions whose vectors are added to a sequence: constant ones, and those that count tokens."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from deeppool.tracing.island import Writer
from deeppool.tracing.program import Ref, Stored
from deeppool.tracing.units import Unit, Units


class Positions(NamedTuple):
    """Indices of the vectors that are added to the positions of each sample."""

    #: The first index.
    first: int
    #: Whether all indices are equal. Otherwise they increase by 1.
    is_repeated: bool
    #: Index of an input and the token that it may not have, if the indices depend on it.
    absent: tuple[int, int] | None = None


def release(units: Units) -> None:
    """Makes the vectors of positions free steps if their indices count tokens, as in RoBERTa."""
    found = []
    for step in units.steps:
        if step.op != "embedding" or not units.dynamic(step.index):
            continue
        weight, indices = step.argument("weight"), step.argument("indices")
        if not isinstance(weight, Stored) or step.sample is None or len(step.sample) != 2:
            continue
        if counted(units, indices, step.sample[0], step.argument("padding_idx")) is not None:
            found.append(step.index)
    if found:
        units.release(found)


def counted(units: Units, indices: Any, length: int, padding: int) -> Positions | None:
    """Returns the indices that count the tokens other than padding.

    The examples have no padding tokens, and other inputs may not have them either.
    """
    if not isinstance(indices, Ref) or units.steps[indices.index].sample != (length,):
        return None
    unit = Unit("", False, "", [indices.index])
    inputs = units.needs(unit)[1]
    if len(inputs) != 1 or not units.is_input(inputs[0]):
        return None
    tokens = units.examples[inputs[0]]
    if tokens.is_floating_point() or padding >= 0 and bool((tokens == padding).any()):
        return None
    island = Writer(units, unit).island("indices", indices.index, inputs, False)
    generator = torch.Generator().manual_seed(0)
    found = set()
    for samples in (2, 3):
        # A few tokens before and after that of padding.
        drawn = torch.randint(max(padding, 0) + 9, (samples, *tokens.shape[1:]), generator=generator)
        drawn = torch.where(drawn == padding, drawn + 1, drawn)
        with torch.no_grad():
            result = island.execute(list(island.tensors()), drawn.to(tokens.dtype))
        found.add(consecutive_in(result, length, samples))
    kind = found.pop() if len(found) == 1 else None
    if kind is None or padding < 0:
        return kind
    return kind._replace(absent=(inputs[0], padding))


def consecutive_in(value: torch.Tensor | None, length: int, samples: int) -> Positions | None:
    """Returns the indices of a value if they increase by 1 or are equal."""
    if value is not None and value.numel() == samples * length and len(value) == samples:
        # The indices of the positions of each sample.
        value = value[0] if bool((value == value[:1]).all()) else None
    if value is None or value.numel() not in (1, length):
        return None
    value = value.flatten()
    first = int(value[0])
    if bool((value == first).all()):
        return Positions(first, length > 1)
    return Positions(first, False) if bool((value == first + torch.arange(length)).all()) else None
