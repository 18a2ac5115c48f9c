"""Gradients of traced networks by the engines against PyTorch."""

import copy
import os

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
safetensors = pytest.importorskip("safetensors.torch")

import torchvision  # noqa: E402
from command import deeppool, needs_command  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torchvision.ops import StochasticDepth  # noqa: E402
from traced_networks import GPT2, NETWORKS, SMALL, Bert, LanguageModel, UNet, image, tokens  # noqa: E402

from deeppool import InputError  # noqa: E402
from deeppool.tracing import check_gradients, trace  # noqa: E402

#: Networks of `SMALL` without opaque layers and dropout.
TRAINED = ["resnet18", "vit", "bert", "gpt2"]
SAMPLES, LEARNING_RATE = 4, 1.0


@needs_command
@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_deeppool_train_match_pytorch(name, tmp_path):
    torch.manual_seed(0)
    module = SMALL[name].make()
    example = torch.cat([SMALL[name].example(), SMALL[name].example()])[:SAMPLES]
    traced = trace(module, example)
    assert not traced.opaque
    traced.network.save(tmp_path / "graph.json")
    # A table of positions has a leading dimension for samples in PyTorch only.
    shapes = {
        layer.name: layer.parameters[0].shape
        for layer in traced.network.layers
        if layer.kind == "position_embedding"
    }
    state = {
        key: value.reshape(shapes.get(key, value.shape)).contiguous()
        for key, value in module.state_dict().items()
        if "num_batches" not in key and key != "lm_head.weight"
    }
    module.train()
    *positions, classes = traced.islands[traced.output].output_shape
    labels = torch.randint(0, classes, (SAMPLES, *positions))
    exact = copy.deepcopy(module).double()
    for model in (module, exact):
        model.zero_grad()
        batch = example.double() if model is exact and example.is_floating_point() else example
        F.cross_entropy(model(batch).flatten(0, -2), labels.flatten()).backward()
    data = {
        f"{part}.{key}": tensor.clone()
        for part in ("train", "test")
        for key, tensor in {"inputs": example, "labels": labels}.items()
    }
    safetensors.save_file(data, tmp_path / "data.safetensors")
    safetensors.save_file(state, tmp_path / "initial.safetensors")
    deeppool(
        tmp_path,
        "train",
        "--graph",
        "graph.json",
        "--data",
        "safetensors:data.safetensors",
        "--no-shuffle",
        "--init",
        "initial.safetensors",
        "--ranks",
        1,
        "--batch",
        SAMPLES,
        "--iterations",
        1,
        "--lr",
        LEARNING_RATE,
        "--momentum",
        0,
        "--checkpoint",
        "saved",
    )
    deeppool(tmp_path, "export", "--graph", "graph.json", "--checkpoint", "saved", "-o", "after.safetensors")
    after = safetensors.load_file(tmp_path / "after.safetensors")
    doubles = dict(exact.named_parameters())
    for key, parameter in module.named_parameters():
        ours = ((state[key] - after[key]) / LEARNING_RATE).reshape(parameter.shape)
        wanted = doubles[key].grad
        # In single precision, normalization over few samples magnifies rounding, also PyTorch's.
        rounding = (parameter.grad - wanted).abs().max().item()
        bound = 2e-6 * (wanted.abs().max().item() + parameter.detach().abs().max().item()) + 5 * rounding
        assert (ours - wanted).abs().max().item() <= bound, key


def narrow(module, features):
    """Replaces the large classifier of a module by a small one, to save memory."""
    module.classifier = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, 10))
    return module


models = torchvision.models
#: Networks of `NETWORKS` without opaque layers, with small inputs and shallower transformers.
IN_DOUBLE = {
    "alexnet": (lambda: narrow(models.alexnet(), 256 * 6 * 6), lambda: image(64)),
    "vgg16": (lambda: narrow(models.vgg16(), 512 * 7 * 7), lambda: image(32)),
    "resnet50": (lambda: models.resnet50(num_classes=10), lambda: image(64)),
    "resnext50_32x4d": (lambda: models.resnext50_32x4d(num_classes=10), lambda: image(64)),
    "wide_resnet50_2": (lambda: models.wide_resnet50_2(num_classes=10), lambda: image(64)),
    "densenet121": (lambda: models.densenet121(num_classes=10), lambda: image(64)),
    "inception_v3": (
        lambda: models.inception_v3(num_classes=10, aux_logits=False, init_weights=False),
        lambda: image(96),
    ),
    "googlenet": (
        lambda: models.googlenet(num_classes=10, aux_logits=False, init_weights=False),
        lambda: image(64),
    ),
    "squeezenet1_1": (lambda: models.squeezenet1_1(num_classes=10), lambda: image(64)),
    "mnasnet1_0": (lambda: models.mnasnet1_0(num_classes=10), lambda: image(64)),
    "mobilenet_v2": (lambda: models.mobilenet_v2(num_classes=10), lambda: image(64)),
    "shufflenet_v2_x1_0": (lambda: models.shufflenet_v2_x1_0(num_classes=10), lambda: image(64)),
    "mobilenet_v3_large": (lambda: models.mobilenet_v3_large(num_classes=10), lambda: image(64)),
    "efficientnet_b0": (lambda: models.efficientnet_b0(num_classes=10), lambda: image(64)),
    "efficientnet_v2_s": (lambda: models.efficientnet_v2_s(num_classes=10), lambda: image(64)),
    "regnet_y_400mf": (lambda: models.regnet_y_400mf(num_classes=10), lambda: image(64)),
    "regnet_x_400mf": (lambda: models.regnet_x_400mf(num_classes=10), lambda: image(64)),
    "vit_b_16": (
        lambda: models.VisionTransformer(32, 16, 2, 12, 768, 3072, num_classes=10),
        lambda: image(32),
    ),
    "bert": (lambda: Bert(1000, 10, blocks=2), lambda: tokens(1000, 10)),
    "gpt2": (lambda: GPT2(1000, 64, blocks=2), lambda: tokens(1000, 10)),
    "convnext_tiny": (lambda: models.convnext_tiny(num_classes=10), lambda: image(64)),
    # The mean scores of the pixels.
    "unet": (
        lambda: nn.Sequential(UNet(4, 2, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        lambda: image(16),
    ),
    "lstm": (lambda: LanguageModel(50, 12, 0.0), lambda: tokens(50, 9)),
}
QUICK = ["squeezenet1_1", "gpt2"]


def test_double_precision_covers_all_networks_without_opaque_layers():
    assert IN_DOUBLE.keys() == {name for name, wanted in NETWORKS.items() if not wanted.opaque}


@pytest.mark.parametrize("name", IN_DOUBLE if os.environ.get("DEEPPOOL_NETWORKS") == "all" else QUICK)
def test_gradients_in_double_precision_match_pytorch(name):
    torch.manual_seed(0)
    make, example = IN_DOUBLE[name]
    module = make()
    for part in module.modules():
        if isinstance(part, nn.Dropout | StochasticDepth):
            part.p = 0.0
    before = copy.deepcopy(module.state_dict())
    traced = trace(module, example())
    inputs = example()
    *positions, classes = traced.islands[traced.output].output_shape
    check = check_gradients(traced, inputs, torch.randint(0, classes, (len(inputs), *positions)))
    assert check.gradients.keys() == check.engine_gradients.keys() == dict(module.named_parameters()).keys()
    assert check.largest_difference <= 1e-7, str(check)
    for parameter, gradient in check.gradients.items():
        assert float((gradient - check.engine_gradients[parameter]).abs().max()) <= 1e-7, parameter
        assert torch.isfinite(gradient).all()
    assert max(float(gradient.abs().max()) for gradient in check.gradients.values()) > 1e-3
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_gradient_check_detects_a_changed_output():
    module = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3))
    traced = trace(module, torch.randn(2, 4))
    module.register_forward_hook(lambda module, inputs, output: 1.001 * output)
    check = check_gradients(traced, torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0]))
    assert 1e-5 < check.largest_difference < 1
    assert "differ by at most" in str(check)


@pytest.mark.parametrize(
    ("module", "targets", "message"),
    [
        (nn.Sequential(nn.Linear(4, 6), nn.ELU(), nn.Linear(6, 3)), [0, 1], "cannot run layer `1`"),
        (nn.Sequential(nn.Linear(4, 3)), [0, 7], "label 7 is not one"),
        (nn.Linear(4, 3), [0, 1], "none called `linear.weight`"),
        (nn.Sequential(nn.Linear(4, 3)), [0], "whole samples and their labels"),
    ],
)
def test_gradient_check_of_unsupported_module_raises(module, targets, message):
    traced = trace(module, torch.randn(2, 4))
    with pytest.raises(InputError, match=message):
        check_gradients(traced, torch.randn(2, 4), torch.tensor(targets))
