"""Exceptions for wrong use of `BurstParallel`."""

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from plan_documents import data_parallel  # noqa: E402
from ranks import on_ranks  # noqa: E402
from small_networks import Counted  # noqa: E402
from torch import nn  # noqa: E402

from deeppool import DeepPoolError, InputError  # noqa: E402
from deeppool.torch import BurstParallel, BurstParallelError  # noqa: E402
from deeppool.tracing import trace  # noqa: E402

BATCH = 4


def two_layers():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


class Centers(nn.Module):
    """Subtracts the mean over the batch."""

    def forward(self, x):
        return x - x.mean(0, keepdim=True)


def traced(module):
    return trace(module, torch.randn(4, 6))


def error_of(call):
    """Returns the type and message of the error that a call raises, or `None`."""
    try:
        call()
    except DeepPoolError as error:
        return type(error).__name__, str(error)
    return None


def errors_of_wrong_uses():
    """Returns the error of each wrong use, by name."""
    inputs, targets = torch.randn(BATCH, 6), torch.zeros(BATCH, dtype=torch.long)
    errors = {}
    parts = traced(two_layers())
    errors["world"] = error_of(lambda: BurstParallel(parts, data_parallel(parts.network, 4, BATCH)))
    other = traced(nn.Sequential(nn.Linear(6, 3)))
    errors["other network"] = error_of(lambda: BurstParallel(parts, data_parallel(other.network, 2, BATCH)))
    errors["other plans"] = error_of(
        lambda: BurstParallel(
            parts, data_parallel(parts.network, 2, BATCH, bucket_bytes=1024 * (dist.get_rank() + 1))
        )
    )
    plan = data_parallel(parts.network, 2, BATCH)
    model = BurstParallel(parts, plan)
    errors["batch"] = error_of(lambda: model(inputs[:3], targets))
    errors["targets"] = error_of(lambda: model(inputs, targets[:2]))
    errors["no targets"] = error_of(lambda: model(inputs))
    errors["shape"] = error_of(lambda: model(torch.randn(BATCH, 7), targets))
    errors["no background"] = error_of(model.background_report)
    loss = model(inputs, targets)
    loss.backward(retain_graph=True)
    errors["twice"] = error_of(loss.backward)
    parts.module[2].weight = nn.Parameter(torch.zeros(3, 5))
    errors["other parameters"] = error_of(lambda: model(inputs, targets))
    parts.module[0] = nn.Linear(6, 5, bias=False)
    errors["changed"] = error_of(lambda: BurstParallel(parts, plan))

    def mixes():
        parts = traced(nn.Sequential(nn.Linear(6, 5), Centers(), nn.Linear(5, 3)))
        BurstParallel(parts, data_parallel(parts.network, 2, BATCH))(inputs, targets)

    errors["mixes"] = error_of(mixes)

    def pads():
        tokens = torch.randint(2, 9, (BATCH, 5))
        parts = trace(Counted(), tokens)
        model = BurstParallel(parts, data_parallel(parts.network, 2, BATCH))
        targets, rows = torch.zeros(BATCH, 5, dtype=torch.long), torch.arange(BATCH)[:, None]
        is_read = (rows >= model.samples.start) & (rows < model.samples.stop)
        assert error_of(lambda: model(torch.where(is_read, tokens, 1), targets)) is None
        model(torch.where(is_read & (rows == BATCH - 1), 1, tokens), targets)

    errors["padding"] = error_of(pads)
    return errors


@pytest.fixture(scope="module")
def errors_by_rank():
    return on_ranks(2, errors_of_wrong_uses)


@pytest.mark.parametrize(
    ("use", "kind", "parts"),
    [
        ("world", BurstParallelError, ["for 4 ranks, not for 2", "torchrun --nproc-per-node 4"]),
        ("other network", InputError, ["made for another network"]),
        ("other plans", BurstParallelError, ["rank 1 has another plan", "make the plan once"]),
        ("batch", BurstParallelError, ["batch of 4 samples, not for 3 inputs", "global batch"]),
        ("targets", BurstParallelError, ["batch of 4 samples, not for 2 targets"]),
        ("no targets", BurstParallelError, ["loss = model(inputs, targets)"]),
        ("shape", BurstParallelError, ["shape [6], not [7]", "trace it"]),
        ("no background", BurstParallelError, ["background="]),
        ("twice", BurstParallelError, ["call the model again"]),
        ("other parameters", BurstParallelError, ["parameters changed", "trace it again"]),
        ("changed", None, ["trace it again"]),
        ("mixes", None, ["1", "sample"]),
        ("padding", BurstParallelError, ["the padding token 1", "trace it with examples that have it"]),
    ],
)
def test_wrong_use_raises_on_all_ranks(use, kind, parts, errors_by_rank):
    for errors in errors_by_rank:
        assert errors[use] is not None, "no exception"
        name, message = errors[use]
        assert kind is None or name == kind.__name__
        assert all(part in message for part in parts), message


def test_missing_process_group_raises():
    parts = traced(two_layers())
    with pytest.raises(BurstParallelError, match="torchrun"):
        BurstParallel(parts, data_parallel(parts.network, 1, BATCH))


def test_probe_names_a_layer_that_mixes_samples():
    from deeppool.torch.segments import LayerPasses
    from deeppool.torch.probe import probe
    from deeppool.torch.sampled_random import SampledRandom

    parts, random = traced(two_layers()), SampledRandom()
    layers = {layer.name: LayerPasses(layer.name, layer.island, random) for layer in parts.layers}
    first = parts.layers[0].name
    inner = layers[first].island.forward
    layers[first].island.forward = lambda x: inner(x).cumsum(0).flip(0)
    with pytest.raises(BurstParallelError, match=f"layer '{first}' mixes samples"):
        probe(parts, layers, random, {"input": torch.randn(4, 6)})
