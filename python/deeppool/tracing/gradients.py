"""Whether what a module learns from a batch is what our engine learns from it."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch

from deeppool import _deeppool
from deeppool.tracing.traced import Traced


@dataclass(frozen=True)
class GradientCheck:
    """The loss and the gradients of a batch, of a module and of our engine for processors, in double precision."""

    loss: float
    """PyTorch's, the mean over the batch."""
    engine_loss: float
    gradients: dict[str, torch.Tensor]
    """PyTorch's, by the parameter's name."""
    engine_gradients: dict[str, torch.Tensor]

    @property
    def differences(self) -> dict[str, float]:
        """By parameter the largest difference of an element, relative to the largest element of its gradient, or to a millionth of the
        largest of all where that is more: some gradients are zero but for rounding."""
        sizes = {name: float(gradient.abs().max()) for name, gradient in self.gradients.items()}
        least = max(1e-6 * max(sizes.values(), default=0.0), 1e-300)
        ours = self.engine_gradients
        return {
            name: float((gradient - ours[name]).abs().max()) / max(sizes[name], least)
            for name, gradient in self.gradients.items()
        }

    @property
    def largest_difference(self) -> float:
        """That of the losses, relative to PyTorch's, or of a gradient, whichever is larger."""
        of_loss = abs(self.engine_loss - self.loss) / max(abs(self.loss), 1e-300)
        return max((of_loss, *self.differences.values()))

    def __str__(self) -> str:
        name, difference = max(self.differences.items(), key=lambda one: one[1], default=("none", 0.0))
        return f"loss {self.loss:.9g}, by the engine {self.engine_loss:.9g}; gradients differ by at most {difference:.1e} ({name})"


def check_gradients(traced: Traced, inputs: torch.Tensor, targets: torch.Tensor) -> GradientCheck:
    """Computes the loss and the gradients of a batch by the module and by the engine that ``deeppool train`` runs on processors, both in
    double precision, and neither changes the module.

    It takes networks whose layers are all of known kinds, with the loss that is traced by default. Dropout has to be off (``p=0``): the
    two draw other numbers.

    Args:
        inputs: ``samples x ...``.
        targets: the classes of the samples, or of their positions.

    Raises:
        deeppool.InputError: where the engine cannot run the network, or a parameter is not of the leaf module that its layer is called
            after; it names the layer or the parameter.

    >>> from torch import nn
    >>> from deeppool.tracing import trace
    >>> traced = trace(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)), torch.randn(2, 4))
    >>> check_gradients(traced, torch.randn(5, 4), torch.tensor([0, 2, 1, 1, 0])).largest_difference < 1e-7
    True
    """
    traced.check_unchanged()
    given = {
        name: (list(parameter.shape), _bytes(parameter))
        for name, parameter in traced.module.named_parameters()
    }
    engine_loss, of_engine = _deeppool.gradients(
        traced.network.to_json(), given, _bytes(inputs), _bytes(targets)
    )
    module = copy.deepcopy(traced.module).double().train().requires_grad_()
    value = module(inputs.double() if inputs.is_floating_point() else inputs)
    for layer in traced.loss_layers[:-1]:
        value = layer.island(value)
    loss = traced.loss_layers[-1].island(value, targets).mean()
    parameters = dict(module.named_parameters())
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
    engine_gradients = {
        name: torch.frombuffer(bytearray(content), dtype=torch.float64).view_as(parameters[name])
        for name, (_, content) in of_engine.items()
    }
    return GradientCheck(loss.item(), engine_loss, dict(zip(parameters, found)), engine_gradients)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().double().cpu().contiguous().numpy().tobytes()
