"""Islands: layers of a traced module as modules that use its parameters and buffers."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from deeppool.tracing.program import PerSample, Ref, Step, Stored
from deeppool.tracing.units import LIKE, Unit, Units

#: ``run(n, t, training, *inputs)``: number of samples, stored tensors, modes of modules, inputs.
Run = Callable[..., torch.Tensor]

#: Operations that create tensors. They get the data type and device of the layer's input.
FACTORIES = {"zeros", "ones", "full", "empty", "arange", "rand", "randn", "scalar_tensor", "eye", "linspace"}

aten = torch.ops.aten


class BatchNorm:
    """The tensors and options of a batch normalization.

    Args:
        step: Its operation.
        owners: Modules that own its tensors, by path.
        module: The module if it is one of PyTorch's, whose options are read in each iteration.
    """

    def __init__(self, step: Step, owners: Mapping[str, nn.Module], module: nn.Module | None) -> None:
        self._stored = {
            name: (stored, owners[stored.owner])
            for name in ("weight", "bias", "running_mean", "running_var")
            if isinstance(stored := step.argument(name), Stored)
        }
        self._epsilon, self._momentum = float(step.argument("eps")), float(step.argument("momentum"))
        self._module: Any = module
        #: Tensors in place of the module's.
        self._replaced: dict[str, torch.Tensor] = {}

    def tensor(self, name: str) -> torch.Tensor | None:
        """Returns ``weight``, ``bias``, ``running_mean`` or ``running_var``."""
        if name in self._replaced:
            return self._replaced[name]
        found = self._stored.get(name)
        return None if found is None else _look_up(*found)

    def with_tensors(self, tensors: Mapping[str, torch.Tensor]) -> BatchNorm:
        """Returns the normalization with other tensors, by their names in :meth:`tensor`."""
        other = copy.copy(self)
        other._replaced = dict(tensors)
        return other

    def normalize(self, x: torch.Tensor) -> torch.Tensor:
        """Computes the output of at least one sample, and updates the running statistics."""
        mean, variance, momentum = self.tensor("running_mean"), self.tensor("running_var"), self.momentum
        if self.training and not self.tracks:
            mean = variance = None
        if momentum is None:
            momentum = 1.0 / float(self.batches + 1) if self.batches is not None else 0.0
        weight, bias = self.tensor("weight"), self.tensor("bias")
        is_by_batch = self.training or mean is None
        return F.batch_norm(x, mean, variance, weight, bias, is_by_batch, momentum, self.epsilon)

    @property
    def epsilon(self) -> float:
        """The addend of the variance."""
        return self._epsilon if self._module is None else float(self._module.eps)

    @property
    def momentum(self) -> float | None:
        """The weight of a batch in the running statistics; ``None`` for their mean over all batches."""
        return self._momentum if self._module is None else self._module.momentum

    @property
    def training(self) -> bool:
        """Whether it normalizes by the statistics of the batch."""
        return self._module is None or bool(self._module.training)

    @property
    def tracks(self) -> bool:
        """Whether it updates its running statistics."""
        return self._module is None or bool(self._module.track_running_stats)

    @property
    def batches(self) -> torch.Tensor | None:
        """The number of batches so far, if it is counted by one of PyTorch's modules."""
        return None if self._module is None else self._module.num_batches_tracked


class Island(nn.Module):
    """One layer of a traced module.

    ``forward(*inputs)`` takes one tensor of shape ``(samples, ...)`` for each input of the layer and returns
    a tensor of shape ``(samples, *output_shape)``. The number of samples may be zero. Inputs are never
    changed in place.

    An island uses the parameters and buffers of the traced module. :meth:`named_parameters` and
    :meth:`named_buffers` return them by their names in that module. Training an island trains the module and
    updates its running statistics. Dropout follows the ``training`` mode of its module. An island has no
    state: its ``state_dict()`` is empty.
    """

    def __init__(
        self,
        name: str,
        run: Run,
        source: str,
        stored: Sequence[tuple[Stored, nn.Module | None]],
        training: Sequence[nn.Module],
        output_shape: tuple[int, ...],
        module: nn.Module | None = None,
        is_call: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        #: Python source of the layer.
        self.source = source
        #: Shape of one sample of the output.
        self.output_shape = output_shape
        self._run = run
        #: Whether it only calls the module, which then looks up its own tensors.
        self._is_call = is_call
        #: The batch normalization, if the layer is one with running statistics of the batch.
        self.norm: BatchNorm | None = None
        # A tuple, so that PyTorch does not register them as submodules.
        self._owned = (tuple(stored), tuple(training), module)

    @property
    def calls_module(self) -> bool:
        """Whether it only calls :attr:`module`, and so follows its attributes."""
        return self._is_call

    @property
    def module(self) -> nn.Module | None:
        """The user's module if the layer is one call of it, otherwise ``None``."""
        return self._owned[2]

    @property
    def stored(self) -> tuple[tuple[Stored, nn.Module | None], ...]:
        """Stored tensors that it uses, with the modules that own them."""
        return self._owned[0]

    @property
    def is_training(self) -> bool:
        """Whether the modules whose mode it follows are in training mode."""
        return all(module.training for module in self._owned[1])

    def execute(
        self, tensors: Sequence[torch.Tensor], *inputs: torch.Tensor, is_training: bool = False
    ) -> torch.Tensor:
        """Computes the output with other stored tensors, in evaluation or training mode."""
        return self._run(len(inputs[0]), list(tensors), [is_training] * len(self._owned[1]), *inputs)

    def tensors(self) -> list[torch.Tensor]:
        """Returns the current stored tensors."""
        return [_look_up(stored, owner) for stored, owner in self._owned[0]]

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields the parameters that the layer uses, by their names in the traced module."""
        for stored, owner in self._owned[0]:
            tensor = _look_up(stored, owner)
            if stored.is_parameter and isinstance(tensor, nn.Parameter):
                yield f"{prefix}.{stored.name}" if prefix else stored.name, tensor

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the buffers that the layer uses, by their names in the traced module."""
        for stored, owner in self._owned[0]:
            if not stored.is_parameter and stored.constant is None:
                yield f"{prefix}.{stored.name}" if prefix else stored.name, _look_up(stored, owner)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        samples = inputs[0].shape[0]
        tensors = [] if self._is_call and samples > 0 else self.tensors()
        if samples == 0:
            return empty_output(self.output_shape, *inputs, *tensors)
        return self._run(samples, tensors, [module.training for module in self._owned[1]], *inputs)

    def extra_repr(self) -> str:
        return f"{self.name}, output_shape={self.output_shape}"


class _Empty(torch.autograd.Function):
    """The output of a layer for zero samples. Gradients of its inputs and parameters are zero."""

    @staticmethod
    def forward(ctx: Any, shape: tuple[int, ...], *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*tensors)
        floating = [tensor for tensor in tensors if tensor.is_floating_point()]
        like = floating[0] if floating else torch.empty((), device=tensors[0].device)
        return like.new_empty((0, *shape))

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        needs = ctx.needs_input_grad[1:]
        zeros = (torch.zeros_like(t) if needed else None for t, needed in zip(ctx.saved_tensors, needs))
        return (None, *zeros)


def empty_output(shape: tuple[int, ...], *tensors: torch.Tensor) -> torch.Tensor:
    """Returns the output of a layer for zero samples, of shape ``(0, *shape)``.

    Args:
        shape: Shape of one sample.
        tensors: Inputs and parameters, whose gradients are zero.
    """
    result: torch.Tensor = _Empty.apply(shape, *tensors)  # type: ignore[no-untyped-call]
    return result


@contextmanager
def buffers_kept(buffers: Iterable[torch.Tensor]) -> Iterator[None]:
    """Restores buffers, such as running statistics, after the ``with`` block.

    Autograd does not count this as a change. A layer that saves the buffers, as a batch normalization does,
    can therefore run backward afterwards.
    """
    kept = [(buffer, buffer.clone()) for buffer in buffers]
    try:
        yield
    finally:
        for buffer, before in kept:
            with torch.no_grad(), _unsafe_preserve_version_counter(buffer):
                buffer.copy_(before)


def _look_up(stored: Stored, owner: nn.Module | None) -> torch.Tensor:
    if owner is None:
        assert stored.constant is not None
        return stored.constant
    tensor: torch.Tensor | None = owner._parameters.get(stored.attribute)
    if tensor is None:
        tensor = owner._buffers.get(stored.attribute)
    if tensor is None:
        tensor = getattr(owner, stored.attribute)
    assert isinstance(tensor, torch.Tensor)
    return tensor


class Writer:
    """Writes the Python source that executes the steps of a unit.

    Args:
        units: Units of the program.
        unit: The unit.
        keeps_precision: Whether conversions to the data type that a value has anyway are left out, so that
            the unit computes in the data type of its inputs.
    """

    def __init__(self, units: Units, unit: Unit, keeps_precision: bool = False) -> None:
        self.units, self.unit = units, unit
        self.keeps_precision = keeps_precision
        self.stored: list[Stored] = []
        self.trained: list[str] = []
        self.names: dict[str, Any] = {"torch": torch}
        self.lines: list[str] = []
        self.inputs: list[int] = []

    def island(self, name: str, output: int, inputs: list[int], is_simple: bool) -> Island:
        """Builds the island of the unit.

        Args:
            name: Name of the layer.
            output: Index of the value that it returns.
            inputs: Indices of the values that it takes.
            is_simple: Whether the unit's module is called with one positional tensor and returns one. It
                is called again only if this tensor is the unit's input and not computed from it.
        """
        units, unit = self.units, self.unit
        step = units.steps[output]
        assert step.sample is not None
        module = units.modules[unit.module] if unit.is_call else None
        self.inputs = inputs
        repeated, _ = units.needs(unit)
        is_own = all(units.steps[index].call == unit.call for index in repeated if not units.is_input(index))
        if is_simple and module is not None and is_own and not self._changes(unit.steps):
            self._read_inputs()
            for tensor in units.stored(unit):
                self._tensor(tensor)
            self.names["module"] = module
            self.lines.append(f"v{output} = module(v{inputs[0]})")
        else:
            self._read_inputs()
            for index in sorted([*repeated, *unit.steps]):
                if not units.is_input(index):
                    self._write(units.steps[index])
        rows = step.rows
        result = f"v{output}" if rows == 1 else f"v{output}.unflatten(0, (n, {rows}))"
        self.lines.append(f"return {result}")
        return build(units, name, self, step.sample, module)

    def _read_inputs(self) -> None:
        for position, value in enumerate(self.inputs):
            rows = self.units.steps[value].rows
            self.lines.append(f"v{value} = x{position}" + ("" if rows == 1 else ".flatten(0, 1)"))

    def _changes(self, steps: Sequence[int]) -> bool:
        """Returns whether one of the steps writes to memory of the unit's inputs."""
        return any(self._is_outside(leaf) for index in steps for leaf in self.units.steps[index].writes)

    def _is_outside(self, leaf: Any) -> bool:
        if not isinstance(leaf, Ref):
            return False
        root = self.units.root[leaf.index]
        own = {self.units.root[index] for index in [*self.unit.steps, *self.units.needs(self.unit)[0]]}
        return any(self.units.root[value] == root for value in self.inputs) or root not in own

    def _write(self, step: Step) -> None:
        if self.keeps_precision and self.converts_in_vain(step):
            if step.op == "to":
                self.lines.append(f"v{step.index} = v{step.args[0].index}")
                return
            step = replace(step, args=step.args[:2], kwargs={})
        if any(isinstance(leaf, Stored) for leaf in step.writes):
            # Running statistics are updated only in training mode.
            condition = f"if {self._mode(step)}: "
        else:
            condition = ""
        # `view` needs a contiguous input, which the island's input may not be: use `reshape`.
        target, first = (aten.reshape.default if step.op in ("view", "_unsafe_view") else step.target), None
        if any(self._is_outside(leaf) for leaf in step.writes):
            target, first = self._out_of_place(step)
        arguments = [self._text(argument, step, name) for name, argument in self._named(step)]
        if first is not None:
            arguments[0] = first.format(arguments[0])
        if step.op in LIKE:
            self.lines.append(self._like(step))
            return
        keywords = dict(step.kwargs)
        if step.op in FACTORIES:
            reference = f"x0.dtype if x0.is_floating_point() else {self._name(step.dtype)}"
            if step.dtype is not None and step.dtype.is_floating_point and "dtype" in keywords:
                keywords.pop("dtype")
                arguments.append(f"dtype={reference}")
            keywords.pop("pin_memory", None)
            keywords.pop("layout", None)
            keywords.pop("device", None)
            arguments.append("device=x0.device")
        arguments += [f"{name}={self._text(argument, step, name)}" for name, argument in keywords.items()]
        function = self._name(target)
        self.lines.append(f"{condition}v{step.index} = {function}({', '.join(arguments)})")

    def converts_in_vain(self, step: Step) -> bool:
        """Returns whether a step converts a value to its own data type before anything else."""
        if step.op not in ("to", "softmax") or not step.args or not isinstance(step.args[0], Ref):
            return False
        if step.op == "softmax" and step.argument("dtype") is None:
            return False
        return step.dtype == self.units.steps[step.args[0].index].dtype

    def _like(self, step: Step) -> str:
        """Returns a line that creates a tensor with the data type and device of the island's first input."""
        sizes = ", ".join(str(dim) if isinstance(dim, int) else f"{dim.count} * n" for dim in step.dims or ())
        size = f"({sizes},)" if sizes else "()"
        dtype = self._name(step.dtype)
        if step.dtype is not None and step.dtype.is_floating_point:
            dtype = f"x0.dtype if x0.is_floating_point() else {dtype}"
        match step.op:
            case "new_zeros" | "zeros_like" | "new_empty" | "empty_like":
                value = "0"
            case "new_ones" | "ones_like":
                value = "1"
            case _:
                value = repr(step.argument("fill_value"))
        return f"v{step.index} = x0.new_full({size}, {value}, dtype={dtype})"

    def _named(self, step: Step) -> list[tuple[str, Any]]:
        if isinstance(step.target, torch._ops.OpOverload):
            names = [parameter.name for parameter in step.target._schema.arguments]
            return list(zip(names, step.args))
        return [("", argument) for argument in step.args]

    def _out_of_place(self, step: Step) -> tuple[Any, str | None]:
        """Returns the out-of-place variant of an operation, since another layer may use its argument.

        Without such a variant, the second result is a format that clones the argument.
        """
        assert isinstance(step.target, torch._ops.OpOverload)
        name, overload = step.op.removesuffix("_"), step.target._overloadname
        packet = getattr(aten, name, None)
        functional = getattr(packet, overload, None) if packet is not None and name != step.op else None
        if functional is not None and not any(
            a.alias_info and a.alias_info.is_write for a in functional._schema.arguments
        ):
            return functional, None
        return step.target, "{}.clone()"

    def _text(self, argument: Any, step: Step, name: str) -> str:
        match argument:
            case Ref(index):
                return f"v{index}"
            case Stored():
                return f"t[{self._tensor(argument)}]"
            case PerSample(count):
                return "n" if count == 1 else f"n * {count}"
            case tuple():
                return "(" + "".join(self._text(item, step, "") + ", " for item in argument) + ")"
            case list():
                # Replace -1, which is ambiguous for zero samples, by the known size.
                if (
                    name in ("size", "shape")
                    and argument.count(-1) == 1
                    and step.dims
                    and len(step.dims) == len(argument)
                ):
                    if step.op in ("view", "reshape", "_unsafe_view"):
                        argument = [dim if size == -1 else size for size, dim in zip(argument, step.dims)]
                return "[" + ", ".join(self._text(item, step, "") for item in argument) + "]"
            case bool() if name in ("train", "training") and argument:
                return self._mode(step)
            case float() if name == "dropout_p" and argument > 0:
                return f"{argument!r} if {self._mode(step)} else 0.0"
            case None | bool() | int() | str():
                return repr(argument)
            case float():
                return repr(argument) if math.isfinite(argument) else f"float({str(argument)!r})"
        return self._name(argument)

    def _mode(self, step: Step) -> str:
        """Returns an expression of the training mode that a step, which is traced in training mode, has."""
        return "True" if self.units.has_constant_mode(step.module) else self._training(step.module)

    def _training(self, path: str) -> str:
        if path not in self.trained:
            self.trained.append(path)
        return f"training[{self.trained.index(path)}]"

    def _tensor(self, stored: Stored) -> int:
        names = [one.name for one in self.stored]
        if stored.name not in names:
            self.stored.append(stored)
            return len(names)
        return names.index(stored.name)

    def _name(self, value: Any) -> str:
        """Returns a name for a value without a literal."""
        if isinstance(value, torch.dtype):
            return str(value)
        base = str(value).replace(".", "_") if isinstance(value, torch._ops.OpOverload) else "constant"
        base = base if base.isidentifier() else "constant"
        for number in itertools.count():
            name = base if number == 0 else f"{base}_{number}"
            if name not in self.names:
                self.names[name] = value
                return name
            if self.names[name] is value:
                return name
        raise AssertionError


def of_function(
    name: str,
    function: Callable[..., torch.Tensor],
    output_shape: tuple[int, ...],
    stored: Sequence[tuple[Stored, nn.Module | None]] = (),
) -> Island:
    """Returns an island that calls a function of the inputs and the stored tensors."""

    def run(samples: int, tensors: Any, training: Any, *inputs: torch.Tensor) -> torch.Tensor:
        return function(*inputs, *tensors)

    return Island(name, run, f"# {getattr(function, '__name__', name)}", stored, (), output_shape)


def build(
    units: Units, name: str, writer: Writer, output: tuple[int, ...], module: nn.Module | None = None
) -> Island:
    """Compiles the lines of a writer to an island."""
    inputs = "".join(f", x{position}" for position in range(len(writer.inputs)))
    source = "\n".join([f"def run(n, t, training{inputs}):", *(f"    {line}" for line in writer.lines)])
    scope = dict(writer.names)
    exec(compile(source, f"<layer {name}>", "exec"), scope)
    stored = [(one, None if one.constant is not None else units.modules[one.owner]) for one in writer.stored]
    training = [units.modules[path] for path in writer.trained]
    return Island(
        name, scope["run"], source, stored, training, output, module, is_call=scope.get("module") is not None
    )
