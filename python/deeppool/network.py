"""Networks: layers with their shapes, parameters and cost per sample."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

from deeppool import _deeppool
from deeppool._documents import read_text, write_text
from deeppool.errors import InputError


@dataclass(frozen=True)
class Tensor:
    """A parameter of a layer."""

    name: str
    """Name within the layer, such as ``weight``."""
    shape: tuple[int, ...]
    """Dimensions, outermost first."""


@dataclass(frozen=True)
class Layer:
    """A layer of a network.

    Shapes, floating-point operations and bytes are those of one sample in single precision.
    """

    name: str
    kind: str
    """Operation, such as ``conv2d``; ``opaque`` if only the cost is known."""
    inputs: tuple[str, ...]
    """Names of the layers that produce its inputs, in order."""
    shape: tuple[int, ...]
    """Shape of the output, without the batch dimension."""
    input_shapes: tuple[tuple[int, ...], ...]
    """Shapes of the inputs, without the batch dimension."""
    parameters: tuple[Tensor, ...]
    parameter_count: int
    """Number of elements of its parameters, including those shared with another layer."""
    parameters_of: str | None
    """Name of the layer that owns its parameters; ``None`` if it owns them."""
    forward_flops: int
    """Floating-point operations of the forward pass; a multiply-add counts as two."""
    backward_flops: int
    """Floating-point operations of the backward pass."""
    input_bytes: int
    output_bytes: int


class Network:
    """A network: a checked document of the format ``deeppool/graph/v1``.

    >>> Network.zoo("vgg16").layers[1].name
    'features.0'
    """

    def __init__(self, document: Mapping[str, Any] | str) -> None:
        """Checks a document.

        Args:
            document: The document, or its JSON text.

        Raises:
            InputError: The document is not valid. The message has the path of the wrong field.
        """
        self._json = document if isinstance(document, str) else json.dumps(document)
        self._description: dict[str, Any] = json.loads(_deeppool.describe_network(self._json))

    @staticmethod
    def names() -> list[str]:
        """Returns the names of the built-in networks."""
        return _deeppool.network_names()

    @classmethod
    def zoo(cls, name: str) -> Network:
        """Returns a built-in network by name (see :meth:`names`)."""
        return Network(_deeppool.network_of_zoo(name))

    @classmethod
    def from_onnx(cls, path: str | PathLike[str]) -> Network:
        """Reads the network of an ONNX file.

        Warns if the training network differs from the exported one.
        """
        document, warning = _deeppool.network_of_onnx(path)
        if warning is not None:
            warnings.warn(warning, stacklevel=2)
        return Network(document)

    @classmethod
    def from_pt2(cls, path: str | PathLike[str]) -> Network:
        """Reads the network of a file of ``torch.export.save``.

        Warns if the training network differs from the exported one.
        """
        document, warning = _deeppool.network_of_pt2(path)
        if warning is not None:
            warnings.warn(warning, stacklevel=2)
        return Network(document)

    @classmethod
    def from_hf(cls, path: str | PathLike[str], sequence: int | None = None) -> Network:
        """Builds the network of a ``config.json`` of the package ``transformers``.

        Warns if parts of it are not supported, such as cross attention.

        Args:
            path: The file. The families ``bert``, ``gemma``, ``gpt2``, ``gpt_neo``, ``gpt_neox``, ``llama``,
                ``mistral``, ``mixtral``, ``opt``, ``qwen2``, ``roberta``, ``t5`` and ``vit`` are known.
            sequence: Number of tokens of a sample; ``None`` for ``vit``, which reads images.

        Raises:
            InputError: The file cannot be read or is not a configuration of a known family, or ``sequence``
                is not between 1 and 2^24, missing for tokens, or given for images.
        """
        if sequence is not None and not 1 <= sequence <= 1 << 24:
            raise InputError(f"sequence: {sequence} is not between 1 and {1 << 24}")
        document, left_out = _deeppool.network_of_config(path, sequence)
        if left_out:
            warnings.warn(f"the network is without {', '.join(left_out)}", stacklevel=2)
        return Network(document)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Network:
        """Reads a network file, as written by :meth:`save`."""
        text = read_text(path)
        try:
            return Network(text)
        except InputError as error:
            raise InputError(f"{os.fspath(path)}: {error}") from error

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the document to a file."""
        write_text(path, self._json + "\n")

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Network:
        """Creates a network from a document."""
        return Network(document)

    def to_dict(self) -> dict[str, Any]:
        """Returns the document."""
        document: dict[str, Any] = json.loads(self._json)
        return document

    def to_json(self) -> str:
        """Returns the document as JSON text."""
        return self._json

    @property
    def name(self) -> str:
        """Name of the network."""
        name: str = self._description["name"]
        return name

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """All layers in topological order, the input layers first."""
        return tuple(_layer(layer) for layer in self._description["layers"])

    @property
    def opaque_layers(self) -> tuple[Layer, ...]:
        """Layers of kind ``opaque``: only their cost is known."""
        return tuple(layer for layer in self.layers if layer.kind == "opaque")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of a sample of the first input, without the batch dimension."""
        return self.layers[0].shape

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of a sample of each input by name, without the batch dimension."""
        return {layer.name: layer.shape for layer in self.layers if layer.kind == "input"}

    @property
    def parameter_count(self) -> int:
        """Number of learned parameters. Shared parameters count once."""
        return int(self._description["parameter_count"])

    @property
    def forward_flops(self) -> int:
        """Floating-point operations of one sample's forward pass; a multiply-add counts as two."""
        return int(self._description["forward_flops"])

    @property
    def backward_flops(self) -> int:
        """Floating-point operations of one sample's backward pass."""
        return int(self._description["backward_flops"])

    @property
    def activation_bytes(self) -> int:
        """Bytes of the outputs of all layers for one sample in single precision."""
        return int(self._description["activation_bytes"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.name, self.parameter_count, len(self.layers)))

    def __repr__(self) -> str:
        return f"<Network {self.name}: {len(self.layers) - 1} layers, {self.parameter_count:,} parameters>"


def _layer(layer: dict[str, Any]) -> Layer:
    return Layer(
        **{
            **layer,
            "inputs": tuple(layer["inputs"]),
            "shape": tuple(layer["shape"]),
            "input_shapes": tuple(tuple(shape) for shape in layer["input_shapes"]),
            "parameters": tuple(Tensor(one["name"], tuple(one["shape"])) for one in layer["parameters"]),
        }
    )
