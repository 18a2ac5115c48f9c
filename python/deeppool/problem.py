"""Planning something else than networks: anything whose parts run on GPUs of their own, one after another."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from deeppool import _deeppool
from deeppool._documents import read_text, write_text
from deeppool.errors import InputError
from deeppool.plans import Mode, PlannedLayer, mode_document


@dataclass(frozen=True)
class Option:
    """On how many GPUs a node may run, and what it takes then."""

    gpus: int
    time_us: float
    """Forward and backward, without the all-reduce, microseconds."""
    all_reduce_us: float = 0.0
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Node:
    """A part of the work."""

    name: str
    options: Sequence[Option]


@dataclass(frozen=True)
class Edge:
    """What one node gives another."""

    producer: str
    consumer: str
    transfer_us: Sequence[Sequence[float]]
    """``transfer_us[i][j]`` is the cost, both ways together, when the producer uses its option i and the consumer its option j."""


@dataclass(frozen=True)
class ProblemPlan:
    """What a problem's plan takes. Times are microseconds."""

    gpus: int
    iteration_us: float
    gpu_time_us: float
    single_gpu_us: float
    amplification: float
    layers: tuple[PlannedLayer, ...]
    frontier: tuple[tuple[float, float], ...] | None
    """Iteration time and amplification of all plans that no other plan beats in both, where they were asked for."""
    document: Mapping[str, Any] = field(repr=False)
    """All of it, as ``deeppool plan --problem --json`` prints it."""

    def to_dict(self) -> dict[str, Any]:
        """The report."""
        return dict(self.document)


@dataclass(frozen=True)
class PlanProblem:
    """A planning problem: a document of the format ``deeppool/plan-problem/v1``, whose times add up, or ``/v2``, whose time is
    that of a training program.

    >>> conv = Node("conv", [Option(1, 100.0), Option(2, 60.0)])
    >>> fc = Node("fc", [Option(1, 50.0), Option(2, 45.0)])
    >>> edge = Edge("conv", "fc", [[0.0, 5.0], [5.0, 0.0]])
    >>> PlanProblem.of(2, [conv, fc], [edge]).plan(amplification=1.2).iteration_us
    115.0
    """

    document: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        gpus: int,
        nodes: Sequence[Node],
        edges: Sequence[Edge] = (),
        *,
        memory_limit_bytes: int | None = None,
        single_gpu_us: float | None = None,
    ) -> PlanProblem:
        """A problem whose times add up.

        Args:
            gpus: How many GPUs there are.
            nodes: The parts of the work, producers before consumers.
            edges: What they give each other.
            memory_limit_bytes: What a rank may hold.
            single_gpu_us: The time on one GPU, where a node has no option with one.
        """
        places = {node.name: index for index, node in enumerate(nodes)}

        def place(name: str) -> int:
            if name not in places:
                raise InputError(f"an edge names `{name}`, which is no node: give one of {', '.join(places)}")
            return places[name]

        def option(each: Option) -> dict[str, Any]:
            given = {"gpus": each.gpus, "time_us": each.time_us, "all_reduce_us": each.all_reduce_us}
            return given if each.memory_bytes is None else {**given, "memory_bytes": each.memory_bytes}

        document: dict[str, Any] = {
            "schema": "deeppool/plan-problem/v1",
            "gpus": gpus,
            "nodes": [{"name": node.name, "options": [option(each) for each in node.options]} for node in nodes],
            "edges": [
                {"from": place(e.producer), "to": place(e.consumer), "transfer_us": [list(row) for row in e.transfer_us]}
                for e in edges
            ],
        }
        if memory_limit_bytes is not None:
            document["memory_limit_bytes"] = memory_limit_bytes
        if single_gpu_us is not None:
            document["single_gpu_us"] = single_gpu_us
        return cls(document)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> PlanProblem:
        """The problem of a document, which is checked when it is planned."""
        return cls(document)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> PlanProblem:
        """Reads a problem file."""
        try:
            return cls(json.loads(read_text(path)))
        except json.JSONDecodeError as error:
            raise InputError(f"{os.fspath(path)}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """The document."""
        return dict(self.document)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a problem file, which ``deeppool plan --problem`` reads, too."""
        write_text(path, json.dumps(self.document, indent=2) + "\n")

    def plan(
        self,
        *,
        mode: Mode = "burst",
        amplification: float | None = 2.0,
        deadline_us: float | None = None,
        limit_per_layer: bool = False,
        frontier: bool = False,
    ) -> ProblemPlan:
        """The plan that is asked for. Ctrl-C ends the search.

        Args:
            mode, amplification, deadline_us: Which plan, as of :func:`deeppool.plan`.
            limit_per_layer: Whether the limit is one for each node by itself, as the original DeepPool has it; for chains whose times
                add up.
            frontier: Whether all plans that no other plan beats are asked for, too.

        Raises:
            NoPlanError: no plan keeps the limits.
            InputError: the document is wrong, with the place in it.
        """
        question = {
            "mode": mode_document(mode, amplification, deadline_us),
            "per_layer": limit_per_layer,
            "frontier": frontier,
        }
        report: dict[str, Any] = json.loads(_deeppool.plan_problem(json.dumps(self.document), json.dumps(question)))
        points = report.get("frontier")
        return ProblemPlan(
            report["gpus"],
            report["iteration_us"],
            report["gpu_time_us"],
            report["single_gpu_us"],
            report["amplification"],
            tuple(PlannedLayer(layer["name"], layer["gpus"], tuple(layer["ranks"])) for layer in report["layers"]),
            None if points is None else tuple((point["iteration_us"], point["amplification"]) for point in points),
            report,
        )
