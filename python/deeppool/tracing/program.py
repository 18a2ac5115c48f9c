"""A module as a list of steps, from two exports with different numbers of samples.

``torch.export`` is called with 2 and with 3 samples instead of with a symbolic number: every module that runs at a number of
samples exports at that number, and what differs between both exports is what depends on it.
"""

from __future__ import annotations

import contextlib
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.export.graph_signature import InputKind

from deeppool.tracing.errors import TraceError

#: Numbers of samples of the two exports.
FEWER, MORE = 2, 3

aten = torch.ops.aten


@dataclass(frozen=True)
class Ref:
    """The value that a step makes."""

    index: int


@dataclass(frozen=True)
class PerSample:
    """A number that is this many times the number of samples."""

    count: int


@dataclass(frozen=True)
class Stored:
    """A tensor that a module owns: ``attribute`` of the submodule at ``owner``; a constant of the program where there is none."""

    name: str
    owner: str
    attribute: str
    is_parameter: bool
    constant: torch.Tensor | None = field(default=None, compare=False)


#: A dimension of a value: fixed, or a multiple of the number of samples.
Dim = int | PerSample


@dataclass
class Step:
    """One operation. Its arguments hold :class:`Ref`, :class:`Stored` and :class:`PerSample` in place of what they stand for."""

    index: int
    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: The call of the innermost module that this belongs to, and the module's path in the whole.
    call: str
    module: str
    #: ``None`` where the step makes several tensors, or none.
    dims: tuple[Dim, ...] | None
    dtype: torch.dtype | None

    @property
    def op(self) -> str:
        """The operation's name without namespace and overload: ``conv2d``."""
        if isinstance(self.target, torch._ops.OpOverload):
            return self.target._schema.name.split("::")[-1]
        return getattr(self.target, "__name__", "step")

    @property
    def sample(self) -> tuple[int, ...] | None:
        """The shape of one sample of a value whose first dimension is the batch; ``None`` where it is not.

        A value of ``3 * samples x features`` has samples of ``3 x features``.
        """
        match self.dims:
            case (PerSample(count), *rest) if all(isinstance(dim, int) for dim in rest):
                fixed = tuple(dim for dim in rest if isinstance(dim, int))
                return fixed if count == 1 else (count, *fixed)
        return None

    @property
    def rows(self) -> int:
        """How many entries of the first dimension a sample has: 1, unless parts of samples are stacked there."""
        match self.dims:
            case (PerSample(count), *_):
                return count
        return 1

    @property
    def writes(self) -> list[Any]:
        """The arguments that the step changes in place."""
        return [argument for argument, alias in self._aliases() if alias.is_write]

    @property
    def views(self) -> list[Any]:
        """The arguments whose memory the result shares."""
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
        """The argument of this name in the operation's schema, or its default there."""
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
        """Whether each execution gives other numbers."""
        return (
            isinstance(self.target, torch._ops.OpOverload)
            and torch.Tag.nondeterministic_seeded in self.target.tags
        )

    def leaves(self) -> list[Any]:
        """All references to values and stored tensors among the arguments, in order."""
        found: list[Any] = []
        map_arguments(lambda leaf: found.append(leaf), (self.args, self.kwargs))
        return [leaf for leaf in found if isinstance(leaf, Ref | Stored)]

    def refs(self) -> list[int]:
        """The values that it takes, in order."""
        return [leaf.index for leaf in self.leaves() if isinstance(leaf, Ref)]


@dataclass
class Program:
    """What a module computes of one batch. Step 0 is the input."""

    steps: list[Step]
    output: int
    #: By call of a leaf module: whether it was called with one positional tensor and gave one.
    simple_calls: dict[str, bool]


def map_arguments(function: Callable[[Any], Any], arguments: Any) -> Any:
    """Applies a function to everything in nested tuples, lists and dictionaries that is none of them."""
    if isinstance(arguments, tuple | list):
        return type(arguments)(map_arguments(function, argument) for argument in arguments)
    if isinstance(arguments, dict):
        return {name: map_arguments(function, argument) for name, argument in arguments.items()}
    return function(arguments)


def export(module: nn.Module, example: torch.Tensor) -> Program:
    """The steps of a module on batches of samples like those of ``example``, ``batch x ...``, in training."""
    more = _export(module, batch_of(example, MORE))
    with _calls(module) as simple:
        fewer = _export(module, batch_of(example, FEWER))
    program = _Reader(module, fewer, more).read()
    modules = dict(module.named_modules(remove_duplicate=False))
    for step in program.steps:
        if step.module in modules:
            # The second call of a module is `name@1`.
            number = step.call.rpartition("@")[2]
            key = (id(modules[step.module]), int(number) if number.isdigit() and "@" in step.call else 0)
            program.simple_calls[step.call] = simple.get(key, False)
    return program


@contextlib.contextmanager
def _calls(module: nn.Module) -> Iterator[dict[tuple[int, int], bool]]:
    """Notes of each call of a leaf module whether it takes one positional tensor and nothing else, and gives one."""
    simple: dict[tuple[int, int], bool] = {}
    counts: dict[int, int] = {}

    def note(called: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        number = counts.get(id(called), 0)
        counts[id(called)] = number + 1
        one = len(args) == 1 and isinstance(args[0], torch.Tensor) and not kwargs
        simple[id(called), number] = one and isinstance(output, torch.Tensor)

    hooks = [
        part.register_forward_hook(note, with_kwargs=True)
        for part in module.modules()
        if not any(part.children())
    ]
    try:
        yield simple
    finally:
        for hook in hooks:
            hook.remove()


def batch_of(example: torch.Tensor, samples: int) -> torch.Tensor:
    """So many different samples, made of those that there are: a sample that is needed again is mirrored and rolled."""
    rows = []
    for index in range(samples):
        row, again = example[index % len(example)], index // len(example)
        rows.append(row.flip(-1).roll(again, -1) if again and row.dim() else row)
    return torch.stack(rows)


def _export(module: nn.Module, batch: torch.Tensor) -> torch.export.ExportedProgram:
    try:
        with warnings.catch_warnings():
            # Of caches that modules fill, such as the list of weights of an LSTM.
            warnings.filterwarnings("ignore", message="The tensor attributes")
            return torch.export.export(module, (batch,), strict=False)
    except Exception as error:
        problem = str(error).strip().split("\n")[0]
        raise TraceError(
            f"{type(module).__name__} cannot be exported with {len(batch)} samples ({type(error).__name__}: {problem}): "
            "what it computes must not depend on the values of tensors"
        ) from error


class _Reader:
    def __init__(
        self, module: nn.Module, fewer: torch.export.ExportedProgram, more: torch.export.ExportedProgram
    ) -> None:
        self.module, self.fewer, self.more = module, fewer, more
        self.steps: list[Step] = []
        self.values: dict[torch.fx.Node, Ref | Stored] = {}
        self.parameters = dict(module.named_parameters(remove_duplicate=False))

    def read(self) -> Program:
        nodes, others = list(self.fewer.graph.nodes), list(self.more.graph.nodes)
        if len(nodes) != len(others) or any(
            a.target != b.target for a, b in zip(nodes, others) if a.op == "call_function"
        ):
            raise TraceError(
                f"{type(self.module).__name__} does something else with {FEWER} samples than with {MORE}: "
                "a layer may not depend on how many samples there are"
            )
        self._inputs(nodes, others)
        output = None
        for node, other in zip(nodes, others):
            if node.op == "output":
                output = self._output(node.args[0])
            elif node.op == "call_function":
                self._step(node, other)
            elif node.op not in ("placeholder", "get_attr"):
                raise TraceError(
                    f"`{_path(node)}` has an operation that is not understood: {node.op} {node.target}"
                )
        assert output is not None
        return Program(self.steps, output, {})

    def _inputs(self, nodes: Sequence[torch.fx.Node], others: Sequence[torch.fx.Node]) -> None:
        pairs = {node.name: (node, other) for node, other in zip(nodes, others) if node.op == "placeholder"}
        for spec in self.fewer.graph_signature.input_specs:
            node, other = pairs[spec.arg.name]
            if spec.kind == InputKind.USER_INPUT:
                dims = self._dims(node, other)
                self.steps.append(Step(0, _input, (), {}, "", "", dims, node.meta["val"].dtype))
                self.values[node] = Ref(0)
                continue
            target = spec.target or ""
            owner, _, attribute = target.rpartition(".")
            is_parameter = spec.kind == InputKind.PARAMETER
            constant = None
            if spec.kind == InputKind.CONSTANT_TENSOR:
                constant = self.fewer.constants[target]
            elif spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER):
                raise TraceError(
                    f"{type(self.module).__name__} holds something that is not a tensor: {target}"
                )
            self.values[node] = Stored(target, owner, attribute, is_parameter, constant)
        if not self.steps:
            raise TraceError(f"{type(self.module).__name__} takes no tensor")

    def _output(self, results: Any) -> int:
        # Buffers that were changed come first where an export has them.
        user = {
            spec.arg.name
            for spec in self.fewer.graph_signature.output_specs
            if spec.kind.name == "USER_OUTPUT"
        }
        tensors = [node for node in results if isinstance(node, torch.fx.Node) and node.name in user]
        if len(tensors) != 1:
            raise TraceError(
                f"{type(self.module).__name__} returns {len(tensors)} tensors: a network has one output; leave auxiliary "
                "outputs out (aux_logits=False), or wrap the module in one that returns the tensor to train on"
            )
        value = self.values[tensors[0]]
        if not isinstance(value, Ref):
            raise TraceError(f"the output of {type(self.module).__name__} does not depend on its input")
        return value.index

    def _step(self, node: torch.fx.Node, other: torch.fx.Node) -> None:
        target = node.target
        assert callable(target)
        path, call = _path(node), _call(node)
        if isinstance(target, torch._ops.HigherOrderOperator):
            raise TraceError(
                f"`{path or type(self.module).__name__}` uses {target}, which has no layer: take contexts such as torch.no_grad and "
                "torch.autocast, and control flow, out of the module (requires_grad_(False) keeps parameters as they are)"
            )
        arguments = self._arguments(path, node, node.args, other.args)
        keywords = self._arguments(path, node, node.kwargs, other.kwargs)
        if target is operator.getitem:
            part = self._part(arguments[0], arguments[1])
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

    def _part(self, pieces: Any, position: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """A piece of a tensor that was split, as an operation on the tensor itself."""
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
        # On a tensor of that size, since `chunk` has rules of its own.
        pieces_of = split.target(torch.arange(dims[dim]), *split.args[1:2])
        start = sum(len(piece) for piece in pieces_of[:position])
        return aten.slice.Tensor, (whole, dim, start, start + len(pieces_of[position]))

    def _arguments(self, path: str, node: torch.fx.Node, fewer: Any, more: Any) -> Any:
        if isinstance(fewer, torch.fx.Node):
            if fewer not in self.values:
                raise TraceError(f"`{path}` takes a value that no tensor operation made: {fewer}")
            return self.values[fewer]
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
    """Stands for the operation that makes the input."""


def _depends(path: str, node: torch.fx.Node) -> TraceError:
    return TraceError(
        f"layer `{path or node.name}` ({getattr(node.target, '__name__', node.target)}) depends on the number of samples: "
        "it mixes the samples of a batch, which are on different ranks"
    )


def _path(node: torch.fx.Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


def _call(node: torch.fx.Node) -> str:
    stack = list(node.meta.get("nn_module_stack") or {})
    return str(stack[-1]) if stack else ""
