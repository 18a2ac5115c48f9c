"""Plans: on which GPUs each layer of a network runs, and what an iteration takes then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from os import PathLike
from typing import Any, Literal

from deeppool import _deeppool
from deeppool._documents import read_text, write_text
from deeppool.costs import Costs, Profile
from deeppool.errors import InputError
from deeppool.network import Network
from deeppool.picture import plan_picture

Mode = Literal["data-parallel", "burst", "deadline", "knee"]


@dataclass(frozen=True)
class PlannedLayer:
    """Where a layer runs."""

    name: str
    gpus: int
    """On how many GPUs: as many as it has ranks."""
    ranks: tuple[int, ...]
    """Which, in the order of their samples."""


@dataclass(frozen=True)
class DataParallel:
    """What data parallelism takes on the same GPUs."""

    iteration_us: float
    amplification: float
    memory_peak_bytes: int | None


@dataclass(frozen=True)
class Plan:
    """Everything that is decided about how a network is trained. Plan files (``deeppool/plan/v2``) are those of the command
    ``deeppool``, both ways.

    Times are microseconds of one iteration, from one to the next in the steady state. A rank is active while it computes, and
    while a collective that it belongs to transfers; GPU time is the active time of all ranks.
    """

    model: str
    batch: int
    """Samples of the global batch."""
    gpus: int
    """How many GPUs there are; ranks are ``0`` to ``gpus - 1``."""
    mode: Literal["dp", "bp"]
    device: str
    """What the layers' times are of."""
    origin: Literal["measured", "modelled", "imported"]
    link: str
    """The link model."""
    iteration_us: float
    gpu_time_us: float
    single_gpu_us: float
    """The time of an iteration on one GPU."""
    amplification: float
    """GPU time over the time on one GPU."""
    amplification_limit: float | None
    deadline_us: float | None
    lower_bound_us: float | None
    """No plan within the limit takes less time. Not known for data parallelism, which is not searched for."""
    computing_us: float
    """The time in which ranks compute, of all together."""
    communicating_us: float
    """The time in which they only communicate."""
    idle_us: float
    """The time in which they do neither."""
    memory_peak_bytes: int | None
    """What the rank holds that holds most."""
    memory_limit_bytes: int | None
    data_parallel: DataParallel
    layers: tuple[PlannedLayer, ...]
    """All layers but the input, in topological order."""
    order: tuple[str, ...] | None
    """The names of the layers in the order in which ranks run them, where it is not that of ``layers``."""
    document: Mapping[str, Any] = field(repr=False)
    """All of it, as the file has it."""
    network: Network | None = field(default=None, repr=False, compare=False)
    """The network, where the plan was made here. Files do not have it."""
    costs: Costs | None = field(default=None, repr=False, compare=False)
    """What it was made from, where it was made here."""

    @classmethod
    def from_dict(
        cls, document: Mapping[str, Any], network: Network | None = None, costs: Costs | None = None
    ) -> Plan:
        """The plan of a document of the format ``deeppool/plan/v2``, which is checked.

        Raises:
            InputError: with the place in the document that is wrong.
        """
        return _plan(json.dumps(document), network, costs)

    @classmethod
    def load(cls, path: str | PathLike[str], network: Network | None = None) -> Plan:
        """Reads a plan file, of this package or of ``deeppool plan -o``."""
        text = read_text(path)
        try:
            return _plan(text, network)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """The plan as a document of the format ``deeppool/plan/v2``."""
        return dict(self.document)

    def to_json(self) -> str:
        """The document as text."""
        return json.dumps(self.document, indent=2)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a plan file, which ``deeppool simulate`` and ``deeppool train`` read, too."""
        write_text(path, self.to_json() + "\n")

    @cached_property
    def ranks(self) -> Mapping[str, tuple[int, ...]]:
        """By layer: the ranks that it runs on."""
        return {layer.name: layer.ranks for layer in self.layers}

    @property
    def speedup(self) -> float:
        """How many times as fast as one GPU."""
        return self.single_gpu_us / self.iteration_us

    @property
    def gap(self) -> float | None:
        """How far the iteration may be above the best, relatively."""
        return None if self.lower_bound_us is None else self.iteration_us / self.lower_bound_us - 1

    @property
    def samples_per_s(self) -> float:
        """Samples by second."""
        return self.batch * 1e6 / self.iteration_us

    def program(self, network: Network | None = None, rank: int | None = None) -> dict[str, Any]:
        """What every rank does in an iteration, as a document of the format ``deeppool/program/v1``.

        Args:
            network: The network, where the plan was not made here.
            rank: One rank alone, with the collectives of all.
        """
        lowered = _deeppool.lower(self.network_of(network).to_json(), self.to_json(), rank)
        document: dict[str, Any] = json.loads(lowered)
        return document

    def network_of(self, network: Network | None = None) -> Network:
        """The network that the plan is of: the one that is given, or the one that it was made for."""
        found = network if network is not None else self.network
        if found is None:
            raise InputError(
                "the plan was read from a file, which does not have its network: give network=..."
            )
        return found

    def _repr_svg_(self) -> str:
        return plan_picture(self)

    def __str__(self) -> str:
        limit = f" (limit {self.amplification_limit:g})" if self.amplification_limit is not None else ""
        return (
            f"plan of {self.model}, global batch {self.batch}, {self.gpus} GPUs: iteration "
            f"{self.iteration_us / 1e3:.2f} ms, {self.speedup:.2f} times as fast as one GPU; amplification "
            f"{self.amplification:.3f}{limit}; data parallel {self.data_parallel.iteration_us / 1e3:.2f} ms"
        )


def _plan(text: str, network: Network | None = None, costs: Costs | None = None) -> Plan:
    _deeppool.check_plan(text)
    document: dict[str, Any] = json.loads(text)
    dp = document["dp"]
    same: dict[str, Any] = {
        each.name: document.get(each.name) for each in fields(Plan) if each.name in _AS_IN_THE_FILE
    }
    order = document.get("order")
    return Plan(
        **same,
        device=document["profile"]["device"],
        origin=document["profile"]["origin"],
        data_parallel=DataParallel(dp["iteration_us"], dp["amplification"], dp.get("memory_peak_bytes")),
        layers=tuple(
            PlannedLayer(layer["name"], layer["gpus"], tuple(layer["ranks"])) for layer in document["layers"]
        ),
        order=None if order is None else tuple(order),
        document=document,
        network=network,
        costs=costs,
    )


_AS_IN_THE_FILE = frozenset(
    (
        "model batch gpus mode link iteration_us gpu_time_us single_gpu_us amplification amplification_limit deadline_us "
        "lower_bound_us computing_us communicating_us idle_us memory_peak_bytes memory_limit_bytes"
    ).split()
)


def plan(
    network: Network | str,
    *,
    gpus: int,
    batch: int,
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
) -> Plan:
    """Finds out how many GPUs, and which, each layer should run on.

    Ctrl-C ends the search. The same question has the same answer.

    Args:
        network: The network, or the name of a built-in one.
        gpus: How many GPUs there are.
        batch: Samples of the global batch.
        device: A device model of :func:`deeppool.devices`, or the JSON file of one.
        profile: Layer times instead of a device model: a :class:`Profile`, or the file of one.
        link: How the GPUs are linked: a name of :func:`deeppool.links`, or the JSON file of a cluster. Those that go with the
            device where nothing is said.
        mode: ``data-parallel``: every layer on all GPUs. ``burst``: the fastest plan within the limit on amplification.
            ``deadline``: the plan with the least GPU time whose iteration takes no longer than ``deadline_us``. ``knee``: the plan
            beyond which being faster costs much and being cheaper saves little.
        amplification: The limit on GPU time over the time on one GPU; ``None`` is no limit.
        deadline_us: The limit on the iteration time, microseconds.
        gpu_counts: On how many GPUs a layer may run: ``auto``, ``powers-of-two``, ``all``, or a list.
        memory: What each GPU has: bytes, a size such as ``40GB``, or ``unlimited``; what the device has where nothing is said.
        overlap: Whether gradients are all-reduced during the backward pass, or after it.
        sync_batch_norm: Whether batch normalisation is over the global batch instead of each rank's samples.
        effort: How long to search, as a multiple of the usual effort.

    Raises:
        NoPlanError: no plan keeps the limits.
        InputError: a name, a number or a file is wrong, or the profile is of another network.
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
    return _plan(_deeppool.plan(network.to_json(), question), network, costs)


def frontier(
    network: Network | str,
    *,
    gpus: int,
    batch: int,
    device: str | PathLike[str] | None = None,
    profile: Profile | str | PathLike[str] | None = None,
    link: str | PathLike[str] | None = None,
    most: int = 20,
    gpu_counts: str | list[int] = "auto",
    memory: str | int | None = None,
    overlap: bool = True,
    sync_batch_norm: bool = False,
    effort: float = 1.0,
) -> list[Plan]:
    """The plans that no other plan beats in both iteration time and amplification, fastest first.

    Args:
        most: How many at most, spread evenly over the logarithms of their times.

    The other arguments are those of :func:`plan`.
    """
    network = Network.zoo(network) if isinstance(network, str) else network
    costs = Costs.of(device=device, profile=profile, link=link)
    question = question_document(
        costs, gpus, batch, "knee", None, None, gpu_counts, memory, overlap, sync_batch_norm, effort
    )
    found = _deeppool.frontier(network.to_json(), question, most)
    return [_plan(document, network, costs) for document in found]


def question_document(
    costs: Costs,
    gpus: int,
    batch: int,
    mode: Mode,
    amplification: float | None,
    deadline_us: float | None,
    gpu_counts: str | list[int],
    memory: str | int | None,
    overlap: bool,
    sync_batch_norm: bool,
    effort: float,
) -> str:
    counts = gpu_counts if isinstance(gpu_counts, str) else ",".join(map(str, gpu_counts))
    return json.dumps(
        {
            "costs": costs.to_dict(),
            "gpus": gpus,
            "batch": batch,
            "mode": mode_document(mode, amplification, deadline_us),
            "gpu_counts": counts,
            "memory": None if memory is None else str(memory),
            "overlap": overlap,
            "sync_batch_norm": sync_batch_norm,
            "effort": effort,
        }
    )


def mode_document(mode: Mode, amplification: float | None, deadline_us: float | None) -> Any:
    """Which plan is asked for, as the native module reads it."""
    if mode == "burst" and deadline_us is None:
        return {"burst": None if amplification == float("inf") else amplification}
    if mode in ("burst", "deadline") and deadline_us is not None:
        return {"deadline": deadline_us}
    if mode == "deadline":
        raise InputError("mode='deadline' needs deadline_us=...")
    if mode in ("data-parallel", "knee"):
        return mode
    raise InputError(f"there is no mode {mode!r}: give 'data-parallel', 'burst', 'deadline' or 'knee'")
