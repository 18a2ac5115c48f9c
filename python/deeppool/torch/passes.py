"""What the passes of a layer compute.

A layer is an island of autograd: its forward pass runs on inputs that are cut off from whatever made them, and its backward pass asks
autograd for the gradients of these inputs and of its parameters, given that of its output. What happens between layers is the program's.

Batch normalization over the global batch has passes of its own, because between them sums over the samples are reduced over ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from deeppool.torch.sampled_random import SampledRandom


@dataclass
class _Taped:
    """What a forward pass leaves for the backward pass."""

    inputs: list[torch.Tensor]
    output: torch.Tensor
    extra: tuple[torch.Tensor, ...] = ()


@dataclass
class LayerPasses:
    """A layer of the module, with what its forward pass left."""

    name: str
    run: Callable[..., torch.Tensor]
    parameters: list[nn.Parameter]
    """Those that are trained."""
    random: SampledRandom
    norm: nn.Module | None = None
    """The batch normalization that it is."""
    draws_random: bool = False
    fused_attention: bool = False
    _tape: _Taped | None = None
    _stashed: list[torch.Tensor | None] = field(default_factory=list)

    def forward(self, inputs: Sequence[torch.Tensor], wanted: Sequence[bool], first: int, is_taped: bool) -> torch.Tensor:
        """The output, and, if it is taped, what the backward pass needs for the gradients of the wanted inputs."""
        leaves = [tensor.requires_grad_() if want else tensor for tensor, want in zip((x.detach() for x in inputs), wanted)]
        with torch.set_grad_enabled(is_taped):
            output = self.run(*leaves) if not self.draws_random else self._run_by_sample(leaves, first)
        if is_taped:
            self._tape = _Taped(leaves, output)
        return output.detach()

    def _run_by_sample(self, inputs: list[torch.Tensor], first: int) -> torch.Tensor:
        attention = sdpa_kernel(SDPBackend.MATH) if self.fused_attention else nullcontext()
        with attention, self.random.begin(self.name, first, len(inputs[0])):
            return self.run(*inputs)

    def backward(self, gradient: torch.Tensor) -> tuple[list[torch.Tensor | None], list[torch.Tensor]]:
        """The gradients of the inputs, as far as they are wanted, and of the parameters."""
        tape, self._tape = self._take_tape(), None
        leaves = [tensor for tensor in tape.inputs if tensor.requires_grad]
        wanted = [*leaves, *self.parameters]
        if not tape.output.requires_grad:
            found: Sequence[torch.Tensor] = [torch.zeros_like(tensor) for tensor in wanted]
        elif wanted:
            found = torch.autograd.grad(tape.output, wanted, gradient, allow_unused=True, materialize_grads=True)
        else:
            found = ()
        of_leaves = iter(found[: len(leaves)])
        return [next(of_leaves) if tensor.requires_grad else None for tensor in tape.inputs], list(found[len(leaves) :])

    def backward_first_half(self, gradient: torch.Tensor) -> list[torch.Tensor]:
        """The gradients of the parameters; those of the inputs are what :meth:`backward_second_half` gives."""
        self._stashed, of_parameters = self.backward(gradient)
        return of_parameters

    def backward_second_half(self) -> list[torch.Tensor | None]:
        stashed, self._stashed = self._stashed, []
        return stashed

    def _take_tape(self) -> _Taped:
        assert self._tape is not None, f"{self.name} has no forward pass before its backward pass"
        return self._tape

    # Batch normalization over the global batch. Moments are in double precision, so that variances do not cancel.

    def moments(self, x: torch.Tensor) -> torch.Tensor:
        """For each channel the sum of ``x``, then for each the sum of its squares, then the number of values a channel."""
        channels = x.shape[1]
        count = x.numel() // channels
        if count == 0:
            return x.new_zeros(2 * channels + 1, dtype=torch.float64)
        dims = [0, *range(2, x.dim())]
        variance, mean = torch.var_mean(x.detach(), dims, correction=0)
        mean, variance = mean.double(), variance.double()
        return torch.cat((mean * count, (variance + mean * mean) * count, mean.new_full((1,), count)))

    def normalize(self, x: torch.Tensor, moments: torch.Tensor, updates: bool) -> torch.Tensor:
        """The output, from the moments of the global batch, which also go into the running statistics if it ``updates`` them."""
        norm = self.norm
        assert norm is not None
        x = x.detach()
        channels = x.shape[1]
        count = moments[-1]
        mean = moments[:channels] / count
        variance = (moments[channels:-1] / count - mean * mean).clamp_min(0)
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        with torch.no_grad():
            if updates:
                self._update_statistics(norm, mean, variance * (count / (count - 1)))
            weight, bias = _tensor(norm, "weight"), _tensor(norm, "bias")
            narrow_mean, narrow_variance = mean.to(dtype), variance.to(dtype)
            epsilon = float(norm.eps)  # type: ignore[arg-type]
            output = F.batch_norm(x, narrow_mean, narrow_variance, weight, bias, False, 0.0, epsilon)
            inverse = torch.rsqrt(variance + epsilon).to(dtype)
        self._tape = _Taped([x], output, (narrow_mean, inverse))
        return output

    @staticmethod
    def _update_statistics(norm: nn.Module, mean: torch.Tensor, variance: torch.Tensor) -> None:
        running_mean, running_var = _tensor(norm, "running_mean"), _tensor(norm, "running_var")
        tracked = _tensor(norm, "num_batches_tracked")
        if running_mean is None or running_var is None or not norm.training:
            return
        if tracked is not None:
            tracked.add_(1)
        momentum = norm.momentum
        if momentum is None:
            momentum = 1.0 / float(tracked) if tracked is not None else 0.0
        running_mean.lerp_(mean.to(running_mean.dtype), float(momentum))  # type: ignore[arg-type]
        running_var.lerp_(variance.to(running_var.dtype), float(momentum))  # type: ignore[arg-type]

    def gradient_moments(self, gradient: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """For each channel the sum of the output's gradient, then that of it times the normalized input; and the gradients of the
        parameters."""
        tape = self._take_tape()
        (x,), (mean, inverse) = tape.inputs, tape.extra
        assert self.norm is not None
        channels = x.shape[1]
        if x.numel() == 0:
            by_weight = by_bias = mean.new_zeros(channels)
        else:
            weight = torch.ones_like(mean)
            _, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
                gradient, x, weight, None, None, mean, inverse, True, 0.0, [False, True, True]
            )
        of_parameter = {id(_tensor(self.norm, "weight")): by_weight, id(_tensor(self.norm, "bias")): by_bias}
        return torch.cat((by_bias, by_weight)).double(), [of_parameter[id(p)].to(p.dtype) for p in self.parameters]

    def normalize_backward(self, gradient: torch.Tensor, reduced: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """The gradient of the input, from the sums over the global batch and its number of values a channel."""
        tape, self._tape = self._take_tape(), None
        (x,), (mean, inverse) = tape.inputs, tape.extra
        assert self.norm is not None
        channels = x.shape[1]
        shape = [1, channels, *([1] * (x.dim() - 2))]
        weight = _tensor(self.norm, "weight")
        scale = inverse if weight is None else inverse * weight.detach()
        of_sum = (reduced[:channels] / count).to(mean.dtype)
        of_product = (reduced[channels:] / count).to(mean.dtype) * inverse
        # scale * (g - mean(g) - x_normalized * mean(g * x_normalized)), with what does not depend on the element taken together.
        shift = (mean * of_product - of_sum) * scale
        result = gradient * scale.view(shape)
        result.addcmul_(x, (of_product * scale).view(shape), value=-1)
        return result.add_(shift.view(shape)).to(x.dtype)

    @contextmanager
    def statistics_kept(self) -> Iterator[None]:
        """Running statistics are afterwards what they were before."""
        buffers = list(self.norm.buffers()) if self.norm is not None else []
        before = [buffer.clone() for buffer in buffers]
        yield
        for buffer, value in zip(buffers, before):
            buffer.copy_(value)

    def output_like(self) -> torch.Tensor:
        """The output of the forward pass, for its shape and type."""
        return self._take_tape().output


def _tensor(module: nn.Module, name: str) -> torch.Tensor | None:
    tensor = getattr(module, name, None)
    return tensor if isinstance(tensor, torch.Tensor) else None
