"""What tracing a module gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from deeppool.network import Network
from deeppool.tracing.errors import TraceError
from deeppool.tracing.fingerprint import fingerprint
from deeppool.tracing.island import Island


@dataclass(frozen=True)
class TracedLayer:
    """A layer of a traced module."""

    name: str
    kind: str
    """As in the graph format, such as ``conv2d``; ``opaque`` where it is none of ours."""
    inputs: tuple[str, ...]
    """The layers whose outputs it takes, in order; ``input`` is the network's input."""
    island: Island = field(repr=False)
    """Computes it."""
    parameters_of: str | None = None
    """The earlier layer whose parameters it uses."""

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of one sample of its output."""
        return self.island.output_shape


class Traced:
    """A module as a network of layers, each of which can be executed by itself.

    ``str()`` of it is a table of the layers.
    """

    def __init__(
        self,
        graph: Mapping[str, Any],
        layers: list[TracedLayer],
        opaque: Mapping[str, str],
        output: str,
        losses: int,
        module: nn.Module,
        fingerprint: str,
        example_inputs: tuple[torch.Tensor, ...],
        targets: torch.Tensor | None = None,
    ) -> None:
        #: The network as a document of the format ``deeppool/graph/v1``.
        self.graph = dict(graph)
        #: In the order of the graph, without its input.
        self.layers = layers
        #: The layers that are of no known kind, and why.
        self.opaque = dict(opaque)
        #: The layer that gives the module's output.
        self.output = output
        #: From there to the loss.
        self.loss_layers = layers[len(layers) - losses :]
        self.module = module
        #: Of the module's structure when it was traced.
        self.fingerprint = fingerprint
        self.example_inputs = example_inputs
        #: Of the examples, where they were given.
        self.targets = targets

    @cached_property
    def network(self) -> Network:
        """The network, to plan and to simulate."""
        return Network(self.graph)

    @property
    def islands(self) -> dict[str, Island]:
        """By layer the module that computes it; that of ``loss`` takes scores and targets and gives ``samples`` losses."""
        return {layer.name: layer.island for layer in self.layers}

    def run(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The module's output (``samples x ...``) for a batch of any number of samples, layer by layer."""
        return self.values(*inputs)[self.output]

    def values(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The output of each layer before the loss, and ``input``."""
        (batch,) = inputs
        values = {"input": batch}
        for layer in self.layers[: len(self.layers) - len(self.loss_layers)]:
            values[layer.name] = layer.island(*(values[name] for name in layer.inputs))
        return values

    def check_unchanged(self, module: nn.Module | None = None) -> None:
        """Makes sure that a module (by default the traced one) still is what was traced.

        Raises:
            TraceError: where its parts, options, or the shapes of its parameters are others.
        """
        module = self.module if module is None else module
        if fingerprint(module) != self.fingerprint:
            raise TraceError(
                f"{type(module).__name__} is not as it was when it was traced: trace it again, and plan again"
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
            f"{self.graph['name']}: {len(self.layers)} layers, {known} of known kinds, {len(self.opaque)} opaque"
        )
        lines += [f"  {name}: {reason}" for name, reason in self.opaque.items()]
        return "\n".join(lines)
