"""Matching of operations to layer kinds of the graph format."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional as F

from deeppool.tracing.positions import Positions, consecutive_in, counted
from deeppool.tracing.program import Ref, Step, Stored, why_no_embedding
from deeppool.tracing.units import Units

#: A layer's kind in the graph format: a name, or a name with options.
Op = str | dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """An operation that is a layer of a known kind."""

    op: Op
    #: Indices of its input values.
    inputs: tuple[int, ...]
    #: Name of the layer if it differs from the module's: that of a parameter.
    name: str | None = None
    #: Index of an input and the token without which the operation has this kind.
    absent: tuple[int, int] | None = None


@dataclass(frozen=True)
class Piece:
    """One of the layers of :class:`Pieces`, with one input."""

    op: Op
    function: Callable[..., torch.Tensor]
    output: tuple[int, ...]
    #: Suffix of the layer's name; empty for the one with the module's name.
    suffix: str = ""
    #: The layer's whole name if it differs from the module's: that of a parameter.
    name: str | None = None
    #: Parameters, which the function takes after the input.
    stored: tuple[Stored, ...] = ()


@dataclass(frozen=True)
class Pieces:
    """An operation that is a chain of layers of known kinds."""

    value: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Same:
    """An operation that is the identity: its result is the given value."""

    value: int


@dataclass(frozen=True)
class Unknown:
    """An operation without a layer kind."""

    reason: str


Match = Kind | Pieces | Same | Unknown

#: Kinds of activations, by operation.
ACTIVATIONS = {
    "relu": "relu",
    "relu6": "relu6",
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish",
    "silu": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}
VIEWS = {
    "view",
    "reshape",
    "flatten",
    "unflatten",
    "squeeze",
    "unsqueeze",
    "_unsafe_view",
    "expand",
    "alias",
    "contiguous",
    "clone",
    "view_as",
    "reshape_as",
}
MOVES = {"permute", "transpose", "swapaxes", "swapdims", "movedim", "t"}
#: Operations with a layer kind for at least some options.
KNOWN = {
    "conv2d",
    "conv1d",
    "conv_transpose2d",
    "upsample_nearest2d",
    "_upsample_nearest_exact2d",
    "linear",
    "addmm",
    "batch_norm",
    "layer_norm",
    "group_norm",
    "instance_norm",
    "rms_norm",
    "max_pool2d",
    "avg_pool2d",
    "adaptive_avg_pool2d",
    "mean",
    "sum",
    "dropout",
    "gelu",
    "leaky_relu",
    "pad",
    "constant_pad_nd",
    "hardtanh",
    "softmax",
    "embedding",
    "add",
    "mul",
    "div",
    "cat",
    "select",
    "slice",
    *ACTIVATIONS,
    *VIEWS,
    *MOVES,
}
NO_FACTORS = "mul with a value that is not a layer's output"
#: Prefix of reasons that follow from other reasons.
SHAPE = "the shape"


def label(op: Op) -> str:
    """Returns the kind's name."""
    return op if isinstance(op, str) else next(iter(op))


def rms_norm(epsilon: float, unit_offset: bool) -> Op:
    """Returns the kind of a root-mean-square normalization.

    Args:
        epsilon: Addend of the mean of the squares.
        unit_offset: Whether features are multiplied by 1 plus their weight.
    """
    return {"rms_norm": {"epsilon": epsilon} | ({"unit_offset": True} if unit_offset else {})}


def kind_of(units: Units, step: Step) -> Match:
    """Matches a step that belongs to one layer."""
    return _Matcher(units, step).match()


class _Matcher:
    def __init__(self, units: Units, step: Step) -> None:
        self.units, self.step = units, step
        self.op = step.op.removesuffix("_") if step.writes else step.op

    def match(self) -> Match:
        step = self.step
        if step.op == "getitem" or step.sample is None and self.op in KNOWN:
            return Unknown(f"{SHAPE} of {self.op}")
        match self.op:
            case "conv2d" | "conv1d" | "conv_transpose2d":
                return self._convolution()
            case "upsample_nearest2d" | "_upsample_nearest_exact2d":
                return self._upsampling()
            case "linear":
                return self._linear()
            case "addmm":
                return self._addmm()
            case "batch_norm":
                return self._batch_norm()
            case "layer_norm":
                return self._layer_norm()
            case "group_norm" | "instance_norm":
                return self._group_norm()
            case "rms_norm":
                return self._rms_norm()
            case "max_pool2d" | "avg_pool2d":
                return self._pool()
            case "adaptive_avg_pool2d":
                return self._image({"adaptive_avg_pool2d": {"output": list(step.argument("output_size"))}})
            case "mean":
                return self._mean()
            case "sum":
                return self._over_positions()
            case "dropout":
                return self._dropout()
            case "gelu":
                tanh = step.argument("approximate", "none") == "tanh"
                return self._unary("gelu_tanh" if tanh else "gelu")
            case "leaky_relu":
                slope = step.argument("negative_slope")
                if not 0 <= slope < math.inf:
                    return Unknown(f"leaky_relu with negative slope {slope}")
                return self._unary({"leaky_relu": {"negative_slope": float(slope)}})
            case "hardtanh":
                lower, upper = step.argument("min_val"), step.argument("max_val")
                if (lower, upper) != (0, 6):
                    return Unknown(f"hardtanh from {lower} to {upper}")
                return self._unary("relu6")
            case "pad" | "constant_pad_nd":
                return self._pad()
            case "softmax":
                return self._softmax()
            case "embedding":
                return self._embedding()
            case "embedding_bag":
                return Unknown(why_no_embedding(step, self.units.steps) or f"{SHAPE} of {self.op}")
            case "add":
                return self._add()
            case "mul":
                return self._multiply()
            case "div":
                return self._divide()
            case "cat":
                return self._concat()
            case "select":
                return self._select()
            case "slice":
                return self._slice()
            case "to":
                return self._to()
            case name if name in ACTIVATIONS:
                return self._unary(ACTIVATIONS[name])
            case name if name in VIEWS:
                return self._view()
            case name if name in MOVES:
                return self._move()
            case name:
                return Unknown(f"{name} has no layer kind")

    # Inputs.

    def _input(self, position: int = 0) -> int | None:
        """Returns the value at an argument's position if another layer produces it."""
        argument = self.step.args[position] if position < len(self.step.args) else None
        if isinstance(argument, Ref):
            is_input = self.units.is_input(argument.index)
            return argument.index if is_input or argument.index not in self.units.free else None
        return None

    def _sample(self, value: int) -> tuple[int, ...] | None:
        return self.units.steps[value].sample

    def _unary(self, op: Op) -> Match:
        value = self._input()
        if value is None or self._sample(value) is None:
            return Unknown(f"{SHAPE} of the input of {self.op}")
        return Kind(op, (value,))

    def _image(self, op: Op) -> Match:
        value = self._input()
        if value is None or self._sample(value) is None:
            return Unknown(f"{SHAPE} of the input of {self.op}")
        if self.units.steps[value].rows != 1 or len(self._sample(value) or ()) != 3:
            return Unknown(f"{self.op} of something other than images")
        return Kind(op, (value,))

    def _dim(self, value: int, dim: int) -> int | None:
        """Converts a dimension of a batch to one of a sample; ``None`` for the batch dimension."""
        step = self.units.steps[value]
        assert step.dims is not None
        dim %= len(step.dims)
        return None if dim == 0 else dim - (1 if step.rows == 1 else 0)

    # Layers with parameters.

    def _stored(self, argument: Any) -> bool:
        """Returns whether an argument is an unmodified parameter."""
        return isinstance(argument, Stored) and argument.is_parameter

    def _convolution(self) -> Match:
        step, weight, bias = self.step, self.step.argument("weight"), self.step.argument("bias")
        if not self._stored(weight):
            return Unknown(f"{self.op} with a computed weight")
        if bias is not None and not self._stored(bias):
            return Unknown(f"{self.op} with a computed bias")
        is_transposed = self.op == "conv_transpose2d"
        dims = self._parameter(weight)
        kernel, groups = dims[2:], step.argument("groups")
        stride, dilation = (_sizes(step.argument(name), len(kernel)) for name in ("stride", "dilation"))
        padding, after = step.argument("padding"), [0] * len(kernel)
        if isinstance(padding, str):
            covered = [distance * (size - 1) for distance, size in zip(dilation, kernel)]
            padding = [size // 2 for size in covered] if padding == "same" else [0]
            if self.step.argument("padding") == "same":
                after = [size % 2 for size in covered]
        padding = _sizes(padding, len(kernel))
        added = _sizes(step.argument("output_padding", [0]), len(kernel))
        if is_transposed and any(size >= step_size for size, step_size in zip(added, stride)):
            return Unknown("conv_transpose2d with an output padding of at least its stride")
        # A signal is an image of one row.
        rows = [1] * (2 - len(kernel))
        options: dict[str, Any] = {
            "out_channels": dims[1] * groups if is_transposed else dims[0],
            "kernel": rows + list(kernel),
            "stride": rows + stride,
            "padding": [0] * len(rows) + padding,
            "groups": groups,
            "bias": bias is not None,
        }
        options |= {"output_padding": added} if is_transposed else {}
        options |= {"dilation": rows + dilation} if any(size != 1 for size in dilation) else {}
        if rows or any(after):
            return self._chain(options, [0] * len(rows) + after)
        return self._image({self.op: options})

    def _chain(self, options: dict[str, Any], after: list[int]) -> Match:
        """Matches a convolution of signals, or with more padding after an image than before it.

        Signals are reshaped to images of one row, and the result to signals.
        """
        step, value, output = self.step, self._input(), self.step.sample
        sample = self._sample(value) if value is not None else None
        if value is None or sample is None or output is None:
            return Unknown(f"{SHAPE} of the input of {self.op}")
        is_signal = self.op == "conv1d"
        if len(sample) != (2 if is_signal else 3) or self.units.steps[value].rows != 1:
            return Unknown(f"{self.op} of something other than {'signals' if is_signal else 'images'}")
        stride, dilation, groups = options["stride"], options.get("dilation", 1), options["groups"]
        image, result = ((dims[0], 1, dims[1]) if is_signal else dims for dims in (sample, output))
        pieces = []
        if is_signal:
            to_image: Op = {"reshape": {"output": list(image)}}
            pieces.append(Piece(to_image, lambda x: x.unsqueeze(2), image, ".image"))
        padding = options["padding"]
        if any(after):
            before, padding = padding, [0, 0]
            options = options | {"padding": padding}
            sides = [before[1], before[1] + after[1], before[0], before[0] + after[0]]
            pad: Op = {"pad": {"before": before, "after": sides[3:0:-2]}}
            padded = (image[0], image[1] + sides[2] + sides[3], image[2] + sides[0] + sides[1])
            pieces.append(Piece(pad, lambda x: F.pad(x, sides), padded, ".pad"))

        def convolve(x: torch.Tensor, weight: torch.Tensor, *bias: torch.Tensor) -> torch.Tensor:
            weight = weight.unsqueeze(2) if is_signal else weight
            return F.conv2d(x, weight, bias[0] if bias else None, stride, padding, dilation, groups)

        stored = [step.argument("weight"), step.argument("bias")][: 2 if options["bias"] else 1]
        pieces.append(Piece({"conv2d": options}, convolve, result, stored=tuple(stored)))
        if is_signal:
            to_signal: Op = {"reshape": {"output": list(output)}}
            pieces.append(Piece(to_signal, lambda x: x.squeeze(2), output, ".signal"))
        return Pieces(value, tuple(pieces))

    def _parameter(self, stored: Stored) -> tuple[int, ...]:
        return self.units.parameter(stored)

    def _linear(self) -> Match:
        weight, bias = self.step.argument("weight"), self.step.argument("bias")
        if not self._stored(weight) or not (bias is None or self._stored(bias)):
            return Unknown("linear with a computed weight or bias")
        return self._unary({"linear": {"out_features": self._parameter(weight)[0], "bias": bias is not None}})

    def _addmm(self) -> Match:
        """Matches a linear layer with a transposed weight, as in Hugging Face's ``Conv1D``."""
        step = self.step
        bias, weight = step.args[0], step.argument("mat2")
        if (
            not self._stored(weight)
            or not self._stored(bias)
            or (step.argument("beta"), step.argument("alpha")) != (1, 1)
        ):
            return Unknown("a matrix product without a parameter as weight and bias")
        value, features = self._input(1), self._parameter(weight)[1]
        if value is None or self._sample(value) is None or self._parameter(bias) != (features,):
            return Unknown("a matrix product without a parameter as weight and bias")
        return Kind({"linear": {"out_features": features, "bias": True}}, (value,))

    def _batch_norm(self) -> Match:
        step = self.step
        parameters = [step.argument(name) for name in ("weight", "bias")]
        statistics = [step.argument(name) for name in ("running_mean", "running_var")]
        if not all(self._stored(one) for one in parameters) or not all(
            isinstance(one, Stored) for one in statistics
        ):
            return Unknown("batch_norm without scale and bias, or without running statistics")
        if not step.argument("training"):
            return Unknown("batch_norm with fixed statistics")
        value = self._input()
        sample = self._sample(value) if value is not None else None
        if value is None or sample is None or self.units.steps[value].rows != 1 or len(sample) > 3:
            return Unknown("batch_norm of something other than images, signals and vectors")
        return Kind(
            {"batch_norm": {"epsilon": step.argument("eps"), "momentum": step.argument("momentum")}}, (value,)
        )

    def _layer_norm(self) -> Match:
        step = self.step
        if not self._stored(step.argument("weight")) or not self._stored(step.argument("bias")):
            return Unknown("layer_norm without scale or bias")
        if len(step.argument("normalized_shape")) != 1:
            return Unknown("layer_norm over several dimensions")
        return self._unary({"layer_norm": {"epsilon": step.argument("eps")}})

    def _group_norm(self) -> Match:
        step, value = self.step, self._input()
        sample = self._sample(value) if value is not None else None
        if not self._stored(step.argument("weight")) or not self._stored(step.argument("bias")):
            return Unknown(f"{self.op} without scale or bias")
        if not step.argument("use_input_stats", True) or step.argument("running_mean") is not None:
            return Unknown("instance_norm with running statistics")
        if value is None or not sample or self.units.steps[value].rows != 1:
            return Unknown(f"{SHAPE} of the input of {self.op}")
        groups = step.argument("num_groups", sample[0])
        return Kind({"group_norm": {"groups": groups, "epsilon": step.argument("eps")}}, (value,))

    def _rms_norm(self) -> Match:
        step, epsilon = self.step, self.step.argument("eps")
        if not self._stored(step.argument("weight")):
            return Unknown("rms_norm without scale")
        if len(step.argument("normalized_shape")) != 1:
            return Unknown("rms_norm over several dimensions")
        if epsilon is None:
            assert step.dtype is not None
            epsilon = torch.finfo(step.dtype).eps
        return self._unary(rms_norm(epsilon, False))

    def _embedding(self) -> Match:
        step = self.step
        weight, tokens = step.argument("weight"), step.argument("indices")
        if not self._stored(weight):
            return Unknown("embedding with a computed weight")
        while isinstance(tokens, Ref) and self._is_view(tokens.index):
            tokens = self.units.steps[tokens.index].args[0]
        value = tokens.index if isinstance(tokens, Ref) and self.units.is_input(tokens.index) else None
        if value is None or len(self._sample(value) or ()) != 1:
            return Unknown("embedding of something other than an input of the network, a vector of tokens")
        if step.argument("scale_grad_by_freq") or step.argument("sparse"):
            return Unknown("embedding with scale_grad_by_freq or sparse gradients")
        vocabulary, features = self._parameter(weight)
        embedding = {"vocabulary": vocabulary, "features": features}
        padding = step.argument("padding_idx")
        if padding >= 0:
            embedding["padding"] = padding
        return Kind({"embedding": embedding}, (value,))

    def _is_view(self, index: int) -> bool:
        """Returns whether a step only views its argument with the same shape of samples and data type."""
        step = self.units.steps[index]
        if step.op not in VIEWS | {"to"} or not step.args or not isinstance(step.args[0], Ref):
            return False
        viewed = self.units.steps[step.args[0].index]
        return (step.sample, step.dtype) == (viewed.sample, viewed.dtype) and step.sample is not None

    # Windows.

    def _pool(self) -> Match:
        step = self.step
        is_max = self.op == "max_pool2d"
        kernel = _pair(step.argument("kernel_size"))
        stride = _pair(step.argument("stride") or kernel)
        padding = _pair(step.argument("padding"))
        if is_max and _pair(step.argument("dilation")) != [1, 1]:
            return Unknown("max_pool2d with dilation")
        if not is_max and step.argument("divisor_override") is not None:
            return Unknown("avg_pool2d with divisor_override")
        value = self._input()
        sample = self._sample(value) if value is not None else None
        if sample is None or len(sample) != 3 or step.sample is None:
            return Unknown(f"{self.op} of something other than images")
        # ceil_mode is equivalent to extra padding at the bottom and right.
        extra = [
            max(0, (windows - 1) * step_ + size - 2 * before - length)
            for windows, step_, size, before, length in zip(
                step.sample[1:], stride, kernel, padding, sample[1:]
            )
        ]
        options: dict[str, Any] = {"kernel": kernel, "stride": stride, "padding": padding}
        if extra != [0, 0]:
            options["extra_padding"] = extra
        if not is_max:
            counts = bool(step.argument("count_include_pad"))
            if counts and extra != [0, 0] and padding != [0, 0]:
                return Unknown(
                    "avg_pool2d with count_include_pad, where windows exceed the padding (ceil_mode)"
                )
            # Without padding, count_include_pad has no effect.
            if (not counts or extra != [0, 0]) and (padding != [0, 0] or extra != [0, 0]):
                options["count_padding"] = False
        return self._image({self.op: options})

    def _mean(self) -> Match:
        """Matches a mean over height and width, a global average pooling, or over positions."""
        step, value = self.step, self._input()
        sample = self._sample(value) if value is not None else None
        if sample is not None and len(sample) == 2:
            return self._over_positions()
        if value is None or sample is None or len(sample) != 3 or self.units.steps[value].rows != 1:
            return Unknown("mean of something other than images")
        if (
            sorted(dim % 4 for dim in step.argument("dim") or ()) != [2, 3]
            or step.argument("dtype") is not None
        ):
            return Unknown("mean over something other than height and width")
        channels = sample[0]
        pool = Piece(
            {"adaptive_avg_pool2d": {"output": [1, 1]}},
            lambda x: x.mean((2, 3), keepdim=True),
            (channels, 1, 1),
            ".pool",
        )
        if step.argument("keepdim"):
            return Pieces(value, (replace(pool, suffix=""),))
        return Pieces(value, (pool, Piece("flatten", lambda x: x.flatten(1), (channels,))))

    def _over_positions(self) -> Match:
        """Matches a mean or a sum over the positions of a sequence: the pooling of an image of one column."""
        step, value = self.step, self._input()
        sample = self._sample(value) if value is not None else None
        if value is None or sample is None or len(sample) != 2 or self.units.steps[value].rows != 1:
            return Unknown(f"{step.op} of something other than images or sequences")
        if [dim % 3 for dim in step.argument("dim") or ()] != [1] or step.argument("dtype") is not None:
            return Unknown(f"{step.op} over something other than positions")
        positions, features = sample
        pieces = [
            Piece(
                {"permute": {"order": [1, 0]}},
                lambda x: x.transpose(1, 2),
                (features, positions),
                ".permute",
            ),
            Piece(
                {"reshape": {"output": [features, positions, 1]}},
                lambda x: x.unsqueeze(3),
                (features, positions, 1),
                ".reshape",
            ),
            Piece(
                {"adaptive_avg_pool2d": {"output": [1, 1]}},
                lambda x: x.mean((2, 3), keepdim=True),
                (features, 1, 1),
                ".pool",
            ),
        ]
        if step.op == "sum":
            factor: Op = {"scale": {"constant": float(positions)}}
            pieces.append(Piece(factor, lambda x: x * positions, (features, 1, 1), ".scale"))
        output: tuple[int, ...] = (features,)
        op: Op = "flatten"
        if step.argument("keepdim"):
            output, op = (1, features), {"reshape": {"output": [1, features]}}
        pieces.append(Piece(op, lambda x: x.reshape(len(x), *output), output))
        return Pieces(value, tuple(pieces))

    def _pad(self) -> Match:
        step = self.step
        sides = [*step.argument("pad"), 0, 0, 0, 0]
        left, right, top, bottom = sides[:4]
        if step.argument("mode", "constant") != "constant" or step.argument("value") not in (None, 0):
            return Unknown("padding with something other than zeros")
        value = self._input()
        if value is not None and not any(sides):
            return Same(value)
        if any(sides[4:]) or min(sides) < 0:
            return Unknown("padding of something other than height and width")
        return self._image({"pad": {"before": [top, left], "after": [bottom, right]}})

    def _upsampling(self) -> Match:
        """Matches a repetition of pixels: an average over windows within one pixel."""
        value, output = self._input(), self.step.sample
        sample = self._sample(value) if value is not None else None
        if sample is None or output is None or len(sample) != 3:
            return Unknown(f"{SHAPE} of the input of {self.op}")
        factors = [after / before for before, after in zip(sample[1:], output[1:])]
        # Given scales may differ from the ratios of the sizes, and choose other pixels.
        names = ("scales_h", "scales_w")
        given = self.step.argument("scale_factors") or [self.step.argument(name) for name in names]
        scales = [factor if one is None else one for one, factor in zip(given, factors)]
        if any(factor % 1 for factor in factors) or scales != factors:
            return Unknown("upsampling by a factor that is not an integer")
        return self._image({"adaptive_avg_pool2d": {"output": list(output[1:])}})

    # Element by element.

    def _dropout(self) -> Match:
        p = self.step.argument("p")
        value = self._input()
        if value is not None and (p == 0 or not self.step.argument("train")):
            return Same(value)
        if p >= 1:
            return Unknown("dropout with probability 1")
        return self._unary({"dropout": {"probability": p}})

    def _softmax(self) -> Match:
        value = self._input()
        if value is None or self.step.argument("dtype") is not None:
            return Unknown("softmax with another data type")
        sample = self._sample(value)
        if sample is None or self._dim(value, self.step.argument("dim")) != len(sample) - 1:
            return Unknown("softmax over another dimension than the innermost")
        return self._unary("softmax")

    def _add(self) -> Match:
        step = self.step
        if step.argument("alpha", 1) != 1 or len(step.args) < 2:
            return Unknown("a sum with a factor")
        one, other = self._input(0), self._input(1)
        if one is not None and other is not None:
            if (
                self._sample(one) is None
                or self._sample(one) != self._sample(other)
                or self._sample(one) != step.sample
            ):
                return Unknown("a sum of different shapes")
            return Kind("add", (one, other))
        value, table = (one, step.args[1]) if one is not None else (other, step.args[0])
        stored = self._positions(table, value) if value is not None else None
        if value is None or stored is None:
            return Unknown("a sum with a value that is not a layer's output")
        # The second to last dimension of the parameter is the number of vectors.
        table, (first, is_repeated, absent) = stored
        options = {"positions": self._parameter(table)[-2]}
        options |= ({"first": first} if first else {}) | ({"repeated": True} if is_repeated else {})
        return Kind({"position_embedding": options}, (value,), table.name, absent)

    def _multiply(self) -> Match:
        one, other = self._input(0), self._input(1)
        if one is None or other is None:
            value = one if other is None else other
            factor = self.step.args[1 if value == one else 0] if len(self.step.args) > 1 else None
            return Unknown(NO_FACTORS) if value is None else self._scale(value, factor)
        if self._sample(one) != self.step.sample:
            one, other = other, one
        sample, factors = self._sample(one), self._sample(other)
        if sample is None or factors is None or sample != self.step.sample:
            return Unknown("mul of different shapes")
        of_channels = len(sample) == 3 and factors == (sample[0], 1, 1)
        if factors != sample and not (of_channels and self.units.steps[one].rows == 1):
            return Unknown("mul of different shapes")
        return Kind("multiply", (one, other))

    def _divide(self) -> Match:
        value = self._input(0)
        number = self._number(self.step.args[1]) if value is not None and len(self.step.args) > 1 else None
        if value is None or not number or self._input(1) is not None:
            return Unknown("div by something other than a number")
        return self._constant_scale(value, 1 / number)

    def _scale(self, value: int, factor: Any) -> Match:
        """Matches a product with a number, or with a parameter: a factor for each feature or channel."""
        number = self._number(factor)
        if number is not None:
            return self._constant_scale(value, number)
        sample = self._sample(value)
        if sample is None or sample != self.step.sample or self.units.steps[value].rows != 1:
            return Unknown(NO_FACTORS)
        dims, table = None, factor
        while isinstance(table, Ref) and self.units.steps[table.index].op in VIEWS:
            step = self.units.steps[table.index]
            dims, table = dims or step.dims, step.args[0]
        if not self._stored(table):
            return Unknown(NO_FACTORS)
        dims = dims or self._parameter(table)
        while dims and dims[0] == 1:
            dims = dims[1:]
        if dims == sample[-1:]:
            return Kind({"scale": "features"}, (value,), table.name)
        if len(sample) == 3 and dims == (sample[0], 1, 1):
            return Kind({"scale": "channels"}, (value,), table.name)
        return Unknown(NO_FACTORS)

    def _constant_scale(self, value: int, factor: float) -> Match:
        if self._sample(value) != self.step.sample or not math.isfinite(factor):
            return Unknown(NO_FACTORS)
        return Same(value) if factor == 1 else Kind({"scale": {"constant": factor}}, (value,))

    def _number(self, factor: Any) -> float | None:
        """Returns a factor that is a number, or a constant tensor of equal numbers."""
        if isinstance(factor, int | float):
            return float(factor)
        if not isinstance(factor, Ref | Stored):
            return None
        numbers = set()
        # It may not depend on the number of samples.
        for samples in (2, 3):
            value = self.units.constant(factor, samples)
            if value is None or value.numel() == 0 or value.dtype == torch.bool:
                return None
            numbers |= set(value.flatten().tolist())
        return float(numbers.pop()) if len(numbers) == 1 else None

    def _positions(self, table: Any, value: int) -> tuple[Stored, Positions] | None:
        """Returns the parameter whose vectors are added to the positions of a sequence.

        Returns:
            The parameter, and the indices of the vectors that are added.
        """
        sample = self._sample(value)
        if (
            sample is None
            or len(sample) != 2
            or self.units.steps[value].rows != 1
            or self.step.sample != sample
        ):
            return None
        first, is_repeated, absent = Positions(0, False)
        while isinstance(table, Ref):
            step = self.units.steps[table.index]
            if step.op == "embedding":
                weight, indices = step.argument("weight"), step.argument("indices")
                found = self._consecutive(indices, sample[0])
                found = found or counted(self.units, indices, sample[0], step.argument("padding_idx"))
                if not self._stored(weight) or step.argument("sparse") or found is None:
                    return None
                table, (first, is_repeated, absent) = weight, found
                # The vector of padding gets no gradient.
                if 0 <= step.argument("padding_idx") - first < (1 if is_repeated else sample[0]):
                    return None
                break
            start = (step.argument("start") or 0) if step.op == "slice" else 0
            is_range = step.op == "slice" and start >= 0 and step.argument("step") == 1
            is_same = step.op == "to" and step.dtype == self.step.dtype
            if not is_range and not is_same and step.op not in ("unsqueeze", "alias", "expand"):
                return None
            table, first = step.args[0], first + start
        if not self._stored(table):
            return None
        dims = self._parameter(table)
        if dims[-1] != sample[1] or len(dims) not in (2, 3) or any(dim != 1 for dim in dims[:-2]):
            return None
        needed = first + (1 if is_repeated else sample[0])
        return (table, Positions(first, is_repeated, absent)) if needed <= dims[-2] else None

    def _consecutive(self, indices: Any, length: int) -> Positions | None:
        """Returns constant indices if they increase by 1 or are equal."""
        found = {self._consecutive_for(indices, length, samples) for samples in (2, 3)}
        return found.pop() if len(found) == 1 else None

    def _consecutive_for(self, indices: Any, length: int, samples: int) -> Positions | None:
        return consecutive_in(self.units.constant(indices, samples), length, samples)

    # Data movement.

    def _concat(self) -> Match:
        step = self.step
        tensors, dim = step.args[0], step.argument("dim")
        values = [
            leaf.index for leaf in tensors if isinstance(leaf, Ref) and leaf.index not in self.units.free
        ]
        if len(values) == len(tensors) == 1:
            return Same(values[0])
        if len(values) == len(tensors):
            samples = [self._sample(value) for value in values]
            rows = {self.units.steps[value].rows for value in values}
            joined = {(len(sample or ()), self._dim(values[0], dim)) for sample in samples}
            # The channels of images, the features of sequences, or those of vectors.
            if rows == {1} and len(joined) == 1 and joined <= {(3, 0), (2, 1), (1, 0)}:
                return Kind("concat", tuple(values))
            return Unknown("a concatenation of something other than channels of images or features")
        if len(values) == 1 and tensors[-1] == Ref(values[0]) and self._dim(values[0], dim) == 0:
            sample = self._sample(values[0])
            tokens = [self._token(token, sample) for token in tensors[:-1]]
            known = [token for token in tokens if token is not None]
            if sample is not None and len(known) == len(tokens):
                return self._tokens(values[0], known, sample)
        return Unknown("a concatenation with a value that is not a layer's output")

    def _tokens(self, value: int, tokens: list[Stored], sample: tuple[int, ...]) -> Match:
        """Matches learned vectors before a sequence: a class token, or several."""
        if len(tokens) == 1:
            return Kind("class_token", (value,), tokens[0].name)
        positions, features = sample

        def prepend(x: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
            return torch.cat([token.reshape(1, 1, features).expand(len(x), -1, -1), x], 1)

        return Pieces(
            value,
            tuple(
                Piece("class_token", prepend, (positions + count, features), name=token.name, stored=(token,))
                for count, token in enumerate(reversed(tokens), 1)
            ),
        )

    def _token(self, token: Any, sample: tuple[int, ...] | None) -> Stored | None:
        while isinstance(token, Ref) and self.units.steps[token.index].op in (
            "expand",
            "alias",
            "repeat",
            "unsqueeze",
        ):
            token = self.units.steps[token.index].args[0]
        if not self._stored(token) or sample is None or len(sample) != 2:
            return None
        dims = self._parameter(token)
        return token if dims == (1,) * (len(dims) - 1) + (sample[1],) else None

    def _select(self) -> Match:
        value = self._input()
        sample = self._sample(value) if value is not None else None
        if (
            value is None
            or sample is None
            or len(sample) < 2
            or self._dim(value, self.step.argument("dim")) != 0
        ):
            return Unknown("select of another dimension than the outermost")
        return Kind({"select": {"index": self.step.argument("index") % sample[0]}}, (value,))

    def _slice(self) -> Match:
        value, output = self._input(), self.step.sample
        sample = self._sample(value) if value is not None else None
        if value is None or sample is None or output is None or self.step.argument("step") != 1:
            return Unknown("slice has no layer kind")
        if sample == output:
            return Same(value)
        dim = self._dim(value, self.step.argument("dim"))
        if dim is None or self.units.steps[value].rows != 1:
            return Unknown("slice of another dimension than the outermost")
        start = self.step.argument("start") or 0
        # Both ends of a range are within the dimension, counted from its end if they are negative.
        start = max(start + sample[dim], 0) if start < 0 else start
        if dim == 0:
            return Kind({"slice": {"start": start, "length": output[0]}}, (value,))
        if len(sample) != 2 or output[1] != 1:
            return Unknown("slice of another dimension than the outermost")
        # A feature of each position, such as the scores of its being the start of an answer.
        positions, features = sample
        turned: Op = {"permute": {"order": [1, 0]}}
        one: Op = {"slice": {"start": start, "length": 1}}
        return Pieces(
            value,
            (
                Piece(turned, lambda x: x.transpose(1, 2), (features, positions), ".features"),
                Piece(one, lambda x: x[:, start : start + 1], (1, positions), ".feature"),
                Piece(turned, lambda x: x.transpose(1, 2), output),
            ),
        )

    def _to(self) -> Match:
        value = self._input()
        if value is not None and self.units.steps[value].dtype == self.step.dtype:
            return Same(value)
        return Unknown("to has no layer kind")

    def _view(self) -> Match:
        value, output = self._input(), self.step.sample
        sample = self._sample(value) if value is not None else None
        if value is None or sample is None or output is None:
            return Unknown(f"{SHAPE} of the input of {self.op}")
        if sample == output:
            return Same(value)
        if _product(sample) != _product(output):
            return Unknown(f"{self.op} that repeats elements")
        if len(output) == 1:
            return Kind("flatten", (value,))
        return Kind({"reshape": {"output": list(output)}}, (value,))

    def _move(self) -> Match:
        value = self._input()
        sample = self._sample(value) if value is not None else None
        if value is None or sample is None:
            return Unknown(f"{SHAPE} of the input of {self.op}")
        step = self.units.steps[value]
        assert step.dims is not None
        # Find the order by applying the operation to an empty tensor with distinct sizes.
        probe = torch.empty([index + 1 for index in range(len(step.dims))], device="meta")
        target: Any = self.step.target
        order = [size - 1 for size in target(probe, *self.step.args[1:]).shape]
        if order[0] != 0:
            return Unknown(f"{self.op} that moves the batch")
        if step.rows == 1:
            order = [dim - 1 for dim in order[1:]]
        if order == sorted(order):
            return Same(value)
        return Kind({"permute": {"order": order}}, (value,))


def _pair(sizes: Any) -> list[int]:
    return _sizes(sizes, 2)


def _sizes(sizes: Any, count: int) -> list[int]:
    """Returns a size along each of ``count`` axes. One size is that along all."""
    result: list[int] = [sizes] if isinstance(sizes, int) else list(sizes)
    return result * count if len(result) == 1 else result


def _product(dims: tuple[int, ...]) -> int:
    result = 1
    for dim in dims:
        result *= dim
    return result
