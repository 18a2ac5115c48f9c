"""The predicted memory of training against PyTorch's memory tracker."""

import copy
from unittest.mock import MagicMock

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from plan_documents import data_parallel, random_plan  # noqa: E402
from ranks import on_ranks  # noqa: E402
from small_networks import batches, make  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed._tools import mem_tracker  # noqa: E402

import deeppool  # noqa: E402
from deeppool.torch import BurstParallel, pytorch_memory  # noqa: E402
from deeppool.torch.burst_parallel import scaled  # noqa: E402
from deeppool.torch.memory import BLOCK_BYTES, Storages, blocks_of, momentum_sgd  # noqa: E402
from deeppool.tracing import trace  # noqa: E402

WORLD, BATCH = 3, 12
#: Maximum relative difference of a predicted and a tracked peak.
TOLERANCE = 0.05


class Gpt2(nn.Module):
    """A small GPT-2 with dropout."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(2000, 128), nn.Embedding(64, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, 0.1, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.ModuleList(copy.deepcopy(layer) for _ in range(3))
        self.head = nn.Linear(128, 2000)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(64, device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def tracked(traced, plan, inputs, targets, optimizer):
    """Returns the peak in bytes of the second iteration on this rank by PyTorch's tracker."""
    model = BurstParallel(traced, plan)
    rule = optimizer(model.parameters())
    # The tracker rounds on GPUs only.
    mem_tracker._WeakRefInfo._calculate_mem_consumed = lambda self: blocks_of(self.size * self.element_size)
    tracker = mem_tracker.MemTracker()
    # Without sums by module, which do not allow a backward pass within a module's forward pass.
    tracker._mod_tracker = MagicMock(is_bw=False)
    tracker.track_external(traced.module, rule, inputs, targets)
    with tracker:
        for _ in range(2):
            loss = model(inputs, targets)
            loss.backward()
            rule.step()
            rule.zero_grad()
            del loss
    (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    return snapshot["Total"]


def peaks(module, batch, plan, optimizer=momentum_sgd):
    """Returns the tracked and the predicted peak of this rank, and whether the module was kept."""
    traced = trace(module, batch[0][:2])
    document = plan(traced.network, dist.get_world_size(), BATCH)
    state = [(tensor, tensor.clone()) for tensor in module.state_dict(keep_vars=True).values()]
    (memory,) = pytorch_memory(traced, document, optimizer=optimizer, ranks=[dist.get_rank()])
    kept = module.state_dict(keep_vars=True).values()
    assert all(now is tensor and torch.equal(now, before) for now, (tensor, before) in zip(kept, state))
    return tracked(traced, document, *batch, optimizer), memory.peak_bytes


def random(network, gpus, batch):
    return random_plan(network, gpus, batch, 1)


def micro_batches(network, gpus, batch):
    return random_plan(network, gpus, batch, 5, micro_batches=3)


def checkpoints(network, gpus, batch):
    residual = [layer.name for layer in network.layers if ".add" in layer.name]
    return data_parallel(network, gpus, batch, checkpoints=residual)


def peaks_of_small_networks():
    results = {}
    for name in ("skips", "branches", "tied"):
        (batch,) = batches(name, BATCH, 1, torch.float32)
        for plan, optimizer in [
            (data_parallel, momentum_sgd),
            (random, torch.optim.Adam),
            (micro_batches, momentum_sgd),
        ]:
            module = make(name, torch.float32)
            results[name, plan.__name__] = peaks(module, batch, plan, optimizer)
    return results


def peaks_of_larger_networks():
    torchvision = pytest.importorskip("torchvision")
    images = torch.randn(BATCH, 3, 64, 64), torch.randint(1000, (BATCH,))
    tokens = torch.randint(2000, (BATCH, 65))
    torch.manual_seed(0)
    cases = {
        "resnet-50": (torchvision.models.resnet50(), images),
        "gpt2": (Gpt2(), (tokens[:, :-1], tokens[:, 1:])),
    }
    return {
        (name, plan.__name__): peaks(module, batch, plan)
        for name, (module, batch) in cases.items()
        for plan in (data_parallel, checkpoints)
    }


@pytest.mark.parametrize(
    "world, function",
    [(1, peaks_of_small_networks), (WORLD, peaks_of_small_networks), (1, peaks_of_larger_networks)],
)
def test_predicted_peak_is_close_to_the_tracked_peak(world, function):
    for rank, results in enumerate(on_ranks(world, function)):
        for case, (expected, predicted) in results.items():
            assert abs(predicted / expected - 1) < TOLERANCE, (case, rank, predicted, expected)


def test_optimizer_and_shard_size_determine_the_memory():
    module = make("skips", torch.float32)
    traced = trace(module, torch.randn(2, 3, 6, 6))
    state = sum(blocks_of(tensor.nbytes) for tensor in (*module.parameters(), *module.buffers()))
    parameters = sum(blocks_of(parameter.nbytes) for parameter in module.parameters())

    def memory(gpus=1, **options):
        return pytorch_memory(traced, data_parallel(traced.network, gpus, BATCH), **options)

    (plain,) = memory(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    (momentum,) = memory()
    assert plain.state_bytes == state
    assert momentum.state_bytes == state + parameters
    assert momentum.peak_bytes >= plain.peak_bytes + parameters
    assert [one.rank for one in memory(WORLD)] == list(range(WORLD))
    assert max(one.peak_bytes for one in memory(WORLD)) < momentum.peak_bytes


def test_gradients_of_an_earlier_iteration_are_not_counted():
    module = make("skips", torch.float32)
    traced = trace(module, torch.randn(2, 3, 6, 6))
    plan = random_plan(traced.network, WORLD, BATCH, 1)
    before = pytorch_memory(traced, plan)
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    assert pytorch_memory(traced, plan) == before
    assert all(torch.equal(one.grad, torch.ones_like(one)) for one in module.parameters())


def test_errors_name_the_argument():
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    traced = trace(module, torch.randn(2, 12))
    plan = data_parallel(traced.network, 2, 4)
    with pytest.raises(deeppool.InputError, match="rank"):
        pytorch_memory(traced, plan, ranks=[2])
    other = trace(nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.ReLU()), torch.randn(2, 12))
    with pytest.raises(deeppool.InputError):
        pytorch_memory(other, plan)
    # The module has its own tensors after an error.
    assert type(module[1].weight.data) is torch.Tensor


def test_scaled_gradients_take_the_place_of_the_gradients():
    size, count = 1 << 20, 8
    shared = torch.ones(size // 4)
    gradients = [torch.full((size // 4,), float(i)) for i in range(count - 2)]
    gradients += [shared, shared.view(2, -1)]  # In the same memory.
    expected = [gradient * 0.5 for gradient in gradients]
    with Storages(torch.device("cpu"), gradients) as storages:
        del shared
        results = scaled(gradients, torch.tensor(0.5))
    assert all(torch.equal(one, other) for one, other in zip(results, expected, strict=True))
    # One more gradient, and the scale in their type.
    assert storages.peak <= (count + 1) * size + BLOCK_BYTES
