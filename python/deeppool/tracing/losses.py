"""The loss as the last layer of a network. It returns one value per sample; training minimises the mean."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from deeppool.tracing.cost import cost
from deeppool.tracing.draft import Draft
from deeppool.tracing.errors import TraceError
from deeppool.tracing.island import Island, of_function

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def drafts(loss: Loss | None, output: str, scores: tuple[int, ...]) -> list[Draft]:
    """Returns the layers from the network's output to the loss.

    Args:
        loss: The loss; cross-entropy if ``None``.
        output: Name of the layer that computes the output.
        scores: Shape of one sample of the output.
    """
    if loss is None or _is_plain_cross_entropy(loss):
        if len(scores) > 3:
            raise TraceError(
                f"the output has samples of shape {list(scores)}, which are not class scores: give a `loss`"
            )
        layers = []
        if len(scores) == 3:
            # Convert scores per pixel to (positions, classes).
            pixels = scores[1] * scores[2]
            island = of_function("loss.reshape", lambda x: x.flatten(2), (scores[0], pixels))
            layers.append(Draft(island.name, {"reshape": {"output": [scores[0], pixels]}}, [output], island))
            island = of_function("loss.permute", lambda x: x.transpose(1, 2), (pixels, scores[0]))
            layers.append(Draft(island.name, {"permute": {"order": [1, 0]}}, ["loss.reshape"], island))
            output = "loss.permute"
        island = of_function("loss", _cross_entropy, (1,))
        return [*layers, Draft("loss", "softmax_cross_entropy", [output], island)]
    by_sample = _by_sample(loss)
    name = type(loss).__name__ if isinstance(loss, nn.Module) else getattr(loss, "__name__", "loss")
    return [Draft("loss", None, [output], of_function(name, by_sample, (1,)), f"the loss is {name}")]


def _is_plain_cross_entropy(loss: Loss) -> bool:
    if loss is F.cross_entropy:
        return True
    if not isinstance(loss, nn.CrossEntropyLoss):
        return False
    return loss.reduction == "mean" and loss.weight is None and loss.label_smoothing == 0


def _cross_entropy(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the cross-entropy of each sample, the mean over its positions, of shape ``(samples,)``."""
    classes = scores.shape[-1]
    losses = F.cross_entropy(scores.reshape(-1, classes), targets.reshape(-1), reduction="none")
    return losses.reshape(len(scores), -1).mean(1)


def _by_sample(loss: Loss) -> Loss:
    """Converts a mean loss to a loss per sample."""
    if isinstance(loss, nn.Module) and isinstance(getattr(loss, "reduction", None), str):
        if loss.reduction != "mean":
            raise TraceError(
                f"the loss has reduction={loss.reduction!r}, which is not supported: give a loss with "
                "reduction='mean'"
            )
        if getattr(loss, "weight", None) is not None:
            raise TraceError(
                f"{type(loss).__name__} has class weights, so its mean depends on the labels of other "
                "samples: give a function that weights the loss of each sample and returns the mean"
            )
        each = copy.copy(loss)
        setattr(each, "reduction", "none")

        def of_elements(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            values: torch.Tensor = each(output, targets)
            return values.reshape(len(output), -1).mean(1)

        return of_elements

    def of_samples(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        values = [loss(output[i : i + 1], targets[i : i + 1]).reshape(()) for i in range(len(output))]
        return torch.stack(values)

    return of_samples


def cost_of(island: Island, output: torch.Tensor, targets: torch.Tensor | None) -> dict[str, Any]:
    """Counts the cost of an opaque loss. Returns the fields of an opaque layer in the graph format."""
    if targets is None:
        raise TraceError(
            "the cost of a custom loss is counted by executing it: give `targets` of the examples"
        )
    times = -(-len(output) // len(targets))
    labels = torch.cat([targets] * times)[: len(output)]
    document = {"op": island.name, "output": [1], "labels": max(1, targets[0].numel())}

    def run(scores: torch.Tensor) -> torch.Tensor:
        return island(scores, labels[: len(scores)])  # type: ignore[no-any-return]

    return document | cost(run, [], [output], False)
