"""Dataclasses of the format ``deeppool/program/v5``: the steps of a rank in one iteration.

Steps, buffers and collectives are identified by their indices. Ranges of samples exclude their end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeVar

import torch

T = TypeVar("T")
Samples = tuple[int, int]
#: Range along each dimension.
Ranges = tuple[tuple[int, int], ...]
#: Index of a step after all others, which reads the results of the iteration.
END = -1


@dataclass(frozen=True)
class TensorPart:
    """A box of a tensor, and the shape of the tensor that holds its elements."""

    shape: tuple[int, ...]
    dims: tuple[int, ...]
    """Dimensions of a row-major view of the whole tensor."""
    ranges: Ranges
    """Range of each of these dimensions."""

    @property
    def is_whole(self) -> bool:
        """Whether the box has all elements of the tensor."""
        return all(range_ == (0, dim) for range_, dim in zip(self.ranges, self.dims))

    def of(self, whole: torch.Tensor) -> torch.Tensor:
        """Returns the box of a tensor of any shape: a view if possible."""
        return whole.reshape(self.dims)[slices(self.ranges)].reshape(self.shape)

    def write(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        """Copies a part to its box of the whole tensor."""
        rows = whole.reshape(self.dims)
        box = rows[slices(self.ranges)]
        box.copy_(part.reshape(box.shape))
        if rows.data_ptr() != whole.data_ptr():
            whole.copy_(rows.view(whole.shape))


@dataclass(frozen=True)
class LayerPart:
    """A part of a split layer: a layer of another shape."""

    ranks: tuple[int, ...]
    """Ranks that run it, in the order of their shards."""
    kind: str
    options: dict[str, Any]
    inputs: tuple[tuple[int, ...], ...]
    """Shape of one sample of each input."""
    output: tuple[int, ...]
    """Shape of one sample of the output."""
    random_box: tuple[tuple[int, ...], Ranges] | None
    """Box of the random numbers that it draws for a sample, as dimensions and ranges; ``None`` if it draws
    none."""
    parameters: tuple[TensorPart, ...]
    """Boxes of the first parameters of the whole layer."""
    statistics: tuple[TensorPart, ...]
    """Boxes of the running statistics of the whole layer."""


@dataclass(frozen=True)
class LayerPlacement:
    """Placement of a layer."""

    ranks: tuple[int, ...]
    """Ranks that run it, in the order of their shards, and of their parts of a shard."""
    shape: tuple[int, ...]
    """Shape of one sample of the output."""
    parameters_of: str | None = None
    """Name of the layer that owns its parameters; ``None`` if it owns them."""
    split: str = ""
    """``copies``, ``features``, ``inputs`` or ``positions``; empty if it is not split."""
    parts: tuple[LayerPart, ...] = ()
    """Its parts, if it is split."""

    @property
    def is_divided(self) -> bool:
        """Whether the parts have different parameters."""
        return any(not box.is_whole for part in self.parts for box in (*part.parameters, *part.statistics))

    def part(self, rank: int) -> LayerPart | None:
        """Returns the part that a rank runs."""
        return next((part for part in self.parts if rank in part.ranks), None)


@dataclass(frozen=True)
class Collective:
    """A collective of several ranks."""

    op: str
    """``all_reduce`` or ``broadcast``, in place in the step's written buffers, or ``redistribute`` from its
    read buffer to its written buffer."""
    groups: tuple[tuple[int, ...], ...]
    """Groups of ranks, each of which performs the operation on its own."""
    source: dict[int, Ranges] = field(default_factory=dict)
    """Box of each rank before a redistribution: samples, then positions, outer dimension of a position and
    units if layers are split. Before the samples, there may be a dimension of addends."""
    target: dict[int, Ranges] = field(default_factory=dict)
    """Box of each rank after a redistribution."""
    moves: tuple[tuple[int, int, Ranges], ...] = ()
    """Messages of a redistribution: sender, receiver and box."""
    extents: tuple[int, ...] = ()
    """Lengths of the dimensions of a redistribution of boxes; empty for samples."""
    item_elements: int = 0
    """Number of elements of an item of a redistribution of boxes."""

    def group(self, rank: int) -> tuple[int, ...]:
        """Returns the group of a rank."""
        return next(group for group in self.groups if rank in group)


@dataclass(frozen=True)
class Buffer:
    """A buffer of a rank."""

    contents: str
    layer: str = ""
    role: str = ""
    value: float = 0.0


@dataclass(frozen=True)
class Step:
    """A step of a rank on one of its lanes."""

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
    elements: tuple[int, int] | None = None
    """Range of the elements of each sample that are loaded; ``None`` for all."""
    read_roles: tuple[str, ...] = ()
    write_roles: tuple[str, ...] = ()
    collective: int = -1

    def loaded(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns what the step loads of the inputs, or of the targets, of the global batch."""
        first, elements = 0, self.elements or (0, math.prod(batch[0].shape[1:]))
        tensor, sample = batch[0], 0
        for tensor in batch:
            sample = math.prod(tensor.shape[1:])
            if elements[0] < first + sample:
                break
            first += sample
        rows = tensor[slice(*self.samples)]
        if elements == (first, first + sample):
            return rows
        if self.part == "labels":
            return rows.flatten(1)[:, slice(*elements)]
        of_position = math.prod(rows.shape[2:])
        return rows[:, (elements[0] - first) // of_position : (elements[1] - first) // of_position]

    def read(self, role: str) -> int:
        """Returns the buffer that it reads in the given role."""
        return self.reads[self.read_roles.index(role)]

    def written(self, role: str) -> int:
        """Returns the buffer that it writes in the given role."""
        return self.writes[self.write_roles.index(role)]


@dataclass(frozen=True)
class RankProgram:
    """The program of one rank, with the layers and collectives of all ranks."""

    rank: int
    batch: int
    world: int
    layers: dict[str, LayerPlacement]
    collectives: tuple[Collective, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]

    @classmethod
    def from_json(cls, text: str) -> RankProgram:
        """Parses a document with the program of one rank."""
        document = json.loads(text)
        (rank,) = document["ranks"]
        return cls(
            rank=rank["rank"],
            batch=document["batch"],
            world=document["world"],
            layers={layer["name"]: _layer(layer) for layer in document["layers"]},
            collectives=tuple(_collective(one) for one in document["collectives"]),
            buffers=tuple(_read(Buffer, one) for one in rank["buffers"]),
            steps=tuple(_step(one) for one in rank["steps"]),
        )

    def owner(self, layer: str) -> str:
        """Returns the layer that owns the parameters of a layer."""
        return self.layers[layer].parameters_of or layer

    def holders(self, owner: str) -> tuple[int, ...]:
        """Returns the ranks of all layers that use the owner's parameters, starting with the owner's."""
        users = (layer for name, layer in self.layers.items() if self.owner(name) == owner)
        return tuple(dict.fromkeys(rank for layer in users for rank in layer.ranks))

    def divided(self, layer: str) -> LayerPart | None:
        """Returns the rank's part of a layer whose parts compute different values; otherwise ``None``."""
        placement = self.layers[layer]
        return placement.part(self.rank) if placement.split not in ("", "copies") else None

    def pieces(self, owner: str) -> list[tuple[int, LayerPart | None]]:
        """Returns the pieces of a layer's parameters and statistics, each with the first rank that holds it.

        A layer whose parameters are not divided is one piece without a part.
        """
        placement = self.layers[owner]
        if placement.is_divided:
            return [(part.ranks[0], part) for part in placement.parts]
        return [(placement.ranks[0], None)]

    @cached_property
    def synchronized(self) -> frozenset[str]:
        """Names of the batch normalizations over samples of several ranks."""
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
        """Steps that collectives depend on."""
        return frozenset(after for step in self.steps if step.lane == "communication" for after in step.after)

    @cached_property
    def connected(self) -> dict[int, list[int]]:
        """Steps of the matching backward pass of each forward pass.

        The list is empty if the forward pass is recomputed before the backward pass.
        """
        connected: dict[int, list[int]] = {}
        later: dict[str, list[int]] = {}
        for index, step in reversed(list(enumerate(self.steps))):
            if step.op == "backward":
                later.setdefault(step.layer, []).insert(0, index)
            elif step.op == "forward" and step.pass_ != "forward_moments":
                connected[index] = later.pop(step.layer, [])
        return connected

    def received(self, index: int) -> list[int]:
        """Returns the buffers that a step reads, without parameters and tensors saved by autograd."""
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
            return []  # The first step of a batch normalization.
        return [buffer for buffer, role in zip(step.reads, step.read_roles) if role.startswith(roles)]

    @cached_property
    def readers(self) -> dict[tuple[int, int], list[int]]:
        """Steps that read a buffer as written by a step, by (step, buffer). :data:`END` reads the loss."""
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
    """Values of buffers, passed between steps.

    Each reader has its own reference, so that a value is freed after its last reader.
    """

    def __init__(self, program: RankProgram) -> None:
        self._readers = program.readers
        self._held: dict[tuple[int, int], Any] = {}

    def put(self, index: int, buffer: int, value: Any) -> None:
        """Stores the value that a step writes to a buffer."""
        for reader in self._readers[index, buffer]:
            self._held[reader, buffer] = value

    def take(self, index: int, buffer: int) -> Any:
        """Removes and returns the value that a step reads from a buffer."""
        return self._held.pop((index, buffer))

    def clear(self) -> None:
        """Removes all values."""
        self._held.clear()


def _read(kind: type[T], document: dict[str, Any]) -> T:
    """Creates a dataclass from an object of the document. Fields unknown to the class are ignored."""
    names = (field.name for field in fields(kind))  # type: ignore[arg-type]
    values = {name: document[name] for name in names if name in document}
    return kind(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    )


def _step(document: dict[str, Any]) -> Step:
    """Creates a step. A pass in place becomes the ordinary pass: autograd does not overwrite values."""
    values = document | {"pass_": document.get("pass", "")}
    ordinary = {"forward_in_place": "forward", "backward_in_place": "backward"}.get(values["pass_"])
    if ordinary is not None:
        values["pass_"] = ordinary
        if ordinary == "forward":
            # The updated input is the first buffer that the pass writes.
            for reads, writes in (("reads", "writes"), ("read_roles", "write_roles")):
                values[reads] = [document[writes][0], *document[reads]]
                values[writes] = document[writes][1:]
        else:
            values["write_roles"] = ["input_gradient.0"]
    return _read(Step, values)


def _collective(document: dict[str, Any]) -> Collective:
    def box(of: dict[str, Any]) -> Ranges:
        return _ranges([of["samples"]] if "samples" in of else of["ranges"])

    def by_rank(key: str) -> dict[int, Ranges]:
        return {one["rank"]: box(one) for one in document.get(key, [])}

    ranks, count = document["ranks"], document.get("groups", 1)
    size = len(ranks) // count
    return Collective(
        document["op"],
        tuple(tuple(ranks[first : first + size]) for first in range(0, len(ranks), max(size, 1))),
        by_rank("source"),
        by_rank("target"),
        tuple((one["from"], one["to"], box(one)) for one in document.get("moves", [])),
        tuple(document.get("extents", ())),
        document.get("item_elements", 0),
    )


def _layer(document: dict[str, Any]) -> LayerPlacement:
    return LayerPlacement(
        tuple(document["ranks"]),
        tuple(document["sample_shape"]),
        document.get("parameters_of"),
        document.get("split", ""),
        tuple(_part(part) for part in document.get("parts", [])),
    )


def _part(document: dict[str, Any]) -> LayerPart:
    def tensors(key: str) -> tuple[TensorPart, ...]:
        return tuple(
            TensorPart(tuple(one["shape"]), tuple(one["dims"]), _ranges(one["ranges"]))
            for one in document[key]
        )

    # A kind without options is its name.
    op, region = document["op"], document.get("random_box")
    ((kind, options),) = op.items() if isinstance(op, dict) else ((op, {}),)
    return LayerPart(
        tuple(document["ranks"]),
        kind,
        options,
        tuple(tuple(shape) for shape in document["inputs"]),
        tuple(document["output"]),
        None if region is None else (tuple(region["dims"]), _ranges(region["ranges"])),
        tensors("parameters"),
        tensors("statistics"),
    )


def _ranges(ranges: list[list[int]]) -> Ranges:
    return tuple((first, end) for first, end in ranges)


def slices(ranges: Ranges) -> tuple[slice, ...]:
    """Returns the ranges as an index of a tensor."""
    return tuple(slice(first, end) for first, end in ranges)
