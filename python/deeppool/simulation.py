"""Simulation of plans in virtual time, alone or with background jobs on their GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, Literal

from deeppool import _deeppool
from deeppool._documents import write_text
from deeppool.costs import Costs, Profile
from deeppool.errors import InputError
from deeppool.network import Network
from deeppool.plans import Mode, Plan, question_document


@dataclass(frozen=True)
class Background:
    """A background job on each GPU. The jobs are independent of each other.

    Without ``device`` and ``profile``, it has the foreground's source of times.
    """

    network: Network | str
    """A network, or the name of a built-in one."""
    batch: int
    """Batch size of each job in samples."""
    device: str | None = None
    """Name or file of a device model."""
    profile: Profile | None = None
    """Layer times, in place of a device model."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the document for the native module."""
        network = Network.zoo(self.network) if isinstance(self.network, str) else self.network
        profile = None if self.profile is None else self.profile.to_dict()
        return {"network": network.to_dict(), "batch": self.batch, "device": self.device, "profile": profile}


@dataclass(frozen=True)
class Simulation:
    """The result of a simulation.

    Times are microseconds of one iteration after the warm-up. Rates are samples per second.
    """

    model: str
    gpus: int
    batch: int
    mode: Literal["dp", "bp"]
    iteration_us: float
    planned_iteration_us: float
    """Iteration time predicted by the plan."""
    amplification: float
    computing_us: float
    """Time in which ranks compute, summed over ranks."""
    communicating_us: float
    """Time in which ranks communicate without computing, summed over ranks."""
    idle_us: float
    """Time in which ranks neither compute nor communicate, summed over ranks."""
    foreground_samples_per_s: float
    background_samples_per_s: float
    """Sum over all GPUs."""
    foreground_slowdown: float
    """Iteration time with the background divided by the iteration time alone."""
    gpu_busy_fraction: float
    """Fraction of all GPUs' time in which either job computes."""
    foreground_busy_fraction: float
    """Fraction of all GPUs' time in which the foreground computes."""
    background_share_of_idle: float | None
    """Fraction of the foreground's idle time in which the background computes."""
    document: Mapping[str, Any] = field(repr=False)
    """The report of ``deeppool simulate --json``."""
    timeline: Mapping[str, Any] | None = field(default=None, repr=False)
    """Chrome trace events of the last iteration, if requested."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the report, without the timeline."""
        return dict(self.document)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Simulation:
        """Creates a simulation result from a report.

        Raises:
            InputError: The report lacks a field.
        """
        names = [name for name in cls.__dataclass_fields__ if name not in ("document", "timeline")]
        missing = [name for name in names if name not in document]
        if missing:
            raise InputError(f"not a simulation report: the field `{missing[0]}` is missing")
        return cls(**{name: document[name] for name in names}, document=document)

    def save_timeline(self, path: str | PathLike[str]) -> None:
        """Writes the timeline as a file for Perfetto.

        Raises:
            InputError: The simulation has no timeline, or the file cannot be written.
        """
        if self.timeline is None:
            raise InputError("the simulation has no timeline: simulate with timeline=True")
        write_text(path, json.dumps(self.timeline) + "\n")


def simulate(
    plan: Plan,
    *,
    network: Network | str | None = None,
    device: str | PathLike[str] | None = None,
    profile: Profile | str | PathLike[str] | None = None,
    link: str | PathLike[str] | None = None,
    background: Background | None = None,
    policy: str = "default",
    contention: bool = False,
    iterations: int = 20,
    timeline: bool = False,
) -> Simulation:
    """Simulates a plan in virtual time.

    Args:
        plan: The plan.
        network, device, profile, link: Network and sources of times. Required if the plan was read from a
            file: a plan file has the names of its device and link, but not its network or layer times.
        background: A background job on each GPU.
        policy: Policy for sharing the GPUs: ``naive``, ``priority``, ``ungated``, ``artifact``,
            ``deeppool``, ``feedback`` or ``default``.
        contention: Whether to model the launch overhead of an A100's host, and the slowdown of kernels by
            concurrent communication.
        iterations: Number of iterations. The first quarter is the warm-up.
        timeline: Whether to record the last iteration's timeline.

    Raises:
        InputError: A name, a number or a file is wrong, or a source of times is missing.
    """
    network = Network.zoo(network) if isinstance(network, str) else network
    question = {
        "costs": _costs(plan, device, profile, link).to_dict(),
        "iterations": iterations,
        "background": None if background is None else background.to_dict(),
        "policy": policy,
        "contention": contention,
        "timeline": timeline,
    }
    report, events = _deeppool.simulate(
        plan.network_of(network).to_json(), plan.to_json(), json.dumps(question)
    )
    simulation = Simulation.from_dict(json.loads(report))
    return simulation if events is None else replace(simulation, timeline=json.loads(events))


def _costs(
    plan: Plan,
    device: str | PathLike[str] | None,
    profile: Profile | str | PathLike[str] | None,
    link: str | PathLike[str] | None,
) -> Costs:
    """Returns the given sources of times, or those of the plan."""
    if device is None and profile is None:
        if plan.costs is not None:
            return plan.costs if link is None else Costs.of(plan.costs.device, plan.costs.profile, link)
        if plan.origin != "modelled":
            raise InputError(
                f"the plan was made from a profile ({plan.device}, {plan.origin}): give profile=..."
            )
        device = plan.device
    return Costs.of(device, profile, plan.link if link is None else link)


@dataclass(frozen=True)
class Point:
    """Simulated result of one way to share GPUs between a foreground job and background jobs.

    Rates are samples per second. Ranges are the rates for layer and link times at the limits of their
    known errors.
    """

    mode: Literal["dp", "dp+col", "bp", "bp+col", "partition", "bg"]
    """Data parallel or burst parallel, alone or with a background job on each GPU (``+col``), a static
    partition, or background jobs alone."""
    gpus: int
    """Number of GPUs used by the foreground."""
    limit: float | None
    """Amplification of the plan."""
    iteration_us: float | None
    foreground_samples_per_s: float
    background_samples_per_s: float
    foreground_range_samples_per_s: tuple[float, float] | None
    total_range_samples_per_s: tuple[float, float] | None

    @property
    def total_samples_per_s(self) -> float:
        """Sum of foreground and background throughput."""
        return self.foreground_samples_per_s + self.background_samples_per_s


@dataclass(frozen=True)
class Comparison:
    """A comparison of ways to share GPUs."""

    model: str
    gpus: int
    batch: int
    background_samples_per_s_of_a_gpu: float
    """Throughput of a background job alone on one GPU."""
    points: tuple[Point, ...]
    advice: str
    """Recommended way for each foreground speed, as text."""
    layers_off: float | None
    """Maximum known relative error of the layer times."""
    links_off: float | None
    """Maximum known relative error of the link times."""

    def of(self, mode: str) -> list[Point]:
        """Returns the points of one mode."""
        return [point for point in self.points if point.mode == mode]

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Comparison:
        """Creates a comparison from a document, as returned by :meth:`to_dict`."""
        ranges = ("foreground_range_samples_per_s", "total_range_samples_per_s")
        points = []
        for entry in document["points"]:
            point: dict[str, Any] = dict(entry)
            for name in ranges:
                point[name] = None if point[name] is None else tuple(point[name])
            points.append(Point(**point))
        names = [name for name in cls.__dataclass_fields__ if name != "points"]
        return cls(**{name: document[name] for name in names}, points=tuple(points))

    def to_dict(self) -> dict[str, Any]:
        """Returns the comparison as a document."""
        return {**self.__dict__, "points": [dict(point.__dict__) for point in self.points]}


def compare(
    network: Network | str,
    *,
    gpus: int,
    batch: int,
    background: Background,
    device: str | PathLike[str] | None = None,
    profile: Profile | str | PathLike[str] | None = None,
    link: str | PathLike[str] | None = None,
    mode: Mode = "burst",
    amplification: float | None = 2.0,
    deadline_us: float | None = None,
    gpu_counts: str | list[int] = "auto",
    memory: str | int | None = None,
    overlap: bool = True,
    sync_batch_norm: bool = False,
    effort: float = 1.0,
) -> Comparison:
    """Compares ways to share GPUs with background jobs by simulation.

    The ways are data parallelism and burst parallelism, each alone and with a background job on each GPU,
    and every static partition.

    Args:
        background: The background job.

    The other arguments are those of :func:`deeppool.plan`.
    """
    network = Network.zoo(network) if isinstance(network, str) else network
    costs = Costs.of(device=device, profile=profile, link=link)
    question = question_document(
        costs,
        gpus,
        batch,
        mode,
        amplification,
        deadline_us,
        gpu_counts,
        memory,
        overlap,
        sync_batch_norm,
        effort,
    )
    report = _deeppool.compare(network.to_json(), question, json.dumps(background.to_dict()))
    return Comparison.from_dict(
        {key: value for key, value in json.loads(report).items() if key != "background_batch"}
    )
