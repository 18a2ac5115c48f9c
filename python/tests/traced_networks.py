"""Networks for tracing tests: torchvision's families and others."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

models = torchvision.models


class Block(nn.Module):
    """GPT-2's block, with the parameter names of Hugging Face's implementation."""

    def __init__(self, features, heads, dropout):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.attn = Attention(features, heads)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(features, 4 * features), "c_proj": nn.Linear(4 * features, features)}
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attn(self.ln_1(x)))
        hidden = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.dropout(self.mlp["c_proj"](hidden))


class Attention(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.heads = heads

    def forward(self, x):
        samples, positions, features = x.shape
        parts = self.c_attn(x).split(features, dim=2)
        q, k, v = (part.view(samples, positions, self.heads, -1).transpose(1, 2) for part in parts)
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(x.transpose(1, 2).contiguous().view(samples, positions, features))


class GPT2(nn.Module):
    """GPT-2. Its head shares the embedding's weight."""

    def __init__(self, vocabulary=50_257, context=1024, features=768, heads=12, blocks=12, dropout=0.1):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, features), nn.Embedding(context, features)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([Block(features, heads, dropout) for _ in range(blocks)])
        self.ln_f = nn.LayerNorm(features)
        self.lm_head = nn.Linear(features, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Bert(nn.Module):
    """A sentence encoder with a classifier of the first token. Token 0 is padding."""

    def __init__(
        self, vocabulary=30_522, positions=128, features=768, heads=12, blocks=12, dropout=0.0, masked=False
    ):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, features)
        self.positions = nn.Parameter(torch.randn(1, positions, features) / 50)
        self.norm = nn.LayerNorm(features)
        layer = nn.TransformerEncoderLayer(
            features, heads, 4 * features, dropout, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)
        self.classifier = nn.Linear(features, 2)
        self.masked = masked

    def forward(self, tokens):
        x = self.norm(self.tokens(tokens) + self.positions)
        padding = tokens == 0 if self.masked else None
        return self.classifier(self.encoder(x, src_key_padding_mask=padding)[:, 0])


class UNet(nn.Module):
    """U-Net, a classifier of pixels."""

    def __init__(self, channels=64, depth=4, classes=2):
        super().__init__()
        widths = [channels << level for level in range(depth + 1)]
        self.down = nn.ModuleList(self.twice(a, b) for a, b in zip([3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, stride=2) for width in widths[:-1])
        self.merge = nn.ModuleList(self.twice(2 * width, width) for width in widths[:-1])
        self.head = nn.Conv2d(channels, classes, 1)

    @staticmethod
    def twice(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        skips = []
        for level, part in enumerate(self.down):
            x = part(F.max_pool2d(x, 2) if level else x)
            skips.append(x)
        for up, merge, skip in reversed(list(zip(self.up, self.merge, skips))):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.head(x)


class LanguageModel(nn.Module):
    """A language model with two LSTM layers."""

    def __init__(self, vocabulary=10_000, features=650, dropout=0.5):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, features)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(features, features, 2, batch_first=True, dropout=dropout)
        self.decoder = nn.Linear(features, vocabulary)

    def forward(self, tokens):
        x, _ = self.lstm(self.dropout(self.embedding(tokens)))
        return self.decoder(self.dropout(x))


def image(size: int = 224) -> torch.Tensor:
    return torch.randn(2, 3, size, size)


def tokens(vocabulary: int, positions: int) -> torch.Tensor:
    return torch.randint(1, vocabulary, (2, positions))


@dataclass
class Traceable:
    make: Callable[[], nn.Module]
    example: Callable[[], torch.Tensor]
    #: Parts of the expected reasons for opaque layers.
    opaque: tuple[str, ...] = ()


NETWORKS = {
    "alexnet": Traceable(models.alexnet, image),
    "vgg16": Traceable(models.vgg16, image),
    "resnet50": Traceable(models.resnet50, image),
    "resnext50_32x4d": Traceable(models.resnext50_32x4d, image),
    "wide_resnet50_2": Traceable(models.wide_resnet50_2, image),
    "densenet121": Traceable(models.densenet121, image),
    "inception_v3": Traceable(
        lambda: models.inception_v3(aux_logits=False, init_weights=False), lambda: image(299)
    ),
    "googlenet": Traceable(lambda: models.googlenet(aux_logits=False, init_weights=False), image),
    "squeezenet1_1": Traceable(models.squeezenet1_1, image),
    "mobilenet_v2": Traceable(models.mobilenet_v2, image),
    "mobilenet_v3_large": Traceable(models.mobilenet_v3_large, image),
    "mnasnet1_0": Traceable(models.mnasnet1_0, image),
    "shufflenet_v2_x1_0": Traceable(models.shufflenet_v2_x1_0, image),
    "efficientnet_b0": Traceable(models.efficientnet_b0, image),
    "efficientnet_v2_s": Traceable(models.efficientnet_v2_s, image),
    "regnet_x_400mf": Traceable(models.regnet_x_400mf, image),
    "regnet_y_400mf": Traceable(models.regnet_y_400mf, image),
    "convnext_tiny": Traceable(models.convnext_tiny, image),
    "vit_b_16": Traceable(models.vit_b_16, image),
    "swin_t": Traceable(
        models.swin_t,
        image,
        ("roll", "slice", "a concatenation", "matmul", "attention of another kind"),
    ),
    "maxvit_t": Traceable(
        models.maxvit_t,
        image,
        ("slice", "einsum", "mul", "a sum with"),
    ),
    "bert": Traceable(Bert, lambda: tokens(30_522, 128)),
    "gpt2": Traceable(GPT2, lambda: tokens(50_257, 1024)),
    "unet": Traceable(UNet, lambda: image(128)),
    "lstm": Traceable(LanguageModel, lambda: tokens(10_000, 35)),
}

#: The same architectures, small enough to compare gradients in double precision.
SMALL = {
    "resnet18": Traceable(lambda: models.resnet18(num_classes=7), lambda: image(32)),
    "densenet": Traceable(
        lambda: models.DenseNet(8, (2, 2), 16, drop_rate=0.2, num_classes=7), lambda: image(32)
    ),
    "mobilenet_v3_small": Traceable(lambda: models.mobilenet_v3_small(num_classes=7), lambda: image(32)),
    "shufflenet_v2_x0_5": Traceable(lambda: models.shufflenet_v2_x0_5(num_classes=7), lambda: image(32)),
    "swin": Traceable(
        lambda: models.SwinTransformer(
            [2, 2], 8, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.2, num_classes=7
        ),
        lambda: image(32),
    ),
    "vit": Traceable(lambda: models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=7), lambda: image(32)),
    "bert": Traceable(lambda: Bert(31, 10, 16, 2, 2), lambda: tokens(31, 10)),
    "bert, padding masked": Traceable(lambda: Bert(31, 10, 16, 2, 2, masked=True), lambda: tokens(31, 10)),
    "gpt2": Traceable(lambda: GPT2(31, 16, 16, 2, 2, dropout=0.0), lambda: tokens(31, 10)),
    "gpt2, dropout": Traceable(lambda: GPT2(31, 16, 16, 2, 1), lambda: tokens(31, 10)),
    "unet": Traceable(lambda: UNet(4, 2), lambda: image(16)),
    "lstm": Traceable(lambda: LanguageModel(11, 8, 0.0), lambda: tokens(11, 5)),
}
