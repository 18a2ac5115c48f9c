"""Forward passes without the time of matrix products."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry

#: Number of different values in place of a product. Not a size that layers have.
VALUES = 1021


class WithoutProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Replaces the results of products, convolutions and attentions by random numbers of their shapes.

    All other operations are executed. The code of modules runs as in any forward pass, in a fraction of its
    time.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._values = torch.randn(VALUES, generator=torch.Generator().manual_seed(0))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        device = next((leaf.device for leaf in args if isinstance(leaf, torch.Tensor)), None)
        if func._overloadpacket not in flop_registry or device is None:
            return func(*args, **kwargs)
        try:
            shapes = tree_map_only(torch.Tensor, _shape, (args, kwargs))
            results = func(*shapes[0], **shapes[1])
        except NotImplementedError:
            return func(*args, **kwargs)
        return tree_map_only(torch.Tensor, lambda shape: self._filled(shape, device), results)

    def _filled(self, shape: torch.Tensor, device: torch.device) -> torch.Tensor:
        result = torch.zeros_like(shape, device=device)
        if not result.is_floating_point():
            return result
        count = result.numel()
        values = self._values.expand(math.ceil(count / VALUES), VALUES).reshape(-1)[:count]
        return result.copy_(values.reshape(result.shape))


def _shape(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("meta")
