"""What is found out about the layers of a module before its first iteration, on two samples: the shapes and types of what they give, which of
them draw random numbers, and that none of them mixes samples."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from deeppool.torch.errors import BurstParallelError
from deeppool.torch.passes import LayerPasses
from deeppool.torch.sampled_random import SampledRandom
from deeppool.tracing import Traced

#: How far the output for a sample may be from that beside another sample, relative to the largest value: kernels differ in rounding.
TOLERANCE = 1e-2

Specs = dict[str, tuple[tuple[int, ...], torch.dtype]]


@torch.no_grad()
def probe(traced: Traced, layers: Mapping[str, LayerPasses], random: SampledRandom, batch: torch.Tensor) -> Specs:
    """By layer the shape of a sample of its output, and the output's type, for inputs of the type of a batch. What layers draw is noted in
    them.

    Raises:
        BurstParallelError: where a layer's output for a sample depends on other samples; it names the layer.
    """
    kept = {id(buffer): (buffer, buffer.clone()) for buffer in traced.module.buffers()}
    try:
        return _probe(traced, layers, random, batch)
    finally:
        for buffer, before in kept.values():
            buffer.copy_(before)


def _probe(traced: Traced, layers: Mapping[str, LayerPasses], random: SampledRandom, batch: torch.Tensor) -> Specs:
    device = next((parameter.device for parameter in traced.module.parameters()), torch.device("cpu"))
    values = {"input": _two_samples(traced.example_inputs[0]).to(device, batch.dtype)}
    specs: Specs = {}
    for layer in traced.layers:
        inputs = [values[name] for name in layer.inputs]
        if layer.name == traced.layers[-1].name:
            # The loss: a number a sample, which does not move.
            specs[layer.name] = ((), torch.float32)
            continue
        if layer.kind == "batch_norm":
            # It mixes samples as the plan says.
            values[layer.name] = inputs[0]
        else:
            values[layer.name] = _checked(layer.name, layers[layer.name], inputs, random)
        output = values[layer.name]
        specs[layer.name] = (tuple(output.shape[1:]), output.dtype)
    return specs


def _checked(name: str, passes: LayerPasses, inputs: list[torch.Tensor], random: SampledRandom) -> torch.Tensor:
    with random.begin(name, 0, 2):
        both = passes.run(*inputs)
    passes.draws_random, passes.fused_attention = random.draws > 0, random.has_fused_attention
    if passes.fused_attention:
        return both
    with random.begin(name, 0, 1):
        first = passes.run(*(x[:1] for x in inputs))
    same = both.shape[0] == 2 and first.shape == both[:1].shape
    if same and both.is_floating_point():
        wide, narrow = both[:1].double(), first.double()
        same = bool(torch.all((wide - narrow).abs() <= TOLERANCE * wide.abs().max().clamp_min(1e-30)) | ~torch.isfinite(wide).all())
    elif same:
        same = torch.equal(both[:1], first)
    if not same:
        raise BurstParallelError(
            f"layer {name!r} mixes samples: its output for a sample depends on the others of the batch, so that it cannot be computed by "
            "shards. Compute such a thing in the loss of each sample, or keep this module out of the plan"
        )
    return both


def _two_samples(example: torch.Tensor) -> torch.Tensor:
    if len(example) > 1:
        return example[:2]
    # A second one that differs.
    return torch.cat((example, example.flip(-1) if example.dim() > 1 else example))
