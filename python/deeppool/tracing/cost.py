"""Cost of opaque layers, counted from the operations of their forward and backward passes."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

#: Bytes of a floating-point element. Costs are counted in single precision.
ELEMENT_BYTES = 4

#: Operations without arithmetic: copies, fills and look-ups.
COPIES = {
    "clone",
    "copy_",
    "_to_copy",
    "cat",
    "stack",
    "fill_",
    "zero_",
    "zeros",
    "ones",
    "full",
    "empty",
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "new_empty",
    "arange",
    "index_select",
    "index",
    "gather",
    "embedding",
    "repeat",
    "roll",
    "flip",
    "constant_pad_nd",
    "slice_backward",
    "select_backward",
    "split_backward",
    "masked_fill",
    "where",
    "scalar_tensor",
    "lift_fresh_copy",
    "new_empty_strided",
    "empty_strided",
}


#: Operations that multiply the rows of each group with a matrix, such as those of each expert, and
#: the number of their products of the size of the forward pass. PyTorch's registry lacks them.
GROUPED_PRODUCTS = {"_grouped_mm": 1, "grouped_mm_fallback": 1, "grouped_mm_fallback_backward": 2}


def _grouped_flops(left: torch.Tensor, right: torch.Tensor) -> int:
    """Counts the operations of a grouped product.

    Each number of ``left`` is multiplied with a row of ``right``, or with the part of a row that belongs to
    its group if ``left`` has a matrix for each group and the columns of ``right`` are divided into groups.
    """
    groups = left.shape[0] if left.dim() == 3 and right.dim() == 2 else 1
    return 2 * left.numel() * right.shape[-1] // max(1, groups)


@dataclass
class Count:
    """Work of one pass over a batch."""

    flops: int = 0
    #: Bytes read and written by all operations, except parameters.
    bytes: int = 0
    kernels: int = 0
    #: Number of kernels that are matrix products or convolutions.
    products: int = 0


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = Count()
        self.parameters = {parameter.untyped_storage().data_ptr() for parameter in parameters}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        arguments = func._schema.arguments
        is_view = any(a.alias_info is not None and not a.alias_info.is_write for a in arguments)
        name = func._schema.name.split("::")[-1]
        if is_view or name in (
            "detach",
            "alias",
            "empty",
            "empty_like",
            "empty_strided",
            "_reshape_alias",
            "_unsafe_view",
        ):
            return result
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        self.count.kernels += 1
        self.count.bytes += sum(self._bytes(tensor) for tensor in tensors)
        formula = flop_registry.get(func._overloadpacket)
        if name in GROUPED_PRODUCTS:
            self.count.flops += GROUPED_PRODUCTS[name] * _grouped_flops(args[0], args[1])
            self.count.products += GROUPED_PRODUCTS[name]
        elif formula is not None:
            self.count.flops += int(formula(*args, **(kwargs or {}), out_val=result))
            self.count.products += 1
        elif name not in COPIES:
            self.count.flops += max((tensor.numel() for tensor in tensors), default=0)
        return result

    def _bytes(self, tensor: torch.Tensor) -> int:
        if tensor.untyped_storage().data_ptr() in self.parameters:
            return 0
        # Count the elements in memory, not the repetitions of an expanded tensor.
        elements = 1
        for size, stride in zip(tensor.shape, tensor.stride()):
            elements *= size if stride != 0 else min(size, 1)
        return elements * (ELEMENT_BYTES if tensor.is_floating_point() else tensor.element_size())


def cost(
    run: Callable[..., torch.Tensor],
    parameters: Sequence[nn.Parameter],
    inputs: Sequence[torch.Tensor],
    is_recurrent: bool,
) -> dict[str, Any]:
    """Counts the cost of one sample of a layer.

    The cost is the difference between the passes over all samples and over all but the last. Work that
    does not depend on the number of samples is not counted.

    Args:
        run: Forward pass of the layer.
        parameters: Parameters of the layer.
        inputs: Inputs of the layer, of at least two samples.
        is_recurrent: Whether only matrix products count as kernels.

    Returns:
        Fields of an opaque layer in the graph format.
    """
    fewer = _passes(run, parameters, [tensor[:-1] for tensor in inputs])
    more = _passes(run, parameters, inputs)

    def per_sample(small: int, large: int) -> int:
        return max(0, large - small)

    document: dict[str, Any] = {}
    for name, small, large in zip(("forward", "backward"), fewer[:2], more[:2]):
        kernels = large.products if is_recurrent else large.kernels
        flops, moved = per_sample(small.flops, large.flops), per_sample(small.bytes, large.bytes)
        document[name] = {"flops": flops, "bytes": moved, "kernels": max(1, kernels)}
    document["saved_bytes"] = per_sample(fewer[2], more[2])
    return document


def _passes(
    run: Callable[..., torch.Tensor], parameters: Sequence[nn.Parameter], inputs: Sequence[torch.Tensor]
) -> tuple[Count, Count, int]:
    inputs = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in inputs]
    known = {tensor.untyped_storage().data_ptr() for tensor in [*inputs, *parameters]}
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            # Count floating-point elements in single precision.
            saved[storage.data_ptr()] = (
                storage.nbytes()
                // tensor.element_size()
                * (ELEMENT_BYTES if tensor.is_floating_point() else tensor.element_size())
            )
        return tensor

    # Avoid fused operations, whose parts cannot be counted.
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message="TF32 acceleration on top of oneDNN")
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        with (
            _Counter(parameters) as forward,
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        ):
            output = run(*inputs)
        wanted = [tensor for tensor in [*inputs, *parameters] if tensor.requires_grad]
        with _Counter(parameters) as backward:
            if output.requires_grad:
                torch.autograd.grad(output, wanted, torch.ones_like(output), allow_unused=True)
    return forward.count, backward.count, sum(saved.values())
