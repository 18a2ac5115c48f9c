"""Batch normalization over the global batch. PyTorch's ``SyncBatchNorm`` does not support CPUs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F


class SynchronizedNorm:
    """The passes of a batch normalization over several ranks.

    The program all-reduces moments between the passes. Moments are in double precision to avoid
    cancellation in the variance.
    """

    def __init__(self, norm: nn.Module | None, parameters: Sequence[nn.Parameter]) -> None:
        assert norm is not None
        self._norm, self._parameters = norm, parameters
        #: Saved for backward: input, mean, inverse standard deviation, and values per channel.
        self._saved: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None = None

    def moments(self, x: torch.Tensor) -> torch.Tensor:
        """Computes the sums for the forward pass.

        Returns:
            A vector of ``2 * channels + 1`` elements: the sum of ``x`` for each channel, the sum of its
            squares for each channel, and the number of values per channel.
        """
        channels = x.shape[1]
        count = x.numel() // channels
        if count == 0:
            return x.new_zeros(2 * channels + 1, dtype=torch.float64)
        variance, mean = torch.var_mean(x, [0, *range(2, x.dim())], correction=0)
        mean, variance = mean.double(), variance.double()
        return torch.cat((mean * count, (variance + mean * mean) * count, mean.new_full((1,), count)))

    @torch.no_grad()
    def forward(self, x: torch.Tensor, moments: torch.Tensor, updates: bool) -> torch.Tensor:
        """Computes the output.

        Args:
            x: Input.
            moments: Sums over the global batch, as returned by :meth:`moments`.
            updates: Whether to update the running statistics.
        """
        channels, count = x.shape[1], moments[-1]
        mean = moments[:channels] / count
        variance = (moments[channels:-1] / count - mean * mean).clamp_min(0)
        if updates:
            self._update_statistics(mean, variance * (count / (count - 1)))
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        epsilon = float(self._norm.eps)  # type: ignore[arg-type]
        narrow_mean, narrow_variance = mean.to(dtype), variance.to(dtype)
        self._saved = (x, narrow_mean, torch.rsqrt(variance + epsilon).to(dtype), count)
        return F.batch_norm(
            x, narrow_mean, narrow_variance, self._tensor("weight"), self._tensor("bias"), False, 0.0, epsilon
        )

    def _update_statistics(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        running_mean, running_var = self._tensor("running_mean"), self._tensor("running_var")
        if running_mean is None or running_var is None or not self._norm.training:
            return
        tracked, momentum = self._tensor("num_batches_tracked"), self._norm.momentum
        if tracked is not None:
            tracked.add_(1)
        if momentum is None:
            momentum = 1.0 / float(tracked) if tracked is not None else 0.0
        running_mean.lerp_(mean.to(running_mean.dtype), float(momentum))  # type: ignore[arg-type]
        running_var.lerp_(variance.to(running_var.dtype), float(momentum))  # type: ignore[arg-type]

    def gradient_moments(self, gradient: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Computes the sums for the backward pass.

        Returns:
            A vector of ``2 * channels`` elements, and the gradients of the parameters. The vector holds
            the sum of ``gradient`` for each channel, then the sum of ``gradient`` times the normalized
            input for each channel.
        """
        assert self._saved is not None
        x, mean, inverse, _ = self._saved
        if x.numel() == 0:
            by_weight = by_bias = torch.zeros_like(mean)
        else:
            one = torch.ones_like(mean)
            _, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
                gradient, x, one, None, None, mean, inverse, True, 0.0, [False, True, True]
            )
        weight = self._tensor("weight")
        return torch.cat((by_bias, by_weight)).double(), [
            (by_weight if p is weight else by_bias).to(p.dtype) for p in self._parameters
        ]

    @torch.no_grad()
    def backward(self, gradient: torch.Tensor, reduced: torch.Tensor) -> torch.Tensor:
        """Computes the gradient of the input.

        Args:
            gradient: Gradient of the output.
            reduced: Sums over the global batch, as returned by :meth:`gradient_moments`.
        """
        assert self._saved is not None
        (x, mean, inverse, count), self._saved = self._saved, None
        channels = x.shape[1]
        shape = [1, channels, *([1] * (x.dim() - 2))]
        weight = self._tensor("weight")
        scale = inverse if weight is None else inverse * weight
        of_sum = (reduced[:channels] / count).to(mean.dtype)
        of_product = (reduced[channels:] / count).to(mean.dtype) * inverse
        # scale * (g - mean(g) - x_normalized * mean(g * x_normalized)), constant terms combined.
        shift = (mean * of_product - of_sum) * scale
        result = gradient * scale.view(shape)
        result.addcmul_(x, (of_product * scale).view(shape), value=-1)
        return result.add_(shift.view(shape)).to(x.dtype)

    def _tensor(self, name: str) -> torch.Tensor | None:
        tensor = getattr(self._norm, name, None)
        return tensor if isinstance(tensor, torch.Tensor) else None
