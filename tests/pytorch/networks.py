"""The networks of the comparison as PyTorch modules, with the names of ours, and what they are trained on."""

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import torch
import torchvision
from chacha import uniform
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

DIGITS = Path(__file__).resolve().parent.parent.parent / "crates/deeppool/data/digits.csv.gz"
# What is drawn for dropout depends on it.
SEED = 0


class DigitsCnn(nn.Module):
    """`digits-cnn` of `deeppool models`."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2_3x3 = nn.Conv2d(16, 24, 3, padding=1)
        self.conv2_1x1 = nn.Conv2d(16, 8, 1)
        self.conv3 = nn.Conv2d(32, 32, 3, padding=1)
        self.fc1 = nn.Linear(512, 64)
        self.fc2 = nn.Linear(64, 10)
        self.iteration = 0

    def forward(self, x):
        def gelu(x):
            return F.gelu(x, approximate="tanh")

        x = gelu(self.conv1(x))
        x = torch.cat([gelu(self.conv2_3x3(x)), gelu(self.conv2_1x1(x))], dim=1)
        x = gelu(self.conv3(F.avg_pool2d(x, 2)))
        return self.fc2(self.dropout(gelu(self.fc1(x.flatten(1)))))

    def dropout(self, x, probability=0.2):
        """Drops the elements that ours drops: they depend on seed, iteration, layer and sample alone."""
        drawn = uniform(SEED, "dropout", self.iteration, "dropout", *x.shape)
        self.iteration += 1
        return x * torch.from_numpy(drawn >= probability) / (1 - probability)


class Vgg11Cifar(nn.Module):
    """VGG-11 for images of 3x32x32 and ten classes: torchvision's convolutions and one linear layer, without dropout."""

    def __init__(self):
        super().__init__()
        self.features = torchvision.models.vgg11(weights=None).features
        self.classifier = nn.Linear(512, 10)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


@dataclass
class Network:
    """A network that both know, and how it is trained."""

    make: Callable[[], nn.Module]
    sample_shape: tuple[int, ...]
    batch: int
    lr: float
    # What `deeppool models` calls it; without a name it is handed over as an ONNX file.
    model: str | None = None
    momentum: float = 0.9

    def arguments(self, folder):
        """The options of deeppool that name it."""
        if self.model:
            return ["--model", self.model]
        path = folder / "network.onnx"
        torch.onnx.export(
            self.make().train(),
            torch.randn(2, *self.sample_shape),
            path,
            dynamo=False,
            training=torch.onnx.TrainingMode.TRAINING,
            do_constant_folding=False,
            input_names=["x"],
            dynamic_axes={"x": {0: "batch"}},
        )
        return ["--onnx", path]

    def write_data(self, batches, path):
        """Learnable samples, the same at each call, as a data set of deeppool. The first batch is what is held out."""
        if self.model == "digits-cnn":
            inputs, labels = digits()
        else:
            # Each class has a mean of its own.
            generator = torch.Generator().manual_seed(1)
            labels = torch.randint(10, (batches * self.batch,), generator=generator)
            means = torch.randn(10, *self.sample_shape, generator=generator)
            inputs = (
                means[labels] + torch.randn(len(labels), *self.sample_shape, generator=generator)
            ) * 0.5**0.5
        parts = {"train": batches * self.batch, "test": self.batch}
        tensors = {"inputs": inputs, "labels": labels}
        save_file(
            {
                f"{part}.{name}": tensor[:count].clone()
                for part, count in parts.items()
                for name, tensor in tensors.items()
            },
            path,
        )


NETWORKS = {
    "digits-cnn": Network(DigitsCnn, (1, 8, 8), batch=28, lr=0.03, model="digits-cnn"),
    "vgg11-cifar": Network(Vgg11Cifar, (3, 32, 32), batch=32, lr=0.0002),
    "resnet-18": Network(torchvision.models.resnet18, (3, 224, 224), batch=8, lr=0.0001, model="resnet-18"),
}


def read_data(path):
    """The training samples of a file of `Network.write_data`."""
    tensors = load_file(path)
    return tensors["train.inputs"], tensors["train.labels"]


def digits():
    """The digits that deeppool ships, but for the held-out ones."""
    rows = [
        [int(field) for field in line.split(",")]
        for line in gzip.decompress(DIGITS.read_bytes()).decode().split()
    ]
    rows = torch.tensor([row for index, row in enumerate(rows) if index % 5 != 0])
    return ((rows[:, :-1] / 16 - 0.305215) / 0.376322).reshape(-1, 1, 8, 8), rows[:, -1]
