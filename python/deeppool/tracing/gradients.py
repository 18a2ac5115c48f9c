"""Comparison of a module's gradients with those of the layer engine."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from deeppool import _deeppool
from deeppool.tracing.traced import Traced


@dataclass(frozen=True)
class GradientCheck:
    """Loss and gradients of a batch, by PyTorch and by the CPU engine, in double precision."""

    loss: float
    """PyTorch's mean loss over the batch."""
    engine_loss: float
    """The engine's mean loss over the batch."""
    gradients: dict[str, torch.Tensor]
    """PyTorch's gradients by parameter name."""
    engine_gradients: dict[str, torch.Tensor]
    """The engine's gradients by parameter name."""

    @property
    def differences(self) -> dict[str, float]:
        """Maximum relative difference of each parameter's gradient, by name.

        The maximum difference of an element is divided by the gradient's largest element, or by 1e-6 of
        the largest element of all gradients if that is larger. Some gradients are zero except for rounding.
        """
        sizes = {name: float(gradient.abs().max()) for name, gradient in self.gradients.items()}
        min_size = max(1e-6 * max(sizes.values(), default=0.0), 1e-300)
        ours = self.engine_gradients
        return {
            name: float((gradient - ours[name]).abs().max()) / max(sizes[name], min_size)
            for name, gradient in self.gradients.items()
        }

    @property
    def largest_difference(self) -> float:
        """Maximum relative difference of the loss and of all gradients."""
        of_loss = abs(self.engine_loss - self.loss) / max(abs(self.loss), 1e-300)
        return max((of_loss, *self.differences.values()))

    def __str__(self) -> str:
        name, difference = max(self.differences.items(), key=lambda one: one[1], default=("none", 0.0))
        return (
            f"loss {self.loss:.9g}, engine's loss {self.engine_loss:.9g}; gradients differ by at most "
            f"{difference:.1e} ({name})"
        )


def check_gradients(
    traced: Traced,
    inputs: torch.Tensor | Sequence[torch.Tensor],
    targets: torch.Tensor | Sequence[torch.Tensor],
) -> GradientCheck:
    """Computes the loss and gradients of a batch by PyTorch and by the CPU engine of ``deeppool train``.

    Both compute in double precision. The module does not change. The network must have no opaque layer,
    also as its loss. Dropout must be off (``p=0``), because PyTorch and the engine draw different numbers.

    Args:
        traced: The traced module.
        inputs: Inputs of the module, of shape ``(samples, ...)``; a sequence if there are several.
        targets: Classes of the samples or of their positions, or numbers for a loss of elements; a sequence
            of those of each loss if there are several.

    Raises:
        deeppool.InputError: The engine cannot run the network, or a parameter does not belong to the leaf
            module that its layer is named after. The message names the layer or parameter.

    >>> from torch import nn
    >>> from deeppool.tracing import trace
    >>> traced = trace(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)), torch.randn(2, 4))
    >>> check_gradients(traced, torch.randn(5, 4), torch.tensor([0, 2, 1, 1, 0])).largest_difference < 1e-7
    True
    """
    traced.check_unchanged()
    batch = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    features = torch.cat([one.double().flatten(1) for one in batch], 1)
    # A module may have a tensor under several names, of which the network has one.
    engine_parameters = {
        name: (list(parameter.shape), _bytes(parameter))
        for name, parameter in traced.module.named_parameters(remove_duplicate=False)
    }
    of_losses = [targets] if isinstance(targets, torch.Tensor) else list(targets)
    labels = of_losses[0]
    if len(of_losses) > 1:
        labels = torch.cat([one.double().reshape(len(one), -1) for one in of_losses], 1)
    engine_loss, of_engine = _deeppool.gradients(
        traced.network.to_json(), engine_parameters, _bytes(features), _bytes(labels)
    )
    module = copy.deepcopy(traced.module).double().train().requires_grad_()
    in_double = [one.double() if one.is_floating_point() else one for one in batch]
    loss = torch.zeros((), dtype=torch.float64)
    outputs = traced.call.run_all(module, in_double)
    for of_loss, value, expected in zip(traced.losses, outputs, of_losses, strict=True):
        for layer in of_loss.layers[:-1]:
            value = layer.island(value)
        expected = expected.double() if expected.is_floating_point() else expected
        loss = loss + of_loss.weight * of_loss.layers[-1].island(value, expected).mean()
    names: dict[torch.nn.Parameter, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter not in names or name in of_engine:
            names[parameter] = name
    parameters = {name: parameter for parameter, name in names.items()}
    # Parameters of outputs without a loss are no part of the network.
    parameters = {name: one for name, one in parameters.items() if name in of_engine or _is_used(loss, one)}
    gradients = torch.autograd.grad(
        loss, list(parameters.values()), allow_unused=True, materialize_grads=True
    )
    engine_gradients = {
        name: torch.frombuffer(bytearray(content), dtype=torch.float64).view_as(parameters[name])
        for name, (_, content) in of_engine.items()
    }
    return GradientCheck(loss.item(), engine_loss, dict(zip(parameters, gradients)), engine_gradients)


def _is_used(loss: torch.Tensor, parameter: torch.nn.Parameter) -> bool:
    """Returns whether a loss depends on a parameter."""
    (gradient,) = torch.autograd.grad(loss, [parameter], retain_graph=True, allow_unused=True)
    return gradient is not None


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().double().cpu().contiguous().numpy().tobytes()
