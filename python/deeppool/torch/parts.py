"""Passes of a part of a split layer: the same layer of another shape, with slices of its tensors.

The module keeps whole tensors on every rank. Before each iteration a part copies its boxes of the layer's
parameters and running statistics. The gradients of the whole parameters are zero outside of the boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from deeppool.torch.program import LayerPart, TensorPart
from deeppool.torch.sampled_random import SampledRandom
from deeppool.torch.segments import LayerPasses
from deeppool.tracing.activations import ACTIVATIONS
from deeppool.tracing.attention import attend
from deeppool.tracing.experts import mix
from deeppool.tracing.island import BatchNorm, Island, empty_output
from deeppool.tracing.rotations import rotate

STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True)
class StoredPart:
    """The box of a module's parameter or buffer that a part of a layer holds."""

    tensor: torch.Tensor
    box: TensorPart
    is_transposed: bool = False
    """Whether the module's weight has input features as rows, as in Hugging Face's ``Conv1D``."""

    def of(self, whole: torch.Tensor) -> torch.Tensor:
        """Returns the box of the tensor, or of one with its shape, such as its gradient."""
        return self.box.of(whole.t() if self.is_transposed else whole)

    def write(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        """Copies a part to its box of the tensor, or of one with its shape."""
        self.box.write(whole.t() if self.is_transposed else whole, part)


def parameters_of(island: Island, part: LayerPart) -> list[StoredPart]:
    """Returns the part's boxes of a layer's parameters."""
    if island.norm is not None:
        found = [island.norm.tensor("weight"), island.norm.tensor("bias")]
        tensors = [tensor for tensor in found if tensor is not None]
    else:
        # Weights come before biases, which have one dimension.
        tensors = sorted(island.parameters(), key=lambda parameter: parameter.dim() < 2)
    is_transposed = part.kind == "linear" and "addmm" in island.source
    return [
        StoredPart(tensor, box, is_transposed and tensor.dim() == 2)
        for tensor, box in zip(tensors, part.parameters)
    ]


def statistics_of(island: Island, part: LayerPart) -> list[StoredPart]:
    """Returns the part's boxes of a layer's running statistics."""
    found = [island.norm.tensor(name) for name in STATISTICS] if island.norm is not None else []
    return [StoredPart(tensor, box) for tensor, box in zip(found, part.statistics) if tensor is not None]


class PartPasses(LayerPasses):
    """The passes of a part of a split layer."""

    def __init__(self, name: str, island: Island, random: SampledRandom, part: LayerPart) -> None:
        super().__init__(name, island, random)
        self._part, self.random_box = part, part.random_box
        self._stored = parameters_of(island, part)
        self._statistics = statistics_of(island, part)
        self._tensors = [
            torch.empty_like(one.of(one.tensor.detach())).requires_grad_(one.tensor.requires_grad)
            for one in self._stored
        ]
        self._buffers = [torch.empty_like(one.of(one.tensor)) for one in self._statistics]
        trained = [
            (tensor, one) for tensor, one in zip(self._tensors, self._stored) if tensor.requires_grad
        ]
        self.parameters = [tensor for tensor, _ in trained]
        self.trained = [one.tensor for _, one in trained]
        self._boxes = [one for _, one in trained]
        if island.norm is not None:
            names = dict(zip(("weight", "bias"), self._tensors))
            self.norm = island.norm.with_tensors(names | dict(zip(STATISTICS, self._buffers)))
        self._function = _function(part, island, self.norm, self._tensors)
        self.run = self._run

    @torch.no_grad()
    def start(self) -> None:
        """Copies the part's boxes of the module's tensors."""
        for copy, stored in (*zip(self._tensors, self._stored), *zip(self._buffers, self._statistics)):
            copy.copy_(stored.of(stored.tensor))

    @torch.no_grad()
    def finish(self) -> None:
        """Copies the running statistics back to the module's buffers."""
        for copy, stored in zip(self._buffers, self._statistics):
            stored.write(stored.tensor, copy)

    def of_whole(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the gradients of the module's parameters."""
        results = []
        for gradient, stored in zip(gradients, self._boxes):
            whole = torch.zeros_like(stored.tensor)
            stored.write(whole, gradient)
            results.append(whole)
        return results

    def buffers(self) -> Iterable[torch.Tensor]:
        """Returns the tensors that a forward pass updates."""
        return self._buffers

    def _run(self, *inputs: torch.Tensor) -> torch.Tensor:
        if len(inputs[0]) == 0:
            return empty_output(self._part.output, *inputs, *self._tensors)
        return self._function(*inputs)


def _function(
    part: LayerPart, island: Island, norm: BatchNorm | None, tensors: Sequence[torch.Tensor]
) -> Callable[..., torch.Tensor]:
    """Returns the function of a part. A layer without parameters computes inputs of any shape."""
    options = part.options
    match part.kind:
        case "linear":
            return lambda x: F.linear(x, *tensors)
        case "conv2d":
            stride, padding, groups = options["stride"], options["padding"], options["groups"]
            bias = tensors[1] if len(tensors) > 1 else None
            dilation = options.get("dilation", 1)
            return lambda x: F.conv2d(x, tensors[0], bias, stride, padding, dilation, groups)
        case "conv_transpose2d":
            bias = tensors[1] if len(tensors) > 1 else None
            sizes = [options[name] for name in ("stride", "padding", "output_padding", "groups")]
            sizes.append(options.get("dilation", 1))
            return lambda x: F.conv_transpose2d(x, tensors[0], bias, *sizes)
        case "embedding":
            return lambda x: F.embedding(x.flatten(1), tensors[0], options.get("padding"))
        case "layer_norm":
            (weight, shift), epsilon = tensors, options["epsilon"]
            return lambda x: F.layer_norm(x, x.shape[-1:], weight, shift, epsilon)
        case "group_norm":
            (weight, shift), groups, epsilon = tensors, options["groups"], options["epsilon"]
            return lambda x: F.group_norm(x, groups, weight, shift, epsilon)
        case "rms_norm":
            (scale,), epsilon, offset = tensors, options["epsilon"], float(options.get("unit_offset", False))
            return lambda x: F.rms_norm(x, x.shape[-1:], scale + offset if offset else scale, epsilon)
        case "add":
            return lambda *terms: sum(terms[1:], terms[0])
        case "multiply":
            return torch.mul
        case "scale":
            (factors,) = tensors or (None,)
            match options:
                case {"constant": constant}:
                    return lambda x: x * constant
                case "channels":
                    return lambda x: x * factors[:, None, None]
            return lambda x: x * factors
        case "relu":
            return F.relu
        case kind if kind in ACTIVATIONS:
            return ACTIVATIONS[kind]
        case "position_embedding":
            first, is_repeated = options.get("first", 0), options.get("repeated", False)
            return lambda x: x + tensors[0][first : first + (1 if is_repeated else x.shape[1])]
        case "rotary_embedding":
            return lambda x: rotate(x, **options)
        case "multi_head_attention":
            in_evaluation = options | {"dropout": 0.0}
            return lambda *inputs: attend(
                *inputs, *tensors, **(options if island.is_training else in_evaluation)
            )
        case "mixture_of_experts":
            names = ("chosen", "activation", "gated", "normalised")
            return lambda *inputs: mix(*inputs, *tensors, **{name: options[name] for name in names})
        case "flatten":
            return lambda x: x.flatten(1)
        case "batch_norm" if norm is not None:
            return norm.normalize
    return island.forward
