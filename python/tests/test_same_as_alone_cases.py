"""Losses, normalizations and changes of modules: trained as alone, or refused with the layer's name."""

import functools

import pytest

torch = pytest.importorskip("torch")

import random_modules  # noqa: E402
from plan_documents import data_parallel, random_plan  # noqa: E402
from ranks import on_ranks  # noqa: E402
from test_same_as_alone import trained_both_ways  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from deeppool.tracing import TraceError, trace  # noqa: E402

WORLD = 2
BATCH = 6
WEIGHT = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 2, 2, 0, 1])
SOME = torch.tensor([-100, -100, 2, -100, 0, 1])
SOFT = torch.tensor([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0], [0.6, 0.1, 0.3]]).double().repeat(2, 1)
VALUES = torch.linspace(-1, 1, 18, dtype=torch.float64).view(6, 3)


class Reversed(torch.autograd.Function):
    """Reverses gradients."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Reverses(nn.Module):
    def forward(self, x):
        return Reversed.apply(x)


class Recurrent(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.lstm = nn.LSTM(4, 5, batch_first=True, **options)
        self.last = nn.Linear(10 if self.lstm.bidirectional else 5, 3)

    def forward(self, x):
        return self.last(self.lstm(x)[0][:, -1])


class ReadsChild(nn.Module):
    """Reads an attribute that it added to its child."""

    def __init__(self):
        super().__init__()
        self.child = nn.Linear(4, 4)
        self.child.gain = 1.0

    def forward(self, x):
        return self.child(x) * self.child.gain


def vectors():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), (4,)


def positions():
    return nn.Linear(4, 3), (5, 4)


def images():
    return nn.Conv2d(2, 3, 1), (2, 2, 3)


def log_probabilities():
    return nn.Sequential(vectors()[0], nn.LogSoftmax(1)), (4,)


def repeated(labels, *shape):
    """Labels of samples of a shape, some of them ignored."""
    count = BATCH * torch.Size(shape).numel()
    return labels.repeat(-(-count // len(labels)))[:count].view(BATCH, *shape)


class Around(nn.Module):
    """A part between two linear layers."""

    def __init__(self, part, features=4):
        super().__init__()
        self.first, self.part, self.last = nn.Linear(4, features), part, nn.Linear(features, 3)

    def forward(self, x):
        return self.last(self.part(self.first(x)))


class Function(nn.Module):
    """A function of the module and its input, with an attribute, a configuration, and a buffer."""

    def __init__(self, function):
        super().__init__()
        self.inner, self.function = nn.Linear(4, 4), function
        self.alpha, self.probability, self.options = 0.5, 0.0, {"shift": 1.0}
        self.dropout = nn.Dropout(0.0)
        self.register_buffer("scale", torch.linspace(1, 2, 4))

    def forward(self, x):
        return self.function(self, self.inner(x))


def around(part):
    return lambda: (Around(part()), (4,))


def function(called):
    return around(lambda: Function(called))


def frozen_first():
    module, shape = vectors()
    module[0].requires_grad_(False)
    return module, shape


def at(iteration, change):
    """Returns a change before one iteration."""

    def changes(module, current):
        if current == iteration:
            change(module)
        return current == iteration

    return changes


def each(change):
    def changes(module, current):
        change(module, current)
        return True

    return changes


#: Name: module and shape of its samples, loss, targets, change. These are the same as alone.
SAME = {
    "default loss": (vectors, None, LABELS, None),
    "ignored labels": (vectors, None, SOME, None),
    "only ignored labels": (vectors, None, torch.full((6,), -100), None),
    "ignore_index": (vectors, nn.CrossEntropyLoss(ignore_index=0), LABELS, None),
    "class weights": (vectors, nn.CrossEntropyLoss(weight=WEIGHT), SOME, None),
    "label smoothing": (vectors, nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.2), SOME, None),
    "function with options": (
        vectors,
        functools.partial(F.cross_entropy, weight=WEIGHT, ignore_index=1),
        LABELS,
        None,
    ),
    "soft labels": (vectors, None, SOFT, None),
    "soft labels with weights": (
        vectors,
        nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.1),
        SOFT,
        None,
    ),
    "pixels": (images, nn.CrossEntropyLoss(weight=WEIGHT), repeated(SOME, 2, 3), None),
    "soft pixels": (images, None, SOFT[:, :, None, None].repeat(1, 1, 2, 3), None),
    "classes first": (positions, nn.CrossEntropyLoss(), repeated(SOME, 3), None),
    "nll": (log_probabilities, nn.NLLLoss(weight=WEIGHT), SOME, None),
    "mse": (vectors, nn.MSELoss(), VALUES, None),
    "bce": (vectors, nn.BCEWithLogitsLoss(pos_weight=WEIGHT), SOFT, None),
    "divergence": (log_probabilities, nn.KLDivLoss(reduction="batchmean"), SOFT, None),
    "margin": (vectors, nn.MultiMarginLoss(), LABELS, None),
    "own mean": (vectors, lambda o, t: F.cross_entropy(o, t, label_smoothing=0.1), LABELS, None),
    "frozen norm": (around(lambda: nn.BatchNorm1d(4)), None, LABELS, each(lambda m, i: m.part.eval())),
    "norm frozen later": (
        around(lambda: nn.BatchNorm1d(4)),
        None,
        LABELS,
        each(lambda m, i: m.part.train(i < 2)),
    ),
    "norm unfrozen later": (
        around(lambda: nn.BatchNorm1d(4)),
        None,
        LABELS,
        each(lambda m, i: m.part.train(i > 2)),
    ),
    "norm that is always frozen": (around(lambda: random_modules.AlwaysFrozen(4)), None, LABELS, None),
    "momentum": (
        around(lambda: nn.BatchNorm1d(4)),
        None,
        LABELS,
        each(lambda m, i: setattr(m.part, "momentum", 0.1 * (i + 1))),
    ),
    "untracked later": (
        around(lambda: nn.BatchNorm1d(4)),
        None,
        LABELS,
        each(lambda m, i: setattr(m.part, "track_running_stats", i < 2)),
    ),
    "own norm": (around(lambda: random_modules.OwnNorm(4)), None, LABELS, None),
    "own gradient": (around(Reverses), None, LABELS, None),
    "recurrent": (lambda: (Recurrent(), (5, 4)), None, LABELS, None),
    "bidirectional": (lambda: (Recurrent(bidirectional=True), (5, 4)), None, LABELS, None),
    "counter": (around(lambda: random_modules.Counting(4, "count")), None, LABELS, None),
    "unfrozen": (frozen_first, None, LABELS, each(lambda m, i: m[0].requires_grad_(i > 1))),
    "frozen later": (vectors, None, LABELS, each(lambda m, i: m[2].requires_grad_(i < 2))),
    "unread attribute": (
        function(lambda m, x: x * m.scale),
        None,
        LABELS,
        at(2, lambda m: setattr(m.part, "alpha", 2.0)),
    ),
    "buffer": (function(lambda m, x: x * m.scale), None, LABELS, at(2, lambda m: m.part.scale.fill_(3.0))),
    "mode": (function(lambda m, x: x * (2.0 if m.training else 1.0)), None, LABELS, None),
    "leaf attribute": (
        around(lambda: random_modules.Scaled(4, True, False)),
        None,
        LABELS,
        each(lambda m, i: setattr(m.part, "alpha", 0.5 * i)),
    ),
}

#: Name: module, loss, targets, change, and parts of the message of the error.
REFUSED = {
    "contrastive": (vectors, random_modules.contrastive, LABELS, None, ["contrastive", "mean over samples"]),
    "dice": (vectors, random_modules.dice, LABELS, None, ["dice", "mean over samples"]),
    "masked mean": (
        vectors,
        lambda o, t: ((o - t) ** 2 * (t > 0)).sum() / (t > 0).sum(),
        VALUES,
        None,
        ["mean over samples"],
    ),
    "sum": (vectors, nn.CrossEntropyLoss(reduction="sum"), LABELS, None, ["reduction='sum'"]),
    "own sum": (vectors, random_modules.sum_of_losses, LABELS, None, ["mean over samples"]),
    "weights in a function": (
        vectors,
        lambda o, t: F.cross_entropy(o, t, weight=WEIGHT),
        LABELS,
        None,
        ["CrossEntropyLoss(weight="],
    ),
    "random loss": (vectors, lambda o, t: F.cross_entropy(F.dropout(o), t), LABELS, None, ["mean over"]),
    "broadcast targets": (vectors, nn.MSELoss(), VALUES[:, 0], None, ["all samples of the batch"]),
    "targets of another shape": (vectors, None, VALUES[:, :2], None, ["class indices"]),
    "attribute": (
        function(lambda m, x: x * m.alpha),
        None,
        LABELS,
        at(2, lambda m: setattr(m.part, "alpha", 2.0)),
        ["`part`", "`alpha` changed to 2.0", "trace"],
    ),
    "new attribute": (
        function(lambda m, x: x * getattr(m, "beta", 1.0)),
        None,
        LABELS,
        at(1, lambda m: setattr(m.part, "beta", 2.0)),
        ["`part`", "`beta`"],
    ),
    "attribute of a child": (
        around(ReadsChild),
        None,
        LABELS,
        at(1, lambda m: setattr(m.part.child, "gain", 2.0)),
        ["`part.child`", "`gain` changed to 2.0"],
    ),
    "configuration": (
        function(lambda m, x: x + m.options["shift"]),
        None,
        LABELS,
        at(1, lambda m: m.part.options.update(shift=3.0)),
        ["`part`", "`options`"],
    ),
    "probability of a function": (
        function(lambda m, x: F.dropout(x, m.probability)),
        None,
        LABELS,
        at(2, lambda m: setattr(m.part, "probability", 0.5)),
        ["`part`", "`probability` changed to 0.5"],
    ),
    "dropout that was off": (
        function(lambda m, x: m.dropout(x)),
        None,
        LABELS,
        at(2, lambda m: setattr(m.part.dropout, "p", 0.5)),
        ["`part.dropout`", "`p` changed to 0.5"],
    ),
    "mode of a part": (
        function(lambda m, x: x * (2.0 if m.training else 1.0)),
        None,
        LABELS,
        at(2, lambda m: m.part.eval()),
        ["`part`", "evaluation mode"],
    ),
    "norm that was always frozen": (
        around(lambda: random_modules.AlwaysFrozen(4)),
        None,
        LABELS,
        at(2, lambda m: setattr(m.part, "training", True)),
        ["`part`", "training mode"],
    ),
    "replaced part": (
        around(nn.ReLU),
        None,
        LABELS,
        at(2, lambda m: setattr(m, "part", nn.Tanh())),
        ["submodule was replaced"],
    ),
    "hook": (
        vectors,
        None,
        LABELS,
        at(2, lambda m: m.register_forward_hook(lambda module, inputs, output: 2 * output)),
        ["hooks of `Sequential`"],
    ),
    "hook of a parameter": (
        vectors,
        None,
        LABELS,
        at(1, lambda m: m[0].weight.register_hook(lambda gradient: 0.5 * gradient)),
        ["`0.weight`", "register_hook"],
    ),
    "own running mean": (
        around(lambda: random_modules.Counting(4, "mean")),
        None,
        LABELS,
        None,
        ["`part`", "buffer `mean`"],
    ),
    "assigned buffer": (
        around(lambda: random_modules.Counting(4, "assigned")),
        None,
        LABELS,
        None,
        ["`part`", "buffer `mean`"],
    ),
}


def results_of_cases():
    results = {}
    for name, (make, loss, targets, change, *_) in {**SAME, **REFUSED}.items():
        by_plan = {"random": random_plan}
        if name in SAME:
            by_plan["data parallel"] = lambda network, gpus, batch, seed, **options: data_parallel(
                network, gpus, batch, **options
            )
        for plan_name, plan in by_plan.items():
            torch.manual_seed(3)
            module, shape = make()
            generator = torch.Generator().manual_seed(4)
            batches = [
                (torch.randn(BATCH, *shape, generator=generator, dtype=torch.float64), targets.roll(step, 0))
                for step in range(5)
            ]
            criterion = F.cross_entropy if loss is None else loss
            try:
                results[name, plan_name] = trained_both_ways(
                    module.double(), loss, criterion, batches, change, plan
                )
            except Exception as error:
                raise AssertionError(f"{name}, {plan_name}") from error
    return results


@pytest.fixture(scope="module")
def results():
    return on_ranks(WORLD, results_of_cases)


@pytest.mark.parametrize("name", SAME)
def test_module_trains_as_alone(name, results):
    for of_rank in results:
        for plan in ("random", "data parallel"):
            assert of_rank[name, plan] is None


@pytest.mark.parametrize("name", REFUSED)
def test_module_is_refused_with_the_name_of_the_layer(name, results):
    for of_rank in results:
        result = of_rank[name, "random"]
        assert result is not None and result.startswith("refused: "), result
        assert all(part in result for part in REFUSED[name][-1]) and "\n" not in result, result


# Refused while tracing, before a plan.


class OwnParameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, output, targets):
        return F.cross_entropy(output * self.scale, targets)


class Moving(nn.Module):
    """Divides by a running mean of its values."""

    def __init__(self):
        super().__init__()
        self.mean = 1.0

    def forward(self, output, targets):
        loss = F.cross_entropy(output, targets)
        self.mean = 0.9 * self.mean + 0.1 * loss.item()
        return loss / self.mean


class Counts(nn.Module):
    """Counts its calls."""

    def __init__(self):
        super().__init__()
        self.calls, self.inner = 0, nn.Linear(4, 4)

    def forward(self, x):
        self.calls += 1
        return self.inner(x) / self.calls


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.inner, self.reentrant = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), reentrant

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


class Embedded(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.table, self.last = kind(7, 4, **options), nn.Linear(4, 3)

    def forward(self, tokens):
        x = self.table(tokens)
        return self.last(x.mean(1) if x.dim() > 2 else x)


def hooked():
    part = nn.Sequential(nn.Tanh())
    part.register_full_backward_hook(lambda module, inputs, outputs: (0.5 * inputs[0],))
    return part


def test_losses_with_parameters_or_state_are_refused():
    # With other numbers, shards may differ from the batch by more than the state changes.
    torch.manual_seed(0)
    module = vectors()[0]
    x = torch.randn(BATCH, 4)
    for loss, message in [
        (OwnParameters(), "OwnParameters has parameters"),
        (lambda o, t: F.cross_entropy(o, t) + module[0].weight.norm(), "term of the module's parameters"),
        (nn.CrossEntropyLoss(weight=torch.ones(3).requires_grad_()), "`weight` is a parameter"),
        (Moving(), "Moving keeps state"),
    ]:
        with pytest.raises(TraceError, match=message):
            trace(module, x, loss=loss, targets=LABELS)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (lambda: random_modules.Repeated(4), "`part.norm` is called 2 times"),
        (lambda: nn.BatchNorm1d(4, track_running_stats=False), "normalization `part` .*running statistics"),
        (lambda: nn.BatchNorm1d(4, affine=False), "normalization `part` .*without scale and bias"),
        (lambda: nn.BatchNorm1d(4, momentum=None), "normalization `part` has momentum=None"),
        (
            lambda: Function(lambda m, x: Reversed.apply(x)),
            "`part` uses the torch.autograd.Function Reversed",
        ),
        (lambda: Function(lambda m, x: (x.register_hook(torch.neg), x)[1]), "`part` uses register_hook"),
        (hooked, "`part` has a backward hook"),
        (Counts, "`part` changes its attribute `calls`"),
        (lambda: Checkpointed(True), "`part` uses torch.utils.checkpoint"),
        (lambda: Checkpointed(False), "`part` uses torch.utils.checkpoint"),
    ],
)
def test_layer_that_depends_on_the_plan_is_named_while_tracing(part, message):
    with pytest.raises(TraceError, match=message) as error:
        trace(Around(part()), torch.randn(BATCH, 4))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("options", [{"max_norm": 0.5}, {"scale_grad_by_freq": True}, {"sparse": True}])
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_embedding_whose_training_depends_on_the_plan_is_named(kind, options):
    options = options | ({"mode": "sum"} if kind is nn.EmbeddingBag else {})
    with pytest.raises(TraceError, match=f"embedding `table` has {next(iter(options))}"):
        trace(Embedded(kind, **options), torch.randint(0, 7, (BATCH, 3)))


def test_norm_of_other_shapes_is_named_while_tracing():
    module = nn.Sequential(nn.Conv3d(2, 4, 1), nn.BatchNorm3d(4), nn.Flatten(), nn.Linear(32, 3))
    with pytest.raises(TraceError, match="batch normalization `1`.*other than images, signals and vectors"):
        trace(module, torch.randn(BATCH, 2, 2, 2, 2))


def trained_bags():
    results = []
    for mode in ("sum", "mean"):
        torch.manual_seed(6)
        module = nn.Sequential(nn.EmbeddingBag(7, 4, mode=mode), nn.Linear(4, 3)).double()
        batches = [(torch.randint(7, (BATCH, 5)), LABELS) for _ in range(3)]
        results.append(trained_both_ways(module, None, F.cross_entropy, batches))
    return results


def test_bags_of_embeddings_train_as_alone():
    assert on_ranks(WORLD, trained_bags) == [[None, None]] * WORLD


def test_loss_of_island_is_the_mean_of_its_values():
    module, _ = vectors()
    x = torch.randn(BATCH, 4)
    for loss in (nn.CrossEntropyLoss(weight=WEIGHT.float()), nn.CrossEntropyLoss(ignore_index=2)):
        traced = trace(module, x, loss=loss)
        with_ignored = SOME if loss.ignore_index == -100 else LABELS
        values = traced.islands["loss"](traced.run(x), with_ignored)
        assert values.shape == (BATCH,)
        assert values.mean().item() == pytest.approx(loss(module(x), with_ignored).item())
