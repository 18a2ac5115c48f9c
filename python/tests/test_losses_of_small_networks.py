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


def llama():
    transformers = pytest.importorskip("transformers")
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )


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
    "seq2seq": (Translator, lambda: sequences(POSITIONS - SOURCE), 0.2, 0.9),
    "t5": (Tagger, lambda: sequences(POSITIONS), 0.05, 0.9),
    "llama": (llama, lambda: sequences(POSITIONS), 0.1, 0.9),
    "mobilenet": (mobilenet, images, 0.02, 0.0),
}


def losses_of_pytorch(module, inputs, labels, lr, momentum, perturbation=0.0):
    module = copy.deepcopy(module).train()
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


@needs_command
@pytest.mark.parametrize("name", CASES)
def test_losses_match_pytorch_on_1_to_4_ranks(name, tmp_path):
    torch.manual_seed(0)
    make, data, *rule = CASES[name]
    module, (inputs, labels) = make(), data()
    traced = trace(module, inputs[:2])
    assert not traced.opaque
    traced.network.save(tmp_path / "network.json")
    # A parameter with several names has one of them in the network.
    islands = traced.islands.values()
    names = {name for island in islands for name, _ in (*island.named_parameters(), *island.named_buffers())}
    state = {key: value.clone() for key, value in module.state_dict().items() if key in names}
    safetensors.save_file(state, tmp_path / "initial.safetensors")
    tensors = {"inputs": inputs, "labels": labels}
    content = {f"train.{key}": tensor for key, tensor in tensors.items()}
    content |= {f"test.{key}": tensor[:BATCH].clone() for key, tensor in tensors.items()}
    safetensors.save_file(content, tmp_path / "data.safetensors")
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
