"""Test run of a module's layers on two samples before the first iteration.

It finds the shapes and types of their outputs and the layers that draw random numbers, and checks that no
layer mixes samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch

from deeppool.errors import BurstParallelError
from deeppool.torch.sampled_random import SampledRandom
from deeppool.torch.segments import LayerPasses
from deeppool.tracing import Traced
from deeppool.tracing.island import buffers_kept

#: Maximum difference of a sample's outputs alone and in a batch, relative to the largest value.
#: Kernels for different batch sizes differ in rounding.
TOLERANCE = 1e-2


@torch.no_grad()
def probe(
    traced: Traced,
    layers: Mapping[str, LayerPasses],
    random: SampledRandom,
    batch: Mapping[str, torch.Tensor],
    compares: bool = True,
) -> dict[str, torch.Tensor]:
    """Runs each layer on two samples, and sets its ``draws_random`` and ``has_fused_attention``.

    Args:
        batch: A batch by the names of the inputs, which get its data types.
        compares: Whether to compare a sample's outputs alone and in a batch. Fake tensors have no values.

    Returns:
        The output of each layer for zero samples, by name.

    Raises:
        BurstParallelError: A layer's output for a sample depends on other samples.
    """
    device = next((parameter.device for parameter in traced.module.parameters()), torch.device("cpu"))
    values, no_samples = {}, {}
    for name, example in traced.call.examples.items():
        # With one example only, derive a different second one.
        two = example[:2] if len(example) > 1 else torch.cat((example, example.flip(-1)))
        values[name] = two.to(device, batch[name].dtype)
        no_samples[name] = values[name][:0].clone()
    readers = Counter(name for layer in traced.layers for name in layer.inputs)
    with buffers_kept(traced.module.buffers()):
        # The output of the loss, the last layer, is not redistributed.
        for layer in traced.layers[:-1]:
            inputs = [values[name] for name in layer.inputs]
            # Batch normalization may mix samples: the program handles it.
            values[layer.name] = output = (
                inputs[0]
                if layer.kind == "batch_norm"
                else _run(layers[layer.name], inputs, random, compares)
            )
            no_samples[layer.name] = output[:0].clone()
            readers.subtract(layer.inputs)
            for name in {name for name in layer.inputs if readers[name] == 0}:
                del values[name]
    return no_samples


def _run(
    layer: LayerPasses, inputs: list[torch.Tensor], random: SampledRandom, compares: bool
) -> torch.Tensor:
    with random.begin(layer.name, 0, 2):
        both = layer.island.forward(*inputs)
    layer.draws_random, layer.has_fused_attention = random.draws > 0, random.has_fused_attention
    if layer.has_fused_attention:
        return both
    with random.begin(layer.name, 0, 1):
        first = layer.island.forward(*(x[:1] for x in inputs))
    wide, narrow = both[:1].double(), first.double()
    if not compares:
        return both
    same = len(both) == 2 and wide.shape == narrow.shape
    if same and bool(torch.isfinite(wide).all()):
        same = bool(((wide - narrow).abs() <= TOLERANCE * wide.abs().max().clamp_min(1e-30)).all())
    if not same:
        raise BurstParallelError(
            f"layer {layer.name!r} mixes samples: its output for a sample depends on other samples of the "
            "batch, so it cannot be computed in shards. Compute it per sample, or leave this module out of "
            "the plan"
        )
    return both
