"""Losses of `deeppool train` against those of PyTorch, for small unmodified modules."""

import copy
import json

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from command import deeppool, needs_command  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deeppool.tracing import trace  # noqa: E402

BATCH, ITERATIONS = 8, 50
VOCABULARY, POSITIONS = 31, 12
#: Positions of the source of a translation. Its target is behind it.
SOURCE = 7


class LanguageModel(nn.Module):
    """A language model of two GRU layers."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.gru = nn.GRU(16, 20, 2, batch_first=True)
        self.head = nn.Linear(20, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.gru(self.embedding(tokens))[0])


class BidirectionalTagger(nn.Module):
    """Two bidirectional LSTM layers, with a score for each word."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.lstm = nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


class Translator(nn.Module):
    """An LSTM encoder and an LSTM decoder, whose outputs attend to those of the encoder."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.encoder = nn.LSTM(16, 20, batch_first=True)
        self.decoder = nn.LSTM(16, 20, batch_first=True)
        self.context, self.state = nn.Linear(20, 20, bias=False), nn.Linear(20, 20)
        self.head = nn.Linear(20, VOCABULARY)

    def forward(self, tokens):
        words = self.embedding(tokens)
        source = self.encoder(words[:, :SOURCE])[0]
        target = self.decoder(words[:, SOURCE:])[0]
        context = F.scaled_dot_product_attention(target, source, source)
        return self.head(torch.tanh(self.context(context) + self.state(target)))


def causal(name, **options):
    """A language model of two blocks of the package `transformers`, with grouped queries."""
    kind = getattr(pytest.importorskip("transformers"), f"{name}ForCausalLM")
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return kind(kind.config_class(**sizes, **heads, **options))


def llama():
    return causal("Llama", intermediate_size=64)


def mixtral():
    return causal("Mixtral", intermediate_size=48, num_local_experts=4)


class Tagger(nn.Module):
    """T5's encoder, whose blocks share the numbers of relative positions, with a score for each word."""

    def __init__(self):
        super().__init__()
        transformers = pytest.importorskip("transformers")
        config = transformers.T5Config(
            vocab_size=VOCABULARY,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=10,
            dropout_rate=0.0,
        )
        self.encoder, self.head = transformers.T5EncoderModel(config), nn.Linear(32, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.encoder(tokens).last_hidden_state)


def mobilenet():
    models = pytest.importorskip("torchvision").models
    return models.mobilenet_v3_small(num_classes=10, dropout=0.0)


def sequences(labels):
    """Random sequences, and of each sequence the next tokens at its last positions."""
    tokens = torch.randint(1, VOCABULARY, (BATCH * ITERATIONS, POSITIONS + 1))
    # Three of four tokens follow from the one before.
    for position in range(1, POSITIONS + 1):
        known = torch.rand(len(tokens)) < 0.75
        tokens[known, position] = tokens[known, position - 1] * 5 % VOCABULARY
    return tokens[:, :-1].clone(), tokens[:, -labels:].clone()


def images():
    labels = torch.randint(10, (BATCH * ITERATIONS,))
    return torch.randn(10, 3, 64, 64)[labels] + torch.randn(len(labels), 3, 64, 64), labels


#: Network, data, learning rate and momentum.
CASES = {
    "gru": (LanguageModel, lambda: sequences(POSITIONS), 0.2, 0.9),
    "tagger": (BidirectionalTagger, lambda: sequences(POSITIONS), 0.2, 0.9),
    "seq2seq": (Translator, lambda: sequences(POSITIONS - SOURCE), 0.2, 0.9),
    "t5": (Tagger, lambda: sequences(POSITIONS), 0.05, 0.9),
    "llama": (llama, lambda: sequences(POSITIONS), 0.1, 0.9),
    "mixtral": (mixtral, lambda: sequences(POSITIONS), 0.1, 0.9),
    "mobilenet": (mobilenet, images, 0.02, 0.0),
}


def losses_of_pytorch(module, inputs, labels, lr, momentum, perturbation=0.0):
    return trained_by_pytorch(copy.deepcopy(module), inputs, labels, lr, momentum, perturbation)


def trained_by_pytorch(module, inputs, labels, lr, momentum, perturbation=0.0):
    """Trains a module, and returns the loss of each iteration."""
    module.train()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1 + perturbation * torch.randn_like(parameter))
    optimizer = torch.optim.SGD(module.parameters(), lr=lr, momentum=momentum)
    losses = []
    for start in range(0, len(inputs), BATCH):
        optimizer.zero_grad()
        scores = module(inputs[start : start + BATCH])
        scores = getattr(scores, "logits", scores).flatten(0, -2)
        loss = F.cross_entropy(scores, labels[start : start + BATCH].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def largest_difference(some, others):
    return max(abs(a - b) for a, b in zip(some, others, strict=True))


def write(folder, module, inputs, labels, test=BATCH, loss=None):
    """Writes the network of a module, its parameters, and data with `test` test samples."""
    traced = trace(module, inputs[:2], loss=loss)
    assert not traced.opaque
    traced.network.save(folder / "network.json")
    # A parameter with several names has one of them in the network.
    islands = traced.islands.values()
    names = {name for island in islands for name, _ in (*island.named_parameters(), *island.named_buffers())}
    state = {key: value.clone() for key, value in module.state_dict().items() if key in names}
    safetensors.save_file(state, folder / "initial.safetensors")
    tensors = {"inputs": inputs, "labels": labels}
    content = {f"train.{key}": tensor for key, tensor in tensors.items()}
    content |= {f"test.{key}": tensor[:test].clone() for key, tensor in tensors.items()}
    safetensors.save_file(content, folder / "data.safetensors")


@needs_command
@pytest.mark.parametrize("name", CASES)
def test_losses_match_pytorch_on_1_to_4_ranks(name, tmp_path):
    torch.manual_seed(0)
    make, data, *rule = CASES[name]
    module, (inputs, labels) = make(), data()
    write(tmp_path, module, inputs, labels)
    expected = losses_of_pytorch(module, inputs, labels, *rule)
    assert min(expected[-5:]) < 0.99 * expected[0]
    # Batch normalizations of small batches amplify rounding errors, in PyTorch too.
    perturbed = losses_of_pytorch(module, inputs, labels, *rule, perturbation=1e-7)
    bound = max(1e-4, 2 * largest_difference(perturbed, expected))
    assert bound < 1e-2
    for ranks in (1, 2, 4):
        of_network = ("--graph", "network.json", "--device", "cpu-core", "--batch", BATCH)
        planned = ("--gpus", ranks, "--amplification", 2, "--sync-batch-norm", "-o", f"plan-{ranks}.json")
        deeppool(tmp_path, "plan", *of_network, *planned)
        data = ("--data", "safetensors:data.safetensors", "--no-shuffle", "--init", "initial.safetensors")
        options = ("--lr", rule[0], "--momentum", rule[1], "--iterations", ITERATIONS, "--json")
        train = ("train", "--graph", "network.json", "--plan", f"plan-{ranks}.json")
        report = json.loads(deeppool(tmp_path, *train, *data, *options))
        difference = largest_difference(report["losses"], expected)
        assert difference < bound, f"{ranks} ranks: losses differ by {difference}, bound {bound}"


class Padded(nn.Module):
    """A language model of one attention. Its labels are padded."""

    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(VOCABULARY, 16), nn.LayerNorm(16)
        self.qkv, self.head = nn.Linear(16, 48), nn.Linear(16, VOCABULARY)

    def forward(self, tokens):
        words = self.embedding(tokens)
        q, k, v = (part.unflatten(2, (2, 8)).transpose(1, 2) for part in self.qkv(words).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(self.norm(words + attended.transpose(1, 2).flatten(2)))


@needs_command
def test_losses_with_padded_labels_match_pytorch(tmp_path):
    """The mean is over the labels of the whole batch that are no padding, on all ranks."""
    torch.manual_seed(0)
    iterations, rule = 10, (0.5, 0.9)
    module, (inputs, labels) = Padded(), sequences(POSITIONS)
    inputs, labels = inputs[: iterations * BATCH].clone(), labels[: iterations * BATCH].clone()
    # Some samples have no label, and the last ones of each batch have few.
    lengths = torch.randint(0, POSITIONS + 1, (iterations, BATCH))
    lengths[:, BATCH // 2 :] //= 4
    lengths = lengths.view(-1, 1)
    labels[torch.arange(POSITIONS) >= lengths] = -100
    test = 3 * BATCH + 5
    write(tmp_path, module, inputs, labels, test, nn.CrossEntropyLoss())
    expected = trained_by_pytorch(module, inputs, labels, *rule)
    assert expected[-1] < 0.9 * expected[0]
    # The test data are several batches and an incomplete one, with other numbers of labels.
    with torch.no_grad():
        scores, targets = module(inputs[:test]).flatten(0, 1), labels[:test].flatten()
        tested = F.cross_entropy(scores, targets).item()
        correct = (scores.argmax(1) == targets).sum().item() / (targets != -100).sum().item()
    of_network = ("--graph", "network.json", "--device", "cpu-core", "--batch", BATCH)
    data = ("--data", "safetensors:data.safetensors", "--no-shuffle", "--init", "initial.safetensors")
    options = ("--lr", rule[0], "--momentum", rule[1], "--iterations", iterations, "--json")
    # Options of a data parallel or burst plan, its micro-batches, and layers split by positions.
    plans = [
        (["--gpus", 1], 1, []),
        (["--gpus", 1], 4, []),
        (["--gpus", 2, "--mode", "dp"], 1, []),
        (["--gpus", 4, "--mode", "dp"], 2, []),
        (["--gpus", 4, "--amplification", 2], 1, []),
        (["--gpus", 4, "--mode", "dp"], 2, ["norm", "head", "loss"]),
    ]
    for arguments, micro_batches, split in plans:
        deeppool(tmp_path, "plan", *of_network, *arguments, "-o", "plan.json")
        plan = json.loads((tmp_path / "plan.json").read_text())
        plan["lowering"]["micro_batches"] = micro_batches
        for layer in plan["layers"]:
            if layer["name"] in split:
                layer["division"] = {"split": "positions", "parts": 2}
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        train = ("train", "--graph", "network.json", "--plan", "plan.json")
        report = json.loads(deeppool(tmp_path, *train, *data, *options))
        difference = largest_difference(report["losses"], expected)
        assert difference < 1e-5, f"{arguments}, {micro_batches}, {split}: losses differ by {difference}"
        (epoch,) = report["epochs"]
        assert epoch["test_loss"] == pytest.approx(tested, abs=1e-5)
        assert epoch["test_accuracy"] == pytest.approx(correct, abs=1e-6)
