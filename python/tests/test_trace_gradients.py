"""What our own engine learns from a batch is what PyTorch does, of networks that were traced."""

import copy
import os
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
safetensors = pytest.importorskip("safetensors.torch")

from torch.nn import functional as F  # noqa: E402
from traced_networks import SMALL  # noqa: E402

from deeppool.tracing import trace  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("DEEPPOOL_BIN", ROOT / "target/debug/deeppool"))
#: Those of `SMALL` that have no opaque layer, and no dropout.
TRAINED = ["resnet18", "vit", "bert", "gpt2"]
SAMPLES, LEARNING_RATE = 4, 1.0


def deeppool(folder, *arguments):
    result = subprocess.run([str(BIN), *map(str, arguments)], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(not BIN.exists(), reason=f"SKIPPED: there is no {BIN.name}: cargo build -p deeppool, or DEEPPOOL_BIN=PATH")
@pytest.mark.parametrize("name", TRAINED)
def test_a_traced_network_has_pytorchs_gradients(name, tmp_path):
    torch.manual_seed(0)
    module = SMALL[name].make()
    example = torch.cat([SMALL[name].example(), SMALL[name].example()])[:SAMPLES]
    traced = trace(module, example)
    assert not traced.opaque
    traced.network.save(tmp_path / "graph.json")
    # Where our layer is a table of positions, its first dimension is for the samples.
    shapes = {
        layer.name: layer.parameters[0].shape for layer in traced.network.layers if layer.kind == "position_embedding"
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
    data = {f"{part}.{what}": tensor.clone() for part in ("train", "test") for what, tensor in
            {"inputs": example, "labels": labels}.items()}
    safetensors.save_file(data, tmp_path / "data.safetensors")
    safetensors.save_file(state, tmp_path / "initial.safetensors")
    deeppool(
        tmp_path, "train", "--graph", "graph.json", "--data", "safetensors:data.safetensors", "--no-shuffle", "--init",
        "initial.safetensors", "--ranks", 1, "--batch", SAMPLES, "--iterations", 1, "--lr", LEARNING_RATE, "--momentum", 0,
        "--checkpoint", "saved",
    )
    deeppool(tmp_path, "export", "--graph", "graph.json", "--checkpoint", "saved", "-o", "after.safetensors")
    after = safetensors.load_file(tmp_path / "after.safetensors")
    doubles = dict(exact.named_parameters())
    for key, parameter in module.named_parameters():
        ours = ((state[key] - after[key]) / LEARNING_RATE).reshape(parameter.shape)
        wanted = doubles[key].grad
        # Single precision, in which a normalisation over few samples magnifies rounding: PyTorch's own, too.
        rounding = (parameter.grad - wanted).abs().max().item()
        bound = 2e-6 * (wanted.abs().max().item() + parameter.detach().abs().max().item()) + 5 * rounding
        assert (ours - wanted).abs().max().item() <= bound, key
