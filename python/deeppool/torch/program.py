"""A program of the format ``deeppool/program/v1``, as dataclasses: what a rank does in one iteration.

Steps, buffers and collectives are named by their places in lists. Samples are ranges without their ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")
Samples = tuple[int, int]
#: The place after all steps.
END = -1


@dataclass(frozen=True)
class Layer:
    ranks: tuple[int, ...]
    """The ranks that run it, in the order of their samples."""
    parameters_of: str | None = None


@dataclass(frozen=True)
class Collective:
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
    layer: str = ""
    role: str = ""
    value: float = 0.0


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

    def read(self, role: str) -> int:
        """The buffer that it reads as this."""
        return self.reads[self.read_roles.index(role)]

    def written(self, role: str) -> int:
        """The buffer that it writes as this."""
        return self.writes[self.write_roles.index(role)]


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
            layers={layer["name"]: _read(Layer, layer) for layer in document["layers"]},
            collectives=tuple(_collective(one) for one in document["collectives"]),
            buffers=tuple(_read(Buffer, one) for one in rank["buffers"]),
            steps=tuple(_read(Step, one | {"pass_": one.get("pass", "")}) for one in rank["steps"]),
        )

    def owner(self, layer: str) -> str:
        """The layer whose parameters it uses: its own, unless they are shared."""
        return self.layers[layer].parameters_of or layer

    def holders(self, owner: str) -> tuple[int, ...]:
        """The ranks that hold the parameters of a layer: those of all layers that use them, its own first."""
        users = (layer for name, layer in self.layers.items() if self.owner(name) == owner)
        return tuple(dict.fromkeys(rank for layer in users for rank in layer.ranks))

    @cached_property
    def synchronized(self) -> frozenset[str]:
        """The batch normalizations over samples of several ranks."""
        collectives = (
            step
            for step in self.steps
            if step.op == "collective" and self.collectives[step.collective].op == "all_reduce"
        )
        reduced = {buffer for step in collectives for buffer in step.writes}
        return frozenset(
            step.layer for step in self.steps if step.pass_ == "forward_moments" and step.writes[0] in reduced
        )

    @cached_property
    def awaited(self) -> frozenset[int]:
        """The steps of the compute lane that collectives come after."""
        return frozenset(after for step in self.steps if step.lane == "communication" for after in step.after)

    @cached_property
    def connected(self) -> dict[int, list[int]]:
        """For each forward pass the steps of the backward pass that goes with it: none where the pass is run again before that."""
        found: dict[int, list[int]] = {}
        later: dict[str, list[int]] = {}
        for index, step in reversed(list(enumerate(self.steps))):
            if step.op == "backward":
                later.setdefault(step.layer, []).insert(0, index)
            elif step.op == "forward" and step.pass_ != "forward_moments":
                found[index] = later.pop(step.layer, [])
        return found

    def received(self, index: int) -> list[int]:
        """The buffers that a step reads, but for parameters and what autograd hands from a forward to a backward pass by itself."""
        step = self.steps[index]
        roles = {"forward": ("input.", "labels"), "backward": ("output_gradient",)}.get(step.op)
        if roles is None:
            # Reductions are in place.
            is_reduction = step.op == "collective" and self.collectives[step.collective].op != "redistribute"
            return list(step.writes if is_reduction else step.reads)
        if step.layer in self.synchronized:
            roles = (*roles, "moments", "gradient_moments")
        elif index not in self.connected and all(
            index != passes[-1] for passes in self.connected.values() if passes
        ):
            return []  # The first half of a batch normalization.
        return [buffer for buffer, role in zip(step.reads, step.read_roles) if role.startswith(roles)]

    @cached_property
    def readers(self) -> dict[tuple[int, int], list[int]]:
        """The steps that receive what a step writes to a buffer, by both. The loss is received at the :data:`END`."""
        readers: dict[tuple[int, int], list[int]] = {}
        writer: dict[int, int] = {}
        for index, step in enumerate(self.steps):
            for buffer in dict.fromkeys(self.received(index)):
                if buffer in writer:
                    readers[writer[buffer], buffer].append(index)
            for buffer in step.writes:
                writer[buffer] = index
                readers[index, buffer] = []
        for buffer, index in writer.items():
            if self.buffers[buffer].role == "metrics":
                readers[index, buffer].append(END)
        return readers


class Values:
    """What the steps of a program hand to each other. Each reader takes a reference of its own, so that nothing is kept for longer than it is
    needed."""

    def __init__(self, program: RankProgram) -> None:
        self._readers = program.readers
        self._held: dict[tuple[int, int], Any] = {}

    def put(self, index: int, buffer: int, value: Any) -> None:
        """What a step writes to a buffer."""
        for reader in self._readers[index, buffer]:
            self._held[reader, buffer] = value

    def take(self, index: int, buffer: int) -> Any:
        """What a step reads from a buffer; once."""
        return self._held.pop((index, buffer))

    def clear(self) -> None:
        self._held.clear()


def _read(kind: type[T], document: dict[str, Any]) -> T:
    """What is known here of an object's fields."""
    names = (field.name for field in fields(kind))  # type: ignore[arg-type]
    found = {name: document[name] for name in names if name in document}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})


def _collective(document: dict[str, Any]) -> Collective:
    def held(which: str) -> dict[int, Samples]:
        return {one["rank"]: (one["samples"][0], one["samples"][1]) for one in document.get(which, [])}

    moves = tuple(
        (one["from"], one["to"], (one["samples"][0], one["samples"][1])) for one in document.get("moves", [])
    )
    return Collective(document["op"], tuple(document["ranks"]), held("source"), held("target"), moves)
