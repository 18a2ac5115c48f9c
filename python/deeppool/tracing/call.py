"""Calls of a module: its inputs, its constants and the tensor of its output that is the network's."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from deeppool.tracing.errors import TraceError

#: Fields of a module's output that are the network's output, the preferred one first.
OUTPUTS = ("logits", "last_hidden_state", "out")

#: Arguments that are targets.
LABELS = ("labels", "label", "targets", "target")


@dataclasses.dataclass(frozen=True)
class _Input:
    """Placeholder for an input of the network in the arguments."""

    index: int


@dataclasses.dataclass(frozen=True)
class _Constant:
    """Placeholder for a constant tensor in the arguments."""

    index: int
    #: Whether its only row is repeated for each sample.
    is_row: bool


class Call:
    """A call of a module with a batch of samples and constant arguments.

    The first tensor among the arguments is an input of the network. Other tensors with as many rows as there
    are samples are inputs, too, unless all rows are equal: then each batch gets the row for each of its
    samples. Other tensors are passed unchanged.

    Args:
        module: The module.
        args: Positional arguments of an example.
        keywords: Its keyword arguments.
        outputs: Fields or positions of the module's output that are outputs of the network; ``None`` for one
            output, which is found.

    Raises:
        TraceError: No argument is a batch of samples.
    """

    def __init__(
        self,
        module: nn.Module,
        args: Sequence[Any],
        keywords: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
    ) -> None:
        #: Fields or positions of the outputs; ``None`` for one output.
        self.outputs = None if outputs is None else list(outputs)
        names = _parameters(module)
        named = [
            (names[i] if i < len(names) else f"argument {i + 1}", value) for i, value in enumerate(args)
        ]
        named += list(keywords.items())
        first = next((name for name, value in named if isinstance(value, torch.Tensor)), None)
        if first is None:
            raise TraceError(
                f"expected a batch of examples for {type(module).__name__}, got no tensor: give one as the "
                "first argument"
            )
        example: torch.Tensor = dict(named)[first]
        if example.dim() < 2 or len(example) == 0:
            raise TraceError(
                "expected a batch of examples of shape (samples, ...), got a tensor of shape "
                f"{list(example.shape)}"
            )
        #: Examples of the network's inputs by name, of shape ``(samples, ...)``, first ``input``.
        self.examples: dict[str, torch.Tensor] = {"input": example}
        #: Constant tensors.
        self.constants: list[torch.Tensor] = []
        values = [_Input(0) if name == first else self._fixed(name, value) for name, value in named]
        self._args = values[: len(args)]
        self._keywords = dict(zip(keywords, values[len(args) :]))

    def run(
        self,
        module: nn.Module,
        batch: Sequence[torch.Tensor],
        constants: Sequence[torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Calls a module with a batch.

        Args:
            module: The module, or a copy of it.
            batch: The network's inputs, of shape ``(samples, ...)``.
            constants: Tensors in place of :attr:`constants`.

        Returns:
            The network's only output: the returned tensor, or of several the one that is named in
            :data:`OUTPUTS`.

        Raises:
            TraceError: The module returns no such tensor, or there are several outputs.
        """
        results = self.run_all(module, batch, constants)
        if len(results) > 1:
            raise TraceError(f"{type(module).__name__} has {len(results)} outputs with losses, not one")
        return results[0]

    def run_all(
        self,
        module: nn.Module,
        batch: Sequence[torch.Tensor],
        constants: Sequence[torch.Tensor] | None = None,
    ) -> list[torch.Tensor]:
        """Calls a module with a batch as :meth:`run` does, and returns all outputs of the network.

        Raises:
            TraceError: The module does not return such tensors.
        """
        tensors = self.constants if constants is None else constants

        def value(leaf: Any) -> Any:
            if isinstance(leaf, _Input):
                return batch[leaf.index]
            if not isinstance(leaf, _Constant):
                return leaf
            tensor = tensors[leaf.index]
            return tensor.expand(len(batch[0]), *tensor.shape[1:]) if leaf.is_row else tensor

        args, keywords = tree_map(value, (self._args, self._keywords))
        result = module(*args, **keywords)
        if self.outputs is None:
            return [_tensor_of(module, result)]
        return _tensors_of(module, result, self.outputs)

    def _fixed(self, name: str, value: Any) -> Any:
        """Replaces the tensors of an argument by placeholders."""
        if any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value)) and name in LABELS:
            raise TraceError(
                f"the argument `{name}` is not an input of the network: leave it out, and give `loss` and "
                "`targets` if the loss is not the cross-entropy of the scores"
            )
        return tree_map(lambda leaf: self._placeholder(name, leaf), value)

    def _placeholder(self, name: str, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        samples = len(self.examples["input"])
        is_row = leaf.dim() > 0 and len(leaf) == samples
        if is_row and bool((leaf != leaf[:1]).any()):
            if leaf.dim() < 2:
                raise TraceError(
                    f"the argument `{name}` has one number a sample, of shape {list(leaf.shape)}: give it "
                    f"the shape {[samples, 1]} in a wrapper, or examples with another number of samples if "
                    "it is constant"
                )
            called, number = name, 2
            while called in self.examples:
                called, number = f"{name}.{number}", number + 1
            self.examples[called] = leaf
            return _Input(len(self.examples) - 1)
        self.constants.append((leaf[:1] if is_row else leaf).detach())
        return _Constant(len(self.constants) - 1, is_row)


def _parameters(module: nn.Module) -> list[str]:
    """Returns the names of the positional parameters of a module's forward pass."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(module.forward).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


def _tensor_of(module: nn.Module, output: Any) -> torch.Tensor:
    """Returns the tensor of a module's output that is the network's output."""
    if isinstance(output, torch.Tensor):
        return output
    tensors = {name: value for name, value in _fields(output).items() if isinstance(value, torch.Tensor)}
    name = type(module).__name__
    if list(tensors) == ["loss"]:
        raise TraceError(
            f"{name} returns only a loss, which is no batch of samples: let it return scores, and give "
            "`loss` and `targets`"
        )
    if not any(field.startswith("aux") for field in tensors):
        for field in (*OUTPUTS, *tensors):
            if field in tensors and (field in OUTPUTS or len(tensors) == 1):
                return tensors[field]
    raise TraceError(
        f"{name} returns {len(tensors)} tensors, but a network has one output: disable auxiliary outputs "
        "(aux_logits=False), wrap the module in one that returns a single tensor, or give a `loss` for each "
        f"output that has one, by its name ({', '.join(tensors)})"
    )


def _tensors_of(module: nn.Module, output: Any, names: Sequence[str]) -> list[torch.Tensor]:
    """Returns the tensors of a module's output with the given names."""
    fields = {"0": output} if isinstance(output, torch.Tensor) else _fields(output)
    tensors = {name: value for name, value in fields.items() if isinstance(value, torch.Tensor)}
    by_position = dict(zip(map(str, range(len(tensors))), tensors.values()))
    missing = [name for name in names if name not in tensors and name not in by_position]
    if missing:
        raise TraceError(
            f"{type(module).__name__} returns no output `{missing[0]}` for a loss, only "
            f"{', '.join(f'`{name}`' for name in tensors) or 'other values'}"
        )
    return [tensors[name] if name in tensors else by_position[name] for name in names]


def _fields(output: Any) -> dict[str, Any]:
    """Returns the fields of a dictionary, a dataclass or a tuple by name or position."""
    if isinstance(output, Mapping):
        return {str(name): value for name, value in output.items()}
    if hasattr(output, "_asdict"):
        return dict(output._asdict())
    if dataclasses.is_dataclass(output):
        return {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    if isinstance(output, tuple | list):
        return {str(position): value for position, value in enumerate(output)}
    return {}


@contextlib.contextmanager
def caches_off(module: nn.Module) -> Iterator[None]:
    """Sets ``use_cache`` of all configurations, as modules of `transformers` have, to false during the block.

    A key-value cache is no output of a network.
    """
    configurations = [getattr(part, "config", None) for part in module.modules()]
    changed = {id(one): one for one in configurations if getattr(one, "use_cache", None) is True}
    for one in changed.values():
        setattr(one, "use_cache", False)
    try:
        yield
    finally:
        for one in changed.values():
            setattr(one, "use_cache", True)
