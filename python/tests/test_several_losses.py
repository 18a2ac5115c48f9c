"""Modules of which several outputs have a loss."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
safetensors = pytest.importorskip("safetensors.torch")

import torchvision  # noqa: E402
from command import deeppool, needs_command  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from traced_networks import image  # noqa: E402

import deeppool as package  # noqa: E402
from deeppool.torch import BurstParallel, BurstParallelError  # noqa: E402
from deeppool.tracing import TraceError, check_gradients, trace  # noqa: E402


class TwoHeads(nn.Module):
    """Scores of each position, numbers of each sample, and a state that no loss reads."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.scores = nn.Linear(8, 3)
        self.values = nn.Linear(8, 2)
        self.pooler = nn.Linear(8, 8)

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        values = self.values(hidden.mean(1))
        return {"logits": self.scores(hidden), "values": values, "pooled": self.pooler(hidden[:, 0])}


LOSSES = {"logits": nn.CrossEntropyLoss(ignore_index=2), "values": nn.MSELoss()}


def two_heads(**options):
    torch.manual_seed(0)
    targets = {"logits": torch.randint(3, (3, 5)), "values": torch.randn(3, 2)}
    return trace(
        TwoHeads(),
        torch.randn(3, 5, 4),
        **{"loss": LOSSES, "targets": targets, "loss_weights": {"values": 0.3}, **options},
    )


def test_the_loss_is_the_weighted_sum_of_those_of_outputs():
    traced = two_heads()
    assert not traced.opaque
    assert [loss.name for loss in traced.losses] == ["loss.logits", "loss.values"]
    weights = {layer["name"]: layer.get("loss_weight") for layer in traced.graph["layers"]}
    assert (weights["loss.logits"], weights["loss.values"]) == (None, 0.3)
    assert "pooler" not in weights
    batch, classes, values = torch.randn(6, 5, 4), torch.randint(3, (6, 5)), torch.randn(6, 2)
    found = check_gradients(traced, batch, [classes, values])
    assert found.largest_difference < 1e-9, found
    result = traced.module.double()(batch.double())
    expected = F.cross_entropy(result["logits"].flatten(0, 1), classes.flatten(), ignore_index=2)
    expected = expected + 0.3 * F.mse_loss(result["values"], values.double())
    assert found.loss == pytest.approx(expected.item(), rel=1e-9)


def test_losses_of_tuples_are_given_in_order():
    class Pair(TwoHeads):
        def forward(self, x):
            result = super().forward(x)
            return result["values"], result["logits"]

    traced = trace(
        Pair(), torch.randn(3, 5, 4), loss=[nn.MSELoss(), None], targets=None, loss_weights=[2, 1]
    )
    assert [loss.name for loss in traced.losses] == ["loss.0", "loss.1"]
    assert [loss.weight for loss in traced.losses] == [2.0, 1.0]
    found = check_gradients(traced, torch.randn(6, 5, 4), [torch.randn(6, 2), torch.randint(3, (6, 5))])
    assert found.largest_difference < 1e-9, found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": {}, "targets": None, "loss_weights": None}, "`loss` is empty"),
        ({"loss": {"scores": None}, "targets": None, "loss_weights": None}, "returns no output `scores`"),
        ({"loss_weights": {"other": 1.0}}, "`loss_weights` has `other`, which has no loss"),
        ({"loss_weights": {"values": -1.0}}, "the weight -1.0 of the loss of `values`"),
        ({"loss": None}, "need a loss for each output"),
    ],
)
def test_losses_of_no_output_are_refused(options, message):
    with pytest.raises(TraceError, match=message):
        two_heads(**options)


def test_burst_parallel_names_the_way_to_train_several_losses():
    with pytest.raises(BurstParallelError, match="traced with 2 losses.*deeppool train"):
        BurstParallel(two_heads(), "{}")


@pytest.mark.parametrize(
    ("make", "side", "outputs", "weight"),
    [
        (torchvision.models.googlenet, 64, ["logits", "aux_logits2", "aux_logits1"], 0.3),
        (torchvision.models.inception_v3, 299, ["logits", "aux_logits"], 0.4),
    ],
    ids=["googlenet", "inception_v3"],
)
def test_auxiliary_classifiers_are_layers(make, side, outputs, weight):
    torch.manual_seed(0)
    module = make(num_classes=10, aux_logits=True, init_weights=False)
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    traced = trace(
        module,
        image(side),
        loss=dict.fromkeys(outputs),
        loss_weights=dict.fromkeys(outputs[1:], weight),
    )
    assert not traced.opaque
    assert [loss.name for loss in traced.losses] == [f"loss.{name}" for name in outputs]
    own = sum(parameter.numel() for parameter in module.parameters())
    assert traced.network.parameter_count == own
    plan = package.plan(traced.network, gpus=8, batch=32, device="a100")
    assert plan.iteration_us > 0
    if side < 100:
        labels = torch.tensor([3, 7])
        found = check_gradients(traced, torch.cat([image(side), image(side)])[:2], [labels] * len(outputs))
        assert found.largest_difference < 1e-7, found


@needs_command
def test_deeppool_train_learns_several_losses(tmp_path):
    traced = two_heads(targets=None, loss={"logits": None, "values": nn.MSELoss()})
    traced.network.save(tmp_path / "graph.json")
    inputs = torch.randn(64, 5, 4)
    data = {
        "inputs": inputs,
        "labels.loss.logits": (inputs[..., 0] > 0).long() + (inputs[..., 1] > 0).long(),
        "labels.loss.values": inputs[:, 0, :2].contiguous(),
    }
    safetensors.save_file({f"train.{name}": one for name, one in data.items()}, tmp_path / "data.safetensors")
    output = deeppool(
        tmp_path, "train", "--graph", tmp_path / "graph.json", "--data", "safetensors:data.safetensors",
        "--ranks", 2, "--batch", 8, "--epochs", 20, "--lr", 0.1, "--json",
    )  # fmt: skip
    report = json.loads(output)
    assert report["epochs"][-1]["train_loss"] < 0.6 * report["epochs"][0]["train_loss"]


transformers = pytest.importorskip("transformers")
SIZES = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 16, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("BertForPreTraining", ["prediction_logits", "seq_relationship_logits"]),
        ("BertForQuestionAnswering", ["start_logits", "end_logits"]),
    ],
)
def test_networks_with_two_heads_have_their_gradients(name, outputs):
    torch.manual_seed(0)
    module = getattr(transformers, name)(transformers.BertConfig(**SIZES))
    tokens = torch.randint(50, (4, 8))
    traced = trace(module, tokens, loss=dict.fromkeys(outputs, nn.CrossEntropyLoss()))
    assert not traced.opaque
    positions, classes = torch.randint(50, (4, 8)), torch.randint(2, (4,))
    targets = [positions, classes] if name == "BertForPreTraining" else [positions[:, 0] % 8, classes]
    found = check_gradients(traced, tokens, targets)
    assert found.largest_difference < 1e-7, found
