"""Random small modules with losses, batches and changes between iterations."""

import functools
import random

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 4


class Chain(nn.Module):
    """Parts one after another. Parts may be repeated."""

    def __init__(self, parts, order):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.order = order

    def forward(self, x):
        for index in self.order:
            x = self.parts[index](x)
        return x


class Residual(nn.Module):
    def __init__(self, inner, times):
        super().__init__()
        self.inner, self.times = inner, times

    def forward(self, x):
        for _ in range(self.times):
            x = x + 0.5 * self.inner(x)
        return x


class Scaled(nn.Module):
    """Reads attributes, a buffer, and its mode if `by_mode`. With a child, it is no leaf."""

    def __init__(self, features, is_leaf, by_mode):
        super().__init__()
        self.alpha, self.by_mode = 0.7, by_mode
        self.options = {"shift": 0.1}
        self.register_buffer("scale", torch.linspace(0.5, 1.5, features))
        if not is_leaf:
            self.inner = nn.Linear(features, features)

    def forward(self, x):
        if hasattr(self, "inner"):
            x = torch.tanh(self.inner(x))
        if self.by_mode:
            x = x * (2.0 if self.training else 1.0)
        return x * self.alpha * self.scale + self.options["shift"]


class Counting(nn.Module):
    """Changes a buffer in each forward pass."""

    def __init__(self, features, kind):
        super().__init__()
        self.kind, self.inner = kind, nn.Linear(features, features)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(features))

    def forward(self, x):
        if self.kind == "count":
            self.count += 1
        elif self.kind == "mean":
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        elif self.kind == "assigned":
            self.mean = self.mean * 0.5 + 0.5
        return self.inner(x) + self.mean


class OwnNorm(nn.Module):
    """Calls `F.batch_norm` itself."""

    def __init__(self, features):
        super().__init__()
        self.norm, self.act = nn.BatchNorm1d(features), nn.Tanh()

    def forward(self, x):
        norm = self.norm
        if self.training:
            norm.num_batches_tracked.add_(1)
        x = F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, self.training, 0.2)
        return self.act(x)


class AlwaysFrozen(nn.BatchNorm1d):
    def train(self, mode=True):
        return super().train(False)


class Tied(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first, self.second = nn.Linear(features, features), nn.Linear(features, features)
        self.second.weight, self.second.bias = self.first.weight, self.first.bias

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Embedded(nn.Module):
    def __init__(self, features, options):
        super().__init__()
        self.table, self.features = nn.Embedding(11, features, **options), features

    def forward(self, x):
        return self.table(x).mean(1)


class Repeated(nn.Module):
    """A batch normalization that is called twice."""

    def __init__(self, features):
        super().__init__()
        self.inner, self.norm = nn.Linear(features, features), nn.BatchNorm1d(features)

    def forward(self, x):
        return self.norm(torch.tanh(self.inner(self.norm(x))))


def part(draw, features):
    kinds = [
        lambda: nn.Linear(features, features),
        lambda: nn.Sequential(nn.Linear(features, features), draw.choice([nn.Tanh, nn.GELU, nn.SiLU])()),
        lambda: nn.ReLU(inplace=draw.random() < 0.5),
        lambda: nn.LayerNorm(features),
        lambda: nn.BatchNorm1d(features, momentum=draw.choice([0.1, 0.5])),
        lambda: nn.BatchNorm1d(features).eval(),
        lambda: nn.BatchNorm1d(features, affine=False),
        lambda: nn.BatchNorm1d(features, track_running_stats=False),
        lambda: AlwaysFrozen(features),
        lambda: OwnNorm(features),
        lambda: Repeated(features),
        lambda: Residual(nn.Linear(features, features), draw.randint(1, 3)),
        lambda: Residual(nn.Sequential(nn.BatchNorm1d(features), nn.Tanh()), draw.randint(1, 2)),
        lambda: Scaled(features, draw.random() < 0.5, draw.random() < 0.4),
        lambda: Counting(features, draw.choice(["count", "mean", "assigned", "none"])),
        lambda: Tied(features),
        lambda: nn.Dropout(0.0),
    ]
    weights = [3, 4, 2, 2, 5, 3, 1, 1, 2, 2, 1, 3, 1, 3, 1, 2, 1]
    return draw.choices(kinds, weights)[0]()


def module_of(draw, takes_tokens):
    features = draw.choice([4, 6])
    parts = []
    if takes_tokens:
        options = draw.choice(
            [{}, {}, {"padding_idx": 0}, {"max_norm": 0.5}, {"scale_grad_by_freq": True}, {"sparse": True}]
        )
        parts.append(Embedded(features, options))
    else:
        parts.append(nn.Linear(5, features))
    parts += [part(draw, features) for _ in range(draw.randint(1, 4))]
    order = list(range(len(parts)))
    repeated = [index for index in order[1:] if not isinstance(parts[index], nn.ReLU)]
    if draw.random() < 0.15 and repeated:
        order.append(draw.choice(repeated))
    parts.append(nn.Linear(features, CLASSES))
    order.append(len(parts) - 1)
    return Chain(parts, order)


def contrastive(output, targets):
    return F.cross_entropy(output @ output.T, torch.arange(len(output)))


def dice(output, targets):
    chosen = (targets == 1).to(output.dtype)
    scores = output.softmax(1)[:, 1]
    return 1 - 2 * (scores * chosen).sum() / (scores.sum() + chosen.sum() + 1e-3)


def masked(output, targets):
    valid = targets >= 0
    return F.cross_entropy(output[valid], targets[valid], reduction="sum") / valid.sum()


def sum_of_losses(output, targets):
    return F.cross_entropy(output, targets, reduction="sum")


def smooth(output, targets):
    return F.cross_entropy(output, targets, label_smoothing=0.1)


class LogProbabilities(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x).log_softmax(1)


def loss_of(draw):
    """Returns the kind of targets, the loss, and whether its output is log-probabilities."""
    weight = torch.tensor([0.2, 1.0, 3.0, 0.7], dtype=torch.float64)
    return draw.choice(
        [
            ("labels", None),
            ("ignored", None),
            ("soft", None),
            ("ignored", nn.CrossEntropyLoss(weight=weight)),
            ("labels", nn.CrossEntropyLoss(ignore_index=draw.randrange(CLASSES))),
            ("ignored", nn.CrossEntropyLoss(weight=weight, label_smoothing=0.2)),
            ("soft", nn.CrossEntropyLoss(weight=weight, label_smoothing=0.2)),
            ("labels", functools.partial(F.cross_entropy, weight=weight, ignore_index=2)),
            ("ignored", nn.NLLLoss(weight=weight)),
            ("values", nn.MSELoss()),
            ("values", nn.SmoothL1Loss(beta=0.5)),
            ("values", nn.HuberLoss()),
            ("values", F.l1_loss),
            ("soft", nn.BCEWithLogitsLoss(pos_weight=weight)),
            ("labels", nn.MultiMarginLoss()),
            ("soft", nn.KLDivLoss(reduction="batchmean")),
            ("labels", smooth),
            ("ignored", smooth),
            ("labels", contrastive),
            ("labels", dice),
            ("ignored", masked),
            ("labels", sum_of_losses),
        ]
    )


def targets_of(kind, samples, generator):
    if kind == "values":
        return torch.randn(samples, CLASSES, generator=generator, dtype=torch.float64)
    if kind == "soft":
        return torch.randn(samples, CLASSES, generator=generator, dtype=torch.float64).softmax(1)
    labels = torch.randint(CLASSES, (samples,), generator=generator)
    if kind == "ignored":
        labels[torch.rand(samples, generator=generator) < 0.3] = -100
        labels[0] = 1
    return labels


def change_of(draw, module):
    """Returns the path of a submodule and a function that changes it, or `None`."""
    paths = [path for path, one in module.named_modules() if path]
    path = draw.choice(paths)
    kinds = [
        lambda one: one.requires_grad_(not all(p.requires_grad for p in one.parameters())),
        lambda one: one.requires_grad_(False),
        lambda one: one.train(not one.training),
        lambda one: one.eval(),
        lambda one: [buffer.mul_(1.5) for buffer in one.buffers() if buffer.is_floating_point()],
        change_attributes,
        change_attributes,
        change_attributes,
    ]
    return path, draw.choice(kinds)


def change_attributes(one):
    for name, value in list(vars(one).items()):
        if type(value) is float and name not in ("p",):
            setattr(one, name, value * 0.5)
        if name == "options":
            value["shift"] = 0.4
        if name == "by_mode":
            one.by_mode = not value


class Case:
    """A random module with its training. It is the same for each call with a seed."""

    def __init__(self, seed):
        draw = self.draw = random.Random(seed)
        torch.manual_seed(seed)
        self.takes_tokens = draw.random() < 0.25
        self.batch = draw.randint(4, 9)
        module = module_of(draw, self.takes_tokens)
        self.kind, self.loss = loss_of(draw)
        if isinstance(self.loss, nn.NLLLoss | nn.KLDivLoss):
            module = LogProbabilities(module)
        self.module = module.double()
        parts = [one for path, one in module.named_modules() if path]
        if draw.random() < 0.4:
            draw.choice(parts).requires_grad_(False)
        #: Changes before iterations, by iteration.
        self.changes = {
            draw.randint(1, 4): change_of(draw, module) for _ in range(draw.choice([0, 0, 1, 1, 2]))
        }
        generator = torch.Generator().manual_seed(seed)
        self.batches = [
            (self._inputs(generator), targets_of(self.kind, self.batch, generator)) for _ in range(5)
        ]

    def _inputs(self, generator):
        if self.takes_tokens:
            return torch.randint(11, (self.batch, 3), generator=generator)
        return torch.randn(self.batch, 5, generator=generator, dtype=torch.float64)

    def criterion(self, output, targets):
        return F.cross_entropy(output, targets) if self.loss is None else self.loss(output, targets)

    def change(self, module, iteration):
        if iteration in self.changes:
            path, change = self.changes[iteration]
            with torch.no_grad():
                change(module.get_submodule(path))
        return iteration in self.changes

    def __str__(self):
        changes = {i: (path, getattr(change, "__name__", "")) for i, (path, change) in self.changes.items()}
        return f"{self.module}\nloss {self.loss} of {self.kind}, batch {self.batch}, changes {changes}"
