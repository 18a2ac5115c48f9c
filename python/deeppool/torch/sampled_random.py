"""Random numbers that depend only on the seed, the iteration, the layer and the sample in the global batch.

They do not depend on the rank that computes the sample. The generator is that of the Rust engines, ChaCha
with 8 rounds (D. J. Bernstein, 2008), so that both drop the same elements.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from deeppool import _deeppool
from deeppool.torch.program import Ranges, slices

aten = torch.ops.aten


def dropout_keeps(
    seed: int,
    iteration: int,
    name: str,
    first: int,
    samples: int,
    elements: int,
    probability: float,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Returns the mask of the elements that a dropout layer keeps.

    Args:
        seed: Seed of the training run.
        iteration: Index of the iteration.
        name: Name of the layer.
        first: Index of the first sample in the global batch.
        samples: Number of samples.
        elements: Number of elements per sample.
        probability: Probability of dropping an element.
        device: Device of the mask.

    Returns:
        A boolean tensor of shape ``(samples, elements)``.
    """
    device = torch.device(device)
    if device.type != "cpu":
        return _keeps_on_device(seed, iteration, name, first, samples, elements, probability, device)
    kept = _deeppool.dropout_keeps(seed, iteration, name, first, samples, elements, probability)
    if not kept:
        return torch.empty((samples, elements), dtype=torch.bool)
    return torch.frombuffer(kept, dtype=torch.bool).view(samples, elements)


def _keeps_on_device(
    seed: int,
    iteration: int,
    name: str,
    first: int,
    samples: int,
    elements: int,
    probability: float,
    device: torch.device,
) -> torch.Tensor:
    """Computes the mask by PyTorch's operations on the device. A block of 16 words is for 8 elements."""
    blocks = -(-elements // 8)
    rows = torch.zeros((4, 4, samples, blocks), dtype=torch.int32, device=device)
    constants = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
    for index, word in enumerate([*constants, *_deeppool.dropout_key(seed, iteration, name)]):
        rows[index // 4, index % 4] = word
    rows[3, 0] = torch.arange(blocks, dtype=torch.int32, device=device)
    rows[3, 2] = torch.arange(first, first + samples, dtype=torch.int32, device=device)[:, None]
    a, b, c, d = rows.unbind()
    for round_ in range(8):
        a = a + b
        d = _rotated(d ^ a, 16)
        c = c + d
        b = _rotated(b ^ c, 12)
        a = a + b
        d = _rotated(d ^ a, 8)
        c = c + d
        b = _rotated(b ^ c, 7)
        # Column rounds and diagonal rounds alternate.
        shift = -1 if round_ % 2 == 0 else 1
        b, c, d = b.roll(shift, 0), c.roll(2 * shift, 0), d.roll(3 * shift, 0)
    words = (torch.stack((a, b, c, d)) + rows).flatten(0, 1).long() & 0xFFFFFFFF
    low, high = words[0::2], words[1::2]
    numbers = (high << 21 | low >> 11).permute(1, 2, 0).reshape(samples, blocks * 8)
    return numbers[:, :elements].double() >= probability * float(1 << 53)


def _rotated(words: torch.Tensor, left: int) -> torch.Tensor:
    return words << left | (words >> (32 - left)) & ((1 << left) - 1)


class SampledRandom(TorchDispatchMode):
    """Dispatch mode that replaces the random numbers of dropout operations in a layer.

    The first dropout of a layer has the layer's name. Further ones also have an index, as in
    ``encoder.0/1``.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seed = seed
        self.iteration = 0
        self.draws = 0
        """Number of random operations since :meth:`begin`."""
        self.has_fused_attention = False
        self.draw = dropout_keeps
        """Draws the mask of a dropout."""
        self._layer, self._first, self._samples = "", 0, 0
        self._box: tuple[tuple[int, ...], Ranges] | None = None
        self._warned: set[str] = set()

    def begin(
        self, layer: str, first: int, samples: int, box: tuple[tuple[int, ...], Ranges] | None = None
    ) -> SampledRandom:
        """Sets the layer that runs next and its samples in the global batch.

        Args:
            layer: Name of the layer.
            first: Index of the first sample.
            samples: Number of samples.
            box: The box of the layer's numbers for a sample that it draws: their dimensions, and the range of
                each; ``None`` for all numbers.
        """
        self._layer, self._first, self._samples, self._box = layer, first, samples, box
        self.draws, self.has_fused_attention = 0, False
        return self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        if func is aten.bernoulli_.float:
            return args[0].copy_(
                self._keeps(args[0], 1 - (args[1] if len(args) > 1 else kwargs.get("p", 0.5)))
            )
        if func is aten.bernoulli.p:
            return self._keeps(args[0], 1 - args[1]).to(args[0].dtype)
        if func is aten.native_dropout.default:
            x, probability, train = args
            if not train or probability == 0:
                return func(*args, **kwargs)
            keeps = self._keeps(x, probability)
            return x * keeps * (1 / (1 - probability) if probability < 1 else 0.0), keeps
        if "attention" in func.__name__:
            names = [argument.name for argument in func._schema.arguments]
            if (dict(zip(names, args)) | kwargs).get("dropout_p"):
                # Dropout is inside the kernel: run the layer with the unfused implementation.
                self.draws += 1
                self.has_fused_attention = True
            return func(*args, **kwargs)
        self._warn(func.__name__)
        self.draws += 1
        return func(*args, **kwargs)

    def _warn(self, operation: str) -> None:
        if operation not in self._warned:
            self._warned.add(operation)
            warnings.warn(
                f"layer {self._layer!r} draws random numbers by {operation}, which is not supported per "
                "sample: the result of training depends on the plan",
                stacklevel=3,
            )

    def _keeps(self, like: torch.Tensor, probability: float) -> torch.Tensor:
        name = self._layer if self.draws == 0 else f"{self._layer}/{self.draws}"
        self.draws += 1
        samples, shape, dim = self._samples, list(like.shape), 0
        if not shape or shape[0] % samples != 0:
            # Recurrent layers have the sequence dimension first.
            if len(shape) < 2 or shape[1] != samples:
                self._warn(f"a dropout of shape {list(like.shape)}")
                return torch.full_like(like, 1 - probability).bernoulli().bool()
            dim = 1
            shape[0], shape[1] = shape[1], shape[0]
        whole = () if self._box is None else self._box[0]
        elements = like.numel() // samples if self._box is None else math.prod(whole)
        keeps = self.draw(
            self.seed, self.iteration, name, self._first, samples, elements, probability, like.device
        )
        if self._box is not None:
            keeps = keeps.view(samples, *whole)[slice(None), *slices(self._box[1])].reshape(samples, -1)
        return keeps.view(shape).transpose(0, dim)
