"""Positions whose vectors are added to a sequence: constant ones, and those that count tokens."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from deeppool.tracing.island import Writer
from deeppool.tracing.program import Ref, Stored
from deeppool.tracing.units import LIKE, Unit, Units

#: Operations that use the value of their first argument only.
AS = {"type_as", "expand_as", "view_as", "reshape_as"}
#: Operations whose result has the values of their argument.
SAME = {"to", "alias", "clone", "contiguous", "view", "reshape", "expand", "unsqueeze", "squeeze", *AS}


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
    """Returns the indices of positions that are computed from tokens, but are the same for all inputs.

    The tokens may only be compared with constant tokens, so the indices depend on the results of these
    comparisons and on nothing else. Indices that depend on them are the same for inputs without the padding
    token if there is no other constant. The examples, and other inputs, may then not have it.
    """
    if not isinstance(indices, Ref) or units.steps[indices.index].sample != (length,):
        return None
    unit = Unit("", False, "", [indices.index])
    repeated, inputs = units.needs(unit)
    if len(inputs) != 1 or not units.is_input(inputs[0]):
        return None
    constants = _compared(units, inputs[0], [*repeated, indices.index])
    if constants is None or any(one.is_parameter for one in units.stored(unit)):
        return None
    island = Writer(units, unit).island("indices", indices.index, inputs, False)
    example = units.examples[inputs[0]]

    def computed(tokens: torch.Tensor) -> Positions | None:
        try:
            with torch.no_grad():
                result = island.execute(list(island.tensors()), tokens)
        except (RuntimeError, IndexError):
            return None  # For example, padding without a position.
        return consecutive_in(result, length, len(tokens))

    # All tokens that are no constants have the same results.
    other = max(constants, default=0) + 1
    found = {computed(example.new_full((count, *example.shape[1:]), other)) for count in (2, 3)}
    found.add(computed(example))
    result = found.pop() if len(found) == 1 else None
    if result is None or result == computed(_drawn(example, sorted(constants), other)):
        return result
    if padding < 0 or constants != {padding} or bool((example == padding).any()):
        return None
    return result._replace(absent=(inputs[0], padding))


def _compared(units: Units, tokens: int, steps: list[int]) -> set[int] | None:
    """Returns the constants with which steps compare tokens; ``None`` if they use tokens in another way.

    Args:
        units: Units of the program.
        tokens: Index of the input.
        steps: Indices of the steps.
    """
    integers = (torch.int32, torch.int64)
    if units.steps[tokens].dtype not in integers:
        return None
    same, constants = {tokens}, set()
    for step in (units.steps[index] for index in sorted(set(steps))):
        if step.is_random:
            return None
        # Only the shapes or data types of other arguments are used.
        used = () if step.op in LIKE else step.args[:1] if step.op in AS else step.leaves
        if not any(isinstance(leaf, Ref) and leaf.index in same for leaf in used):
            continue
        constant = step.args[1] if len(step.args) == 2 else None
        if step.op in ("eq", "ne") and type(constant) is int:
            constants.add(constant)
        elif step.op in SAME and step.dtype in integers:
            same.add(step.index)
        else:
            return None
    return constants


def _drawn(example: torch.Tensor, constants: list[int], other: int) -> torch.Tensor:
    """Returns 64 samples of constants and another token, from none to all of which are constants."""
    generator = torch.Generator().manual_seed(0)
    shape = (64, *example.shape[1:])
    rates = torch.linspace(0, 1, shape[0]).view(-1, *(1 for _ in shape[1:]))
    is_other = torch.rand(shape, generator=generator) >= rates
    choices = torch.tensor(constants or [other])
    chosen = choices[torch.randint(len(choices), shape, generator=generator)]
    return torch.where(is_other, other, chosen).to(example)


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
    range_ = first + torch.arange(length, device=value.device)
    return Positions(first, False) if bool((value == range_).all()) else None
