"""Planning problems given by the step times of their nodes instead of a network."""

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
    """A GPU count of a node, with the durations of its steps on each rank."""

    gpus: int
    forward_us: float
    backward_us: float
    update_us: float = 0.0
    """The optimizer's step over the node's own parameters."""
    memory_bytes: int = 0
    """Memory on each rank: its output, other saved values, the gradients that its backward step writes, and
    all else that it needs."""
    saved_bytes: int = 0
    """The part of ``memory_bytes`` that the forward step saves besides its output."""


@dataclass(frozen=True)
class Transfer:
    """The duration of moving a node's output, or its gradient, between two sets of ranks."""

    from_gpus: int
    to_gpus: int
    transfer_us: float
    """If one set contains the other."""
    transfer_disjoint_us: float | None = None
    """If neither set contains the other; ``transfer_us`` by default."""


@dataclass(frozen=True)
class Node:
    """A part of the program, usually a layer."""

    name: str
    options: Sequence[Option]
    output: Sequence[Transfer] = ()
    """Durations of moving its output. Required if it has consumers, for all pairs of GPU counts."""
    gradient_bytes: int = 0
    """Size of the gradient of its parameters."""
    state_bytes: int = 0
    """Size of its parameters and of the optimizer's state."""
    output_bytes: int = 0
    """Size of its output for the whole batch."""
    parameters_of: str | None = None
    """The node whose parameters it uses."""
    backward_reads_input: bool = True
    """Whether its backward step reads the outputs of its producers, which are kept until then."""
    backward_reads_output: bool = True
    """Whether its backward step reads its output, which is kept until then."""
    backward_reads_saved: bool | None = None
    """Whether its backward step reads the ``saved_bytes``; ``backward_reads_output`` if ``None``."""


@dataclass(frozen=True)
class AllReduce:
    """The duration of an all-reduce between ``gpus`` ranks: ``startup_us + us_per_byte * bytes``."""

    gpus: int
    startup_us: float
    us_per_byte: float


@dataclass(frozen=True)
class ProblemPlan:
    """The plan of a problem. Times are microseconds."""

    gpus: int
    iteration_us: float
    gpu_time_us: float
    single_gpu_us: float
    amplification: float
    lower_bound_us: float | None
    """Lower bound on the iteration time; ``None`` for data parallelism and for a limit per layer."""
    layers: tuple[PlannedLayer, ...]
    frontier: tuple[tuple[float, float], ...] | None
    """Iteration time and amplification of all Pareto-optimal plans, if they were asked for."""
    document: Mapping[str, Any] = field(repr=False)
    """The report of ``deeppool plan --problem --json``."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the report."""
        return dict(self.document)


@dataclass(frozen=True)
class PlanProblem:
    """A planning problem: a document of the format ``deeppool/plan-problem/v2``.

    >>> conv = Node("conv", [Option(1, 40.0, 60.0), Option(2, 20.0, 40.0)],
    ...             [Transfer(1, 1, 2.5), Transfer(1, 2, 2.5), Transfer(2, 2, 2.5)], gradient_bytes=4)
    >>> fc = Node("fc", [Option(1, 20.0, 30.0), Option(2, 18.0, 27.0)])
    >>> problem = PlanProblem.of(2, [conv, fc], [("conv", "fc")], [AllReduce(2, 0.0, 0.0)])
    >>> problem.plan(amplification=1.2).iteration_us
    115.0
    """

    document: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        gpus: int,
        nodes: Sequence[Node],
        edges: Sequence[tuple[str, str]] = (),
        all_reduce: Sequence[AllReduce] = (),
        *,
        memory_limit_bytes: int | None = None,
        bucket_bytes: int | None = None,
        overlap: bool = True,
    ) -> PlanProblem:
        """Builds a problem.

        Args:
            gpus: Number of GPUs.
            nodes: The parts of the program.
            edges: Pairs of a producer and a consumer, by name.
            all_reduce: Durations of all-reduces. The largest GPU count of any option has to be covered.
            memory_limit_bytes: Memory of a rank.
            bucket_bytes: Gradients are all-reduced together once they have this size; 25 MiB by default.
            overlap: Whether gradients are all-reduced during the backward pass.
        """
        document: dict[str, Any] = {
            "schema": "deeppool/plan-problem/v2",
            "gpus": gpus,
            "overlap": overlap,
            "nodes": [_node(node) for node in nodes],
            "edges": [{"from": producer, "to": consumer} for producer, consumer in edges],
            "all_reduce": [_fields(each) for each in all_reduce],
        }
        if memory_limit_bytes is not None:
            document["memory_limit_bytes"] = memory_limit_bytes
        if bucket_bytes is not None:
            document["bucket_bytes"] = bucket_bytes
        return cls(document)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> PlanProblem:
        """Wraps a document, which is checked when it is planned."""
        return cls(document)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> PlanProblem:
        """Reads a problem file."""
        try:
            return cls(json.loads(read_text(path)))
        except json.JSONDecodeError as error:
            raise InputError(f"{os.fspath(path)}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Returns the document."""
        return dict(self.document)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a problem file, which ``deeppool plan --problem`` also reads."""
        write_text(path, json.dumps(self.document, indent=2) + "\n")

    def plan(
        self,
        *,
        mode: Mode = "burst",
        amplification: float | None = 2.0,
        deadline_us: float | None = None,
        limit_per_layer: bool = False,
        frontier: bool = False,
        prove: str = "default",
    ) -> ProblemPlan:
        """Plans the problem. Ctrl-C ends the search.

        Args:
            mode, amplification, deadline_us: As in :func:`deeppool.plan`.
            limit_per_layer: Whether the limit applies to each layer, as in the original DeepPool. For
                chains only.
            frontier: Whether the result also lists all Pareto-optimal plans.
            prove: As in :func:`deeppool.plan`.

        Raises:
            NoPlanError: No plan is within the limits.
            InputError: The document is not valid. The message has the path of the wrong field.
        """
        question = {
            "mode": mode_document(mode, amplification, deadline_us),
            "per_layer": limit_per_layer,
            "frontier": frontier,
            "prove": prove,
        }
        report: dict[str, Any] = json.loads(
            _deeppool.plan_problem(json.dumps(self.document), json.dumps(question))
        )
        points = report.get("frontier")
        return ProblemPlan(
            report["gpus"],
            report["iteration_us"],
            report["gpu_time_us"],
            report["single_gpu_us"],
            report["amplification"],
            report.get("lower_bound_us"),
            tuple(
                PlannedLayer(layer["name"], layer["gpus"], tuple(layer["ranks"]))
                for layer in report["layers"]
            ),
            None
            if points is None
            else tuple((point["iteration_us"], point["amplification"]) for point in points),
            report,
        )


def _fields(value: Option | Transfer | AllReduce) -> dict[str, Any]:
    """Returns the fields of a document's part; those that are None are left out."""
    return {name: figure for name, figure in vars(value).items() if figure is not None}


def _node(node: Node) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": node.name,
        "options": [_fields(option) for option in node.options],
        "output": [_fields(transfer) for transfer in node.output],
        "gradient_bytes": node.gradient_bytes,
        "state_bytes": node.state_bytes,
        "output_bytes": node.output_bytes,
        "backward_reads_input": node.backward_reads_input,
        "backward_reads_output": node.backward_reads_output,
    }
    for name in "parameters_of", "backward_reads_saved":
        if (value := getattr(node, name)) is not None:
            document[name] = value
    return document
