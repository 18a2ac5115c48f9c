"""A model of the memory that PyTorch allocates in training by a plan.

The memory that the planner reports (``plan.memory_peak_bytes``) is that of DeepPool's own engines, which
place the buffers of a program in one arena. PyTorch saves other tensors and frees them at other times.
:func:`pytorch_memory` therefore executes :class:`~deeppool.torch.BurstParallel` on fake tensors, which have
shapes and storages but no data, and adds up the storages that are alive.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from deeppool.errors import InputError
from deeppool.plans import Plan
from deeppool.torch.burst_parallel import BurstParallel, document_of, scaled
from deeppool.torch.communication import Communication, Unconnected
from deeppool.tracing import Traced

#: Size of a block of PyTorch's caching allocator, to whose multiples sizes are rounded up.
BLOCK_BYTES = 512
#: Iterations on fake tensors. The first one allocates the state of the optimizer.
ITERATIONS = 2


@dataclass(frozen=True)
class PyTorchMemory:
    """Memory of a rank in training by :class:`~deeppool.torch.BurstParallel`, as PyTorch allocates it."""

    rank: int
    peak_bytes: int
    """Maximum of the allocated bytes, as predicted for ``torch.cuda.max_memory_allocated()``."""
    state_bytes: int
    """The part of it between iterations: parameters and buffers of the whole module, which each rank has,
    and the optimizer's state."""


def momentum_sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Returns stochastic gradient descent with momentum, the default optimizer of the model."""
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def pytorch_memory(
    traced: Traced,
    plan: Plan | Mapping[str, Any] | str | PathLike[str],
    *,
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = momentum_sgd,
    targets: torch.Tensor | None = None,
    ranks: Iterable[int] | None = None,
) -> list[PyTorchMemory]:
    """Predicts the memory that PyTorch allocates on each rank in training by a plan.

    This is a model of PyTorch's caching allocator on the module's device: the sum of the storages that are
    alive, each rounded up to 512 bytes, over two iterations of ``BurstParallel`` and the optimizer on fake
    tensors. It contains parameters, buffers, gradients, the optimizer's state, tensors that autograd saves,
    buckets of gradients, copies of redistributed samples, and temporaries of PyTorch's operations. No process
    group and no other rank is needed, and the module does not change. On a CPU, the global batch belongs to
    the device's memory. Options such as ``torch.autocast`` apply if the call is within them.

    It leaves out what the allocator does not see as a tensor, or holds without a use: workspaces inside of
    kernels, such as those of cuDNN and cuBLAS; fragmentation and blocks that are cached (``reserved`` bytes);
    the CUDA context; the buffers of NCCL and gloo; and the user's own tensors, such as a background job's.

    Time and memory are O(operations of an iteration) for each rank, without the time of their kernels.

    Args:
        traced: The module, as returned by ``deeppool.tracing.trace``, on the device for training.
        plan: The plan, as for :class:`~deeppool.torch.BurstParallel`.
        optimizer: Creates the optimizer of the given parameters.
        targets: Targets of at least one sample, which give the shape and type. By default those of the
            trace, or else class indices.
        ranks: The ranks; all by default.

    Returns:
        The memory of each of the ranks, in their order.

    Raises:
        InputError: The plan is of another network, there is no such rank, or the targets are missing.
    """
    document = document_of(plan)
    fields = json.loads(document)
    like = _targets_like(traced, targets)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, _faked(traced.module, mode):
        *inputs, labels = (
            torch.empty((fields["batch"], *one.shape[1:]), dtype=one.dtype)
            for one in (*traced.example_inputs, like)
        )
        return [
            _memory_of(traced, document, rank, inputs, labels, optimizer)
            for rank in (range(fields["gpus"]) if ranks is None else ranks)
        ]


def _memory_of(
    traced: Traced,
    document: str,
    rank: int,
    inputs: list[torch.Tensor],
    targets: torch.Tensor,
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
) -> PyTorchMemory:
    model = _Rehearsal(traced, document, rank)
    rule = optimizer(model.parameters())
    storages = Storages(model.device, [*model.parameters(), *model.buffers(), *inputs, targets])
    with storages:
        for _ in range(ITERATIONS):
            model.step(inputs, targets)
            rule.step()
            rule.zero_grad(set_to_none=True)
    kept = [*model.parameters(), *model.buffers()]
    kept += [leaf for leaf in tree_leaves(dict(rule.state)) if isinstance(leaf, torch.Tensor)]
    return PyTorchMemory(rank, storages.peak, Storages(model.device, kept).bytes)


class _Rehearsal(BurstParallel):
    """A rank of ``BurstParallel`` on fake tensors, without other ranks."""

    def __init__(self, traced: Traced, document: str, rank: int) -> None:
        self._of_rank = rank
        super().__init__(traced, document)
        self.device = self._device
        if self.device.type == "cpu":
            # Masks are drawn by native code, which returns tensors with data.
            self._random.draw = _any_mask

    def _rank(self, gpus: int | None) -> int:
        return self._of_rank

    def _connect(self, document: str, options: Sequence[int], polls: bool) -> Communication:
        return Unconnected(self._program, polls)

    def _follow_changes(self) -> None:
        pass  # The module has fake tensors in place of its own.

    def step(self, inputs: list[torch.Tensor], targets: torch.Tensor) -> None:
        """Runs an iteration, as ``forward(inputs, targets).backward()`` does."""
        loss, gradients, parameters = self._iterate(inputs, targets)
        if self.device.type != "cpu":
            gradients = scaled(gradients, loss)
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient


class Storages(TorchDispatchMode):
    """Bytes of the storages that are alive, of given tensors and of results of operations.

    Args:
        device: Device of the counted storages.
        tensors: Tensors that exist already.
    """

    def __init__(self, device: torch.device, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._known = WeakIdKeyDictionary()
        self.bytes = self.peak = 0
        for tensor in tensors:
            self._add(tensor)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._add(leaf)
        return result

    def _add(self, tensor: torch.Tensor) -> None:
        if tensor.device != self._device:
            return
        storage = tensor.untyped_storage()
        if storage in self._known:
            return
        size = blocks_of(storage.nbytes())
        self._known[storage] = size
        weakref.finalize(storage, self._free, size).atexit = False
        self.bytes += size
        self.peak = max(self.peak, self.bytes)

    def _free(self, size: int) -> None:
        self.bytes -= size


def blocks_of(size: int) -> int:
    """Returns a size in bytes, rounded up to blocks of the allocator."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _any_mask(
    seed: int,
    iteration: int,
    name: str,
    first: int,
    samples: int,
    elements: int,
    probability: float,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Returns a mask of dropout without values, as ``dropout_keeps`` does with values."""
    return torch.empty((samples, elements), dtype=torch.bool, device=device)


def _targets_like(traced: Traced, targets: torch.Tensor | None) -> torch.Tensor:
    """Returns targets of one sample or more with the shape and type that the loss takes."""
    targets = traced.targets if targets is None else targets
    if targets is not None:
        return targets
    scores = {layer.name: layer.output_shape for layer in traced.layers}[traced.output]
    if traced.layers[-1].kind == "elementwise_loss":
        return torch.zeros((1, *scores))
    for shape in ((), scores[1:], scores[:-1]):
        indices = torch.zeros((1, *shape), dtype=torch.long)
        if traced.loss.problem_of(indices) is None:
            return indices
    raise InputError(f"the loss {traced.loss.name} takes targets other than class indices: give targets=...")


@contextmanager
def _faked(module: nn.Module, mode: FakeTensorMode) -> Iterator[None]:
    """Replaces the parameters and buffers of a module by fake tensors in the ``with`` block."""
    owners: list[dict[str, Any]] = [
        owner for part in module.modules() for owner in (part._parameters, part._buffers)
    ]
    kept = [(owner, dict(owner)) for owner in owners]
    fakes: dict[int, torch.Tensor] = {}
    try:
        for owner, tensors in kept:
            for name, tensor in tensors.items():
                if tensor is not None:
                    if id(tensor) not in fakes:
                        fakes[id(tensor)] = mode.from_tensor(tensor)
                        fakes[id(tensor)].grad = None
                    owner[name] = fakes[id(tensor)]
        yield
    finally:
        for owner, tensors in kept:
            owner.update(tensors)
