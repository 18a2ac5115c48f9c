"""Gradients of single kinds of layers in double precision against PyTorch, for random shapes."""

import json
import math
import random

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deeppool import _deeppool  # noqa: E402
from deeppool.tracing import check_gradients, trace  # noqa: E402
from deeppool.tracing.biases import relative_buckets  # noqa: E402

SHAPES, CLASSES, BOUND = 5, 5, 1e-10
#: PyTorch multiplies the gradient of a hard sigmoid by 1/6 in single precision.
BOUNDS = {"hard_sigmoid": 1e-7}


class Sequence(nn.Module):
    """A function of a sequence between two linear layers."""

    def __init__(self, features, function, outputs=None):
        super().__init__()
        self.first = nn.Linear(features, features)
        # Its parameters are those of the function, if it has any.
        self.function = function
        self.last = nn.Linear(outputs or features, CLASSES)

    def forward(self, x):
        return self.last(self.function(self.first(x)))


class Image(nn.Module):
    """A function of an image after a convolution."""

    def __init__(self, channels, function, outputs=None):
        super().__init__()
        self.first, self.function = nn.Conv2d(channels, channels, 3, padding=1), function
        self.last = nn.Linear(outputs or channels, CLASSES)

    def forward(self, x):
        return self.last(self.function(self.first(x)).mean((2, 3)))


class Attention(nn.Module):
    """An attention with grouped queries, keys of another sequence, and options."""

    def __init__(self, width, heads, key_heads, *, keys=None, causal=False, buckets=None, **options):
        super().__init__()
        features = heads * width
        self.sizes, self.options = (width, heads, key_heads, keys, causal), options
        self.q, self.k, self.v = (
            nn.Linear(features, count * width) for count in (heads, key_heads, key_heads)
        )
        self.relative_attention_bias = None if buckets is None else nn.Embedding(buckets, heads)

    def forward(self, x):
        width, heads, key_heads, keys, causal = self.sizes
        window, base = self.options.get("window"), self.options.get("base")
        q, k, v = self.q(x), self.k(x[:, :keys]), self.v(x[:, :keys])
        q, k, v = (part.unflatten(2, (-1, width)).transpose(1, 2) for part in (q, k, v))
        if base is not None:
            pairs, factor = self.options.get("pairs"), self.options.get("factor", 1)
            q, k = (rotated(part, base, pairs, factor) for part in (q, k))
        k, v = (part.repeat_interleave(heads // key_heads, 1) for part in (k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(width)
        if (table := self.relative_attention_bias) is not None:
            options = {"causal": causal, "buckets": table.num_embeddings, "max_distance": 9}
            queries, keys = (torch.arange(size) for size in scores.shape[2:])
            scores = scores + table(relative_buckets(keys - queries[:, None], **options)).permute(2, 0, 1)
        if causal:
            hidden = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
            if window is not None:
                hidden = hidden | torch.ones_like(hidden).tril(-window)
            scores = scores.masked_fill(hidden, -math.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def rotated(x, base, pairs, factor):
    """Rotates halves of heads, or some pairs of neighbouring features."""
    count = pairs or x.shape[-1] // 2
    powers = base ** (-torch.arange(count, dtype=x.dtype) / count) / factor
    angles = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * powers
    part, rest = x[..., : 2 * count], x[..., 2 * count :]
    if pairs is None:
        first, second = part.chunk(2, -1)
        turned, angles = torch.cat((-second, first), -1), angles.repeat(1, 2)
    else:
        turned = torch.stack((-part[..., 1::2], part[..., ::2]), -1).flatten(-2)
        angles = angles.repeat_interleave(2, 1)
    return torch.cat((part * angles.cos() + turned * angles.sin(), rest), -1)


def slopes(heads):
    first = 2.0 ** (-8 / heads)
    return first ** torch.arange(1, heads + 1, dtype=torch.float64)


class Interleaved(nn.Module):
    """An attention with a linear layer for the query, the key and the value of one head after the other."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.all = heads, nn.Linear(heads * width, 3 * heads * width)

    def forward(self, x):
        q, k, v = self.all(x).unflatten(2, (self.heads, 3, -1)).transpose(1, 2).unbind(3)
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        scores = scores - slopes(self.heads)[:, None, None] * torch.arange(x.shape[1]).flip(0)
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
        return (scores.masked_fill(hidden, -math.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)


class Gate(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gate, self.up = nn.Linear(features, features), nn.Linear(features, features)

    def forward(self, x):
        return F.silu(self.gate(x)) * self.up(x)


class Joined(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.both = nn.Linear(2 * features, features)

    def forward(self, x):
        return self.both(torch.cat([x.tanh(), x], -1))


class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.factors = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.factors(F.adaptive_avg_pool2d(x, 1)))


class Factors(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.factors = nn.Parameter(torch.randn(shape))

    def forward(self, x):
        return self.factors * x


class Recurrence(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)[0]


class Experts(nn.Module):
    """Experts in a loop, of the positions that chose them, or all experts of all positions."""

    def __init__(self, experts, chosen, width, features, gated, normalised, dense):
        super().__init__()
        self.chosen, self.normalised, self.dense = chosen, normalised, dense
        self.router = nn.Linear(features, experts, bias=False)
        name, rows = ("gate_up_proj", 2 * width) if gated else ("up_proj", width)
        self.register_parameter(name, nn.Parameter(torch.randn(experts, rows, features) / features**0.5))
        self.down_proj = nn.Parameter(torch.randn(experts, features, width) / width**0.5)

    def expert(self, index, x):
        if hasattr(self, "up_proj"):
            return F.linear(F.gelu(F.linear(x, self.up_proj[index])), self.down_proj[index])
        gate, up = F.linear(x, self.gate_up_proj[index]).chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.down_proj[index])

    def forward(self, x):
        scores = self.router(x)
        if self.normalised:
            weights, chosen = scores.topk(self.chosen)
            weights = weights.softmax(-1)
        else:
            weights, chosen = scores.softmax(-1).topk(self.chosen)
        if self.dense:
            shares = torch.zeros_like(scores).scatter(-1, chosen, weights)
        else:
            shares = (F.one_hot(chosen, scores.shape[-1]) * weights[..., None]).sum(-2)
        return sum(shares[..., [index]] * self.expert(index, x) for index in range(scores.shape[-1]))


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def attention(draw, **options):
    width, key_heads, group = 2 * draw(2, 5), draw(1, 3), draw(1, 3)
    heads = key_heads * group
    features, positions = heads * width, draw(2, 12)
    return Sequence(features, Attention(width, heads, key_heads, **options)), (positions, features)


def interleaved(draw):
    # Slopes of Press et al. are this sequence for powers of two only.
    width, heads = draw(1, 6), 2 ** draw(0, 2)
    return Sequence(width * heads, Interleaved(width, heads)), (draw(2, 12), width * heads)


def over_positions(draw):
    """A mean or a sum of the vectors at all positions, in two ways."""
    over, keepdim = draw(0, 1), bool(draw(0, 1))
    features, positions = draw(2, 24), draw(2, 10)

    def function(x):
        y = x.mean(1, keepdim) if over else x.sum(-2, keepdim)
        return y.flatten(1)

    return Sequence(features, Function(function)), (positions, features)


def sequence(make):
    def case(draw):
        features, positions = draw(2, 24), draw(2, 10)
        return Sequence(features, make(features)), (positions, features)

    return case


def image(make):
    def case(draw):
        channels = draw(2, 8)
        return Image(channels, make(channels)), (channels, draw(3, 9), draw(3, 9))

    return case


def padded(draw):
    sides = [draw(0, 2) for _ in range(4)]
    return image(lambda _: Function(lambda x: F.pad(x, sides)))(draw)


def normalized(make):
    """A normalization of twice the number of channels. It hides a bias before it."""

    def case(draw):
        channels = draw(1, 4)
        first = nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=False)
        last = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * channels, CLASSES)
        module = nn.Sequential(first, make(channels), nn.Tanh(), *last)
        return module, (channels, draw(3, 9), draw(3, 9))

    return case


def transposed(draw):
    groups, stride = draw(1, 3), draw(1, 3)
    channels, outputs = groups * draw(1, 3), groups * draw(1, 3)
    options = {"padding": draw(0, 1), "output_padding": draw(0, stride - 1), "dilation": draw(1, 2)}
    function = nn.ConvTranspose2d(
        channels, outputs, draw(2, 4), stride, groups=groups, bias=draw(0, 1) == 1, **options
    )
    return Image(channels, function, outputs), (channels, draw(2, 6), draw(2, 6))


def signal(draw):
    """Convolutions of signals: plain, and depthwise and dilated, with a normalization of channels."""
    channels = 2 * draw(1, 3)
    options = {"padding": "same", "dilation": 2, "groups": channels, "bias": False}
    depthwise = nn.Conv1d(channels, 2 * channels, 2, **options)
    first = nn.Conv1d(2, channels, 3, stride=2, bias=False)
    norms = nn.GroupNorm(channels, channels), nn.BatchNorm1d(2 * channels)
    module = nn.Sequential(first, norms[0], nn.GELU(), depthwise, norms[1], nn.Flatten())
    length = draw(7, 12)
    return nn.Sequential(*module, nn.Linear(2 * channels * ((length - 3) // 2 + 1), CLASSES)), (2, length)


def recurrence(draw, kind, **options):
    features, width = draw(1, 12), draw(1, 12)
    module = kind(features, width, bias=draw(0, 1) == 1, batch_first=True, **options)
    outputs = width * (2 if module.bidirectional else 1)
    return Sequence(features, Recurrence(module), outputs), (draw(1, 9), features)


def experts(draw):
    features, count = draw(1, 12), draw(2, 6)
    options = [draw(0, 1) == 1 for _ in range(3)]
    module = Experts(count, draw(1, count), draw(1, 9), features, *options)
    shape = (features,) if draw(0, 2) == 0 else (draw(1, 9), features)
    return Sequence(features, module), shape


def tokens(draw):
    vocabulary, features = draw(3, 20), draw(1, 12)
    embedding = nn.Embedding(vocabulary, features, padding_idx=draw(0, vocabulary - 1))
    return nn.Sequential(embedding, nn.Linear(features, CLASSES)), (draw(1, 9), vocabulary)


def bag(draw):
    vocabulary, features = draw(3, 20), draw(1, 12)
    embedding = nn.EmbeddingBag(vocabulary, features, mode=("sum", "mean")[draw(0, 1)])
    return nn.Sequential(embedding, nn.Linear(features, CLASSES)), (draw(1, 9), vocabulary)


#: Kind of the layer, and a function that makes a module and the shape of a sample: for tokens, the
#: number of positions and that of tokens.
CASES = {
    "rms_norm": ("rms_norm", sequence(lambda features: nn.RMSNorm(features, eps=1e-5))),
    "silu": ("silu", sequence(lambda _: nn.SiLU())),
    "sigmoid": ("sigmoid", sequence(lambda _: nn.Sigmoid())),
    "tanh": ("tanh", sequence(lambda _: nn.Tanh())),
    "gelu": ("gelu", sequence(lambda _: nn.GELU())),
    "gelu_tanh": ("gelu_tanh", sequence(lambda _: nn.GELU(approximate="tanh"))),
    "relu6": ("relu6", image(lambda _: nn.ReLU6())),
    "leaky_relu": ("leaky_relu", image(lambda channels: nn.LeakyReLU(0.3 / channels))),
    "hard_sigmoid": ("hard_sigmoid", image(lambda _: nn.Hardsigmoid())),
    "hard_swish": ("hard_swish", image(lambda _: nn.Hardswish())),
    "pad": ("pad", padded),
    "group_norm": ("group_norm", normalized(lambda channels: nn.GroupNorm(channels, 2 * channels))),
    "instance_norm": (
        "group_norm",
        normalized(lambda channels: nn.InstanceNorm2d(2 * channels, affine=True)),
    ),
    "dilated_convolution": (
        "conv2d",
        image(lambda channels: nn.Conv2d(channels, channels, 3, stride=2, padding=2, dilation=2)),
    ),
    "transposed_convolution": ("conv_transpose2d", transposed),
    "upsampling": ("adaptive_avg_pool2d", image(lambda channels: nn.Upsample(scale_factor=channels % 3 + 1))),
    "signal": ("conv2d", signal),
    "gate": ("multiply", sequence(Gate)),
    "channel_gate": ("multiply", image(Squeeze)),
    "constant_scale": ("scale", sequence(lambda features: Function(lambda x: x * features**0.5))),
    "feature_scale": ("scale", sequence(Factors)),
    "channel_scale": ("scale", image(lambda channels: Factors(channels, 1, 1))),
    "over_positions": ("adaptive_avg_pool2d", over_positions),
    "slice": ("slice", sequence(lambda _: Function(lambda x: x[:, 1:]))),
    "grouped_attention": ("multi_head_attention", attention),
    "causal_attention": ("multi_head_attention", lambda draw: attention(draw, causal=True)),
    "sliding_window": ("multi_head_attention", lambda draw: attention(draw, causal=True, window=draw(1, 5))),
    "cross_attention": ("multi_head_attention", lambda draw: attention(draw, keys=draw(1, 2))),
    "rotary_embedding": ("rotary_embedding", lambda draw: attention(draw, base=10.0 ** draw(1, 5))),
    "rotated_pairs": (
        "rotary_embedding",
        lambda draw: attention(draw, base=10.0 ** draw(1, 5), pairs=2, factor=draw(2, 4)),
    ),
    "linear_biases": ("multi_head_attention", interleaved),
    "relative_positions": ("multi_head_attention", lambda draw: attention(draw, buckets=draw(4, 12))),
    "causal_relative_positions": (
        "multi_head_attention",
        lambda draw: attention(draw, causal=True, buckets=draw(2, 12)),
    ),
    "lstm": ("recurrence", lambda draw: recurrence(draw, nn.LSTM)),
    "gru": ("recurrence", lambda draw: recurrence(draw, nn.GRU)),
    "bidirectional_lstm": ("concat", lambda draw: recurrence(draw, nn.LSTM, bidirectional=True)),
    "bidirectional_gru": (
        "concat",
        lambda draw: recurrence(draw, nn.GRU, num_layers=2, bidirectional=True),
    ),
    "joined_features": ("concat", sequence(Joined)),
    "experts": ("mixture_of_experts", experts),
    "padding_token": ("embedding", tokens),
    "embedding_bag": ("embedding", bag),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_a_kind_match_pytorch(name):
    kind, make = CASES[name]
    for seed in range(SHAPES):
        torch.manual_seed(seed)
        draw = random.Random(seed).randint
        module, shape = make(draw)
        samples = draw(2, 5)
        if kind == "embedding":
            inputs = torch.randint(shape[1], (samples, shape[0]))
        else:
            inputs = torch.randn(samples, *shape)
        traced = trace(module.double(), inputs.double() if inputs.is_floating_point() else inputs)
        assert not traced.opaque
        assert kind in [layer.kind for layer in traced.layers], [layer.kind for layer in traced.layers]
        *positions, _ = traced.islands[traced.output].output_shape
        check = check_gradients(traced, inputs, torch.randint(CLASSES, (samples, *positions)))
        assert check.largest_difference <= BOUNDS.get(name, BOUND), f"{name}, shape {shape}: {check}"
        assert max(float(gradient.abs().max()) for gradient in check.gradients.values()) > 1e-4


@pytest.mark.parametrize("seed", range(SHAPES))
def test_gradients_of_smoothed_and_ignored_labels_match_pytorch(seed):
    torch.manual_seed(seed)
    draw = random.Random(seed)
    features, classes, samples = draw.randint(1, 9), draw.randint(2, 7), draw.randint(1, 9)
    # The last dimension has the classes, because the first one has another size.
    positions = [classes + 1] * (seed % 2)
    ignored = draw.choice((-100, 0, classes))
    loss = nn.CrossEntropyLoss(label_smoothing=draw.random(), ignore_index=ignored)
    module = nn.Sequential(nn.Linear(features, 6), nn.Tanh(), nn.Linear(6, classes))
    x, targets = torch.randn(samples, *positions, features), torch.randint(classes, (samples, *positions))
    targets = torch.where(torch.rand(targets.shape) < 0.4, ignored, targets)
    # At least one label counts.
    targets.view(-1)[0] = classes - 1
    traced = trace(module, x, loss=loss, targets=targets)
    assert not traced.opaque
    check = check_gradients(traced, x, targets)
    assert check.largest_difference < BOUND, str(check)


class AdditiveAttention(nn.Module):
    """Attention of the code of GNMT between two linear layers, which is not traced."""

    def __init__(self, features, units, *, normalised):
        super().__init__()
        self.linear_q = nn.Linear(features, units, bias=False)
        self.linear_k = nn.Linear(features, units, bias=False)
        self.attn = nn.ParameterDict({"linear_att": torch.randn(units)})
        if normalised:
            self.attn |= {"normalize_scalar": torch.randn(1), "normalize_bias": torch.randn(units)}
        self.last = nn.Linear(features, CLASSES)

    def forward(self, x):
        sums = self.linear_q(x)[:, :, None] + self.linear_k(x)[:, None]
        vector = self.attn["linear_att"]
        if "normalize_scalar" in self.attn:
            sums = sums + self.attn["normalize_bias"]
            vector = vector / vector.norm() * self.attn["normalize_scalar"]
        return self.last((sums.tanh() @ vector).softmax(-1) @ x)

    def network(self, positions):
        """Returns the network in the graph format."""
        units, features = self.linear_q.weight.shape
        of_units = {"linear": {"out_features": units, "bias": False}}
        attention = {"additive_attention": {"normalised": "normalize_scalar" in self.attn}}
        layers = [
            ("linear_q", ["input"], of_units),
            ("linear_k", ["input"], of_units),
            ("attn", ["linear_q", "linear_k", "input"], attention),
            ("last", ["attn"], {"linear": {"out_features": CLASSES, "bias": True}}),
            ("loss", ["last"], "softmax_cross_entropy"),
        ]
        layers = [{"name": name, "inputs": inputs, "op": op} for name, inputs, op in layers]
        shape = {"name": "network", "input": [positions, features], "layers": layers}
        return json.dumps({"schema": "deeppool/graph/v1"} | shape)


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("seed", range(SHAPES))
def test_gradients_of_additive_attentions_match_pytorch(normalised, seed):
    torch.manual_seed(seed)
    draw = random.Random(seed).randint
    features, positions, samples = draw(1, 12), draw(2, 12), draw(2, 5)
    module = AdditiveAttention(features, draw(1, 40), normalised=normalised).double()
    x = torch.randn(samples, positions, features, dtype=torch.double)
    targets = torch.randint(CLASSES, (samples, positions))
    parameters = dict(module.named_parameters())
    loss = F.cross_entropy(module(x).flatten(0, 1), targets.flatten())
    gradients = torch.autograd.grad(loss, list(parameters.values()))

    def content(tensor):
        return tensor.detach().double().numpy().tobytes()

    of_engine = {name: (list(one.shape), content(one)) for name, one in parameters.items()}
    engine_loss, of_engine = _deeppool.gradients(
        module.network(positions), of_engine, content(x), content(targets)
    )
    assert abs(engine_loss - loss.item()) <= BOUND * loss.item()
    for name, gradient in zip(parameters, gradients):
        ours = torch.frombuffer(bytearray(of_engine[name][1]), dtype=torch.double).view_as(gradient)
        difference = float((ours - gradient).abs().max())
        assert difference <= BOUND * max(float(gradient.abs().max()), 1e-4), f"{name}: {difference}"


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.BCEWithLogitsLoss()], ids=["squared", "binary"])
@pytest.mark.parametrize("seed", range(SHAPES))
def test_gradients_of_losses_of_elements_match_pytorch(loss, seed):
    torch.manual_seed(seed)
    draw = random.Random(seed)
    features, outputs, samples = (draw.randint(1, 9) for _ in range(3))
    module = nn.Sequential(nn.Linear(features, 6), nn.Tanh(), nn.Linear(6, outputs))
    x, targets = torch.randn(samples, features), torch.rand(samples, outputs)
    traced = trace(module, x, loss=loss)
    assert not traced.opaque
    check = check_gradients(traced, x, targets)
    assert check.largest_difference < BOUND, str(check)
