"""Tracing of modules."""

import copy
import functools
import math
import os

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

from small_networks import Counted  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from traced_networks import NETWORKS, SMALL, GPT2, LanguageModel, tokens  # noqa: E402

from deeppool import Network, Profile, plan, simulate  # noqa: E402
from deeppool.tracing import TraceError, check_gradients, trace  # noqa: E402

#: Networks of `NETWORKS` that are traced by default.
QUICK = ["alexnet", "mobilenet_v3_large", "lstm"]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def backward(output):
    """Computes gradients of a loss that weights all elements differently."""
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    (output * weights).sum().backward()


def largest_difference(some, others):
    assert some.shape == others.shape
    some, others = some.detach(), others.detach()
    scale = max(1.0, float(others.abs().max())) if others.numel() else 1.0
    return float((some - others).abs().max()) / scale if some.numel() else 0.0


@pytest.mark.parametrize("name", SMALL)
def test_layers_match_the_module_in_outputs_gradients_and_buffers(name):
    module, example = SMALL[name].make().double(), SMALL[name].example()
    example = example.double() if example.is_floating_point() else example
    traced = trace(module, example)
    reference = copy.deepcopy(module)
    for training in (True, False):
        module.train(training)
        reference.train(training)
        # Use another number of samples than for tracing.
        batch = torch.cat([example, example.flip(0), example.flip(-1)])[:5]
        results = []
        for run, model in ((traced.run, module), (reference, reference)):
            model.zero_grad()
            torch.manual_seed(1)
            output = run(batch)
            backward(output)
            results.append(output)
        assert largest_difference(*results) <= 1e-12
        others = dict(reference.named_parameters())
        for parameter, value in module.named_parameters():
            assert largest_difference(value.grad, others[parameter].grad) <= 1e-12, parameter
        others = dict(reference.named_buffers())
        for buffer, value in module.named_buffers():
            assert largest_difference(value.double(), others[buffer].double()) <= 1e-12, buffer


@pytest.mark.parametrize("name", SMALL)
def test_layers_accept_a_shard_or_zero_samples(name):
    module, example = SMALL[name].make().double().eval(), SMALL[name].example()
    example = example.double() if example.is_floating_point() else example
    traced = trace(module, example)
    values = traced.values(example)
    for layer in traced.layers[: -len(traced.loss_layers)]:
        inputs = [values[name] for name in layer.inputs]
        one = layer.island(*(value[1:] for value in inputs))
        assert largest_difference(one, values[layer.name][1:]) <= 1e-12, layer.name
        none = layer.island(
            *(value[:0].detach().requires_grad_(value.is_floating_point()) for value in inputs)
        )
        assert none.shape == (0, *layer.output_shape) and none.dtype == torch.float64
        learned = [parameter for _, parameter in layer.island.named_parameters()]
        if none.requires_grad and learned:
            zeros = torch.autograd.grad(none.sum(), learned)
            assert all(float(gradient.abs().max()) == 0 for gradient in zeros)


def names():
    return NETWORKS if os.environ.get("DEEPPOOL_NETWORKS") == "all" else QUICK


@pytest.mark.parametrize("name", names())
def test_traced_network_is_planned_and_simulated(name):
    expected = NETWORKS[name]
    module = expected.make()
    traced = trace(module, expected.example())
    network = traced.network
    learned = sum(parameter.numel() for parameter in module.parameters())
    of_network = sum(layer.parameter_count for layer in network.layers if layer.parameters_of is None)
    assert of_network == learned
    reasons = set(traced.opaque.values())
    assert all(any(part in reason for part in expected.opaque) for reason in reasons), reasons
    assert all(any(part in reason for reason in reasons) for part in expected.opaque), reasons
    planned = plan(network, gpus=64, batch=256, device="a100")
    assert 0 < planned.iteration_us and {layer.name for layer in planned.layers} >= {
        layer.name for layer in traced.layers
    }
    assert simulate(planned).iteration_us == pytest.approx(planned.iteration_us, rel=0.05)
    table = str(traced)
    assert f"{len(traced.opaque)} opaque" in table and all(layer.name in table for layer in traced.layers)


def test_traced_resnet_50_equals_the_built_in_one():
    traced = trace(torchvision.models.resnet50(), torch.randn(1, 3, 224, 224))
    ours = {layer.name: layer for layer in Network.zoo("resnet-50").layers if layer.parameters}
    theirs = {layer.name: layer for layer in traced.network.layers if layer.parameters}
    assert ours.keys() == theirs.keys()
    for name, layer in ours.items():
        other = theirs[name]
        assert (layer.kind, layer.shape, layer.forward_flops) == (
            other.kind,
            other.shape,
            other.forward_flops,
        )
        assert layer.parameters == other.parameters
    modelled = [
        Profile.modelled(network, "a100", [1, 8, 32]).to_dict() for network in ("resnet-50", traced.network)
    ]
    for row, other in zip(modelled[0]["network"], modelled[1]["network"], strict=True):
        for phase in ("forward_us", "backward_us", "update_us"):
            assert other[phase] == pytest.approx(row[phase], rel=0.01)
    by_name = {layer["name"]: layer["times"] for layer in modelled[1]["layers"]}
    assert all(
        by_name[layer["name"]] == layer["times"] for layer in modelled[0]["layers"] if layer["name"] in theirs
    )


def test_shared_parameters_are_traced_as_shared():
    module = GPT2(31, 16, 16, 2, 1)
    traced = trace(module, tokens(31, 10))
    layers = {layer.name: layer for layer in traced.layers}
    assert layers["lm_head"].parameters_of == "wte"
    (of_head,) = dict(layers["lm_head"].island.named_parameters()).values()
    assert of_head is module.wte.weight


def test_island_trains_the_traced_module():
    module = torchvision.models.resnet18(num_classes=3)
    island = trace(module, torch.randn(2, 3, 32, 32)).islands["bn1"]
    assert island.module is module.bn1
    assert not island.state_dict()
    assert {name for name, _ in island.named_parameters()} == {"bn1.weight", "bn1.bias"}
    assert dict(island.named_buffers())["bn1.running_mean"] is module.bn1.running_mean
    module.train()
    island(torch.randn(4, 64, 8, 8) + 3).sum().backward()
    assert module.bn1.bias.grad is not None and module.bn1.num_batches_tracked == 1
    assert float(module.bn1.running_mean.mean()) == pytest.approx(0.3, abs=0.05)
    # Islands look up replaced parameters.
    module.bn1.weight = nn.Parameter(torch.zeros(64))
    module.bn1.bias = nn.Parameter(torch.ones(64))
    assert torch.equal(island(torch.randn(4, 64, 8, 8)), torch.ones(4, 64, 8, 8))


def test_tracing_does_not_change_the_module():
    module = torchvision.models.mobilenet_v3_small(num_classes=3).eval()
    module.features[0].train()
    modes = [part.training for part in module.modules()]
    before = {name: value.clone() for name, value in module.state_dict().items()}
    example, state = torch.randn(2, 3, 32, 32), torch.get_rng_state()
    trace(module, example)
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not any(part._forward_hooks for part in module.modules())


def test_islands_do_not_change_their_inputs():
    module = nn.Sequential(
        nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True), nn.Linear(4, 2)
    )
    traced = trace(module, torch.randn(2, 4))
    for layer in traced.layers[:-1]:
        x = torch.randn(3, 4)
        kept = x.clone()
        layer.island(x)
        assert torch.equal(x, kept), layer.name


class Manual(nn.Module):
    """Attention by matrix products, with a mask in a buffer."""

    def __init__(self, causal, scale=True):
        super().__init__()
        self.qkv = nn.Linear(12, 36)
        self.register_buffer("mask", torch.ones(9, 9).tril() if causal else torch.ones(9, 9))
        self.scale = 6**-0.5 if scale else 1.0

    def forward(self, x):
        samples, positions, features = x.shape
        q, k, v = self.qkv(x).view(samples, positions, 3, 2, 6).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * self.scale) @ k.transpose(-2, -1)
        scores = scores.masked_fill(self.mask[:positions, :positions] == 0, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)[:, 0]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_matrix_products_is_detected(causal):
    traced = trace(Manual(causal), torch.randn(2, 7, 12))
    (attention,) = [layer for layer in traced.graph["layers"] if "multi_head_attention" in layer["op"]]
    assert attention["op"] == {"multi_head_attention": {"heads": 2, "causal": causal}}
    assert not traced.opaque


def test_unscaled_attention_has_a_scale():
    traced = trace(Manual(True, scale=False), torch.randn(2, 7, 12))
    (attention,) = [layer for layer in traced.graph["layers"] if "multi_head_attention" in layer["op"]]
    assert attention["op"]["multi_head_attention"] == {"heads": 2, "causal": True, "scale": 1.0}
    assert not traced.opaque


class Projected(nn.Module):
    """Attention with separate projections of queries, keys and values, and of four heads of six features."""

    def __init__(self, attend, key_heads, key_positions=None):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(12, 24), nn.Linear(12, 6 * key_heads), nn.Linear(12, 6 * key_heads)
        self.attend = attend
        self.memory = nn.Linear(7, key_positions) if key_positions else None

    def forward(self, x):
        memory = x if self.memory is None else self.memory(x.transpose(1, 2)).transpose(1, 2)
        q, k, v = self.q(x), self.k(memory), self.v(memory)
        heads = (part.unflatten(-1, (-1, 6)).transpose(1, 2) for part in (q, k, v))
        return self.attend(*heads).transpose(1, 2).flatten(2)[:, 0]


def repeated(x):
    """Repeats each of two key heads, as the package `transformers` does."""
    samples, heads, positions, width = x.shape
    return x[:, :, None].expand(samples, heads, 2, positions, width).reshape(samples, 4, positions, width)


def by_expand(q, k, v):
    return F.scaled_dot_product_attention(q, repeated(k), repeated(v), is_causal=True)


def by_option(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def by_mask(q, k, v):
    mask = torch.ones(7, 7, dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q * 0.5, k, v, attn_mask=mask, scale=1.0)


def by_products(q, k, v):
    scores = torch.matmul(k, q.transpose(2, 3)).transpose(2, 3) / 3
    return scores.softmax(-1) @ v


def by_cycling(q, k, v):
    """Query heads 0 and 2 share a key head."""
    return F.scaled_dot_product_attention(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1))


def by_window(q, k, v):
    mask = torch.ones(7, 7, dtype=torch.bool).tril().triu(-2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def by_holes(q, k, v):
    mask = torch.ones(7, 7, dtype=torch.bool).tril().triu(-2)
    mask[4, 3] = False
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize(
    ("attend", "key_heads", "key_positions", "options"),
    [
        (by_window, 4, None, {"causal": True, "window": 3}),
        (by_expand, 2, None, {"causal": True}),
        (by_option, 2, None, {"causal": False}),
        (by_option, 1, 5, {"causal": False}),
        (by_mask, 4, None, {"causal": True, "scale": 0.5}),
        (by_products, 4, None, {"causal": False, "scale": 1 / 3}),
        (by_products, 4, 9, {"causal": False, "scale": 1 / 3}),
    ],
)
def test_attention_of_three_inputs_is_detected(attend, key_heads, key_positions, options):
    module = Projected(attend, key_heads, key_positions)
    x = torch.randn(2, 7, 12)
    traced = trace(module, x)
    (attention,) = [layer for layer in traced.graph["layers"] if "multi_head_attention" in layer["op"]]
    found = dict(attention["op"]["multi_head_attention"])
    assert found.pop("scale", None) == pytest.approx(options.get("scale"))
    assert found == {"heads": 4, **{name: options[name] for name in options if name != "scale"}}
    assert attention["inputs"] == ["q", "k", "v"]
    assert len([reason for reason in traced.opaque.values() if "attention" in reason]) == 0
    expected, got = module(x), traced.run(x)
    assert torch.allclose(got, expected, atol=1e-5)
    gradients = [torch.autograd.grad(y.square().sum(), list(module.parameters())) for y in (expected, got)]
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(*gradients))


@pytest.mark.parametrize(("attend", "key_heads"), [(by_cycling, 2), (by_holes, 4)])
def test_other_attention_of_three_inputs_is_opaque(attend, key_heads):
    traced = trace(Projected(attend, key_heads), torch.randn(2, 7, 12))
    assert "attention of another kind" in traced.opaque.values()
    assert not any("multi_head_attention" in layer["op"] for layer in traced.graph["layers"])


def test_attention_with_dropout_has_its_probability():
    traced = trace(
        nn.TransformerEncoderLayer(12, 2, 16, dropout=0.1, batch_first=True), torch.randn(2, 5, 12)
    )
    assert not traced.opaque
    (attention,) = [layer for layer in traced.graph["layers"] if "multi_head_attention" in layer["op"]]
    assert attention["name"] == "self_attn"
    assert attention["op"]["multi_head_attention"] == {"heads": 2, "causal": False, "dropout": 0.1}


def with_dropped_weights(q, k, v):
    return F.dropout((q @ k.transpose(2, 3)).softmax(-1), 0.25) @ v


def with_fused_dropout(q, k, v):
    return F.scaled_dot_product_attention(q, repeated(k), repeated(v), is_causal=True, dropout_p=0.25)


def with_dropped_scores(q, k, v):
    return F.dropout(q @ k.transpose(2, 3), 0.25).softmax(-1) @ v


def with_dropped_weights_twice(q, k, v):
    return F.dropout(F.dropout((q @ k.transpose(2, 3)).softmax(-1), 0.25), 0.25) @ v


def with_dropped_output(q, k, v):
    return F.dropout(F.scaled_dot_product_attention(q, k, v), 0.25)


@pytest.mark.parametrize(
    ("attend", "key_heads", "options"),
    [
        (with_dropped_weights, 4, {"causal": False, "scale": 1.0}),
        (with_fused_dropout, 2, {"causal": True}),
        (with_dropped_scores, 4, None),
        (with_dropped_weights_twice, 4, None),
        (with_dropped_output, 4, None),
    ],
)
def test_dropout_of_attention_weights_is_detected(attend, key_heads, options):
    traced = trace(Projected(attend, key_heads), torch.randn(2, 7, 12))
    found = [layer["op"] for layer in traced.graph["layers"] if "multi_head_attention" in layer["op"]]
    wanted = [] if options is None else [{"multi_head_attention": {"heads": 4, **options, "dropout": 0.25}}]
    assert found == wanted


def test_attention_drops_no_weights_in_evaluation():
    layer = nn.TransformerEncoderLayer(12, 2, 16, dropout=0.5, batch_first=True)
    x = torch.randn(2, 5, 12)
    traced = trace(layer, x)
    layer.eval()
    assert torch.allclose(traced.run(x), layer(x), atol=1e-5)


class Scaled(nn.Module):
    def __init__(self, shape, scale):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.factors = nn.Parameter(torch.randn(shape))
        self.scale = scale

    def forward(self, x):
        return self.scale(self.conv(x), self.factors).flatten(1)


@pytest.mark.parametrize(
    ("shape", "scale", "op"),
    [
        ((4, 1, 1), lambda x, factors: factors * x, "channels"),
        ((4,), lambda x, factors: x * factors.reshape(1, -1, 1, 1), "channels"),
        ((6,), lambda x, factors: x * factors, "features"),
        ((4,), lambda x, _: x * 1.5, {"constant": 1.5}),
        ((4,), lambda x, _: x / 4, {"constant": 0.25}),
        ((4,), lambda x, _: x * torch.tensor(0.5), {"constant": 0.5}),
        ((6, 1), lambda x, factors: x * factors, None),
        ((1,), lambda x, factors: x * factors, None),
    ],
)
def test_factors_are_detected(shape, scale, op):
    module, x = Scaled(shape, scale), torch.randn(2, 3, 8, 8)
    traced = trace(module, x)
    found = [layer for layer in traced.graph["layers"] if "scale" in layer["op"]]
    assert [layer["op"] for layer in found] == ([] if op is None else [{"scale": op}])
    assert bool(traced.opaque) == (op is None)
    assert torch.allclose(traced.run(x), module(x), atol=1e-6)
    if op in ("channels", "features"):
        assert found[0]["name"] == "factors"


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.function = function

    def forward(self, x):
        return self.function(self.fc(x))


@pytest.mark.parametrize(
    ("function", "layer"),
    [
        (lambda x: x - x.mean(0), "sub"),
        (lambda x: x.softmax(0), "softmax"),
        (lambda x: x.cumsum(0), "cumsum"),
        (lambda x: x.flip(0), "flip"),
        (lambda x: x / x.norm(), "div"),
        (lambda x: x / x.shape[0], "div"),
        (lambda x: x * (1 / torch.ones(len(x)).sum()), "mul"),
    ],
)
def test_layer_that_mixes_samples_is_named_in_the_error(function, layer):
    with pytest.raises(TraceError, match=f"`[a-z.]*{layer}.*(mixes the samples|number of samples)"):
        trace(Function(function), torch.randn(4, 6))


class SigmoidOfOthers(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x.roll(1, 0))


def test_activation_that_mixes_large_samples_is_named_in_the_error():
    module = nn.Sequential(nn.Linear(4, 2000), SigmoidOfOthers(), nn.Linear(2000, 3))
    with pytest.raises(TraceError, match="`1` mixes the samples"):
        trace(module, torch.randn(4, 4))


class Hiding(nn.Module):
    """Two attentions that differ in the scores of later keys only."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(Projected(self.attend(fill), 4) for fill in (-math.inf, math.inf))

    def attend(self, fill):
        def attend(q, k, v):
            hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1)
            return (q @ k.transpose(2, 3)).masked_fill(hidden, fill).softmax(-1) @ v

        return attend

    def forward(self, x):
        return self.parts[0](x) + self.parts[1](x)


def test_positions_that_count_tokens_are_those_without_padding():
    module, tokens = Counted(), torch.randint(2, 9, (3, 5))
    traced = trace(module, tokens)
    assert not traced.opaque
    assert [layer["op"] for layer in traced.graph["layers"]][1] == {
        "position_embedding": {"positions": 12, "first": 2}
    }
    assert torch.allclose(traced.run(tokens), module(tokens), atol=1e-6)
    padded = torch.cat([tokens[:, :3], torch.ones(3, 2, dtype=torch.long)], 1)
    with pytest.raises(TraceError, match="the padding token 1"):
        traced.run(padded)
    traced = trace(module, padded)
    assert list(traced.opaque) == ["positions"]
    assert torch.allclose(traced.run(padded), module(padded), atol=1e-6)


class Multiplied(Counted):
    """Multiplies by the vectors of positions, which is no layer kind."""

    def forward(self, tokens):
        is_token = (tokens != 1).int()
        return self.head(self.tokens(tokens) * self.positions(is_token.cumsum(1) * is_token + 1))


def test_padding_is_allowed_if_layers_with_counted_positions_are_opaque():
    module, tokens = Multiplied(), torch.randint(2, 9, (3, 5))
    traced = trace(module, tokens)
    assert list(traced.opaque) == ["mul"]
    tokens[:, 3:] = 1
    assert torch.allclose(traced.run(tokens), module(tokens), atol=1e-6)


class Added(nn.Module):
    """Adds vectors of indices that are computed from tokens."""

    def __init__(self, indices):
        super().__init__()
        self.tokens, self.vectors, self.head = nn.Embedding(200, 6), nn.Embedding(9, 6), nn.Linear(6, 5)
        self.indices = indices

    def forward(self, tokens):
        return self.head(self.tokens(tokens) + self.vectors(self.indices(tokens)))


@pytest.mark.parametrize(
    "indices",
    [
        lambda tokens: (tokens == 102).cumsum(1),
        lambda tokens: (tokens != 150).cumsum(1) - 1,
        lambda tokens: (tokens > 102).long(),
        lambda tokens: (tokens[:, :1] == 102).long().expand_as(tokens),
        lambda tokens: (tokens == 102).long() * (tokens == 103).cumsum(1),
    ],
)
def test_indices_that_depend_on_some_tokens_are_computed_from_them(indices):
    module = Added(indices)
    traced = trace(module, torch.randint(9, (3, 5)))
    assert list(traced.opaque) == ["vectors"]
    tokens = torch.tensor([[102, 4, 150, 102, 6], [5, 103, 102, 2, 150], [103, 150, 4, 199, 8]])
    assert torch.allclose(traced.run(tokens), module(tokens), atol=1e-6)


def test_indices_that_are_the_same_for_all_tokens_are_constant():
    traced = trace(Added(lambda tokens: (tokens != 1).long().clamp(2, 2)), torch.randint(9, (3, 5)))
    assert not traced.opaque and not traced.absent


class RoundedGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 0.5 * x * (1 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        tanh = torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
        slope = 0.5 * x * (1 - tanh * tanh) * (0.79788456 + 0.1070322243 * x * x)
        return gradient * (slope + 0.5 * (1 + tanh))


class Doubled(RoundedGelu):
    @staticmethod
    def backward(ctx, gradient):
        return 2 * RoundedGelu.backward(ctx, gradient)


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient.clamp(-1, 1) * (1 - y * y)


@pytest.mark.parametrize(
    ("function", "kind"), [(RoundedGelu, "gelu_tanh"), (Doubled, "opaque"), (Clipped, "opaque")]
)
def test_activation_with_its_own_gradient_is_compared_with_it(function, kind):
    class Activation(nn.Module):
        def forward(self, x):
            return function.apply(x)

    traced = trace(nn.Sequential(nn.Linear(9, 8), Activation(), nn.Linear(8, 3)), torch.randn(2, 9))
    assert [layer.kind for layer in traced.layers][1] == kind


def test_activation_with_a_backward_hook_is_opaque():
    module = nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 3))
    module[1].register_full_backward_hook(lambda *_: None)
    traced = trace(module, torch.randn(2, 9))
    assert list(traced.opaque) == ["1"]


@pytest.mark.parametrize(
    ("scales", "is_known"), [((2.0, 2.0), True), ((None, None), True), ((3.0, 2.0), False)]
)
def test_upsampling_has_the_scales_of_its_sizes(scales, is_known):
    upsample = torch.ops.aten.upsample_nearest2d.default
    module = Function(lambda x: upsample(x, [8, 8], *scales))
    module.fc = nn.Conv2d(2, 3, 1)
    x = torch.randn(2, 2, 4, 4)
    traced = trace(module, x)
    assert bool(traced.opaque) != is_known
    assert torch.allclose(traced.run(x), module(x))


def test_attentions_with_other_constants_are_told_apart():
    traced = trace(Hiding(), torch.randn(2, 7, 12))
    kinds = [layer.kind for layer in traced.layers]
    assert kinds.count("multi_head_attention") == 1 and len(traced.opaque) == 1


def test_module_may_be_named_loss():
    module, x = nn.ModuleDict({"loss": nn.Linear(4, 3)}), torch.randn(2, 4)
    module.forward = lambda x: module["loss"](x)
    traced = trace(module, x)
    assert [layer.name for layer in traced.layers] == ["loss.2", "loss"]
    assert torch.equal(traced.run(x), module(x))


def test_detached_values_stay_detached():
    module, x = Function(lambda x: x + 2 * x.detach()), torch.randn(2, 6)
    traced = trace(module, x)
    traced.run(x).sum().backward()
    traced_gradient = module.fc.weight.grad.clone()
    module.zero_grad()
    module(x).sum().backward()
    assert torch.allclose(traced_gradient, module.fc.weight.grad)


class Tied(nn.Module):
    """A model whose head shares the embedding's weight, but has its own bias, under two names."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 4), nn.Linear(4, 11)
        self.head.weight, self.bias = self.embedding.weight, self.head.bias

    def forward(self, x):
        return self.head(self.embedding(x))


def test_bias_of_a_shared_weight_is_a_separate_layer():
    module, x = Tied(), torch.randint(0, 11, (2, 5))
    traced = trace(module, x)
    assert [(layer.name, layer.parameters_of) for layer in traced.layers[:3]] == [
        ("embedding", None),
        ("head", "embedding"),
        ("head.bias", None),
    ]
    assert not traced.opaque
    assert torch.allclose(traced.run(x), module(x), atol=1e-6)
    assert traced.network.layers[2].parameters_of == "embedding"
    targets = torch.randint(0, 11, (2, 5))
    assert check_gradients(traced, x, targets).largest_difference < 1e-7


def test_class_weights_are_not_those_of_a_kind():
    module, x = nn.Linear(4, 3), torch.randn(2, 4)
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    assert trace(module, x, loss=weighted).opaque == {"loss": "a cross entropy with class weights"}
    shares = trace(module, x, loss=nn.CrossEntropyLoss(), targets=torch.full((2, 3), 1 / 3))
    assert shares.opaque == {"loss": "a cross entropy of class probabilities"}
    # No label of the graph format: the kind without an ignored label.
    assert not trace(module, x, loss=nn.CrossEntropyLoss(ignore_index=-(2**40))).opaque


class TwoTokens(nn.Module):
    """A sequence with two learned vectors before it, as of a class and of a teacher's class."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.randn(1, 1, 4)) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        tokens = [token.expand(len(x), -1, -1) for token in (self.first, self.second)]
        return self.head(torch.cat([*tokens, x], 1))


def test_several_vectors_before_a_sequence_are_layers():
    module, x = TwoTokens(), torch.randn(2, 5, 4)
    traced = trace(module, x)
    assert [(layer.name, layer.kind) for layer in traced.layers[:2]] == [
        ("second", "class_token"),
        ("first", "class_token"),
    ]
    assert torch.equal(traced.run(x), module(x))
    assert check_gradients(traced, x, torch.randint(0, 3, (2, 7))).largest_difference < 1e-7


class Recurrent(nn.Module):
    """A recurrent model that calls one cell several times."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], 4)
        for position in range(x.shape[1]):
            state = self.cell(x[:, position], state)
        return self.out(state)


def test_repeated_calls_of_a_module_share_parameters():
    module, x = Recurrent(), torch.randn(2, 3, 4)
    traced = trace(module, x)
    assert [layer.name for layer in traced.layers if layer.kind == "opaque"] == ["cell", "cell.2", "cell.3"]
    assert [layer.parameters_of for layer in traced.layers if layer.kind == "opaque"] == [
        None,
        "cell",
        "cell",
    ]
    assert torch.equal(traced.run(x), module(x))


class Conv1D(nn.Module):
    """The linear layer of Hugging Face's GPT-2."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.randn(inputs, outputs)),
            nn.Parameter(torch.randn(outputs)),
        )

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(
            *x.shape[:-1], len(self.bias)
        )


def test_addmm_is_traced_as_linear():
    module, x = nn.Sequential(Conv1D(4, 6), nn.GELU(), Conv1D(6, 3)), torch.randn(2, 5, 4)
    traced = trace(module, x)
    assert [(layer.name, layer.kind) for layer in traced.layers[:3]] == [
        ("0", "linear"),
        ("1", "gelu"),
        ("2", "linear"),
    ]
    assert torch.equal(traced.run(x), module(x))


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            return self.fc(x)


class Two(nn.Module):
    def forward(self, x):
        return x * 2, x


class Branch(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("module", "inputs", "message"),
    [
        (nn.Bilinear(4, 4, 4), (torch.randn(2, 4), torch.randn(2)), "`input2` has one number a sample"),
        (nn.Linear(4, 4), (torch.randn(4),), "expected a batch of examples"),
        (Two(), (torch.randn(2, 4),), "returns 2 tensors"),
        (Frozen(), (torch.randn(2, 4),), "no_grad"),
        (Branch(), (torch.randn(2, 4),), "cannot be exported"),
    ],
)
def test_unsupported_module_raises(module, inputs, message):
    with pytest.raises(TraceError, match=message):
        trace(module, *inputs)


def test_changed_module_is_detected():
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    traced = trace(module, torch.randn(2, 4))
    module.train(False)
    module.double()
    traced.check_unchanged()
    module[1].p = 0.1
    with pytest.raises(TraceError, match="changed since it was traced"):
        traced.check_unchanged()
    with pytest.raises(TraceError, match="changed since it was traced"):
        traced.check_unchanged(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 3)))


def test_default_loss_is_a_cross_entropy_layer():
    module, x = nn.Linear(4, 3), torch.randn(5, 4)
    traced = trace(module, x)
    labels = torch.tensor([0, 1, 2, 1, 0])
    losses = traced.islands["loss"](traced.run(x), labels)
    assert losses.shape == (5,)
    assert losses.mean().item() == pytest.approx(F.cross_entropy(module(x), labels).item())
    assert traced.layers[-1].kind == "softmax_cross_entropy"
    assert traced.graph["layers"][-1]["op"] == "softmax_cross_entropy"
    labels[1] = -100
    ignoring = trace(module, x, targets=labels).graph["layers"][-1]["op"]
    assert ignoring == {"softmax_cross_entropy": {"ignored_label": -100}}


class Bag(nn.Module):
    """A bag of embeddings and a linear layer."""

    def __init__(self, call=lambda bag, x: bag(x), **options):
        super().__init__()
        self.bag, self.head, self.call = nn.EmbeddingBag(9, 4, **options), nn.Linear(4, 3), call

    def forward(self, x):
        return self.head(self.call(self.bag, x))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bag_of_embeddings_is_an_embedding_reduced_over_positions(mode):
    module, x = Bag(mode=mode), torch.randint(9, (5, 6))
    traced = trace(module, x)
    assert not traced.opaque
    names = [layer.name for layer in traced.layers]
    scale = ["bag.sum.scale"] if mode == "sum" else []
    pool = [f"bag.{mode}.{part}" for part in ("permute", "reshape", "pool")]
    assert names == ["bag", *pool, *scale, f"bag.{mode}", "head", "loss"]
    assert traced.graph["layers"][0]["op"] == {"embedding": {"vocabulary": 9, "features": 4}}
    torch.testing.assert_close(traced.run(x), module(x))


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (Bag(mode="max"), "mode 'max'"),
        (Bag(mode="sum", padding_idx=1), "padding_idx"),
        (Bag(lambda bag, x: bag(x, None, torch.ones(x.shape)), mode="sum"), "per_sample_weights"),
        (Bag(lambda bag, x: bag(x.flatten(), torch.arange(0, x.numel(), 6))), "offsets"),
    ],
    ids=["max", "padding", "weights", "offsets"],
)
def test_other_bags_of_embeddings_are_opaque(module, reason):
    x = torch.randint(9, (5, 6))
    traced = trace(module, x)
    assert traced.opaque == {"bag": f"embedding_bag with {reason}"}
    torch.testing.assert_close(traced.run(x), module(x))


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(label_smoothing=0.1), functools.partial(F.cross_entropy, label_smoothing=0.1)],
    ids=["module", "function"],
)
def test_smoothed_labels_are_an_option_of_cross_entropies(loss):
    module, x, labels = nn.Linear(4, 3), torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    traced = trace(module, x, loss=loss)
    rule = {"ignored_label": -100, "label_smoothing": 0.1}
    assert traced.graph["layers"][-1]["op"] == {"softmax_cross_entropy": rule}
    losses = traced.islands["loss"](traced.run(x), labels)
    assert losses.mean().item() == pytest.approx(loss(module(x), labels).item())


@pytest.mark.parametrize("loss", [nn.L1Loss(), lambda output, target: ((output - target) ** 2).mean()])
def test_custom_loss_is_opaque(loss):
    module, x, targets = nn.Linear(4, 3), torch.randn(5, 4), torch.randn(5, 3)
    traced = trace(module, x, loss=loss, targets=targets)
    assert list(traced.opaque) == ["loss"]
    losses = traced.islands["loss"](traced.run(x), targets)
    assert losses.shape == (5,)
    assert losses.mean().item() == pytest.approx(loss(module(x), targets).item())
    assert traced.network.layers[-1].name == "loss"
    with pytest.raises(TraceError, match="give `targets`"):
        trace(module, x, loss=loss)


@pytest.mark.parametrize(
    ("loss", "kind"),
    [(nn.MSELoss(), "mean_squared_error"), (F.binary_cross_entropy_with_logits, "binary_cross_entropy")],
)
def test_losses_of_elements_have_a_kind(loss, kind):
    module, x = nn.Linear(4, 3), torch.randn(5, 4)
    targets = torch.rand(5, 3)
    traced = trace(module, x, loss=loss)
    assert not traced.opaque and traced.graph["layers"][-1]["op"] == {"elementwise_loss": kind}
    losses = traced.islands["loss"](traced.run(x), targets)
    assert losses.mean().item() == pytest.approx(loss(module(x), targets).item())
    weighted = nn.BCEWithLogitsLoss(pos_weight=torch.ones(3))
    assert list(trace(module, x, loss=weighted, targets=targets).opaque) == ["loss"]


def test_loss_of_pixel_scores_matches_cross_entropy():
    module, x, labels = nn.Conv2d(3, 5, 1), torch.randn(2, 3, 4, 6), torch.randint(0, 5, (2, 4, 6))
    traced = trace(module, x)
    scores = traced.run(x)
    values = traced.islands["loss.permute"](traced.islands["loss.reshape"](scores))
    assert (traced.islands["loss"](values, labels).mean().item()) == pytest.approx(
        F.cross_entropy(scores, labels).item()
    )


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_modules_are_linear_layers_and_recurrences(kind, dropout):
    module = LanguageModel(11, 8, dropout)
    module.lstm = kind(8, 12, 2, batch_first=True, bias=dropout == 0, dropout=dropout)
    module.decoder = nn.Linear(12, 11)
    traced = trace(module, tokens(11, 5))
    cell = kind.__name__.lower()
    kinds = [layer.kind for layer in traced.layers if layer.name.startswith("lstm")]
    drops = ["dropout"] if dropout else []
    assert kinds == ["linear", "recurrence", *drops, "linear", "recurrence"]
    op = next(layer["op"] for layer in traced.graph["layers"] if layer["name"] == "lstm.hh_l1")
    assert op == {"recurrence": {"cell": cell, "bias": dropout == 0}}
    learned = [tensor.numel() for tensor in module.lstm.parameters()]
    of_layers = [layer for layer in traced.network.layers if layer.name.startswith("lstm")]
    assert sum(layer.parameter_count for layer in of_layers) == sum(learned)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_bidirectional_modules_have_two_recurrences_and_a_concatenation(kind):
    module = LanguageModel(11, 8, 0.5)
    module.lstm = kind(8, 6, 2, batch_first=True, dropout=0.5, bidirectional=True)
    module.decoder = nn.Linear(12, 11)
    traced = trace(module, tokens(11, 5))
    assert not traced.opaque
    layers = {layer["name"]: layer for layer in traced.graph["layers"] if layer["name"].startswith("lstm")}
    parts = ["ih_l{}", "hh_l{}", "ih_l{}_reverse", "hh_l{}_reverse", "concat_l{}"]
    names = [part.format(level) for level in (0, 1) for part in parts]
    names.insert(5, "dropout_l0")
    assert list(layers) == [f"lstm.{name}" for name in names]
    inputs = ["lstm.hh_l1", "lstm.hh_l1_reverse"]
    assert layers["lstm.concat_l1"] == {"name": "lstm.concat_l1", "op": "concat", "inputs": inputs}
    cell = kind.__name__.lower()
    ops = [layers[name]["op"]["recurrence"] for name in inputs]
    forward = {"cell": cell, "bias": True}
    assert ops == [forward, forward | {"reversed": True}]
    learned = {f"lstm.{name}": parameter.numel() for name, parameter in module.lstm.named_parameters()}
    of_islands = {name for island in traced.islands.values() for name, _ in island.named_parameters()}
    assert learned.keys() == {name for name in of_islands if name.startswith("lstm")}
    of_layers = [layer for layer in traced.network.layers if layer.name.startswith("lstm")]
    assert sum(layer.parameter_count for layer in of_layers) == sum(learned.values())


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LSTM(8, 16, batch_first=True, proj_size=8),
        lambda: nn.RNN(8, 8, batch_first=True),
    ],
)
def test_other_recurrent_modules_are_opaque(make):
    module = LanguageModel(11, 8, 0.0)
    module.lstm = make()
    assert list(trace(module, tokens(11, 5)).opaque) == ["lstm"]


def test_recurrent_module_over_samples_is_refused():
    module = LanguageModel(11, 8, 0.0)
    module.lstm = nn.GRU(8, 8)
    with pytest.raises(TraceError, match="`lstm` mixes the samples"):
        trace(module, tokens(11, 5))


def test_cost_of_opaque_lstm_matches_its_matrix_products():
    module = LanguageModel(11, 8, 0.0)
    module.lstm = nn.LSTM(8, 8, batch_first=True, proj_size=4)
    module.decoder = nn.Linear(4, 11)
    (lstm,) = [layer for layer in trace(module, tokens(11, 5)).graph["layers"] if layer["name"] == "lstm"]
    cost = lstm["op"]["opaque"]
    # 5 positions, 4 gates of 8 cells from 8 inputs and 4 states, and the projection of the cells.
    products = 5 * 2 * (4 * 8 * (8 + 4) + 8 * 4)
    assert products <= cost["forward"]["flops"] <= 1.5 * products
    assert 1.8 * products <= cost["backward"]["flops"] <= 3 * products
    assert cost["output"] == [5, 4]
    assert [parameter["name"] for parameter in cost["parameters"]][0] == "weight_ih_l0"


class SideBySide(nn.Module):
    """A split, a value that is changed in place while another shares its memory, and a constant addend."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8)
        self.register_buffer("offset", torch.arange(4.0))

    def forward(self, x):
        y = self.fc(x)
        a, b = y[:, :4], y[:, 4:]
        seen = a[:, :2]
        a = a.mul_(2)
        return torch.cat([a + self.offset, b.relu_(), seen], 1)


def test_in_place_changes_of_shared_memory_are_traced():
    module, x = SideBySide(), torch.randn(3, 6)
    traced = trace(module, x)
    assert torch.equal(traced.run(x), module(x))
