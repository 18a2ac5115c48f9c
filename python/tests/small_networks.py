"""Small modules for training tests, and a reference implementation of their dropout."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/pytorch"))
import chacha  # noqa: E402  (ChaCha in numpy)


class Skips(nn.Module):
    """A residual network with batch normalization and in-place activations."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        )
        self.conv1 = nn.Conv2d(8, 12, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(12)
        self.down = nn.Sequential(nn.Conv2d(8, 12, 1, stride=2), nn.BatchNorm2d(12))
        self.act = nn.ELU(inplace=True)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.dropout = nn.Dropout(0.3)
        self.fc = nn.Linear(48, 5)

    def forward(self, x):
        x = self.stem(x)
        x = self.act(self.bn1(self.conv1(x)) + self.down(x))
        return self.fc(self.dropout(torch.flatten(self.pool(x), 1)))


class Answer(nn.Module):
    """Answers to questions on images: a network of two inputs."""

    def __init__(self):
        super().__init__()
        self.conv, self.seen = nn.Conv2d(2, 8, 3, padding=1), nn.Linear(8 * 16, 8)
        self.words, self.norm, self.asked = nn.Embedding(20, 8), nn.LayerNorm(8), nn.Linear(8 * 6, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, image, question):
        seen = self.seen(F.relu(self.conv(image)).flatten(1))
        return self.head(seen * self.asked(self.norm(self.words(question)).flatten(1)))


class Branches(nn.Module):
    """Four branches, as in Inception."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.one = nn.Conv2d(6, 4, 1)
        self.three = nn.Sequential(nn.Conv2d(6, 4, 1), nn.GELU(), nn.Conv2d(4, 6, 3, padding=1))
        self.five = nn.Sequential(nn.Conv2d(6, 4, 1), nn.GELU(), nn.Conv2d(4, 4, 5, padding=2))
        self.pooled = nn.Conv2d(6, 3, 1)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(17, 5)

    def forward(self, x):
        x = F.gelu(self.stem(x))
        pooled = F.avg_pool2d(x, 3, stride=1, padding=1)
        x = torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(pooled)], 1)
        return self.fc(self.dropout(F.gelu(x).mean((2, 3))))


class Resampled(nn.Module):
    """Dilated, transposed and 1-d convolutions, with padding and group normalization."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm1 = nn.Conv2d(3, 8, 3, padding=2, dilation=2, bias=False), nn.GroupNorm(4, 8)
        self.up = nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.out, self.norm2 = nn.ConvTranspose2d(6, 4, 2), nn.GroupNorm(2, 4)
        self.signal = nn.Conv1d(4, 8, 3, stride=4, groups=2)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = F.leaky_relu(self.norm1(self.conv(F.pad(x, [0, 1, 1, 0]))), 0.2)
        x = F.interpolate(self.norm2(self.out(self.up(x))), scale_factor=2)
        return self.fc(F.gelu(self.signal(x.flatten(2))).unsqueeze(2).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, features, heads, dropout):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.qkv, self.proj = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.fc1, self.fc2 = nn.Linear(features, 2 * features), nn.Linear(2 * features, features)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", None, persistent=False)

    def forward(self, x):
        n, length, features = x.shape
        q, k, v = (
            part.view(n, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, self.mask, is_causal=self.mask is None)
        x = x + self.proj(attended.transpose(1, 2).reshape(n, length, features))
        return x + self.dropout(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class Transformer(nn.Module):
    """A small language model. If tied, the head shares the embedding's weight."""

    def __init__(self, tied=False, dropout=0.1):
        super().__init__()
        self.tokens = nn.Embedding(17, 8)
        self.positions = nn.Parameter(0.1 * torch.randn(1, 6, 8))
        self.blocks = nn.Sequential(Block(8, 2, dropout), Block(8, 2, dropout))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 17, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions)))


def tied_transformer():
    return Transformer(tied=True)


class Conv1D(nn.Linear):
    """The linear layer of Hugging Face's GPT-2: on flattened rows, with a transposed weight."""

    def __init__(self, inputs, outputs):
        super().__init__(outputs, inputs)
        self.bias = nn.Parameter(0.1 * torch.randn(outputs))

    def forward(self, x):
        rows = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
        return rows.view(*x.shape[:-1], -1)


class Rows(Transformer):
    """A transformer with views of tokens and rows, whose sizes are in the trace.

    Its attentions have linear biases and a window.
    """

    def __init__(self):
        super().__init__()
        self.head = Conv1D(8, 17)
        for block in self.blocks:
            block.fc1, block.fc2 = Conv1D(8, 16), Conv1D(16, 8)
            distances = torch.arange(6)[:, None] - torch.arange(6)
            mask = torch.tensor([2**-4, 2**-8])[:, None, None] * -distances
            block.mask = mask.masked_fill((distances < 0) | (distances >= 4), -torch.inf)

    def forward(self, tokens):
        return super().forward(tokens.view(-1, tokens.shape[-1]))


class Experts(nn.Module):
    """Four experts, of which a router chooses two for each position."""

    def __init__(self, features, width):
        super().__init__()
        self.router = nn.Linear(features, 4, bias=False)
        self.gate_up_proj = nn.Parameter(0.5 * torch.randn(4, 2 * width, features))
        self.down_proj = nn.Parameter(0.5 * torch.randn(4, features, width))

    def forward(self, x):
        scores = self.router(x)
        weights, chosen = scores.topk(2)
        shares = torch.zeros_like(scores).scatter(-1, chosen, weights.softmax(-1))
        gate, up = torch.einsum("npf,ehf->nphe", x, self.gate_up_proj).chunk(2, 2)
        return torch.einsum("nphe,efh,npe->npf", F.silu(gate) * up, self.down_proj, shares)


class Mixture(Transformer):
    """A transformer with a mixture of experts."""

    def __init__(self):
        super().__init__()
        self.experts = Experts(8, 6)

    def forward(self, tokens):
        x = self.blocks(self.tokens(tokens) + self.positions)
        return self.head(self.norm(x + self.experts(x)))


class Counted(nn.Module):
    """Positions that count the tokens other than padding, as in RoBERTa."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(9, 6, padding_idx=1), nn.Embedding(12, 6, padding_idx=1)
        self.head = nn.Linear(6, 5)

    def forward(self, tokens):
        is_token = (tokens != 1).int()
        positions = is_token.cumsum(1) * is_token + 1
        return self.head(self.tokens(tokens) + self.positions(positions))


NETWORKS = {
    "skips": Skips,
    "branches": Branches,
    "resampled": Resampled,
    "transformer": Transformer,
    "tied": tied_transformer,
    "rows": Rows,
    "mixture": Mixture,
}


def make(name, dtype=torch.float64):
    torch.manual_seed(1)
    return NETWORKS[name]().to(dtype).train()


def batches(name, batch, count, dtype=torch.float64):
    """Yields global batches, the same on each rank."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(count):
        if name in ("transformer", "tied", "rows", "mixture"):
            tokens = torch.randint(17, (batch, 7), generator=generator)
            yield tokens[:, :-1], tokens[:, 1:]
        else:
            yield (
                torch.randn(batch, 3, 6, 6, generator=generator, dtype=torch.float64).to(dtype),
                torch.randint(5, (batch,), generator=generator),
            )


class SampledDropout(nn.Module):
    """Dropout whose mask depends only on the seed, iteration, layer and sample."""

    def __init__(self, name, probability, seed=0):
        super().__init__()
        self.name, self.probability, self.seed, self.iteration = name, probability, seed, 0

    def forward(self, x):
        drawn = chacha.uniform(self.seed, "dropout", self.iteration, self.name, len(x), x[0].numel())
        self.iteration += 1
        return x * torch.from_numpy(drawn >= self.probability).view(x.shape) / (1 - self.probability)


def with_sampled_dropout(module):
    """Replaces each dropout of a module, and returns it."""
    for path, part in list(module.named_modules()):
        if isinstance(part, nn.Dropout):
            parent, _, name = path.rpartition(".")
            setattr(module.get_submodule(parent), name, SampledDropout(path, part.p))
    return module


def steps(loss_of, optimizer, samples):
    """Makes a step of an optimizer for each batch of inputs and targets, and returns the losses."""
    losses = []
    for inputs, targets in samples:
        optimizer.zero_grad()
        loss = loss_of(inputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def losses_alone(name, batch, count, dtype=torch.float64):
    """Returns the losses of the module on one process, and its final state."""
    module = with_sampled_dropout(make(name, dtype))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)

    def loss_of(inputs, targets):
        return F.cross_entropy(module(inputs).flatten(0, -2), targets.flatten())

    return steps(loss_of, optimizer, batches(name, batch, count, dtype)), module.state_dict()
