"""Networks of the comparison as PyTorch modules with deeppool's parameter names, and their data."""

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
# Seed of dropout.
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
        """Drops the same elements as deeppool. They depend only on seed, iteration, layer and sample."""
        drawn = uniform(SEED, "dropout", self.iteration, "dropout", *x.shape)
        self.iteration += 1
        return x * torch.from_numpy(drawn >= probability) / (1 - probability)


class Vgg11Cifar(nn.Module):
    """VGG-11 for CIFAR-10: torchvision's convolutions and one linear layer, without dropout."""

    def __init__(self):
        super().__init__()
        self.features = torchvision.models.vgg11(weights=None).features
        self.classifier = nn.Linear(512, 10)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def resnet18_cifar():
    """ResNet-18 with 10 classes, for images of 3x32x32."""
    return torchvision.models.resnet18(num_classes=10)


@dataclass
class Network:
    """A network with its training settings."""

    make: Callable[[], nn.Module]
    sample_shape: tuple[int, ...]
    batch: int
    lr: float
    # Name in `deeppool models`; `None` for export as an ONNX file.
    model: str | None = None
    momentum: float = 0.9

    def arguments(self, folder):
        """Returns deeppool's options for this network. May write an ONNX file to the folder."""
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
        """Writes deterministic, learnable samples as a data set of deeppool. It tests on the first batch."""
        if self.model == "digits-cnn":
            inputs, labels = digits()
        else:
            # Each class has a different mean.
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
    "resnet-18-cifar": Network(resnet18_cifar, (3, 32, 32), batch=128, lr=0.001),
    "resnet-18": Network(torchvision.models.resnet18, (3, 224, 224), batch=8, lr=0.0001, model="resnet-18"),
    "resnet-50": Network(torchvision.models.resnet50, (3, 224, 224), batch=16, lr=0.0001, model="resnet-50"),
    "vit-b-16": Network(torchvision.models.vit_b_16, (3, 224, 224), batch=16, lr=0.0001, model="vit-b-16"),
}
# Networks that train fast enough on the CPU.
ON_CPU = ["digits-cnn", "vgg11-cifar", "resnet-18"]
# Networks whose iterations on a GPU are compared. The dropout of `digits-cnn` is drawn on the CPU.
ON_GPU = ["vgg11-cifar", "resnet-18-cifar", "resnet-18", "resnet-50", "vit-b-16"]


def read_data(path):
    """Reads the training samples of a file written by `Network.write_data`."""
    tensors = load_file(path)
    return tensors["train.inputs"], tensors["train.labels"]


def digits():
    """Reads the training part of deeppool's digits."""
    rows = [
        [int(field) for field in line.split(",")]
        for line in gzip.decompress(DIGITS.read_bytes()).decode().split()
    ]
    rows = torch.tensor([row for index, row in enumerate(rows) if index % 5 != 0])
    return ((rows[:, :-1] / 16 - 0.305215) / 0.376322).reshape(-1, 1, 8, 8), rows[:, -1]
