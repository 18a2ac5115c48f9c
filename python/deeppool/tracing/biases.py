"""Numbers that attentions add to the products of queries and keys, by their distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import torch

from deeppool.tracing.program import Ref, Stored
from deeppool.tracing.units import Unit, Units

#: Bound of the maximum distances of relative positions that are found.
MAX_DISTANCE = 4096


def with_relative_positions(
    units: Units, unit: Unit, learned: list[Stored], candidates: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Returns the options of attentions to whose products a learned table of numbers is added."""
    if len(learned) != 1:
        return []
    buckets, *heads = units.parameter(learned[0])
    found = []
    for index in units.needs(unit)[0]:
        step = units.steps[index]
        if step.op != "embedding" or step.argument("weight") not in learned:
            continue
        if step.argument("padding_idx") >= 0:
            continue  # That row gets no gradient.
        rows = units.constant(step.argument("indices"))
        if rows is None or rows.dim() != 2:
            continue
        # In increasing order of the key's position minus the query's.
        of_distances = torch.cat([rows[1:, 0].flip(0), rows[0]])
        distances = distances_of(*rows.shape)
        if not torch.equal(of_distances[distances + len(rows) - 1], rows):
            continue
        for options in candidates:
            greatest = _max_distance(tuple(of_distances.tolist()), len(rows), buckets, options["causal"])
            if heads == [options["heads"]] and greatest is not None:
                relative = {"buckets": buckets, "max_distance": greatest}
                found.append(options | {"relative": relative})
    return found


@lru_cache(maxsize=64)
def _max_distance(of_distances: tuple[int, ...], positions: int, buckets: int, causal: bool) -> int | None:
    """Returns the maximum distance for which distances have these buckets, if there is one.

    Several fit short sequences. That of T5 is tried first.
    """
    expected = torch.tensor(of_distances)
    distances = torch.arange(len(expected)) - (positions - 1)
    greatest: int
    for greatest in (128, *range(2, MAX_DISTANCE)):
        found = relative_buckets(distances, causal=causal, buckets=buckets, max_distance=greatest)
        if found is not None and torch.equal(found, expected):
            return greatest
    return None


def constants(units: Units, unit: Unit, accepts: Callable[[list[int]], bool]) -> Iterator[torch.Tensor]:
    """Yields the constant tensors of a unit, for one sample, whose sizes are accepted."""
    for index in units.needs(unit)[0]:
        dims = units.steps[index].dims
        if dims is not None and accepts([dim if isinstance(dim, int) else dim.count for dim in dims]):
            table = units.constant(Ref(index), samples=1)
            if table is not None:
                yield table
    for stored in units.stored(unit):
        buffer = None if stored.is_parameter else units.constant(stored)
        if buffer is not None and accepts(list(buffer.shape)):
            yield buffer


def linear_biases(
    units: Units, unit: Unit, heads: int, shapes: list[tuple[int, ...]]
) -> list[dict[str, Any]]:
    """Returns the arguments of :func:`slopes` for tables of a unit that grow with these slopes."""
    positions, key_positions = shapes[0][0], shapes[min(1, len(shapes) - 1)][0]
    found: list[dict[str, Any]] = []
    counts = (heads * key_positions, heads * positions * key_positions)
    for table in constants(units, unit, lambda sizes: math.prod(sizes) in counts):
        if not table.is_floating_point() or key_positions < 2:
            continue
        last = table.reshape(heads, -1, key_positions).double()[:, -1]
        # The table may be subtracted.
        steps, of_heads = (last[:, -1] - last[:, -2]).abs(), slopes(heads)
        factor = (steps[0] / of_heads[0]).item()
        if not 0 < factor < math.inf or not torch.allclose(steps, factor * of_heads, rtol=1e-5, atol=0):
            continue
        options: dict[str, Any] = {"heads": heads}
        width = (units.steps[unit.steps[-1]].sample or (0, heads))[1] // heads
        usual = [one for one in (1.0, width**-0.5) if math.isclose(factor, one, rel_tol=1e-6)]
        if usual != [1.0]:
            options["factor"] = usual[0] if usual else factor
        if options not in found:
            found.append(options)
    return found


def slopes(heads: int, factor: float = 1.0, first: int = 0) -> torch.Tensor:
    """Returns the slopes of linear biases (ALiBi), in double precision.

    Args:
        heads: Number of heads of the whole attention.
        factor: Factor of all slopes.
        first: Ignored: the first head of a part of the attention.
    """
    lower = 2 ** (heads.bit_length() - 1)
    exponents = [(head + 1) / lower for head in range(lower)]
    exponents += [(head + 0.5) / lower for head in range(heads - lower)]
    return factor * 2 ** (-8 * torch.tensor(exponents, dtype=torch.float64))


def relative_buckets(
    distances: torch.Tensor, *, causal: bool, buckets: int, max_distance: int
) -> torch.Tensor | None:
    """Returns the buckets of distances, as in T5, or ``None`` if there are no such buckets.

    Args:
        distances: Positions of keys minus those of queries.
        causal: Whether all buckets are those of earlier keys. Otherwise half are those of later ones.
        buckets: Number of buckets.
        max_distance: Distance from which on all keys are in one bucket.

    Returns:
        Integers of the same shape.
    """
    count = buckets if causal else buckets // 2
    exact = count // 2
    if count < 2 or max_distance <= exact:
        return None
    first = torch.zeros_like(distances) if causal else (distances > 0) * count
    distances = -distances.clamp(max=0) if causal else distances.abs()
    further = (distances.float() / exact).log() / math.log(max_distance / exact) * (count - exact)
    further = (exact + further.clamp(min=0).long()).clamp(max=count - 1)
    return first + torch.where(distances < exact, distances, further)


def distances_of(positions: int, key_positions: int) -> torch.Tensor:
    """Returns the distance of each query and key, of shape ``(positions, key_positions)``."""
    return torch.arange(key_positions)[None] - torch.arange(positions)[:, None]
