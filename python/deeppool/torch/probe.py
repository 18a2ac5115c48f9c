"""What is found out about the layers of a module before its first iteration, on two samples: the shapes and types of what they give, which of
them draw random numbers, and that none of them mixes samples."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from deeppool.errors import BurstParallelError
from deeppool.torch.sampled_random import SampledRandom
from deeppool.torch.segments import LayerPasses
from deeppool.tracing import Traced
from deeppool.tracing.island import buffers_kept

#: How far the output for a sample may be from that beside another sample, relative to the largest value: kernels differ in rounding.
TOLERANCE = 1e-2


@torch.no_grad()
def probe(
    traced: Traced, layers: Mapping[str, LayerPasses], random: SampledRandom, batch: torch.Tensor
) -> dict[str, torch.Tensor]:
    """By layer its output for no samples, for inputs of the type of a batch. What layers draw is noted in them.

    Raises:
        BurstParallelError: where a layer's output for a sample depends on other samples; it names the layer.
    """
    example = traced.example_inputs[0]
    device = next((parameter.device for parameter in traced.module.parameters()), torch.device("cpu"))
    # A second one that differs, where there is one only.
    two = example[:2] if len(example) > 1 else torch.cat((example, example.flip(-1)))
    values = {"input": two.to(device, batch.dtype)}
    with buffers_kept(traced.module):
        for layer in traced.layers[:-1]:
            inputs = [values[name] for name in layer.inputs]
            # Batch normalization mixes samples as the plan says.
            values[layer.name] = (
                inputs[0] if layer.kind == "batch_norm" else _checked(layers[layer.name], inputs, random)
            )
    # The loss, the last layer, does not move.
    return {name: value[:0].clone() for name, value in values.items()}


def _checked(layer: LayerPasses, inputs: list[torch.Tensor], random: SampledRandom) -> torch.Tensor:
    with random.begin(layer.name, 0, 2):
        both = layer.run(*inputs)
    layer.draws_random, layer.has_fused_attention = random.draws > 0, random.has_fused_attention
    if layer.has_fused_attention:
        return both
    with random.begin(layer.name, 0, 1):
        first = layer.run(*(x[:1] for x in inputs))
    wide, narrow = both[:1].double(), first.double()
    same = len(both) == 2 and wide.shape == narrow.shape
    if same and bool(torch.isfinite(wide).all()):
        same = bool(((wide - narrow).abs() <= TOLERANCE * wide.abs().max().clamp_min(1e-30)).all())
    if not same:
        raise BurstParallelError(
            f"layer {layer.name!r} mixes samples: its output for a sample depends on the others of the batch, so that it cannot be computed "
            "by shards. Compute such a thing in the loss of each sample, or keep this module out of the plan"
        )
    return both
