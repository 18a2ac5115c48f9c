"""Networks and what is known of their layers."""

from pathlib import Path

import pytest

from deeppool import DeepPoolError, InputError, Network


def test_a_built_in_network_has_its_published_parameters() -> None:
    network = Network.zoo("VGG16")
    assert network.parameter_count == 138_357_544
    assert network.input_shape == (3, 224, 224)
    first = network.layers[1]
    assert (first.name, first.kind, first.inputs) == ("features.0", "conv2d", ("input",))
    assert first.shape == (64, 224, 224)
    assert [parameter.shape for parameter in first.parameters] == [(64, 3, 3, 3), (64,)]
    assert first.output_bytes == 4 * 64 * 224 * 224


def test_a_network_goes_through_its_file(tmp_path: Path) -> None:
    network = Network.zoo("gpt2")
    network.save(tmp_path / "gpt2.json")
    again = Network.load(tmp_path / "gpt2.json")
    assert again == network
    assert any(layer.parameters_of is not None for layer in again.layers)


def test_an_unknown_network_is_one_error_with_the_names_that_exist() -> None:
    with pytest.raises(InputError, match="unknown model `vgg17`; known models: vgg11, vgg13"):
        Network.zoo("vgg17")
    assert issubclass(InputError, DeepPoolError)
    assert issubclass(InputError, ValueError)


def test_a_wrong_document_names_the_place() -> None:
    document = Network.zoo("digits-cnn").to_dict()
    document["layers"][1]["op"] = "sigmoid"
    with pytest.raises(InputError, match=r"layers\[1\].op"):
        Network.from_dict(document)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing.json"):
        Network.load(tmp_path / "nothing.json")
    with pytest.raises(InputError, match="nothing.onnx"):
        Network.from_onnx(tmp_path / "nothing.onnx")
