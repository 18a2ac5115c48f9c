"""Plans: the GPUs of each layer of a network, and the resulting iteration time."""

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
    """The placement of a layer."""

    name: str
    gpus: int
    """Number of GPUs, equal to the number of ranks."""
    ranks: tuple[int, ...]
    """Ranks, in the order of their shards of the batch."""


@dataclass(frozen=True)
class DataParallel:
    """Figures of data parallelism on the same GPUs."""

    iteration_us: float
    amplification: float
    memory_peak_bytes: int | None


@dataclass(frozen=True)
class Plan:
    """A training plan: the ranks of each layer, and the predicted times.

    Plan files have the format ``deeppool/plan/v3``, which the command ``deeppool`` also reads and
    writes.

    Times are microseconds of one iteration in the steady state. A rank is active while it computes and
    while one of its collectives transfers data. GPU time is the sum of the active times of all ranks.
    """

    model: str
    batch: int
    """Number of samples in the global batch."""
    gpus: int
    """Number of GPUs; ranks are ``0`` to ``gpus - 1``."""
    mode: Literal["dp", "bp"]
    """Data parallel or burst parallel."""
    device: str
    """Name of the device of the layer times."""
    origin: Literal["measured", "modelled", "imported"]
    """Origin of the layer times."""
    link: str
    """Name of the link model."""
    iteration_us: float
    gpu_time_us: float
    single_gpu_us: float
    """Iteration time on one GPU."""
    amplification: float
    """GPU time divided by the iteration time on one GPU."""
    amplification_limit: float | None
    deadline_us: float | None
    lower_bound_us: float | None
    """Lower bound on the iteration time within the limits; ``None`` for data parallelism."""
    computing_us: float
    """Time in which ranks compute, summed over ranks."""
    communicating_us: float
    """Time in which ranks communicate without computing, summed over ranks."""
    idle_us: float
    """Time in which ranks neither compute nor communicate, summed over ranks."""
    memory_peak_bytes: int | None
    """Maximum over ranks of the peak memory."""
    memory_limit_bytes: int | None
    """Memory limit of each rank."""
    data_parallel: DataParallel
    layers: tuple[PlannedLayer, ...]
    """All layers except the input, in topological order."""
    order: tuple[str, ...] | None
    """Names of the layers in execution order; ``None`` if it is the order of ``layers``."""
    document: Mapping[str, Any] = field(repr=False)
    """The complete document, as in a plan file."""
    network: Network | None = field(default=None, repr=False, compare=False)
    """The network; ``None`` if the plan was read from a file, which does not contain it."""
    costs: Costs | None = field(default=None, repr=False, compare=False)
    """Sources of the times; ``None`` if the plan was read from a file."""

    @classmethod
    def from_dict(
        cls, document: Mapping[str, Any], network: Network | None = None, costs: Costs | None = None
    ) -> Plan:
        """Creates a plan from a document of the format ``deeppool/plan/v3``.

        Raises:
            InputError: The document is not valid. The message has the path of the wrong field.
        """
        return _plan(json.dumps(document), network, costs)

    @classmethod
    def load(cls, path: str | PathLike[str], network: Network | None = None) -> Plan:
        """Reads a plan file, as written by :meth:`save` or ``deeppool plan -o``."""
        text = read_text(path)
        try:
            return _plan(text, network)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as a document of the format ``deeppool/plan/v3``."""
        return dict(self.document)

    def to_json(self) -> str:
        """Returns the document as JSON text."""
        return json.dumps(self.document, indent=2)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a plan file, which ``deeppool simulate`` and ``deeppool train`` also read."""
        write_text(path, self.to_json() + "\n")

    @cached_property
    def ranks(self) -> Mapping[str, tuple[int, ...]]:
        """Ranks of each layer, by name."""
        return {layer.name: layer.ranks for layer in self.layers}

    @property
    def speedup(self) -> float:
        """Iteration time on one GPU divided by the plan's iteration time."""
        return self.single_gpu_us / self.iteration_us

    @property
    def gap(self) -> float | None:
        """Relative distance of the iteration time from its lower bound; ``None`` without a bound."""
        return None if self.lower_bound_us is None else self.iteration_us / self.lower_bound_us - 1

    @property
    def samples_per_s(self) -> float:
        """Throughput in samples per second."""
        return self.batch * 1e6 / self.iteration_us

    def program(self, network: Network | None = None, rank: int | None = None) -> dict[str, Any]:
        """Lowers the plan to the operations of each rank in one iteration.

        Args:
            network: The network. Required if the plan was read from a file.
            rank: The rank whose operations are returned, with the collectives of all ranks; all ranks
                if ``None``.

        Returns:
            A document of the format ``deeppool/program/v5``.
        """
        lowered = _deeppool.lower(self.network_of(network).to_json(), self.to_json(), rank)
        document: dict[str, Any] = json.loads(lowered)
        return document

    def network_of(self, network: Network | None = None) -> Network:
        """Returns the given network, or the one that the plan was made for.

        Raises:
            InputError: Neither is known.
        """
        network = network if network is not None else self.network
        if network is None:
            raise InputError(
                "the plan was read from a file, which does not contain its network: give network=..."
            )
        return network

    def _repr_svg_(self) -> str:
        return plan_picture(self)

    def __str__(self) -> str:
        limit = f" (limit {self.amplification_limit:g})" if self.amplification_limit is not None else ""
        return (
            f"plan of {self.model}, global batch {self.batch}, {self.gpus} GPUs: iteration "
            f"{self.iteration_us / 1e3:.2f} ms, {self.speedup:.2f} times as fast as one GPU; amplification "
            f"{self.amplification:.3f}{limit}; data parallel {self.data_parallel.iteration_us / 1e3:.2f} ms; "
            f"predicted from {self.origin} layer times of {self.device} and the link model {self.link}"
        )


def _plan(text: str, network: Network | None = None, costs: Costs | None = None) -> Plan:
    _deeppool.check_plan(text)
    document: dict[str, Any] = json.loads(text)
    dp = document["dp"]
    copied: dict[str, Any] = {
        each.name: document.get(each.name) for each in fields(Plan) if each.name in _COPIED_FIELDS
    }
    order = document.get("order")
    return Plan(
        **copied,
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


# Fields of Plan with the same name and value in the document.
_COPIED_FIELDS = frozenset(
    (
        "model batch gpus mode link iteration_us gpu_time_us single_gpu_us amplification "
        "amplification_limit deadline_us lower_bound_us computing_us communicating_us idle_us "
        "memory_peak_bytes memory_limit_bytes"
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
    prove: str = "default",
) -> Plan:
    """Plans the ranks of each layer of a network.

    The search is deterministic. Ctrl-C ends it.

    Args:
        network: A network, or the name of a built-in one.
        gpus: Number of GPUs.
        batch: Number of samples in the global batch.
        device: Name of a device model (see :func:`deeppool.devices`), or the JSON file of one.
        profile: Layer times, in place of a device model: a :class:`Profile`, or its file.
        link: Name of a link model (see :func:`deeppool.links`), or the JSON file of a cluster. The
            default is the device's usual link.
        mode: ``data-parallel``: every layer on all GPUs. ``burst``: the fastest plan within the limit
            on amplification. ``deadline``: the plan with minimum GPU time whose iteration takes at most
            ``deadline_us``. ``knee``: the knee of the frontier of iteration time and GPU time.
        amplification: Maximum ratio of GPU time to the iteration time on one GPU; ``None`` for no limit.
        deadline_us: Maximum iteration time in microseconds.
        gpu_counts: Allowed numbers of GPUs of a layer: ``auto``, ``powers-of-two``, ``all``, or a list.
        memory: Memory of each GPU: bytes, a size such as ``40GB``, or ``unlimited``. The default is the
            device's memory.
        overlap: Whether gradients are all-reduced during the backward pass instead of after it.
        sync_batch_norm: Whether batch normalisation is over the global batch instead of each rank's shard.
        effort: Search effort as a multiple of the default.
        prove: Effort to prove a lower bound of the iteration time: ``off``, ``default`` (a multiple of
            the search's work, with the same bound on every machine), or a time such as ``30s``. It does
            not change the plan.

    Raises:
        NoPlanError: No plan is within the limits.
        InputError: A name, a number or a file is wrong, or the profile is of another network.
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
        prove,
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
    max_plans: int = 20,
    gpu_counts: str | list[int] = "auto",
    memory: str | int | None = None,
    overlap: bool = True,
    sync_batch_norm: bool = False,
    effort: float = 1.0,
) -> list[Plan]:
    """Returns the Pareto-optimal plans in iteration time and amplification, fastest first.

    Args:
        max_plans: Maximum number of plans, spread evenly over the logarithm of the iteration time.

    The other arguments are those of :func:`plan`.
    """
    network = Network.zoo(network) if isinstance(network, str) else network
    costs = Costs.of(device=device, profile=profile, link=link)
    question = question_document(
        costs, gpus, batch, "knee", None, None, gpu_counts, memory, overlap, sync_batch_norm, effort
    )
    documents = _deeppool.frontier(network.to_json(), question, max_plans)
    return [_plan(document, network, costs) for document in documents]


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
    prove: str = "default",
) -> str:
    """Returns a planning question as JSON text for the native module."""
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
            "prove": prove,
        }
    )


def mode_document(mode: Mode, amplification: float | None, deadline_us: float | None) -> Any:
    """Returns a mode with its limit as the native module reads it.

    Raises:
        InputError: The mode is unknown, or its limit is missing.
    """
    if mode == "burst" and deadline_us is None:
        return {"burst": None if amplification == float("inf") else amplification}
    if mode in ("burst", "deadline") and deadline_us is not None:
        return {"deadline": deadline_us}
    if mode == "deadline":
        raise InputError("mode='deadline' needs deadline_us=...")
    if mode in ("data-parallel", "knee"):
        return mode
    raise InputError(f"unknown mode {mode!r}: give 'data-parallel', 'burst', 'deadline' or 'knee'")
