"""Tracing of modules as they come: their arguments, their outputs and their shared parameters."""

import copy
import dataclasses
from collections import namedtuple
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from plan_documents import data_parallel, plan_document, random_split_plan  # noqa: E402
from ranks import on_ranks  # noqa: E402
from small_networks import Answer  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deeppool.profiling import profile  # noqa: E402
from deeppool.torch import BurstParallel, BurstParallelError  # noqa: E402
from deeppool.tracing import TraceError, check_gradients, trace  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def assert_same(traced, expected, batch):
    """Compares outputs and gradients of the layers with those of a function of the module and a batch."""
    reference = copy.deepcopy(traced.module)
    output, wanted = traced.run(batch), expected(reference, batch)
    assert torch.allclose(output, wanted, atol=1e-5)
    weights = torch.randn_like(output)
    (output * weights).sum().backward()
    (wanted * weights).sum().backward()
    for parameter, other in zip(traced.module.parameters(), reference.parameters()):
        assert torch.allclose(parameter.grad, other.grad, atol=1e-4)


# Outputs.


class Cache:
    """A key-value cache, which ``torch.export`` cannot return."""

    def __init__(self, keys):
        self.keys = keys


@dataclasses.dataclass
class Scores:
    logits: torch.Tensor
    past_key_values: Cache | None = None
    hidden: torch.Tensor | None = None


class Causal(nn.Module):
    """A language model with a cache by default, as in `transformers`."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(use_cache=True)
        self.embedding, self.head = nn.Embedding(11, 4), nn.Linear(4, 11)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        cache = Cache(hidden) if self.config.use_cache else None
        return Scores(self.head(hidden), cache, hidden)


def test_output_is_the_logits_and_caches_are_off():
    module, tokens = Causal(), torch.randint(11, (2, 5))
    traced = trace(module, tokens)
    assert [layer.name for layer in traced.layers] == ["embedding", "head", "loss"]
    assert module.config.use_cache
    traced.check_state()
    assert_same(traced, lambda module, batch: module(batch).logits, torch.randint(11, (3, 5)))
    check = check_gradients(traced, tokens, torch.randint(11, (2, 5)))
    assert check.largest_difference < 1e-7
    measured = profile(traced, [2], device="cpu", repeats=1).to_dict()
    assert measured["network"][0]["forward_us"] > 0


class Returns(nn.Module):
    """A linear layer whose output is converted by a function."""

    def __init__(self, convert):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.convert = convert

    def forward(self, x):
        return self.convert(self.fc(x))


Pair = namedtuple("Pair", ["logits", "other"])


@pytest.mark.parametrize(
    "convert",
    [
        lambda y: {"logits": y, "hidden": y + 1},
        lambda y: {"scores": y},
        lambda y: Pair(y, y + 1),
        lambda y: (y, None, 3),
        lambda y: {"last_hidden_state": y, "pooled": y.sum(1)},
    ],
)
def test_output_is_found_in_dictionaries_and_tuples(convert):
    traced = trace(Returns(convert), torch.randn(2, 4))
    assert_same(traced, lambda module, batch: module.fc(batch), torch.randn(3, 4))


@pytest.mark.parametrize(
    ("convert", "message"),
    [
        (lambda y: (y, y + 1), "returns 2 tensors.*wrap"),
        (lambda y: {"out": y, "aux": y + 1}, "disable auxiliary outputs"),
        (lambda y: {"loss": y.mean()}, "only a loss.*give `loss` and `targets`"),
        (lambda y: {"values": 3}, "returns 0 tensors"),
    ],
)
def test_other_outputs_are_refused(convert, message):
    with pytest.raises(TraceError, match=message):
        trace(Returns(convert), torch.randn(2, 4))


# Arguments.


class Masked(nn.Module):
    """Attention with a mask of each sample's positions, and a scale."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 8), nn.Linear(8, 3)

    def forward(self, ids, attention_mask=None, scale=1.0, table=None, labels=None):
        x = self.embedding(ids)
        scores = x @ x.transpose(1, 2) * scale
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask[:, None] == 0, float("-inf"))
        x = scores.softmax(-1) @ x
        return Scores(self.head(x if table is None else x + table))


@pytest.mark.parametrize("samples", [1, 2])
def test_constant_arguments_are_part_of_the_network(samples):
    module, mask, table = Masked(), torch.tensor([1, 1, 1, 0]), torch.randn(4, 8)
    tokens = torch.randint(11, (samples, 4))
    traced = trace(module, ids=tokens, attention_mask=mask.expand(samples, 4), scale=0.5, table=table)

    def expected(module, batch):
        return module(batch, mask.expand(len(batch), 4), 0.5, table).logits

    assert_same(traced, expected, torch.randint(11, (5, 4)))


def test_arguments_that_are_no_inputs_are_refused():
    module, tokens = Masked(), torch.randint(11, (2, 4))
    with pytest.raises(TraceError, match="`attention_mask` has one number a sample.*shape \\[2, 1\\]"):
        trace(module, tokens, torch.tensor([1, 0]))
    with pytest.raises(TraceError, match="`labels` is not an input.*give `loss` and `targets`"):
        trace(module, tokens, labels=torch.zeros(2, 4))
    with pytest.raises(TraceError, match="got no tensor"):
        trace(module, ids=3)


def test_arguments_that_differ_between_samples_are_inputs():
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    traced = trace(Masked(), torch.randint(11, (2, 4)), mask)
    assert traced.network.input_shapes == {"input": (4,), "attention_mask": (4,)}
    readers = [layer.name for layer in traced.layers if "attention_mask" in layer.inputs]
    assert readers and set(readers) <= set(traced.opaque)
    other = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0]])
    batch = torch.randint(11, (3, 4)), other
    output, expected = traced.run(*batch), traced.module(*batch).logits
    assert torch.allclose(output, expected, atol=1e-5)


def questions(samples):
    """Returns images, questions and answers."""
    return (
        torch.randn(samples, 2, 4, 4),
        torch.randint(20, (samples, 6)),
        torch.randint(5, (samples,)),
    )


def test_gradients_of_two_inputs():
    image, question, answers = questions(3)
    traced = trace(Answer(), image, question=question)
    assert not traced.opaque
    assert check_gradients(traced, (image, question), answers).largest_difference < 1e-7


class Padded(nn.Module):
    """An attention to the words of sentences of several lengths."""

    def __init__(self, causal):
        super().__init__()
        self.words, self.causal = nn.Embedding(20, 8), causal
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 5)

    def forward(self, ids, mask):
        x = self.words(ids)
        q, k, v = (one(x).unflatten(2, (2, 4)).transpose(1, 2) for one in (self.q, self.k, self.v))
        seen = mask[:, None, None].bool()
        if self.causal:
            seen = seen & torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        return self.head(F.scaled_dot_product_attention(q, k, v, seen).transpose(1, 2).flatten(2))


def sentences(samples):
    """Returns words, which of them are no padding, and labels."""
    lengths = torch.tensor([6, 3, 1, 5, 2, 6, 4, 3])[:samples]
    mask = (torch.arange(6) < lengths[:, None]).long()
    return torch.randint(20, (samples, 6)), mask, torch.randint(5, (samples, 6))


@pytest.mark.parametrize("causal", [True, False])
def test_an_input_says_which_keys_are_padding(causal):
    ids, mask, labels = sentences(4)
    traced = trace(Padded(causal), ids, mask)
    assert not traced.opaque
    (attention,) = [layer for layer in traced.layers if layer.kind == "multi_head_attention"]
    assert attention.inputs[-1] == "mask"
    # Padding before the first word: queries without a key, whose output PyTorch sets to zero, too.
    for mask in (mask, mask.flip(1)):
        check = check_gradients(traced, (ids, mask), labels)
        assert check.largest_difference < 1e-7, str(check)
        assert torch.allclose(traced.run(ids, mask), traced.module(ids, mask), atol=1e-6)
    # A mask with another meaning of 0 and 1 is no padding of this kind.
    class Inverted(Padded):
        def forward(self, ids, mask):
            return super().forward(ids, 1 - mask)

    assert trace(Inverted(causal), ids, mask).opaque


def losses_of_sentences():
    """Returns the losses of a module with padding by `BurstParallel` and alone."""
    torch.manual_seed(0)
    ids, mask, labels = sentences(8)
    module = Padded(causal=False)
    traced = trace(copy.deepcopy(module), ids[:4], mask[:4])
    plan = random_split_plan(traced.network, 2, 8, seed=3)
    model = BurstParallel(traced, plan)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.2) for one in (model, module)]
    losses = []
    for _ in range(4):
        scores = module(ids, mask).flatten(0, 1)
        losses.append([model(ids, mask, labels), F.cross_entropy(scores, labels.flatten())])
        for optimizer, loss in zip(optimizers, losses[-1]):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return torch.tensor(losses)


def test_padding_has_the_losses_of_the_module():
    for losses in on_ranks(2, losses_of_sentences):
        assert torch.allclose(losses[:, 0], losses[:, 1], atol=1e-5)


def answers_to_questions():
    """Returns the losses of a module of two inputs by `BurstParallel` and alone, and its last outputs."""
    torch.manual_seed(0)
    image, question, answers = questions(8)
    module = Answer()
    traced = trace(copy.deepcopy(module), image[:2], question=question[:2])
    places = {"conv": [1], "words": [3, 2], "norm": [0, 1, 2, 3], "seen": [2], "head": [0, 1]}
    plan = plan_document(traced.network, 4, 8, lambda name: places.get(name, [3]), micro_batches=2)
    model = BurstParallel(traced, plan)
    with pytest.raises(BurstParallelError, match="model\\(input, question, targets\\)`, not 2 arguments"):
        model(image, answers)
    with pytest.raises(BurstParallelError, match="not for 7 samples of `question`"):
        model(image, question[:7], answers)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, module)]
    losses = []
    for _ in range(5):
        losses.append(
            [model(image, question, answers), F.cross_entropy(module(image, question=question), answers)]
        )
        for optimizer, loss in zip(optimizers, losses[-1]):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.synchronize()
    outputs = model.eval()(image, question), module(image, question=question)
    return torch.tensor(losses).detach(), [output.detach() for output in outputs]


def test_two_inputs_have_the_losses_of_the_module():
    for losses, outputs in on_ranks(4, answers_to_questions):
        assert torch.allclose(losses[:, 0], losses[:, 1], atol=1e-5) and losses[-1, 1] < losses[0, 1]
        assert torch.allclose(*outputs, atol=1e-5)


class Positions(nn.Module):
    """Embeddings of tokens and of positions counted from the first token that is no padding."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(50, 4), nn.Embedding(7, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, ids):
        mask = (ids != 0).int()
        return self.head(self.tokens(ids) + self.positions(mask.cumsum(1) * mask))


def test_positions_are_computed_from_tokens():
    ids = torch.tensor([[0, 7, 9, 40, 13], [49, 20, 30, 0, 0]])
    traced = trace(Positions(), ids)
    assert_same(traced, lambda module, batch: module(batch), ids.flip(0))


class Columns(nn.Module):
    """One embedding of columns with separate ranges of values."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(30, 4), nn.Linear(12, 3)
        self.register_buffer("first", torch.tensor([0, 10, 20]))

    def forward(self, x):
        return self.head(F.embedding(x - self.first, self.embedding.weight[:10]).flatten(1))


def test_examples_keep_integers_at_their_positions():
    x = torch.tensor([[3, 14, 25], [9, 10, 29]])
    traced = trace(Columns(), x)
    assert_same(traced, lambda module, batch: module(batch), x)
    with pytest.raises(TraceError, match="layer `embedding` cannot be run alone.*out of range.*examples"):
        trace(Columns(), x[:1])


def masked_language_model():
    """Returns the losses of a module with a mask by `BurstParallel` and alone, and its last outputs."""
    torch.manual_seed(0)
    module, mask = Masked(), torch.tensor([1, 1, 1, 0])
    tokens, labels = torch.randint(11, (4, 4)), torch.randint(3, (4, 4))
    traced = trace(copy.deepcopy(module), tokens, attention_mask=mask.expand(4, 4))
    model = BurstParallel(traced, data_parallel(traced.network, 2, 4))
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.5) for one in (model, module)]
    losses = []
    for _ in range(3):
        scores = module(tokens, mask.expand(4, 4)).logits
        for optimizer, loss in zip(
            optimizers, (model(tokens, labels), F.cross_entropy(scores.flatten(0, 1), labels.flatten()))
        ):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    model.synchronize()
    outputs = model.eval()(tokens), module(tokens, mask.expand(4, 4)).logits
    return losses, [output.detach() for output in outputs]


def test_training_and_evaluation_have_the_constants_of_the_trace():
    for losses, outputs in on_ranks(2, masked_language_model):
        assert losses[::2] == pytest.approx(losses[1::2], abs=1e-5)
        assert torch.allclose(*outputs, atol=1e-5)


# Control flow.


class Skipped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            if torch.rand([]) >= 0.1:
                x = layer(x)
        return x


def test_layer_drop_is_refused_in_one_line(capfd):
    with pytest.raises(TraceError, match="cannot be exported.*layerdrop.*0") as raised:
        trace(Skipped(), torch.randn(2, 4))
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


class Scan(nn.Module):
    """A recurrence over positions, with a normalization of each position's result or not."""

    def __init__(self, norm):
        super().__init__()
        self.fc, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.norms = nn.ModuleList(nn.BatchNorm1d(4) for _ in range(35 if norm else 0))

    def forward(self, x):
        x = self.fc(x)
        state = x[:, 0]
        for position in range(1, x.shape[1]):
            state = torch.tanh(torch.sin(state) + torch.cos(x[:, position]))
            state = self.norms[position - 1](state) if self.norms else state
        return self.head(state)


@pytest.mark.parametrize("norm", [False, True])
def test_unrolled_recurrence_is_one_layer_without_normalization(norm):
    traced = trace(Scan(norm), torch.randn(2, 36, 4))
    merged = [reason for reason in traced.opaque.values() if reason.startswith("more than 32 operations")]
    assert (len(merged), len(traced.opaque)) == ((0, 2 * 35) if norm else (1, 1))
    assert_same(traced, lambda module, batch: module(batch), torch.randn(3, 36, 4))


# Shared parameters.


class RmsNorm(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


class Relative(nn.Module):
    """Two blocks of T5's encoder: the first one's bias of relative positions is that of both."""

    def __init__(self, features=8, heads=2):
        super().__init__()
        self.heads = heads
        self.bias = nn.Embedding(9, heads)
        self.norms = nn.ModuleList(RmsNorm(features) for _ in range(2))
        self.qkv = nn.ModuleList(nn.Linear(features, 3 * features) for _ in range(2))
        self.head = nn.Linear(features, 3)

    def forward(self, x):
        positions = torch.arange(x.shape[1])
        bias = self.bias(positions[None] - positions[:, None] + 4).permute(2, 0, 1).unsqueeze(0)
        for norm, qkv in zip(self.norms, self.qkv):
            parts = qkv(norm(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + F.scaled_dot_product_attention(*parts, attn_mask=bias).transpose(1, 2).flatten(2)
        return self.head(x)


def test_bias_of_relative_positions_is_shared_by_attentions():
    traced = trace(Relative(), torch.randn(2, 5, 8))
    owner, user = [layer for layer in traced.layers if "bias.weight" in dict(layer.island.named_parameters())]
    assert (owner.parameters_of, user.parameters_of) == (None, owner.name)
    # A norm that converts to single precision, an identity, is separate from the residual sum.
    assert {"norms.0", "qkv.0", "norms.1", "qkv.1"} <= {layer.name for layer in traced.layers}
    assert_same(traced, lambda module, batch: module(batch), torch.randn(3, 5, 8))


class PartlyShared(nn.Module):
    """Two layers with one bias."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.two.bias = self.one.bias

    def forward(self, x):
        return self.head(torch.relu(self.two(torch.relu(self.one(x)))))


def test_layers_that_share_some_parameters_are_one_opaque_layer():
    traced = trace(PartlyShared(), torch.randn(2, 4))
    assert [layer.kind for layer in traced.layers] == ["opaque", "relu", "linear", "softmax_cross_entropy"]
    (reason,) = traced.opaque.values()
    assert reason.startswith("layers share the parameter `two.bias`")
    assert sum(layer.parameter_count for layer in traced.network.layers) == 6 * 4 + 6 + 6 * 6 + 3 * 6 + 3
    assert_same(traced, lambda module, batch: module(batch), torch.randn(3, 4))


# Kinds.


class Gelu(nn.Module):
    """GELU by ``tanh`` as in GPT-2, clipped or not."""

    def __init__(self, limit=None):
        super().__init__()
        self.limit = limit

    def forward(self, x):
        y = 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3))))
        return y if self.limit is None else y.clip(-self.limit, self.limit)


class Gpt(nn.Module):
    """The embeddings and the activation of GPT-2."""

    def __init__(self, limit):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(11, 4), nn.Embedding(9, 4)
        self.act, self.head = Gelu(limit), nn.Linear(4, 3)

    def forward(self, tokens):
        tokens = tokens.view(-1, tokens.shape[-1])
        positions = self.wpe(torch.arange(tokens.shape[1]).unsqueeze(0))
        x = self.wte(tokens)
        return self.head(self.act(x + positions.to(x.device, x.dtype)))


def test_the_padding_of_an_embedding_is_kept():
    module = nn.Sequential(nn.Embedding(7, 4, padding_idx=2), nn.Flatten(), nn.Linear(12, 3))
    traced = trace(module, torch.tensor([[0, 2, 6], [2, 3, 1]]))
    op = traced.network.to_dict()["layers"][0]["op"]
    assert op == {"embedding": {"vocabulary": 7, "features": 4, "padding": 2}}
    tokens = torch.tensor([[2, 2, 5], [1, 0, 2], [6, 4, 2]])
    assert check_gradients(traced, tokens, torch.tensor([0, 1, 2])).largest_difference < 1e-9


class QuickGelu(nn.Module):
    """GELU by ``sigmoid`` as in CLIP."""

    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


SMOOTH = {
    "silu": nn.SiLU(inplace=True),
    "quick_gelu": QuickGelu(),
    "sigmoid": nn.Sigmoid(),
    "tanh": nn.Tanh(),
}
HARD = {"hard_swish": nn.Hardswish(inplace=True), "relu6": nn.ReLU6(), "hard_sigmoid": nn.Hardsigmoid()}


# PyTorch's sixth, the slope of the hard ones, has single precision.
@pytest.mark.parametrize(("activations", "limit"), [(SMOOTH, 1e-9), (HARD, 1e-7)])
def test_activations_have_kinds(activations, limit):
    module = nn.Sequential(nn.Linear(4, 6), *activations.values(), nn.Linear(6, 3))
    traced = trace(module, torch.randn(2, 4))
    kinds = [layer.kind for layer in traced.layers]
    assert kinds[: len(activations) + 2] == ["linear", *activations, "linear"]
    assert_same(traced, lambda module, batch: module(batch), torch.randn(3, 4))
    labels = torch.tensor([0, 1, 2, 0, 1])
    assert check_gradients(traced, torch.randn(5, 4), labels).largest_difference < limit


class GatedMlp(nn.Module):
    """The gated unit of Llama."""

    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(4, 6), nn.Linear(4, 6, bias=False), nn.Linear(6, 3)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


def test_gate_is_a_product_of_two_layers():
    traced = trace(GatedMlp(), torch.randn(2, 5, 4))
    kinds = {layer.name: (layer.kind, layer.inputs) for layer in traced.layers}
    assert kinds["mul"] == ("multiply", ("act", "up"))
    assert_same(traced, lambda module, batch: module(batch), torch.randn(3, 5, 4))
    check = check_gradients(traced, torch.randn(3, 5, 4), torch.randint(3, (3, 5)))
    assert check.largest_difference < 1e-9


class Excited(nn.Module):
    """A product of images with one number a channel, as in a squeeze-and-excitation."""

    def __init__(self, swapped):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4, 3)
        self.factors = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 4, 1), nn.Sigmoid())
        self.swapped = swapped

    def forward(self, x):
        x = self.first(x)
        x = self.factors(x) * x if self.swapped else x * self.factors(x)
        return self.last(x.mean((2, 3)))


@pytest.mark.parametrize("swapped", [False, True])
def test_product_with_one_number_a_channel_is_a_layer(swapped):
    traced = trace(Excited(swapped), torch.randn(2, 3, 6, 5))
    kinds = {layer.name: (layer.kind, layer.inputs) for layer in traced.layers}
    assert kinds["mul"] == ("multiply", ("first", "factors.2"))
    assert not traced.opaque
    assert_same(traced, lambda module, batch: module(batch), torch.randn(3, 3, 6, 5))
    check = check_gradients(traced, torch.randn(5, 3, 6, 5), torch.tensor([0, 1, 2, 0, 1]))
    assert check.largest_difference < 1e-9


class Scaled(nn.Module):
    """A product of images with one number a row, which no kind has."""

    def forward(self, x):
        return x * torch.sigmoid(x.mean(3, keepdim=True))


def test_product_with_one_number_a_row_is_opaque():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), Scaled(), nn.Flatten(), nn.Linear(48, 3))
    traced = trace(module, torch.randn(2, 3, 6, 5))
    assert list(traced.opaque) == ["1"]


class Halves(nn.Module):
    """Two halves of the channels of images, of which one goes through a layer, in the other order."""

    def __init__(self, first):
        super().__init__()
        self.first, self.layer, self.last = first, nn.Conv2d(2, 2, 1), nn.Linear(4, 3)

    def forward(self, x):
        left, right = self.first(x).chunk(2, dim=1)
        x = torch.cat([self.layer(right), left], 1)
        return self.last(x[:, -4:, 1:].mean((2, 3)))


def test_ranges_of_channels_are_slices():
    traced = trace(Halves(nn.Conv2d(3, 4, 3)), torch.randn(2, 3, 6, 5))
    slices = [layer["op"]["slice"] for layer in traced.network.to_dict()["layers"] if "slice" in layer["op"]]
    assert slices == [{"start": 0, "length": 2}, {"start": 2, "length": 2}]
    # The range of rows.
    assert len(traced.opaque) == 1
    assert_same(traced, lambda module, batch: module(batch), torch.randn(3, 3, 6, 5))


def test_gradients_of_slices_match_pytorch():
    class Part(nn.Module):
        def forward(self, x):
            return x[:, 1:-2]

    module = nn.Sequential(nn.Conv2d(3, 5, 3), Part(), nn.Flatten(), nn.Linear(24, 3))
    traced = trace(module, torch.randn(2, 3, 6, 5))
    assert not traced.opaque
    assert traced.network.to_dict()["layers"][1]["op"] == {"slice": {"start": 1, "length": 2}}
    check = check_gradients(traced, torch.randn(5, 3, 6, 5), torch.tensor([0, 1, 2, 0, 1]))
    assert check.largest_difference < 1e-9


def test_stochastic_depth_is_dropout_of_samples():
    StochasticDepth = pytest.importorskip("torchvision").ops.StochasticDepth

    class Residual(nn.Module):
        def __init__(self, drop):
            super().__init__()
            self.linear, self.drop = nn.Linear(4, 4), drop

        def forward(self, x):
            return x + self.drop(self.linear(x))

    for drop, kinds in [
        (StochasticDepth(0.25, "row"), ["linear", "dropout", "add"]),
        (StochasticDepth(0.25, "batch"), ["linear", "opaque", "add"]),
    ]:
        module = nn.Sequential(nn.Linear(4, 4), Residual(drop), nn.Linear(4, 3))
        traced = trace(module, torch.randn(4, 4))
        assert [layer.kind for layer in traced.layers[1:4]] == kinds
    module = nn.Sequential(nn.Linear(4, 4), StochasticDepth(0.25, "row"), nn.Linear(4, 3))
    traced = trace(module, torch.randn(4, 4))
    op = traced.network.to_dict()["layers"][1]["op"]
    assert op == {"dropout": {"probability": 0.25, "of_samples": True}}


def test_swish_by_formula_is_one_layer():
    class Swish(nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    traced = trace(nn.Sequential(nn.Linear(4, 6), Swish(), nn.Linear(6, 3)), torch.randn(2, 4))
    assert [layer.kind for layer in traced.layers[:3]] == ["linear", "silu", "linear"]


class ScaledNorm(nn.Module):
    """The normalization of Llama, or that of Gemma with ``offset`` 1."""

    def __init__(self, offset=0.0, power=2):
        super().__init__()
        self.weight, self.offset, self.power = nn.Parameter(torch.randn(4)), offset, power

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(self.power).mean(-1, keepdim=True) + 1e-6)
        return (self.weight + self.offset) * x.to(dtype)


@pytest.mark.parametrize(
    ("norm", "op"),
    [
        (nn.RMSNorm(4), {"rms_norm": {"epsilon": torch.finfo(torch.float32).eps}}),
        (nn.RMSNorm(4, eps=1e-3), {"rms_norm": {"epsilon": 1e-3}}),
        (ScaledNorm(), {"rms_norm": {"epsilon": 1e-6}}),
        (ScaledNorm(offset=1.0), {"rms_norm": {"epsilon": 1e-6, "unit_offset": True}}),
        (ScaledNorm(offset=2.0), None),
        (ScaledNorm(power=4), None),
    ],
)
def test_rms_norms_have_kinds(norm, op):
    traced = trace(nn.Sequential(norm, nn.Linear(4, 3)), torch.randn(2, 5, 4))
    layer = traced.network.to_dict()["layers"][0]
    assert layer["op"] == op if op else "opaque" in layer["op"]
    assert_same(traced, lambda module, batch: module(batch), torch.randn(3, 5, 4))
    if op:
        check = check_gradients(traced, torch.randn(3, 5, 4), torch.randint(3, (3, 5)))
        assert check.largest_difference < 1e-6


@pytest.mark.parametrize(("limit", "kind"), [(None, "gelu_tanh"), (10, "opaque")])
def test_activations_by_formula_and_viewed_tokens_have_kinds(limit, kind):
    traced = trace(Gpt(limit), torch.randint(11, (2, 5)))
    kinds = [(layer.name, layer.kind) for layer in traced.layers[:4]]
    assert kinds == [
        ("wte", "embedding"),
        ("wpe.weight", "position_embedding"),
        ("act", kind),
        ("head", "linear"),
    ]
    assert_same(traced, lambda module, batch: module(batch), torch.randint(11, (3, 5)))
