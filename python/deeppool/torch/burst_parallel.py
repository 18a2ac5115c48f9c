"""``BurstParallel``: trains a module by a burst-parallel plan, in place of ``DistributedDataParallel``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from deeppool.torch.denominator import Denominator
from deeppool.torch.executor import Event, Executor
from deeppool.torch.probe import probe
from deeppool.torch.parts import PartPasses, StoredPart, parameters_of, statistics_of
from deeppool.torch.program import END, LayerPart, RankProgram
from deeppool.torch.sampled_random import SampledRandom
from deeppool.torch.segments import LayerPasses
from deeppool.tracing import Traced, TracedLayer, TraceError
from deeppool.tracing.traced import problem_of_padding


class BurstParallel(nn.Module):
    """Trains a traced module by a plan. Each rank runs its part of the plan on ``torch.distributed``.

    In a script for ``DistributedDataParallel``, three lines change::

        traced = deeppool.tracing.trace(module, example)   # also the input of deeppool.plan
        model = BurstParallel(traced, plan)                # instead of DistributedDataParallel(module)
        loss = model(inputs, targets)                      # instead of criterion(model(inputs), targets)

    ``inputs`` and ``targets`` are the *global* batch, the same on each rank. A rank reads only the rows
    :attr:`samples`. The loss is a scalar, the mean over the global batch on each rank, with the gradient of
    the module on a single device. Several inputs, which differ between samples, come in the order of
    ``traced.example_inputs``, before the targets. :meth:`forward` runs the complete iteration, including
    the backward pass, because plans may interleave the passes of micro-batches. ``loss.backward()``
    multiplies the gradients by the loss's gradient and adds them to ``parameter.grad``.

    Use any optimizer. A rank has gradients only for the parameters of its own layers; its copies of other
    parameters become out of date. :meth:`synchronize` updates all parameters, buffers and optimizer state
    on all ranks, and ``state_dict()`` calls it. Both are collectives: call them on all ranks. To clip
    gradients by norm, use :meth:`clip_grad_norm_`.

    In evaluation mode (``model.eval()``), ``model(inputs)`` returns the module's output.

    Between iterations, ``requires_grad``, the values of parameters and buffers, and the options and training
    mode of PyTorch's layers may change, on all ranks alike. A change that the traced layers do not follow,
    as of an attribute that the module's own code reads, raises an error in the next iteration.

    Dropout depends only on ``seed``, the iteration, the layer and the sample. Batch normalization is over
    the rank's shard or over the global batch, by the plan's ``sync_batch_norm``. Over shards, the running
    statistics are those of the layer's first rank.

    A plan may split layers by features, channels or heads. A rank then computes a part of such a layer, and
    its gradients of the layer's parameters are zero outside of that part. A part by positions has all
    parameters (but of a position embedding), and their whole gradients.

    Args:
        traced: The module, as returned by ``deeppool.tracing.trace``, with its parameters on the device
            for training.
        plan: The plan, for as many GPUs as there are processes: a result of :func:`deeppool.plan`, a
            document of the format ``deeppool/plan/v3``, or a path.
        background: A callable that runs a short step of another job. It is called in the rank's idle
            time; see :mod:`deeppool.torch.background`.
        seed: Seed of dropout.

    Raises:
        BurstParallelError: The process group is missing or has another size, or ranks have different
            arguments.
        deeppool.InputError: The plan is of another network.
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
        self.module = traced.module
        self.iteration = 0
        """Number of completed training iterations. Dropout depends on it."""
        self._traced = traced
        if len(traced.losses) > 1:
            raise BurstParallelError(
                f"{type(self.module).__name__} was traced with {len(traced.losses)} losses, and "
                "BurstParallel trains one: trace it with one loss, or train the network by `deeppool train "
                "--graph`"
            )
        document = document_of(plan)
        rank = self._rank(json.loads(document).get("gpus"))
        traced.check_unchanged()
        self._program = RankProgram.from_json(_deeppool.lower(traced.network.to_json(), document, rank))
        self._device = next((parameter.device for parameter in self.module.parameters()), torch.device("cpu"))
        options = [seed, *_learned(self.module.parameters())]
        self._communication = self._connect(document, options, polls=background is not None)
        self._random = SampledRandom(seed)
        self._background = Background(background, self._device) if background is not None else None
        self._records = False
        self._is_current = True
        self._anchor = torch.zeros((), requires_grad=True)
        self._followed = traced.followed_state()
        self._denominator = Denominator(traced.loss, self._program, self._communication, self._device)
        #: Parameters that were trained since the start, by id. Ranks have different values of them.
        self._trained: set[int] = set()
        self._bind()
        # As DistributedDataParallel does, start from the first rank's parameters and buffers.
        for tensor in (*self.module.parameters(), *self.module.buffers()):
            self._communication.broadcast(tensor.detach(), 0)

    def _rank(self, gpus: int | None) -> int:
        """Returns the rank of this process, of as many as the plan has GPUs."""
        _check_processes(gpus)
        return dist.get_rank()

    def _connect(self, document: str, options: Sequence[int], polls: bool) -> Communication:
        """Connects the ranks, and checks that they have the same arguments."""
        _check_agreement(self._program, document, self._traced.fingerprint, options)
        return Communication(self._program, polls)

    def _bind(self) -> None:
        """Builds the layers from the module's current parameters, and drops the executor."""
        self._layers = {layer.name: self._passes(layer) for layer in self._traced.layers}
        loss = self._layers[self._traced.layers[-1].name]
        loss.run = self._denominator.applied_to(loss.island)
        self._trained |= {
            id(parameter)
            for layer in self._traced.layers
            for parameter in layer.island.parameters()
            if parameter.requires_grad
        }
        #: Layers that own parameters that are or were trained.
        self._owners = [
            layer.name
            for layer in self._traced.layers
            if not layer.parameters_of and self._once_trained(layer.name)
        ]
        self._identities = self._identify()
        self._learned = _learned(self.module.parameters())
        self._executor: Executor | None = None
        #: Optimizer steps of this rank's layers. Their gradients go to the user's optimizer.
        self._updates = [
            (i, step) for i, step in enumerate(self._program.steps) if step.op == "optimizer_step"
        ]

    def _passes(self, layer: TracedLayer) -> LayerPasses:
        """Returns the passes of a layer, or of the part of it that this rank runs."""
        part = self._program.divided(layer.name)
        if part is None:
            return LayerPasses(layer.name, layer.island, self._random)
        return PartPasses(layer.name, layer.island, self._random, part)

    # Training

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Runs an iteration in training mode, or the module in evaluation mode.

        Args:
            inputs: In training mode the inputs and targets of the global batch, otherwise inputs. Several
                inputs come in the order of ``traced.example_inputs``. Other arguments of the module are
                those of the trace.

        Returns:
            In training mode the mean loss of the global batch, otherwise the network's output: a tensor,
            also of a module that returns a dictionary.

        Raises:
            BurstParallelError: The batch does not match the plan or the traced module, the module has
                other parameters, its state changed in a way that the plan's layers do not follow, or its
                parameters are out of date in evaluation mode.
        """
        if not self.training:
            if not self._is_current:
                raise BurstParallelError(
                    "parameters of other ranks' layers are out of date on this rank: call synchronize() "
                    "on every rank before evaluation"
                )
            if len(inputs) != len(self._traced.example_inputs):
                raise BurstParallelError(
                    f"in evaluation mode, give inputs as in `model({self._given()})`, not "
                    f"{len(inputs)} arguments: other arguments are those of the trace"
                )
            return self._traced.call.run(self.module, inputs)
        loss, gradients, parameters = self._iterate(*self._batch(inputs))
        result = _Loss.apply(self._anchor, loss, gradients, *parameters)  # type: ignore[no-untyped-call]
        return cast(torch.Tensor, result)

    def _iterate(
        self, samples: Sequence[torch.Tensor], targets: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """Runs an iteration, and returns the loss and the gradients with their parameters."""
        self._follow_changes()
        executor = self._executor or self._prepare(samples)
        self._random.iteration = self.iteration
        counts = [counter.buffer.clone() for counter in self._traced.counters]
        for layer in self._layers.values():
            layer.start()
        self._denominator.start(targets)
        executor.begin(samples, targets)
        if self._background is None:
            executor.finish()
        else:
            self._background.finish(executor)
        self._denominator.finish()
        for layer in self._layers.values():
            layer.finish()
        with torch.no_grad():
            # Not once a micro-batch, and on all ranks.
            for counter, before in zip(self._traced.counters, counts):
                counter.increase(before)
        self.iteration += 1
        self._is_current = False
        parameters = [
            parameter for _, step in self._updates for parameter in self._layers[step.layer].trained
        ]
        gradients = [
            gradient
            for i, step in self._updates
            for gradient in self._layers[step.layer].of_whole(executor.values.take(i, step.reads[0]))
        ]
        return self._read_loss(executor), gradients, parameters

    @property
    def samples(self) -> range:
        """Range of the rows of the global batch that this rank reads as inputs or targets."""
        loads = [
            step.samples
            for step in self._program.steps
            if step.op == "load_batch" and step.samples[0] < step.samples[1]
        ]
        return range(min((first for first, _ in loads), default=0), max((end for _, end in loads), default=0))

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Clips the norm of all gradients, as ``torch.nn.utils.clip_grad_norm_`` does.

        This is a collective: call it on all ranks.

        Returns:
            The norm before clipping.
        """
        # The first rank of each layer, or of each of its parts, adds its gradients.
        rank = self._program.rank
        own = (
            owner for owner in self._owners if any(rank == first for first, _ in self._program.pieces(owner))
        )
        gradients = [
            parameter.grad
            for owner in own
            for parameter in self._once_trained(owner)
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
        """Returns measurements of the background job on this rank.

        Raises:
            BurstParallelError: There is no background job.
        """
        if self._background is None:
            raise BurstParallelError("no background job: give BurstParallel(..., background=step)")
        return self._background.report()

    def record(self, is_on: bool = True) -> None:
        """Starts or stops recording the steps of iterations for :meth:`events`.

        While recording, each layer has its own autograd graph, so that it can be timed.
        """
        self._records = is_on
        self._executor = None

    def events(self) -> list[Event]:
        """Returns the recorded steps of the last iteration on this rank, in the order of their ends."""
        return list(self._executor.events) if self._executor is not None else []

    # State

    @torch.no_grad()
    def synchronize(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Broadcasts all parameters and buffers, and the state of an optimizer, to all ranks.

        This is a collective: call it on all ranks.
        """
        for owner in self._owners:
            placement = self._program.layers[owner]
            if not placement.is_divided and len(self._program.holders(owner)) == self._program.world:
                continue
            for source, part in self._program.pieces(owner):
                for parameter, piece in self._pieces_of(owner, part):
                    _broadcast(parameter.detach(), source, piece)
                    if optimizer is not None:
                        self._synchronize_state(optimizer, parameter, source, piece)
        for layer in self._traced.layers:
            # Without sync_batch_norm, each rank has different running statistics.
            for source, part in self._program.pieces(layer.name):
                if part is None:
                    for buffer in layer.island.buffers():
                        dist.broadcast(buffer.detach(), src=source)
                else:
                    for one in statistics_of(layer.island, part):
                        _broadcast(one.tensor.detach(), source, one)
        self._is_current = True

    def _pieces_of(
        self, owner: str, part: LayerPart | None
    ) -> list[tuple[torch.Tensor, StoredPart | None]]:
        """Returns a layer's parameters that are or were trained, with the boxes that a part holds."""
        if part is None:
            return [(parameter, None) for parameter in self._once_trained(owner)]
        stored = parameters_of(self._layers[owner].island, part)
        return [(one.tensor, one) for one in stored if id(one.tensor) in self._trained]

    def _synchronize_state(
        self,
        optimizer: torch.optim.Optimizer,
        parameter: torch.Tensor,
        source: int,
        piece: StoredPart | None,
    ) -> None:
        """Broadcasts an optimizer's state of a parameter, or of a box of it, from a rank."""

        def is_divided(value: Any) -> bool:
            return piece is not None and isinstance(value, torch.Tensor) and value.shape == parameter.shape

        def sent(value: Any) -> Any:
            # Adam's step count stays on the host unless `capturable` is set.
            value = piece.of(value) if piece is not None and is_divided(value) else value
            return value.cpu() if isinstance(value, torch.Tensor) and value.dim() > 0 else value

        own = optimizer.state.get(parameter, {})
        message = [{name: (is_divided(value), sent(value)) for name, value in own.items()}]
        dist.broadcast_object_list(message, src=source)
        if dist.get_rank() == source or not message[0]:
            return
        state = dict(own)
        for name, (divided, value) in message[0].items():
            if isinstance(value, torch.Tensor) and value.dim() > 0:
                value = value.to(parameter.device)
            if divided and piece is not None:
                whole = state[name] if name in state else torch.zeros_like(parameter, dtype=value.dtype)
                piece.write(whole, value)
                value = whole
            state[name] = value
        optimizer.state[parameter] = state

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Returns the module's complete ``state_dict``.

        This is a collective: call it on all ranks.
        """
        if not self._is_current:
            self.synchronize()
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Loads the module's complete ``state_dict`` on each rank."""
        result = self.module.load_state_dict(state_dict, strict=strict, assign=assign)
        if self._identify() != self._identities:
            self._bind()
        self._is_current = True
        return result

    # Parts

    def _follow_changes(self) -> None:
        """Follows changes of the module since the last iteration.

        Raises:
            BurstParallelError: A change cannot be followed.
        """
        parameters = dict(self.module.named_parameters())
        if tuple(map(id, parameters.values())) != self._identities:
            raise BurstParallelError(
                "the module's parameters changed since it was traced: trace it again, plan again, and "
                "make a new BurstParallel"
            )
        if _learned(parameters.values()) != self._learned:
            self._bind()
        for name, parameter in parameters.items():
            if parameter._backward_hooks:
                raise BurstParallelError(
                    f"the parameter `{name}` has a hook (register_hook), which would run for each shard of "
                    "the batch: change parameter.grad after loss.backward(), or use "
                    "register_post_accumulate_grad_hook"
                )
        try:
            self._traced.check_state()
        except TraceError as error:
            raise BurstParallelError(f"{error}, plan again, and make a new BurstParallel") from None
        followed = self._traced.followed_state()
        if followed != self._followed:
            # Another layer may draw random numbers, or mix samples, now.
            self._followed, self._executor = followed, None

    def _once_trained(self, layer: str) -> list[nn.Parameter]:
        """Returns the parameters of a layer that are or were trained."""
        return [p for p in self._layers[layer].island.parameters() if id(p) in self._trained]

    def _identify(self) -> tuple[int, ...]:
        return tuple(map(id, self.module.parameters()))

    def _given(self) -> str:
        """Returns the inputs of a call, for messages."""
        names = list(self._traced.call.examples)
        return "inputs" if len(names) == 1 else ", ".join(names)

    def _batch(self, inputs: tuple[torch.Tensor, ...]) -> tuple[Sequence[torch.Tensor], torch.Tensor]:
        examples = self._traced.call.examples
        if len(inputs) != len(examples) + 1:
            raise BurstParallelError(
                f"in training mode, give inputs and targets as in `loss = model({self._given()}, targets)`, "
                f"not {len(inputs)} arguments. Arguments with equal rows in the examples of the trace are "
                "constants: trace with examples that differ"
            )
        names = ["inputs"] if len(examples) == 1 else [f"samples of `{name}`" for name in examples]
        for name, tensor in zip((*names, "targets"), inputs):
            if len(tensor) != self._program.batch:
                raise BurstParallelError(
                    f"the plan is for a global batch of {self._program.batch} samples, not for "
                    f"{len(tensor)} {name}: give every rank the global batch (no DistributedSampler; "
                    "drop_last=True), or make a plan for another batch"
                )
        for tensor, example in zip(inputs, examples.values()):
            shape, expected = list(tensor.shape[1:]), list(example.shape[1:])
            if shape != expected:
                raise BurstParallelError(
                    f"the module was traced with samples of shape {expected}, not {shape}: trace it with "
                    "samples of this shape"
                )
        problem = self._traced.loss.problem_of(inputs[-1])
        if problem is not None:
            raise BurstParallelError(problem)
        loss = self._program.layers[self._traced.layers[-1].name]
        if loss.split == "positions" and inputs[-1].is_floating_point():
            raise BurstParallelError(
                "targets that are probabilities cannot be divided by positions: make a plan without "
                "`positions` among the splits"
            )
        if not self._communication.is_fake:
            self._check_tokens(inputs[:-1])
        return inputs[:-1], inputs[-1]

    def _check_tokens(self, inputs: Sequence[torch.Tensor]) -> None:
        """Checks on all ranks that no rank reads padding tokens on which positions depend.

        The rows that a rank does not read may be empty, so the ranks add their numbers of such tokens. A
        rank that raised an error alone would let the others wait. On a GPU, they fail later and without a
        message, because a look at the sums would wait for the GPU.
        """
        absent = sorted(self._traced.absent)
        if not absent:
            return
        rows = slice(self.samples.start, self.samples.stop)
        own = [(inputs[index][rows] == token).sum() for index, token in absent]
        sums = torch.stack([count.to(self._device) for count in own])
        work = self._communication.sum_over_ranks(sums)
        if work is not None:
            work.wait()
        is_on_cpu = self._device.type == "cpu"
        if not is_on_cpu:
            torch._assert_async((sums == 0).all())
        for (_, token), count in zip(absent, sums if is_on_cpu else own):
            if count.device.type == "cpu" and count > 0:
                raise BurstParallelError(problem_of_padding(token))

    def _prepare(self, samples: Sequence[torch.Tensor]) -> Executor:
        """Creates the executor, under the settings (such as autocast) of the first iteration."""
        compares = not self._communication.is_fake
        batch = dict(zip(self._traced.call.examples, samples))
        no_samples = probe(self._traced, self._layers, self._random, batch, compares)
        self._executor = Executor(
            self._program, self._layers, no_samples, self._communication, self._device, self._records
        )
        return self._executor

    def _read_loss(self, executor: Executor) -> torch.Tensor:
        """Returns the mean loss over the global batch on all ranks."""
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
            self._communication.broadcast(loss, ranks[0])
        return loss


class _Loss(torch.autograd.Function):
    """The loss of a completed iteration. Its backward pass returns the gradients of the parameters."""

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
            raise BurstParallelError("backward() was called twice for one loss: call the model again first")
        # On a GPU, a look at the scale would wait for the iteration.
        if scale[0].device.type != "cpu" or scale[0] != 1:
            gradients = scaled(gradients, scale[0])
        return None, None, None, *gradients


def scaled(gradients: list[torch.Tensor], scale: torch.Tensor) -> list[torch.Tensor]:
    """Multiplies gradients by a number, and empties the list.

    Each gradient is freed before the next one is multiplied, so that the memory of a second set of all
    gradients is not needed. They are not multiplied in place, because some may share memory.
    """
    results: list[torch.Tensor] = []
    gradients.reverse()
    while gradients:
        gradient = gradients.pop()
        results.append(gradient * scale.to(gradient.dtype))
        del gradient
    return results


def _broadcast(tensor: torch.Tensor, source: int, piece: StoredPart | None) -> None:
    """Broadcasts a tensor of one rank, or a box of it, to all ranks, in place."""
    if piece is None:
        dist.broadcast(tensor, src=source)
        return
    box = piece.of(tensor).clone(memory_format=torch.contiguous_format)
    dist.broadcast(box, src=source)
    piece.write(tensor, box)


def _learned(parameters: Iterable[nn.Parameter]) -> tuple[bool, ...]:
    """Returns ``requires_grad`` of each parameter."""
    return tuple([parameter.requires_grad for parameter in parameters])


def document_of(plan: Plan | Mapping[str, Any] | str | PathLike[str]) -> str:
    """Returns the JSON text of a plan, a document, or a file."""
    if isinstance(plan, Plan):
        return plan.to_json()
    if isinstance(plan, Mapping):
        return json.dumps(plan)
    text = str(plan)
    return text if text.lstrip().startswith("{") else read_text(text)


def _check_processes(gpus: int | None) -> None:
    if not dist.is_available() or not dist.is_initialized():
        raise BurstParallelError(
            "no process group: start the script by torchrun, and call "
            'torch.distributed.init_process_group("gloo") ("nccl" on GPUs) first'
        )
    if gpus is not None and gpus != dist.get_world_size():
        raise BurstParallelError(
            f"the plan is for {gpus} ranks, not for {dist.get_world_size()}: start {gpus} processes, as by "
            f"`torchrun --nproc-per-node {gpus}` on one node, or make a plan for {dist.get_world_size()} GPUs"
        )


def _check_agreement(program: RankProgram, document: str, fingerprint: str, options: Sequence[int]) -> None:
    """Checks that all ranks have the same plan, module and options.

    Raises:
        BurstParallelError: They differ.
    """
    own = hashlib.sha256(json.dumps([document, fingerprint, *options]).encode()).hexdigest()
    found: list[Any] = [None] * program.world
    dist.all_gather_object(found, own)
    for rank, other in enumerate(found):
        if other != found[0]:
            raise BurstParallelError(
                f"rank {rank} has another plan, module, seed or requires_grad than rank 0: make the plan "
                "once and give all ranks the same file"
            )
