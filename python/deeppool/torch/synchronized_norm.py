"""Batch normalization over the global batch. PyTorch's ``SyncBatchNorm`` does not support CPUs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from deeppool.tracing.island import BatchNorm


class SynchronizedNorm:
    """The passes of a batch normalization over several ranks.

    The program all-reduces moments between the passes. Moments are in double precision to avoid
    cancellation in the variance. In evaluation mode the layer normalizes by its running statistics, and
    does not use the moments.
    """

    def __init__(self, norm: BatchNorm | None, parameters: Sequence[torch.Tensor]) -> None:
        assert norm is not None
        self._norm, self._parameters = norm, parameters
        #: Saved for backward: input, mean, inverse standard deviation, and values per channel. The
        #: last is ``None`` if the statistics are fixed.
        self._saved: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None] | None = None

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
        norm, channels = self._norm, x.shape[1]
        count: torch.Tensor | None = None
        running_mean, running_var = norm.tensor("running_mean"), norm.tensor("running_var")
        if norm.training or running_mean is None or running_var is None:
            count = moments[-1]
            mean = moments[:channels] / count
            variance = (moments[channels:-1] / count - mean * mean).clamp_min(0)
            if updates and norm.tracks:
                self._update_statistics(mean, variance * (count / (count - 1)))
        else:
            mean, variance = running_mean.double(), running_var.double()
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        narrow_mean, narrow_variance = mean.to(dtype), variance.to(dtype)
        self._saved = (x, narrow_mean, torch.rsqrt(variance + norm.epsilon).to(dtype), count)
        weight, bias = norm.tensor("weight"), norm.tensor("bias")
        return F.batch_norm(x, narrow_mean, narrow_variance, weight, bias, False, 0.0, norm.epsilon)

    def _update_statistics(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        norm = self._norm
        running_mean, running_var = norm.tensor("running_mean"), norm.tensor("running_var")
        if running_mean is None or running_var is None:
            return
        batches, momentum = norm.batches, norm.momentum
        if batches is not None:
            batches.add_(1)
        if momentum is None:
            momentum = 1.0 / float(batches) if batches is not None else 0.0
        running_mean.lerp_(mean.to(running_mean.dtype), float(momentum))
        running_var.lerp_(variance.to(running_var.dtype), float(momentum))

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
        weight = self._norm.tensor("weight")
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
        weight = self._norm.tensor("weight")
        scale = inverse if weight is None else inverse * weight
        if count is None:
            return (gradient * scale.view(shape)).to(x.dtype)
        of_sum = (reduced[:channels] / count).to(mean.dtype)
        of_product = (reduced[channels:] / count).to(mean.dtype) * inverse
        # scale * (g - mean(g) - x_normalized * mean(g * x_normalized)), constant terms combined.
        shift = (mean * of_product - of_sum) * scale
        result = gradient * scale.view(shape)
        result.addcmul_(x, (of_product * scale).view(shape), value=-1)
        return result.add_(shift.view(shape)).to(x.dtype)
