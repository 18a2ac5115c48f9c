"""Tests that files of PyTorch's exporters and traced modules give the same network."""

import json
import warnings

import pytest

torch = pytest.importorskip("torch")

from small_networks import Answer  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deeppool import Network  # noqa: E402
from deeppool.tracing import trace  # noqa: E402


class Residual(nn.Module):
    """Convolutions with normalisations, a gate by channel and a residual connection."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.inner = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.gate = nn.Conv2d(8, 8, 1)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(8, 16), nn.Hardswish(), nn.Linear(16, 5))

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        y = F.silu(self.inner(x))
        y = y * torch.sigmoid(self.gate(F.adaptive_avg_pool2d(y, 1)))
        x = F.max_pool2d(x + y, 2)
        return self.head(F.adaptive_avg_pool2d(x, 1))


class Resampling(nn.Module):
    """A convolution with uneven padding, normalisations of groups, and ways to a larger image."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, dilation=2)
        self.same = nn.Conv2d(8, 8, 2, padding="same", groups=2)
        self.norm = nn.InstanceNorm2d(8, affine=True)
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1)
        self.signal = nn.Conv1d(4, 6, 3, stride=2, bias=False)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        x = F.leaky_relu(self.conv(F.pad(x, [1, 2, 0, 3])), 0.2)
        x = self.norm(self.same(x))
        x = F.interpolate(self.up(x), scale_factor=2)
        x = self.signal(x.flatten(2))
        return self.head(F.adaptive_avg_pool2d(x.unsqueeze(2), 1).flatten(1))


class Decoder(nn.Module):
    """A block of a language model with a causal attention."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 32)
        self.positions = nn.Embedding(12, 32)
        self.norm = nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)
        self.head = nn.Linear(32, 50, bias=False)

    def forward(self, x):
        batch, length = x.shape
        x = self.tokens(x) + self.positions(torch.arange(length))
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, 4, 8).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, 32))
        return self.head(x + self.down(F.gelu(self.up(x), approximate="tanh")))


class Tagger(nn.Module):
    """Bidirectional LSTMs and GRUs, with biases and without, in one level and in two."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 8)
        self.lstm = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)
        self.plain = nn.LSTM(12, 7, bias=False, batch_first=True)
        self.gru = nn.GRU(7, 5, batch_first=True, bidirectional=True)
        self.last = nn.GRU(10, 6, 2, batch_first=True)
        self.head = nn.Linear(6, 9)

    def forward(self, x):
        x = self.plain(self.lstm(self.tokens(x))[0])[0]
        return self.head(self.last(self.gru(torch.tanh(x))[0])[0])


class First(nn.Module):
    def forward(self, x):
        return x[0]


NETWORKS = {
    "residual": (Residual, lambda: (torch.randn(2, 3, 16, 16),)),
    "resampling": (Resampling, lambda: (torch.randn(2, 3, 16, 16),)),
    "decoder": (Decoder, lambda: (torch.randint(0, 50, (2, 10)),)),
    "tagger": (Tagger, lambda: (torch.randint(0, 50, (2, 10)),)),
    "answer": (Answer, lambda: (torch.randn(2, 2, 4, 4), torch.randint(0, 20, (2, 6)))),
}


def layers(network):
    """Returns the kind, hyper-parameters and inputs of each layer, independently of names and order.

    A layer is its kind with the layers of its inputs.
    """
    known = {name: str(number) for number, name in enumerate(network.input_shapes)}
    for layer in network.to_dict()["layers"]:
        inputs = [known[name] for name in layer["inputs"]]
        known[layer["name"]] = json.dumps([layer["op"], inputs], sort_keys=True)
    return sorted(known.values())


def exported(name, how, path):
    """Returns the network of a module by one of the ways."""
    make, sample = NETWORKS[name]
    torch.manual_seed(0)
    module, inputs = make().train(), sample()
    dynamic = ({0: torch.export.Dim.DYNAMIC},) * len(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how == "trace":
            return trace(module, *inputs).network
        if how == "pt2":
            program = torch.export.export(module, inputs, dynamic_shapes=dynamic)
            torch.export.save(program, path / "net.pt2")
            return Network.from_pt2(path / "net.pt2")
        pytest.importorskip("onnxscript" if how == "dynamo" else "onnx")
        if how == "dynamo":
            options = {"dynamo": True, "optimize": False, "dynamic_shapes": dynamic, "verbose": False}
        else:
            mode = torch.onnx.TrainingMode.TRAINING
            options = {"dynamo": False, "training": mode, "do_constant_folding": False}
        torch.onnx.export(module, inputs, path / "net.onnx", **options)
        return Network.from_onnx(path / "net.onnx")


@pytest.mark.parametrize("how", ["pt2", "dynamo", "older"])
@pytest.mark.parametrize("name", NETWORKS)
def test_exports_give_the_traced_network(name, how, tmp_path):
    traced, network = exported(name, "trace", tmp_path), exported(name, how, tmp_path)
    assert network.parameter_count == traced.parameter_count
    assert list(network.input_shapes.values()) == list(traced.input_shapes.values())
    assert layers(network) == layers(traced)


@pytest.mark.parametrize("how", ["pt2", "dynamo", "older"])
def test_recurrent_layers_of_exports_have_the_names_and_parameters_of_the_modules(how, tmp_path):
    traced, network = exported("tagger", "trace", tmp_path), exported("tagger", how, tmp_path)
    named = [{layer.name: layer.parameter_count for layer in one.layers} for one in (traced, network)]
    recurrent = [
        {name: count for name, count in layers.items() if "_l0" in name or "_l1" in name} for layers in named
    ]
    assert recurrent[0] == recurrent[1] and len(recurrent[0]) == 21


@pytest.mark.parametrize("how", ["pt2", "dynamo"])
def test_dropouts_between_recurrent_layers_are_those_of_the_traced_network(how, tmp_path, monkeypatch):
    # The older exporter does not write them.
    def module():
        tokens, lstm = nn.Embedding(50, 8), nn.LSTM(8, 6, 3, batch_first=True, dropout=0.25)
        return nn.Sequential(tokens, lstm, First(), nn.Linear(6, 9))

    monkeypatch.setitem(NETWORKS, "dropouts", (module, NETWORKS["tagger"][1]))
    traced, network = exported("dropouts", "trace", tmp_path), exported("dropouts", how, tmp_path)
    assert layers(network) == layers(traced)
    names = [layer.name for layer in network.layers]
    assert "1.dropout_l0" in names and "1.dropout_l1" in names


class Last(nn.Module):
    """Scores of the last state of an LSTM."""

    def __init__(self, **options):
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True, **options)
        self.head = nn.Linear(self.lstm.proj_size or 6, 5)

    def forward(self, x):
        return self.head(self.lstm(x)[1][0][-1])


@pytest.mark.parametrize(
    ("options", "problem"), [({}, "not its last state"), ({"proj_size": 4}, "without a projection")]
)
def test_other_recurrent_modules_are_errors_of_one_line(options, problem, tmp_path):
    module, x = Last(**options), torch.randn(2, 3, 8)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.export.save(program, tmp_path / "net.pt2")
    with pytest.raises(ValueError, match=problem) as error:
        Network.from_pt2(tmp_path / "net.pt2")
    assert "\n" not in str(error.value)


def test_files_that_are_no_programs_are_errors(tmp_path):
    path = tmp_path / "net.pt2"
    path.write_bytes(b"PK\x05\x06")
    with pytest.raises(ValueError, match="net.pt2: not a .pt2 file"):
        Network.from_pt2(path)
