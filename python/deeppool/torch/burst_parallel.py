"""A module that is trained by a burst plan, in place of ``DistributedDataParallel``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn

from deeppool import _deeppool
from deeppool._documents import read_text
from deeppool.errors import BurstParallelError
from deeppool.plans import Plan
from deeppool.torch.background import Background, BackgroundReport
from deeppool.torch.communication import Communication
from deeppool.torch.executor import Event, Executor
from deeppool.torch.probe import probe
from deeppool.torch.program import END, RankProgram
from deeppool.torch.sampled_random import SampledRandom
from deeppool.torch.segments import LayerPasses
from deeppool.tracing import Traced


class BurstParallel(nn.Module):
    """Trains a traced module by a plan: every rank runs its part of the plan's program on ``torch.distributed``.

    In a script for ``DistributedDataParallel`` three lines change::

        traced = deeppool.tracing.trace(module, example)                 # once; `plan` is made of it, too
        model = BurstParallel(traced, plan)                              # instead of DistributedDataParallel(module)
        loss = model(inputs, targets)                                    # instead of criterion(model(inputs), targets)

    ``inputs`` and ``targets`` are those of the *global* batch, the same on every rank; a rank reads the rows :attr:`samples` of them and
    no others. The loss, a scalar, is the mean over the global batch on every rank, and its gradient is that of the module alone on one
    device. :meth:`forward` runs the whole iteration, since plans may cut the batch into micro-batches that run forward and backward
    by turns; ``loss.backward()`` adds the gradients to ``parameter.grad``, multiplied by the gradient that it is given.

    The user's optimizer works as always. A rank has gradients of the parameters of its own layers, so that those of other layers become
    out of date on it: :meth:`synchronize` (which ``state_dict()`` calls on its own) brings all parameters, buffers, and the state of an
    optimizer to all ranks. It is a collective, as ``state_dict()`` is: call them on every rank. Gradient norms are clipped by
    :meth:`clip_grad_norm_`.

    In evaluation (``model.eval()``) it is the module itself: ``model(inputs)`` gives its output for any inputs.

    Dropout depends on ``seed``, the iteration, the layer and the sample alone. Batch normalization is over the rank's samples or the
    global batch, as the plan says (``sync_batch_norm``); by shard, the running statistics that count are those of the layer's first rank.

    Args:
        traced: The module, as ``deeppool.tracing.trace`` gives it. Its parameters should be where they are to be trained.
        plan: The plan, made for as many GPUs as there are processes: of :func:`deeppool.plan`, a document (``deeppool/plan/v2``), or a
            file's path.
        background: A callable that does a short step of another job. It is called when the rank has nothing to do; see
            :mod:`deeppool.torch.background`.
        seed: Of dropout.

    Raises:
        BurstParallelError: where this cannot work, with what to do instead.
        deeppool.InputError: where the plan is of another network.
    """

    def __init__(
        self,
        traced: Traced,
        plan: Plan | Mapping[str, Any] | str | PathLike[str],
        *,
        background: Callable[[], object] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        document = _document(plan)
        _check_processes(json.loads(document).get("gpus"))
        traced.check_unchanged()
        self.module = traced.module
        self.iteration = 0
        """How many iterations were trained; dropout depends on it."""
        self._traced = traced
        self._program = RankProgram.from_json(
            _deeppool.lower(traced.network.to_json(), document, dist.get_rank())
        )
        self._device = next((parameter.device for parameter in self.module.parameters()), torch.device("cpu"))
        _check_agreement(self._program, document, traced.fingerprint, seed)
        self._random = SampledRandom(seed)
        self._communication = Communication(self._program, polls=background is not None)
        self._background = Background(background, self._device) if background is not None else None
        self._records = False
        self._is_current = True
        self._anchor = torch.zeros((), requires_grad=True)
        self._bind()
        # As DistributedDataParallel: all begin with what the first rank has.
        for tensor in (*self.module.parameters(), *self.module.buffers()):
            dist.broadcast(tensor.detach(), src=0)

    def _bind(self) -> None:
        """Takes the module's parameters as they are now."""
        self._layers = {
            layer.name: LayerPasses(layer.name, layer.island, self._random) for layer in self._traced.layers
        }
        #: The layers with parameters of their own that are trained.
        self._owners = [
            layer.name
            for layer in self._traced.layers
            if not layer.parameters_of and self._layers[layer.name].parameters
        ]
        self._identities = self._identify()
        self._executor: Executor | None = None
        #: The updates of this rank's layers: the gradients that they take are for the user's optimizer.
        self._updates = [
            (i, step) for i, step in enumerate(self._program.steps) if step.op == "optimizer_step"
        ]

    # Training

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """While training, the loss of ``(inputs, targets)``, each of the global batch; else the module's output for ``inputs``."""
        if not self.training:
            if not self._is_current:
                raise BurstParallelError(
                    "parameters of layers that run on other ranks are out of date here: call synchronize() on every rank before evaluation"
                )
            return cast(torch.Tensor, self.module(*inputs))
        samples, targets = self._batch(inputs)
        if self._identify() != self._identities:
            raise BurstParallelError(
                "the module has other parameters than when it was traced: trace it again, plan again, and make a new BurstParallel"
            )
        executor = self._executor or self._prepare(samples)
        self._random.iteration = self.iteration
        executor.begin(samples, targets)
        if self._background is None:
            executor.finish()
        else:
            self._background.finish(executor)
        self.iteration += 1
        self._is_current = False
        parameters = [
            parameter for _, step in self._updates for parameter in self._layers[step.layer].parameters
        ]
        gradients = [
            gradient for i, step in self._updates for gradient in executor.values.take(i, step.reads[0])
        ]
        return cast(
            torch.Tensor, _Loss.apply(self._anchor, self._read_loss(executor), gradients, *parameters)
        )  # type: ignore[no-untyped-call]

    @property
    def samples(self) -> range:
        """The rows of the global batch that this rank reads: from the first to the last of its inputs or targets."""
        loads = [
            step.samples
            for step in self._program.steps
            if step.op == "load_batch" and step.samples[0] < step.samples[1]
        ]
        return range(min((first for first, _ in loads), default=0), max((end for _, end in loads), default=0))

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """As ``torch.nn.utils.clip_grad_norm_``, for the norm of the gradients of all layers. A collective: call it on every rank."""
        # A layer counts on its first rank.
        own = (owner for owner in self._owners if self._program.holders(owner)[0] == self._program.rank)
        gradients = [
            parameter.grad
            for owner in own
            for parameter in self._layers[owner].parameters
            if parameter.grad is not None
        ]
        zero = torch.zeros((), dtype=torch.float64, device=self._device)
        squares = sum((gradient.double().square().sum() for gradient in gradients), zero)
        dist.all_reduce(squares)
        norm = squares.sqrt()
        scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(scale.to(parameter.grad.dtype))
        return norm

    def background_report(self) -> BackgroundReport:
        """What the background did on this rank, and what that did to the foreground."""
        if self._background is None:
            raise BurstParallelError("there is no background job: give BurstParallel(..., background=step)")
        return self._background.report()

    def record(self, is_on: bool = True) -> None:
        """Records the steps of iterations from now on, for :meth:`events`: each layer then runs by itself, so that its time is seen."""
        self._records = is_on
        self._executor = None

    def events(self) -> list[Event]:
        """The steps of the last iteration on this rank, in the order in which they ended."""
        return list(self._executor.events) if self._executor is not None else []

    # State

    @torch.no_grad()
    def synchronize(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Brings all parameters and buffers, and the state of an optimizer, to all ranks. A collective: call it on every rank."""
        for owner in self._owners:
            holders = self._program.holders(owner)
            for parameter in self._layers[owner].parameters if len(holders) < self._program.world else ():
                dist.broadcast(parameter.detach(), src=holders[0])
                if optimizer is not None:
                    self._synchronize_state(optimizer, parameter, holders[0])
        for layer in self._traced.layers:
            # By shard, each rank has running statistics of its own.
            for buffer in layer.island.buffers():
                dist.broadcast(buffer.detach(), src=self._program.layers[layer.name].ranks[0])
        self._is_current = True

    def _synchronize_state(
        self, optimizer: torch.optim.Optimizer, parameter: nn.Parameter, holder: int
    ) -> None:
        def moved(value: Any, device: torch.device | str) -> Any:
            # The count of steps of Adam is on the host unless it is capturable.
            return value.to(device) if isinstance(value, torch.Tensor) and value.dim() > 0 else value

        state = [{name: moved(value, "cpu") for name, value in optimizer.state.get(parameter, {}).items()}]
        dist.broadcast_object_list(state, src=holder)
        if dist.get_rank() != holder and state[0]:
            optimizer.state[parameter] = {
                name: moved(value, parameter.device) for name, value in state[0].items()
            }

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The module's own, whole on every rank. A collective: call it on every rank."""
        if not self._is_current:
            self.synchronize()
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """As the module's: every rank loads all of it."""
        result = self.module.load_state_dict(state_dict, strict=strict, assign=assign)
        if self._identify() != self._identities:
            self._bind()
        self._is_current = True
        return result

    # Parts

    def _identify(self) -> tuple[int, ...]:
        return tuple(map(id, self.module.parameters()))

    def _batch(self, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        if len(inputs) != 2:
            raise BurstParallelError(
                f"while training it takes inputs and targets, as in `loss = model(inputs, targets)`, not {len(inputs)} arguments"
            )
        for what, tensor in zip(("inputs", "targets"), inputs):
            if len(tensor) != self._program.batch:
                raise BurstParallelError(
                    f"the plan is for a global batch of {self._program.batch} samples, and there are {len(tensor)} {what}: give every rank the "
                    "whole batch (no DistributedSampler; drop_last=True), or make a plan for another batch"
                )
        shape = tuple(inputs[0].shape[1:])
        expected = tuple(self._traced.example_inputs[0].shape[1:])
        if shape != expected:
            raise BurstParallelError(
                f"the module was traced with samples of shape {list(expected)}, not {list(shape)}: trace it with such samples"
            )
        return inputs[0], inputs[1]

    def _prepare(self, samples: torch.Tensor) -> Executor:
        """Before the first iteration, in the settings (such as autocast) that it runs in."""
        no_samples = probe(self._traced, self._layers, self._random, samples)
        self._executor = Executor(
            self._program, self._layers, no_samples, self._communication, self._device, self._records
        )
        return self._executor

    def _read_loss(self, executor: Executor) -> torch.Tensor:
        """The mean over the global batch, on all ranks."""
        layer = self._traced.layers[-1].name
        totals = (
            b
            for step in reversed(self._program.steps)
            for b in step.writes
            if self._program.buffers[b].role == "metrics"
        )
        total = next(
            (executor.values.take(END, buffer) for buffer in totals), torch.zeros((), device=self._device)
        )
        ranks = self._program.layers[layer].ranks
        loss: torch.Tensor = total / self._program.batch
        if len(ranks) < self._program.world:
            loss = loss.double()
            dist.broadcast(loss, src=ranks[0])
        return loss


class _Loss(torch.autograd.Function):
    """The loss of an iteration that has run: its backward pass hands the gradients to the parameters."""

    @staticmethod
    def forward(
        ctx: Any,
        anchor: torch.Tensor,
        loss: torch.Tensor,
        gradients: list[torch.Tensor],
        *parameters: nn.Parameter,
    ) -> torch.Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *scale: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise BurstParallelError("backward() was called twice for one loss: call the model again before")
        if scale[0].device.type != "cpu" or scale[0] != 1:
            gradients = [gradient * scale[0].to(gradient.dtype) for gradient in gradients]
        return None, None, None, *gradients


def _document(plan: Plan | Mapping[str, Any] | str | PathLike[str]) -> str:
    """The plan's JSON."""
    if isinstance(plan, Plan):
        return plan.to_json()
    if isinstance(plan, Mapping):
        return json.dumps(plan)
    text = str(plan)
    return text if text.lstrip().startswith("{") else read_text(text)


def _check_processes(gpus: int | None) -> None:
    if not dist.is_available() or not dist.is_initialized():
        raise BurstParallelError(
            'there is no process group: start the script by torchrun, and call torch.distributed.init_process_group("gloo") ("nccl" on '
            "GPUs) before"
        )
    if gpus is not None and gpus != dist.get_world_size():
        raise BurstParallelError(
            f"the plan is for {gpus} ranks, and there are {dist.get_world_size()}: start it by `torchrun --nproc-per-node {gpus}` (all nodes "
            f"together), or make a plan for {dist.get_world_size()} GPUs"
        )


def _check_agreement(program: RankProgram, document: str, fingerprint: str, seed: int) -> None:
    """All ranks have to execute parts of one program."""
    own = hashlib.sha256(json.dumps([document, fingerprint, seed]).encode()).hexdigest()
    found: list[Any] = [None] * program.world
    dist.all_gather_object(found, own)
    for rank, other in enumerate(found):
        if other != found[0]:
            raise BurstParallelError(
                f"rank {rank} has another plan, module or seed than rank 0: make the plan once and give all ranks the same file"
            )
