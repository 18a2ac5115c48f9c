"""Networks and their layers."""

from pathlib import Path

import pytest

from deeppool import DeepPoolError, InputError, Network


def test_vgg16_has_its_published_parameter_count() -> None:
    network = Network.zoo("VGG16")
    assert network.parameter_count == 138_357_544
    assert network.input_shape == (3, 224, 224)
    first = network.layers[1]
    assert (first.name, first.kind, first.inputs) == ("features.0", "conv2d", ("input",))
    assert first.shape == (64, 224, 224)
    assert [parameter.shape for parameter in first.parameters] == [(64, 3, 3, 3), (64,)]
    assert first.output_bytes == 4 * 64 * 224 * 224


def test_network_file_round_trips(tmp_path: Path) -> None:
    network = Network.zoo("gpt2")
    network.save(tmp_path / "gpt2.json")
    again = Network.load(tmp_path / "gpt2.json")
    assert again == network
    assert any(layer.parameters_of is not None for layer in again.layers)


def test_unknown_network_error_lists_known_names() -> None:
    with pytest.raises(InputError, match="unknown model `vgg17`; known models: alexnet, vgg11, vgg13"):
        Network.zoo("vgg17")
    assert issubclass(InputError, DeepPoolError)
    assert issubclass(InputError, ValueError)


def test_document_error_has_the_path_of_the_field() -> None:
    document = Network.zoo("digits-cnn").to_dict()
    document["layers"][1]["op"] = "swish"
    with pytest.raises(InputError, match=r"layers\[1\].op"):
        Network.from_dict(document)


def test_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing.json"):
        Network.load(tmp_path / "nothing.json")
    with pytest.raises(InputError, match="nothing.onnx"):
        Network.from_onnx(tmp_path / "nothing.onnx")
