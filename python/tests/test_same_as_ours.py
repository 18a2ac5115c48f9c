"""Losses of `BurstParallel` against those of `deeppool train` by the same plan."""

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from command import deeppool, needs_command  # noqa: E402
from ranks import on_ranks  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deeppool.torch import BurstParallel  # noqa: E402
from deeppool.tracing import trace  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/pytorch"))
import networks  # noqa: E402  (data and settings of the comparison)

WORLD, ITERATIONS = 4, 50
#: Split and number of parts of layers of `digits-cnn`.
SPLITS = {
    "conv2_3x3": ("features", 2),
    "conv3": ("inputs", 2),
    "fc1": ("features", 4),
    "dropout": ("features", 4),
    "fc2": ("inputs", 4),
}


class DigitsCnn(nn.Module):
    """`digits-cnn` of `deeppool models` in PyTorch."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2_3x3 = nn.Conv2d(16, 24, 3, padding=1)
        self.conv2_1x1 = nn.Conv2d(16, 8, 1)
        self.conv3 = nn.Conv2d(32, 32, 3, padding=1)
        self.fc1 = nn.Linear(512, 64)
        self.dropout = nn.Dropout(0.2)
        self.fc2 = nn.Linear(64, 10)
        self.gelu = nn.GELU(approximate="tanh")

    def forward(self, x):
        x = self.gelu(self.conv1(x))
        x = torch.cat([self.gelu(self.conv2_3x3(x)), self.gelu(self.conv2_1x1(x))], dim=1)
        x = self.gelu(self.conv3(F.avg_pool2d(x, 2)))
        return self.fc2(self.dropout(self.gelu(self.fc1(x.flatten(1)))))


def train(folder):
    """Trains by the command's plan. Its layers are the module's layers in the same order."""
    module = DigitsCnn()
    module.load_state_dict(safetensors.load_file(folder / "initial.safetensors"), strict=True)
    inputs, labels = networks.read_data(folder / "data.safetensors")
    network = networks.NETWORKS["digits-cnn"]
    traced = trace(module, inputs[:2])
    plan = json.loads((folder / "plan.json").read_text())
    names = dict(
        zip((layer["name"] for layer in plan["layers"]), (layer.name for layer in traced.layers), strict=True)
    )
    for layer in plan["layers"]:
        layer["name"] = names[layer["name"]]
    if "order" in plan:
        plan["order"] = [names[name] for name in plan["order"]]
    model = BurstParallel(traced, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=network.lr, momentum=network.momentum)
    losses = []
    for iteration in range(ITERATIONS):
        samples = slice(iteration * network.batch, (iteration + 1) * network.batch)
        optimizer.zero_grad()
        loss = model(inputs[samples], labels[samples])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@needs_command
@pytest.mark.parametrize(
    ("mode", "splits"), [(["--amplification", "2"], {}), (["--mode", "dp"], {}), (["--mode", "dp"], SPLITS)]
)
def test_losses_of_digits_cnn_match_deeppool_train(mode, splits, tmp_path):
    network = networks.NETWORKS["digits-cnn"]
    network.write_data(ITERATIONS, tmp_path / "data.safetensors")
    deeppool(tmp_path, "export", "--model", "digits-cnn", "-o", "initial.safetensors")
    deeppool(
        tmp_path,
        "plan",
        "--model",
        "digits-cnn",
        "--device",
        "cpu-core",
        "--gpus",
        WORLD,
        "--batch",
        network.batch,
        *mode,
        "-o",
        "plan.json",
    )
    plan = json.loads((tmp_path / "plan.json").read_text())
    for layer in plan["layers"]:
        if layer["name"] in splits:
            split, parts = splits[layer["name"]]
            layer["division"] = {"split": split, "parts": parts}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    report = json.loads(
        deeppool(
            tmp_path,
            "train",
            "--model",
            "digits-cnn",
            "--data",
            "safetensors:data.safetensors",
            "--no-shuffle",
            "--init",
            "initial.safetensors",
            "--plan",
            "plan.json",
            "--lr",
            network.lr,
            "--momentum",
            network.momentum,
            "--iterations",
            ITERATIONS,
            "--json",
        )
    )
    assert len(report["losses"]) == ITERATIONS
    for losses in on_ranks(WORLD, train, tmp_path):
        worst = max(abs(ours - theirs) for ours, theirs in zip(losses, report["losses"], strict=True))
        assert worst < 1e-4, f"losses differ by {worst}"
