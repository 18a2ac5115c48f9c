"""Division of one vector into the queries, keys and values of an attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from deeppool.tracing.island import of_function
from deeppool.tracing.kinds import Op
from deeppool.tracing.parts import Part


@dataclass(frozen=True)
class Layout:
    """Order of the queries, keys and values of a position in one vector."""

    #: Number of heads of keys and values.
    groups: int
    #: Number of query heads that share one of them.
    queries: int
    #: Number of features of a head.
    width: int
    #: Whether the queries of a group are followed by its key and its value, as in GPT-NeoX, BLOOM
    #: and Falcon. Otherwise all queries are followed by all keys and all values.
    is_interleaved: bool

    def divide(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Returns queries, keys and values, each of shape ``(samples, positions, heads * width)``."""
        if not self.is_interleaved:
            keys = self.groups * self.width
            return list(torch.split(x, [self.queries * keys, keys, keys], -1))
        heads = x.reshape(*x.shape[:2], self.groups, self.queries + 2, self.width)
        return [part.flatten(2) for part in torch.split(heads, [self.queries, 1, 1], 3)]

    def shapes(self, positions: int) -> list[tuple[int, ...]]:
        """Returns the shapes of a sample's queries, keys and values."""
        keys = self.groups * self.width
        return [(positions, features) for features in (self.queries * keys, keys, keys)]

    def join(self, positions: int, path: str, taken: int, free_name: Callable[[str], str]) -> list[Part]:
        """Returns the layers that order the vector as the one input of an attention, with a query each."""
        chain = _Chain(path, taken, free_name)
        chain.add("reshape", [positions, self.groups, 3, self.width])
        chain.add("permute", [0, 2, 1, 3])
        chain.add("reshape", [positions, 3 * self.groups * self.width])
        return chain.parts

    def parts(
        self, positions: int, path: str, taken: int, free_name: Callable[[str], str]
    ) -> tuple[list[Part], list[str]]:
        """Returns the layers that divide the vector, and the names of its queries, keys and values."""
        chain, groups, queries = _Chain(path, taken, free_name), self.groups, self.queries
        if self.is_interleaved:
            chain.add("reshape", [positions, groups, queries + 2, self.width])
            chain.add("permute", [2, 0, 1, 3])
            ranges = [(0, queries), (queries, 1), (queries + 1, 1)]
            back = [1, 2, 0, 3]
        else:
            heads = groups * queries
            chain.add("reshape", [positions, heads + 2 * groups, self.width])
            chain.add("permute", [1, 0, 2])
            ranges = [(0, heads), (heads, groups), (heads + groups, groups)]
            back = [1, 0, 2]
        start, names = chain.last, []
        shapes = self.shapes(positions)
        for what, (first, count), shape in zip(("queries", "keys", "values"), ranges, shapes):
            chain.last = start
            if count == 1:
                chain.add("select", first)
            else:
                chain.add("slice", (first, count))
                chain.add("permute", back)
            name = free_name(f"{path}.{what}")
            chain.add("reshape", list(shape), name)
            names.append(name)
        return chain.parts, names


def layouts(features: int, output: tuple[int, ...], heads: int) -> list[Layout]:
    """Returns the layouts of vectors of a number of features.

    Args:
        features: Number of features of the vectors.
        output: Shape of a sample of the attention's output.
        heads: Number of query heads.
    """
    width = output[1] // heads
    groups, rest = divmod(features - output[1], 2 * width)
    if rest or groups < 1 or heads % groups:
        return []
    found = [Layout(groups, heads // groups, width, True)]
    # With one head of keys, both orders are the same.
    return found if groups == 1 else [*found, Layout(groups, heads // groups, width, False)]


class _Chain:
    """A chain of layers that rearrange samples."""

    def __init__(self, path: str, taken: int, free_name: Callable[[str], str]) -> None:
        self.path, self.free_name = path, free_name
        self.parts: list[Part] = []
        #: The layer or value that the next layer takes, and the shape of its samples.
        self.last: tuple[int | str, tuple[int, ...]] = (taken, ())

    def add(self, kind: str, option: Any, name: str | None = None) -> None:
        """Adds a layer that takes the last one.

        Args:
            kind: ``reshape`` to the sizes of ``option``, ``permute`` in the order of ``option``, ``select``
                of the index ``option``, or ``slice`` of the first index and the length in ``option``.
            option: Option of the kind.
            name: Name of the layer, by default that of the path and the kind.
        """
        taken, shape = self.last
        op: Op
        function: Callable[[torch.Tensor], torch.Tensor]
        match kind:
            case "reshape":
                op, output = {"reshape": {"output": option}}, tuple(option)
                function = lambda x: x.reshape(len(x), *option)  # noqa: E731
            case "permute":
                op, output = {"permute": {"order": option}}, tuple(shape[dim] for dim in option)
                function = lambda x: x.permute(0, *(dim + 1 for dim in option))  # noqa: E731
            case "select":
                op, output = {"select": {"index": option}}, shape[1:]
                function = lambda x: x.select(1, option)  # noqa: E731
            case _:
                start, length = option
                op, output = {"slice": {"start": start, "length": length}}, (length, *shape[1:])
                function = lambda x: x.narrow(1, start, length)  # noqa: E731
        name = name or self.free_name(f"{self.path}.{kind}")
        self.parts.append(Part(name, op, [taken], of_function(name, function, output)))
        self.last = (name, output)
