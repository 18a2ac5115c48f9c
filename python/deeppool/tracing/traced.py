"""Results of tracing a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from deeppool.network import Network
from deeppool.tracing.call import Call
from deeppool.tracing.errors import TraceError
from deeppool.tracing.fingerprint import fingerprint
from deeppool.tracing.island import Island
from deeppool.tracing.losses import Loss
from deeppool.tracing.refusals import CounterOf
from deeppool.tracing.state import Watch


def problem_of_padding(token: int) -> str:
    """Returns the message of an error for inputs that have a padding token which they may not have."""
    return (
        f"the inputs have the padding token {token}, and the module was traced without it: trace it with "
        "examples that have it, or give the positions as an argument"
    )


@dataclass(frozen=True)
class TracedLayer:
    """A layer of a traced module."""

    name: str
    kind: str
    """Kind in the graph format, such as ``conv2d``; ``opaque`` if no kind matches."""
    inputs: tuple[str, ...]
    """Names of the layers that produce its inputs, or of the network's inputs, in order."""
    island: Island = field(repr=False)
    """Module that computes the layer."""
    parameters_of: str | None = None
    """Name of the earlier layer that owns its parameters; ``None`` if it owns them."""

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of one sample of the output."""
        return self.island.output_shape


@dataclass(frozen=True)
class TracedLoss:
    """A loss of a traced module."""

    output: str
    """Name of the layer that computes the module's output for this loss."""
    layers: tuple[TracedLayer, ...]
    """Layers after the output, up to the loss."""
    loss: Loss
    """The loss as a sum over samples and a denominator."""
    weight: float
    """Factor in the sum of losses."""
    targets: torch.Tensor | None = field(repr=False)
    """Targets of the examples, if given."""

    @property
    def name(self) -> str:
        """Name of the loss layer."""
        return self.layers[-1].name


class Traced:
    """A module as a network of layers that can be executed separately.

    ``str()`` returns a table of the layers.
    """

    def __init__(
        self,
        graph: Mapping[str, Any],
        layers: list[TracedLayer],
        opaque: Mapping[str, str],
        losses: Sequence[TracedLoss],
        module: nn.Module,
        fingerprint: str,
        example_inputs: tuple[torch.Tensor, ...],
        *,
        call: Call,
        counters: Sequence[CounterOf],
        watch: Watch,
        absent: Set[tuple[int, int]] = frozenset(),
    ) -> None:
        #: The network as a document of the format ``deeppool/graph/v1``.
        self.graph = dict(graph)
        #: Layers in the order of the graph, without its inputs.
        self.layers = layers
        #: Reason for each opaque layer, by name.
        self.opaque = dict(opaque)
        #: The losses, whose sum, each multiplied by its weight, is the network's loss.
        self.losses = tuple(losses)
        #: Name of the layer that computes the module's output, or the one of the first loss.
        self.output = losses[0].output
        #: Layers after the outputs, up to the losses.
        self.loss_layers = [layer for loss in losses for layer in loss.layers]
        self.module = module
        #: Hash of the module's structure at the time of tracing.
        self.fingerprint = fingerprint
        self.example_inputs = example_inputs
        #: Targets of the examples for the first loss, if given.
        self.targets = losses[0].targets
        #: Call of the module.
        self.call = call
        #: The first loss as a sum over samples and a denominator.
        self.loss = losses[0].loss
        #: Buffers that count training iterations.
        self.counters = list(counters)
        self._watch = watch
        #: Indices of inputs, and padding tokens that they may not have.
        self.absent = frozenset(absent)

    @cached_property
    def network(self) -> Network:
        """The network, for planning and simulation."""
        return Network(self.graph)

    @property
    def islands(self) -> dict[str, Island]:
        """Module of each layer, by name.

        The module of a loss takes scores and targets and returns one loss per sample.
        """
        return {layer.name: layer.island for layer in self.layers}

    def run(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Computes the module's output, or that of the first loss, by layers, for any number of samples."""
        return self.values(*inputs)[self.output]

    def values(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Computes the output of each layer before the loss. The result also has the inputs."""
        self.check_tokens(inputs)
        values = dict(zip(self.call.examples, inputs, strict=True))
        for layer in self.layers[: len(self.layers) - len(self.loss_layers)]:
            values[layer.name] = layer.island(*(values[name] for name in layer.inputs))
        return values

    def check_tokens(self, inputs: Sequence[torch.Tensor]) -> None:
        """Checks that there are no padding tokens on which positions depend.

        On a GPU, it fails later and without a message, so that nothing waits for it.

        Raises:
            TraceError: There are some.
        """
        for index, token in self.absent:
            is_absent = (inputs[index] != token).all()
            if is_absent.device.type != "cpu":
                torch._assert_async(is_absent)
            elif not is_absent:
                raise TraceError(problem_of_padding(token))

    def check_unchanged(self, module: nn.Module | None = None) -> None:
        """Checks that a module has the structure that was traced.

        Args:
            module: The module; by default the traced one.

        Raises:
            TraceError: Its submodules, options, or parameter shapes differ.
        """
        module = self.module if module is None else module
        if fingerprint(module) != self.fingerprint:
            raise TraceError(
                f"{type(module).__name__} changed since it was traced: trace it again, and plan again"
            )

    def followed_state(self) -> tuple[Any, ...]:
        """Returns the Python state that the module's layers follow. If it changes, probe them again."""
        return self._watch.followed()

    def check_state(self) -> None:
        """Checks the Python state that the module's layers do not follow. It is cheap.

        Raises:
            TraceError: An attribute, the training mode, a submodule or a hook changed since tracing.
        """
        of_losses = (loss.loss.problem_now() for loss in self.losses)
        problem = self._watch.problem() or next(filter(None, of_losses), None)
        if problem is not None:
            raise TraceError(
                f"{problem} after tracing, and the traced layers do not follow it: trace "
                f"{type(self.module).__name__} again"
            )

    def __str__(self) -> str:
        layers = {layer.name: layer for layer in self.network.layers}
        rows = [("layer", "kind", "inputs", "output", "MFLOP", "parameters")]
        for traced in self.layers:
            layer = layers[traced.name]
            shape = "x".join(map(str, traced.output_shape))
            own = (
                f"{layer.parameter_count:,}" if traced.parameters_of is None else f"of {traced.parameters_of}"
            )
            flops = f"{layer.forward_flops / 1e6:,.2f}"
            rows.append(
                (traced.name, traced.kind, ", ".join(traced.inputs), shape, flops, own if own != "0" else "")
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = []
        for row in rows:
            cells = [
                cell.rjust(width) if i > 3 else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths))
            ]
            lines.append("  ".join(cells).rstrip())
        known = len(self.layers) - len(self.opaque)
        lines.append(
            f"{self.graph['name']}: {len(self.layers)} layers, {known} of known kinds, "
            f"{len(self.opaque)} opaque"
        )
        lines += [f"  {name}: {reason}" for name, reason in self.opaque.items()]
        return "\n".join(lines)
