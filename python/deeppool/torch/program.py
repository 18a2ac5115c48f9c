"""A program of the format ``deeppool/program/v1``, as dataclasses: what a rank does in one iteration.

Steps, buffers and collectives are named by their places in lists. Samples are ranges without their ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Samples = tuple[int, int]


@dataclass(frozen=True)
class Layer:
    name: str
    kind: str
    inputs: tuple[str, ...]
    sample_shape: tuple[int, ...]
    parameters: int
    ranks: tuple[int, ...]
    """The ranks that run it, in the order of their samples."""
    parameters_of: str | None = None


@dataclass(frozen=True)
class Collective:
    label: str
    op: str
    """``all_reduce`` and ``broadcast`` of what a step writes, or ``redistribute`` from what it reads to what it writes."""
    ranks: tuple[int, ...]
    source: dict[int, Samples] = field(default_factory=dict)
    """By rank: the samples that it holds before a redistribution."""
    target: dict[int, Samples] = field(default_factory=dict)
    """By rank: the samples that it holds afterwards."""
    moves: tuple[tuple[int, int, Samples], ...] = ()
    """What goes from which rank to which."""


@dataclass(frozen=True)
class Buffer:
    contents: str
    layer: str | None = None
    role: str | None = None
    value: float | None = None
    elements: int = 0


@dataclass(frozen=True)
class Step:
    label: str
    lane: str
    op: str
    after: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    layer: str = ""
    pass_: str = ""
    part: str = ""
    samples: Samples = (0, 0)
    read_roles: tuple[str, ...] = ()
    write_roles: tuple[str, ...] = ()
    collective: int = -1

    @property
    def sample_count(self) -> int:
        return self.samples[1] - self.samples[0]

    def read(self, role: str) -> int:
        """The buffer that it reads as this."""
        return self.reads[self.read_roles.index(role)]

    def written(self, role: str) -> int | None:
        """The buffer that it writes as this, if it does."""
        return self.writes[self.write_roles.index(role)] if role in self.write_roles else None


@dataclass(frozen=True)
class RankProgram:
    """The program of one rank, with the layers and collectives of all."""

    rank: int
    batch: int
    world: int
    layers: dict[str, Layer]
    collectives: tuple[Collective, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]

    @classmethod
    def from_json(cls, text: str) -> RankProgram:
        """Reads a document with the program of one rank."""
        document = json.loads(text)
        (rank,) = document["ranks"]
        return cls(
            rank=rank["rank"],
            batch=document["batch"],
            world=document["world"],
            layers={layer["name"]: Layer(**_tuples(layer)) for layer in document["layers"]},
            collectives=tuple(_collective(one) for one in document["collectives"]),
            buffers=tuple(_buffer(one) for one in rank["buffers"]),
            steps=tuple(_step(one) for one in rank["steps"]),
        )

    def holders(self, owner: str) -> tuple[int, ...]:
        """The ranks that hold the parameters of a layer: those of all layers that use them, its own first."""
        users = [layer for layer in self.layers.values() if (layer.parameters_of or layer.name) == owner]
        return tuple(dict.fromkeys(rank for layer in users for rank in layer.ranks))

    @cached_property
    def is_reduced(self) -> frozenset[int]:
        """The buffers that are summed over ranks."""
        collectives = (step for step in self.steps if step.op == "collective")
        reduced = (step for step in collectives if self.collectives[step.collective].op == "all_reduce")
        return frozenset(buffer for step in reduced for buffer in step.writes)

    @cached_property
    def readers(self) -> dict[tuple[int, int], int]:
        """How many steps read what a step writes to a buffer, by both. What the last steps leave has one reader more."""
        readers: dict[tuple[int, int], int] = {}
        writer: dict[int, int] = {}
        for index, step in enumerate(self.steps):
            in_place = step.op == "collective" and self.collectives[step.collective].op != "redistribute"
            for buffer in step.reads + (step.writes if in_place else ()):
                if buffer in writer:
                    readers[writer[buffer], buffer] += 1
            for buffer in step.writes:
                writer[buffer] = index
                readers[index, buffer] = 0
        for buffer, index in writer.items():
            if self.buffers[buffer].role in ("metrics", "parameter_gradient"):
                readers[index, buffer] += 1
        return readers

    def is_read_after(self, index: int, buffer: int | None) -> bool:
        """Whether somebody reads what a step writes to a buffer."""
        for step in self.steps[index + 1 :]:
            if buffer in step.reads or (step.op == "collective" and buffer in step.writes):
                return True
            if buffer in step.writes:
                return False
        return False


def _tuples(document: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in document.items()}


def _collective(document: dict[str, Any]) -> Collective:
    def held(which: str) -> dict[int, Samples]:
        return {one["rank"]: (one["samples"][0], one["samples"][1]) for one in document.get(which, [])}

    moves = tuple((one["from"], one["to"], (one["samples"][0], one["samples"][1])) for one in document.get("moves", []))
    ranks = tuple(document["ranks"])
    return Collective(document["label"], document["op"], ranks, held("source"), held("target"), moves)


def _buffer(document: dict[str, Any]) -> Buffer:
    known = ("contents", "layer", "role", "value", "elements")
    return Buffer(**{name: document[name] for name in known if name in document})


def _step(document: dict[str, Any]) -> Step:
    known = ("label", "lane", "op", "after", "reads", "writes", "layer", "part", "samples", "read_roles", "write_roles", "collective")
    fields = {name: document[name] for name in known if name in document}
    return Step(**_tuples(fields), pass_=document.get("pass", ""))
