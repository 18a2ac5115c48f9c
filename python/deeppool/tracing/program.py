"""A module as a list of steps, from two exports with different numbers of samples.

``torch.export`` is called with 2 and with 3 samples instead of a symbolic number, because more modules can
be exported this way. Sizes that differ between the exports depend on the number of samples.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.export.graph_signature import InputKind

from deeppool.tracing.call import Call
from deeppool.tracing.errors import TraceError
from deeppool.tracing.exporting import CONSTANT, batch_of, export_batch, path_in_module, simple_calls

#: Numbers of samples of the two exports.
FEWER, MORE = 2, 3

#: Operations that return their argument unchanged if it has the wanted data type and layout.
IDENTITIES = ("to", "contiguous")

aten = torch.ops.aten


@dataclass(frozen=True)
class Ref:
    """Reference to the result of a step."""

    index: int


@dataclass(frozen=True)
class PerSample:
    """A size that is ``count`` times the number of samples."""

    count: int


@dataclass(frozen=True)
class Stored:
    """A tensor that a module owns, or a constant of the program.

    It is ``attribute`` of the submodule with the path ``owner``, or ``constant``.
    """

    name: str
    owner: str
    attribute: str
    is_parameter: bool
    constant: torch.Tensor | None = field(default=None, compare=False)


#: A dimension of a value: fixed, or a multiple of the number of samples.
Dim = int | PerSample


@dataclass
class Step:
    """One operation.

    In its arguments, :class:`Ref`, :class:`Stored` and :class:`PerSample` stand for values and sizes.
    """

    index: int
    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: Identifier of the innermost module call that contains this step, and the path of its module.
    call: str
    module: str
    #: Shape of the result; ``None`` if the step returns several tensors or none.
    dims: tuple[Dim, ...] | None
    dtype: torch.dtype | None

    @property
    def op(self) -> str:
        """Name of the operation without namespace and overload, such as ``conv2d``."""
        if isinstance(self.target, torch._ops.OpOverload):
            return self.target._schema.name.split("::")[-1]
        return getattr(self.target, "__name__", "step")

    @property
    def sample(self) -> tuple[int, ...] | None:
        """Shape of one sample of the result; ``None`` if the first dimension is not the batch.

        A result of shape ``(3 * samples, features)`` has samples of shape ``(3, features)``.
        """
        match self.dims:
            case (PerSample(count), *rest) if all(isinstance(dim, int) for dim in rest):
                fixed = tuple(dim for dim in rest if isinstance(dim, int))
                return fixed if count == 1 else (count, *fixed)
        return None

    @property
    def rows(self) -> int:
        """Number of entries of the first dimension per sample, usually 1."""
        match self.dims:
            case (PerSample(count), *_):
                return count
        return 1

    @property
    def writes(self) -> list[Any]:
        """Arguments whose elements the step changes in place."""
        if self.op == "detach_":
            return []
        return [argument for argument, alias in self._aliases() if alias.is_write]

    @property
    def views(self) -> list[Any]:
        """Arguments that share memory with the result."""
        return [argument for argument, _ in self._aliases()]

    def _aliases(self) -> Iterator[tuple[Any, Any]]:
        if not isinstance(self.target, torch._ops.OpOverload):
            return
        for position, parameter in enumerate(self.target._schema.arguments):
            if parameter.alias_info is None:
                continue
            if position < len(self.args):
                yield self.args[position], parameter.alias_info
            elif parameter.name in self.kwargs:
                yield self.kwargs[parameter.name], parameter.alias_info

    def argument(self, name: str, default: Any = None) -> Any:
        """Returns an argument by its name in the operation's schema, or its default."""
        assert isinstance(self.target, torch._ops.OpOverload)
        for position, parameter in enumerate(self.target._schema.arguments):
            if parameter.name == name:
                if position < len(self.args):
                    return self.args[position]
                if name in self.kwargs:
                    return self.kwargs[name]
                return parameter.default_value if parameter.has_default_value() else default
        return default

    @property
    def is_random(self) -> bool:
        """Whether the operation draws random numbers."""
        return (
            isinstance(self.target, torch._ops.OpOverload)
            and torch.Tag.nondeterministic_seeded in self.target.tags
        )

    @cached_property
    def leaves(self) -> tuple[Ref | Stored, ...]:
        """All values and stored tensors in the arguments, in order."""
        leaves: list[Any] = []
        map_arguments(leaves.append, (self.args, self.kwargs))
        return tuple(leaf for leaf in leaves if isinstance(leaf, Ref | Stored))

    @cached_property
    def refs(self) -> tuple[int, ...]:
        """Indices of the values in the arguments, in order."""
        return tuple(leaf.index for leaf in self.leaves if isinstance(leaf, Ref))


@dataclass
class Program:
    """The steps of a module for one batch. The first steps are the network's inputs."""

    steps: list[Step]
    #: Steps that compute the outputs, in order.
    outputs: list[int]
    #: Number of inputs.
    inputs: int
    #: Whether each call of a leaf module takes one positional tensor and returns one, by call.
    simple_calls: dict[str, bool]


def map_arguments(function: Callable[[Any], Any], arguments: Any) -> Any:
    """Applies a function to all leaves of nested tuples, lists and dictionaries."""
    if isinstance(arguments, tuple | list):
        return type(arguments)(map_arguments(function, argument) for argument in arguments)
    if isinstance(arguments, dict):
        return {name: map_arguments(function, argument) for name, argument in arguments.items()}
    return function(arguments)


def why_no_embedding(step: Step, steps: Sequence[Step]) -> str | None:
    """Returns the reason for which a bag of embeddings is no sum or mean over positions, or ``None``.

    Args:
        step: A step ``embedding_bag``.
        steps: All steps.
    """
    if step.argument("mode") not in (0, 1):
        return "embedding_bag with mode 'max'"
    if step.argument("per_sample_weights") is not None:
        return "embedding_bag with per_sample_weights"
    if step.argument("padding_idx") not in (None, -1):
        return "embedding_bag with padding_idx"
    # `torch.nn.functional.embedding_bag` converts indices of (samples, positions) to a vector.
    indices, offsets = (
        steps[one.index] if isinstance(one, Ref) else None
        for one in (step.argument("indices"), step.argument("offsets"))
    )
    tokens = indices.args[0] if indices is not None and indices.op in ("reshape", "view") else None
    dims = steps[tokens.index].dims if isinstance(tokens, Ref) else None
    match dims:
        case (PerSample(1), int(positions)) if offsets is not None and offsets.op == "arange":
            if offsets.args == (0, PerSample(positions), positions):
                return None
    return "embedding_bag with offsets"


def export(module: nn.Module, call: Call) -> Program:
    """Exports a call of a module in its current mode.

    Args:
        module: The module.
        call: Its call with examples of shape ``(samples, ...)``.

    Raises:
        TraceError: The module cannot be exported, or its steps depend on the number of samples.
    """
    more = export_batch(module, call, batch_of(call.examples.values(), MORE))
    with simple_calls(module) as simple:
        fewer = export_batch(module, call, batch_of(call.examples.values(), FEWER))
    program = _Reader(module, call, fewer, more).read()
    modules = dict(module.named_modules(remove_duplicate=False))
    for step in program.steps:
        if step.module in modules:
            # The second call of a module is `name@1`.
            number = step.call.rpartition("@")[2]
            key = (id(modules[step.module]), int(number) if number.isdigit() and "@" in step.call else 0)
            program.simple_calls[step.call] = simple.get(key, False)
    return program


class _Reader:
    def __init__(
        self,
        module: nn.Module,
        call: Call,
        fewer: torch.export.ExportedProgram,
        more: torch.export.ExportedProgram,
    ) -> None:
        self.module, self.call, self.fewer, self.more = module, call, fewer, more
        self.steps: list[Step] = []
        self.values: dict[torch.fx.Node, Ref | Stored] = {}
        self.parameters = dict(module.named_parameters(remove_duplicate=False))

    def read(self) -> Program:
        nodes, others = list(self.fewer.graph.nodes), list(self.more.graph.nodes)
        if len(nodes) != len(others) or any(
            a.target != b.target for a, b in zip(nodes, others) if a.op == "call_function"
        ):
            raise TraceError(
                f"{type(self.module).__name__} runs different operations for {FEWER} and for {MORE} samples: "
                "a layer must not depend on the number of samples"
            )
        self._inputs(nodes, others)
        outputs = None
        for node, other in zip(nodes, others):
            if node.op == "output":
                outputs = self._outputs(node.args[0])
            elif node.op == "call_function":
                self._step(node, other)
            elif node.op not in ("placeholder", "get_attr"):
                raise TraceError(f"`{_path(node)}` has an unsupported operation: {node.op} {node.target}")
        assert outputs is not None
        return Program(self.steps, outputs, len(self.call.examples), {})

    def _inputs(self, nodes: Sequence[torch.fx.Node], others: Sequence[torch.fx.Node]) -> None:
        pairs = {node.name: (node, other) for node, other in zip(nodes, others) if node.op == "placeholder"}
        for spec in self.fewer.graph_signature.input_specs:
            node, other = pairs[spec.arg.name]
            if spec.kind == InputKind.USER_INPUT:
                dims = self._dims(node, other)
                index = len(self.steps)
                self.steps.append(Step(index, _input, (), {}, "", "", dims, node.meta["val"].dtype))
                self.values[node] = Ref(index)
                continue
            target = path_in_module(spec.target or "")
            owner, _, attribute = target.rpartition(".")
            is_parameter = spec.kind == InputKind.PARAMETER
            constant = None
            if (spec.target or "").startswith(CONSTANT):
                constant = self.call.constants[int(target.removeprefix(CONSTANT))]
            elif spec.kind == InputKind.CONSTANT_TENSOR:
                constant = self.fewer.constants[spec.target or ""]
            elif spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER):
                raise TraceError(
                    f"{type(self.module).__name__} has a constant that is not a tensor: {target}"
                )
            self.values[node] = Stored(target, owner, attribute, is_parameter, constant)
        if not self.steps:
            raise TraceError(f"{type(self.module).__name__} takes no tensor")

    def _outputs(self, results: Any) -> list[int]:
        # Exports may also return mutated buffers.
        user = {
            spec.arg.name
            for spec in self.fewer.graph_signature.output_specs
            if spec.kind.name == "USER_OUTPUT"
        }
        nodes = [one for one in results if isinstance(one, torch.fx.Node) and one.name in user]
        values = [self.values[node] for node in nodes]
        indices = [value.index for value in values if isinstance(value, Ref)]
        if len(indices) < len(values):
            raise TraceError(f"the output of {type(self.module).__name__} does not depend on its input")
        return indices

    def _step(self, node: torch.fx.Node, other: torch.fx.Node) -> None:
        target = node.target
        assert callable(target)
        path, call = _path(node), _call(node)
        if isinstance(target, torch._ops.HigherOrderOperator):
            raise TraceError(
                f"`{path or type(self.module).__name__}` uses {target}, which is not supported: move "
                "contexts such as torch.no_grad and torch.autocast, and control flow, out of the module "
                "(to freeze parameters, use requires_grad_(False))"
            )
        arguments = self._arguments(path, node, node.args, other.args)
        keywords = self._arguments(path, node, node.kwargs, other.kwargs)
        if target is operator.getitem:
            part = self._part(arguments[0], arguments[1]) or self._bag(node, path, call, *arguments)
            if part is not None:
                target, arguments = part
        if getattr(target, "__name__", "").startswith(("_assert", "sym_size", "sym_constrain")):
            return
        value = node.meta.get("val")
        is_tensor = isinstance(value, torch.Tensor)
        step = Step(
            len(self.steps),
            target,
            tuple(arguments),
            keywords,
            call,
            path,
            self._dims(node, other) if is_tensor else None,
            value.dtype if isinstance(value, torch.Tensor) else None,
        )
        self.steps.append(step)
        self.values[node] = Ref(step.index)

    def _argument(self, value: Ref | Stored, call: str) -> Ref | Stored:
        """Returns an argument's value without the identities of other calls.

        A call of ``to`` or ``contiguous`` that returns its argument returns the same object. In an export,
        all later uses of the object, also outside of the module that calls it, are of this step.
        """
        while isinstance(value, Ref) and self.steps[value.index].call != call:
            step = self.steps[value.index]
            argument = step.args[0] if step.op in IDENTITIES and step.args else None
            if not isinstance(argument, Ref) or self.steps[argument.index].dtype != step.dtype:
                break
            value = argument
        return value

    def _part(self, pieces: Any, position: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """Converts an element of a split tensor to a ``select`` or ``slice`` of the tensor."""
        if not isinstance(pieces, Ref):
            return None
        split = self.steps[pieces.index]
        if split.op not in ("chunk", "split", "split_with_sizes", "unbind", "tensor_split"):
            return None
        whole, dim = split.args[0], split.argument("dim", 0)
        dims = self.steps[whole.index].dims if isinstance(whole, Ref) else None
        if dims is None:
            return None
        dim %= len(dims)
        if not isinstance(dims[dim], int):
            return None
        if split.op == "unbind":
            return aten.select.int, (whole, dim, position)
        # Find the sizes by splitting a tensor of this length, since `chunk` has special rules.
        pieces_of = split.target(torch.arange(dims[dim]), *split.args[1:2])
        start = sum(len(piece) for piece in pieces_of[:position])
        return aten.slice.Tensor, (whole, dim, start, start + len(pieces_of[position]))

    def _bag(
        self, node: torch.fx.Node, path: str, call: str, results: Any, position: int
    ) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """Converts a bag of embeddings to a sum or a mean over the positions of an embedding."""
        step = self.steps[results.index] if isinstance(results, Ref) and position == 0 else None
        if step is None or step.op != "embedding_bag" or why_no_embedding(step, self.steps) is not None:
            return None
        tokens = self.steps[step.argument("indices").index].args[0]
        dims = self.steps[tokens.index].dims
        assert dims is not None
        value = node.meta["val"]
        dims = (*dims, value.shape[1])
        arguments = (step.argument("weight"), tokens)
        self.steps.append(
            Step(len(self.steps), aten.embedding.default, arguments, {}, call, path, dims, value.dtype)
        )
        reduced = aten.mean.dim if step.argument("mode") == 1 else aten.sum.dim_IntList
        return reduced, (Ref(self.steps[-1].index), [1])

    def _arguments(self, path: str, node: torch.fx.Node, fewer: Any, more: Any) -> Any:
        if isinstance(fewer, torch.fx.Node):
            if fewer not in self.values:
                raise TraceError(
                    f"`{path}` takes a value that is not the result of a tensor operation: {fewer}"
                )
            return self._argument(self.values[fewer], _call(node))
        if isinstance(fewer, tuple | list):
            if not isinstance(more, tuple | list) or len(fewer) != len(more):
                raise _depends(path, node)
            return type(fewer)(self._arguments(path, node, a, b) for a, b in zip(fewer, more))
        if isinstance(fewer, dict):
            return {
                name: self._arguments(path, node, argument, more[name]) for name, argument in fewer.items()
            }
        if fewer == more:
            return fewer
        return self._multiple(path, node, fewer, more)

    def _dims(self, node: torch.fx.Node, other: torch.fx.Node) -> tuple[Dim, ...]:
        fewer, more = node.meta["val"].shape, other.meta["val"].shape
        if len(fewer) != len(more):
            raise _depends(_path(node), node)
        return tuple(a if a == b else self._multiple(_path(node), node, a, b) for a, b in zip(fewer, more))

    @staticmethod
    def _multiple(path: str, node: torch.fx.Node, fewer: Any, more: Any) -> PerSample:
        if (
            isinstance(fewer, int)
            and isinstance(more, int)
            and fewer * MORE == more * FEWER
            and fewer % FEWER == 0
        ):
            return PerSample(fewer // FEWER)
        raise _depends(path, node)


def _input() -> None:
    """Placeholder for the operation of the input step."""


def _depends(path: str, node: torch.fx.Node) -> TraceError:
    return TraceError(
        f"layer `{path or node.name}` ({getattr(node.target, '__name__', node.target)}) depends on the "
        "number of samples: it mixes the samples of a batch, which are on different ranks"
    )


def _path(node: torch.fx.Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return path_in_module(str(stack[-1][0])) if stack else ""


def _call(node: torch.fx.Node) -> str:
    stack = list(node.meta.get("nn_module_stack") or {})
    return str(stack[-1]) if stack else ""
