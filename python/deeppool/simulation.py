"""What plans take in virtual time, alone and with what shares their GPUs."""

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
    """A background job on every GPU, each of which trains by itself."""

    network: Network | str
    """The network, or the name of a built-in one."""
    batch: int
    """Samples of each job's batch."""
    device: str | None = None
    """Where its times are from; as the foreground's where nothing is said."""
    profile: Profile | None = None

    def to_dict(self) -> dict[str, Any]:
        """As the native module reads it."""
        network = Network.zoo(self.network) if isinstance(self.network, str) else self.network
        profile = None if self.profile is None else self.profile.to_dict()
        return {"network": network.to_dict(), "batch": self.batch, "device": self.device, "profile": profile}


@dataclass(frozen=True)
class Simulation:
    """What a plan takes in virtual time. Times are microseconds of one iteration after the warm-up; rates are samples by second."""

    model: str
    gpus: int
    batch: int
    mode: Literal["dp", "bp"]
    iteration_us: float
    planned_iteration_us: float
    """What the plan says."""
    amplification: float
    computing_us: float
    """The time in which ranks compute, of all together."""
    communicating_us: float
    idle_us: float
    foreground_samples_per_s: float
    background_samples_per_s: float
    """Of all GPUs together."""
    foreground_slowdown: float
    """The iteration with the background over the iteration alone."""
    gpu_busy_fraction: float
    """The part of all GPUs' time in which either job computes."""
    foreground_busy_fraction: float
    background_share_of_idle: float | None
    """The part that the background used of the time in which the foreground is idle."""
    document: Mapping[str, Any] = field(repr=False)
    """All of it, as ``deeppool simulate --json`` prints it."""
    timeline: Mapping[str, Any] | None = field(default=None, repr=False)
    """The last iteration as Chrome trace events, if it was asked for."""

    def to_dict(self) -> dict[str, Any]:
        """The report, without the timeline."""
        return dict(self.document)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Simulation:
        """The simulation of a report."""
        names = [name for name in cls.__dataclass_fields__ if name not in ("document", "timeline")]
        missing = [name for name in names if name not in document]
        if missing:
            raise InputError(f"not a report of a simulation: it has no `{missing[0]}`")
        return cls(**{name: document[name] for name in names}, document=document)

    def save_timeline(self, path: str | PathLike[str]) -> None:
        """Writes the timeline, which opens in Perfetto."""
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
    """Runs a plan in virtual time, on virtual GPUs.

    Args:
        plan: The plan.
        network, device, profile, link: What the plan is of, where it was read from a file: the plan knows the names of its device
            and links, but neither its network nor measured times.
        background: A job on every GPU beside it.
        policy: How the background shares the GPUs: ``naive``, ``priority``, ``ungated``, ``artifact``, ``deeppool``, ``feedback``
            or ``default``.
        contention: Whether to charge what an A100's host takes to launch, and what communication takes from computing.
        iterations: How many iterations; the first quarter warms up.
        timeline: Whether to keep the last iteration's timeline.
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
    """What is given, or what the plan was made from."""
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
    """One way to share GPUs between a foreground job and background jobs, simulated. Rates are samples by second; ranges are
    what they may come to where times are as far off as they are known to be."""

    mode: Literal["dp", "dp+col", "bp", "bp+col", "partition", "bg"]
    """Data parallel, burst parallel, both with a background job on each GPU (``+col``), a static partition, or background alone."""
    gpus: int
    """GPUs on which the foreground has a part."""
    limit: float | None
    """The plan's amplification."""
    iteration_us: float | None
    foreground_samples_per_s: float
    background_samples_per_s: float
    foreground_range_samples_per_s: tuple[float, float] | None
    total_range_samples_per_s: tuple[float, float] | None

    @property
    def total_samples_per_s(self) -> float:
        """Foreground and background together."""
        return self.foreground_samples_per_s + self.background_samples_per_s


@dataclass(frozen=True)
class Comparison:
    """Ways to share GPUs, side by side."""

    model: str
    gpus: int
    batch: int
    background_samples_per_s_of_a_gpu: float
    points: tuple[Point, ...]
    advice: str
    """Which way to use at which speed of the foreground, in words."""
    layers_off: float | None
    """By what part the times of layers are known to be off at worst."""
    links_off: float | None

    def of(self, mode: str) -> list[Point]:
        """The points of one way."""
        return [point for point in self.points if point.mode == mode]

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Comparison:
        """What :meth:`to_dict` gave."""
        ranges = ("foreground_range_samples_per_s", "total_range_samples_per_s")
        points = []
        for document_of_point in document["points"]:
            point: dict[str, Any] = dict(document_of_point)
            for name in ranges:
                point[name] = None if point[name] is None else tuple(point[name])
            points.append(Point(**point))
        names = [name for name in cls.__dataclass_fields__ if name != "points"]
        return cls(**{name: document[name] for name in names}, points=tuple(points))

    def to_dict(self) -> dict[str, Any]:
        """As a document."""
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
    """Compares data parallelism, burst plans, both with a background job on each GPU, and every static partition, by simulation.

    Arguments are those of :func:`deeppool.plan`, and the background job.
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
