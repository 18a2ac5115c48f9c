"""Losses of the outputs of a module, as they are given to :func:`deeppool.tracing.trace`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from deeppool.tracing.errors import TraceError
from deeppool.tracing.losses import LossFunction


@dataclass(frozen=True)
class WantedLoss:
    """A loss of an output of a module."""

    output: str | None
    """Field or position of the output; ``None`` for the only output."""
    function: LossFunction | None
    """The loss; cross-entropy if ``None``."""
    targets: torch.Tensor | None
    """Targets of the examples, if given."""
    weight: float = 1.0
    """Factor in the sum of losses."""

    @property
    def layer(self) -> str:
        """Name of the loss layer."""
        return "loss" if self.output is None else f"loss.{self.output}"


def wanted_losses(loss: Any, targets: Any, weights: Any) -> list[WantedLoss]:
    """Returns the losses of outputs, of which each may be given by name or by position.

    Args:
        loss: A loss, a dictionary of losses by output, or a sequence of losses of the first outputs.
        targets: Targets of all losses, or a dictionary or sequence of those of each.
        weights: A dictionary or sequence of the factors of losses.

    Raises:
        TraceError: There are no losses, targets or weights belong to none, or a weight is not positive.
    """
    if not isinstance(loss, Mapping | Sequence):
        if weights is not None or not (targets is None or isinstance(targets, torch.Tensor)):
            raise TraceError(
                "targets of several losses, and loss_weights, need a loss for each output: give `loss` as a "
                "dictionary of losses by the names of the module's outputs"
            )
        return [WantedLoss(None, loss, targets)]
    functions = _by_name(loss)
    if not functions:
        raise TraceError("`loss` is empty: give a loss for at least one output")
    if isinstance(targets, torch.Tensor):
        targets = dict.fromkeys(functions, targets)
    of_targets, of_weights = _by_name(targets), _by_name(weights)
    for what, given in (("targets", of_targets), ("loss_weights", of_weights)):
        unknown = [name for name in given if name not in functions]
        if unknown:
            raise TraceError(
                f"`{what}` has `{unknown[0]}`, which has no loss: losses are given for {', '.join(functions)}"
            )
    for name, weight in of_weights.items():
        if not 0 < weight < float("inf"):
            raise TraceError(f"the weight {weight} of the loss of `{name}` is not a positive number")
    return [
        WantedLoss(name, function, of_targets.get(name), float(of_weights.get(name, 1.0)))
        for name, function in functions.items()
    ]


def _by_name(values: Any) -> dict[str, Any]:
    """Returns values by the names of outputs, or by their positions for a sequence."""
    if values is None:
        return {}
    items = values.items() if isinstance(values, Mapping) else enumerate(values)
    return {str(name): value for name, value in items}
