"""Random numbers that depend on the seed, the iteration, the layer and the *global* sample, and on nothing else: not on which rank
computes the sample, nor beside which others.

They are those of the Rust engines, ChaCha with 8 rounds (D. J. Bernstein, 2008), so that a module of ours and one of theirs drop the
same elements.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from deeppool import _deeppool

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
    """Which elements a dropout keeps: booleans of ``samples x elements``.

    Args:
        name: The dropout's layer.
        first: The first of the samples, counted in the global batch.
        elements: How many each sample has.
        probability: With which an element is dropped.
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
    """The same by PyTorch's operations, so that no mask has to be copied to a device. A block is 16 words: 8 elements."""
    blocks = -(-elements // 8)
    rows = torch.zeros((4, 4, samples, blocks), dtype=torch.int32, device=device)
    constants = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
    for place, word in enumerate([*constants, *_deeppool.dropout_key(seed, iteration, name)]):
        rows[place // 4, place % 4] = word
    rows[3, 0] = torch.arange(blocks, dtype=torch.int32, device=device)
    rows[3, 2] = torch.arange(first, first + samples, dtype=torch.int32, device=device)[:, None]
    a, b, c, d = rows.unbind()
    for double_round in range(8):
        a = a + b
        d = _rotated(d ^ a, 16)
        c = c + d
        b = _rotated(b ^ c, 12)
        a = a + b
        d = _rotated(d ^ a, 8)
        c = c + d
        b = _rotated(b ^ c, 7)
        # Columns, then diagonals, by turns.
        turn = -1 if double_round % 2 == 0 else 1
        b, c, d = b.roll(turn, 0), c.roll(2 * turn, 0), d.roll(3 * turn, 0)
    words = (torch.stack((a, b, c, d)) + rows).flatten(0, 1).long() & 0xFFFFFFFF
    low, high = words[0::2], words[1::2]
    numbers = (high << 21 | low >> 11).permute(1, 2, 0).reshape(samples, blocks * 8)
    return numbers[:, :elements].double() >= probability * float(1 << 53)


def _rotated(words: torch.Tensor, left: int) -> torch.Tensor:
    return words << left | (words >> (32 - left)) & ((1 << left) - 1)


class SampledRandom(TorchDispatchMode):
    """Runs a layer with dropout by sample: the numbers that its operations would draw are replaced.

    The first dropout of a layer has the layer's name, further ones also their place, as in ``encoder.0/1``.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seed = seed
        self.iteration = 0
        self.draws = 0
        """How often the layer drew so far."""
        self.has_fused_attention = False
        self._layer, self._first, self._samples = "", 0, 0
        self._warned: set[str] = set()

    def begin(self, layer: str, first: int, samples: int) -> SampledRandom:
        """The layer that runs next, and its samples."""
        self._layer, self._first, self._samples = layer, first, samples
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
                # Its dropout is inside of a kernel: it has to be computed in parts.
                self.draws += 1
                self.has_fused_attention = True
            return func(*args, **kwargs)
        self._warn(func.__name__)
        self.draws += 1
        return func(*args, **kwargs)

    def _warn(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(
                f"layer {self._layer!r} draws random numbers by {what}, which are not drawn by sample: what is learned depends on the plan",
                stacklevel=3,
            )

    def _keeps(self, like: torch.Tensor, probability: float) -> torch.Tensor:
        name = self._layer if self.draws == 0 else f"{self._layer}/{self.draws}"
        self.draws += 1
        samples, shape, dim = self._samples, list(like.shape), 0
        if not shape or shape[0] % samples != 0:
            # Recurrent layers have the positions of sequences outermost.
            if len(shape) < 2 or shape[1] != samples:
                self._warn(f"a dropout of shape {list(like.shape)}")
                return torch.full_like(like, 1 - probability).bernoulli().bool()
            dim = 1
            shape[0], shape[1] = shape[1], shape[0]
        elements = like.numel() // samples
        keeps = dropout_keeps(
            self.seed, self.iteration, name, self._first, samples, elements, probability, like.device
        )
        return keeps.view(shape).transpose(0, dim)
