"""Losses and parameters of `BurstParallel` against the module on one process."""

import os

import pytest

torch = pytest.importorskip("torch")

from plan_documents import random_plan, data_parallel, plan_document  # noqa: E402
from ranks import on_ranks  # noqa: E402
from small_networks import NETWORKS, batches, losses_alone, make  # noqa: E402

import deeppool  # noqa: E402
from deeppool.torch import BurstParallel, dropout_keeps  # noqa: E402
from deeppool.tracing import trace  # noqa: E402

WORLD = 4
BATCH = 10
#: 20 in continuous integration.
ITERATIONS = int(os.environ.get("DEEPPOOL_ITERATIONS", "12"))
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def searched(network):
    """Returns a plan of the planner."""
    return (
        deeppool.plan(
            network, device="a100", gpus=WORLD, batch=BATCH, gpu_counts="all", sync_batch_norm=True
        ).to_json()
        if network.layers
        else ""
    )


def plans(network):
    """Returns plans by name. In some of them, ranks have no samples of some layers."""
    return {
        "data parallel": data_parallel(network, WORLD, BATCH),
        "searched": searched(network),
        "one rank": plan_document(network, WORLD, BATCH, lambda _: [2]),
        "random 1": random_plan(network, WORLD, BATCH, 1),
        "random 2": random_plan(network, WORLD, BATCH, 2, bucket_bytes=1),
        "random 3": random_plan(network, WORLD, BATCH, 3, overlap=False, bucket_bytes=1 << 30),
    }


#: Plans for training in single precision.
SINGLE_PRECISION_PLANS = ("data parallel", "searched", "random 2")


def plans_for(network, dtype):
    return {
        name: plan
        for name, plan in plans(network).items()
        if dtype == torch.float64 or name in SINGLE_PRECISION_PLANS
    }


def train(traced, name, plan, dtype):
    model = BurstParallel(traced, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for inputs, targets in batches(name, BATCH, ITERATIONS, dtype):
        # Invalidate the rows that the rank must not read.
        others = [row for row in range(BATCH) if row not in model.samples]
        inputs[others], targets[others] = (float("nan") if inputs.is_floating_point() else -1), -1
        optimizer.zero_grad()
        loss = model(inputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {tensor: value.clone() for tensor, value in model.state_dict().items()}


def train_all():
    results = {}
    for name in NETWORKS:
        module = make(name)
        traced = trace(module, next(batches(name, BATCH, 1))[0][:2])
        for dtype in TOLERANCE:
            for plan_name, plan in plans_for(traced.network, dtype).items():
                module.to(dtype).load_state_dict(make(name, dtype).state_dict())
                results[name, dtype, plan_name] = train(traced, name, plan, dtype)
    return results


@pytest.fixture(scope="module")
def trained():
    return on_ranks(WORLD, train_all)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", NETWORKS)
def test_losses_and_parameters_match_the_module_on_one_process(name, dtype, trained):
    expected, state = losses_alone(name, BATCH, ITERATIONS, dtype)
    for rank, results in enumerate(trained):
        for plan_name in plans_for(NoLayers, dtype):
            losses, whole = results[name, dtype, plan_name]
            worst = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
            assert worst < TOLERANCE[dtype], f"{plan_name} on rank {rank}: losses differ by {worst}"
            assert whole.keys() == state.keys()
            for tensor, value in state.items():
                difference = (whole[tensor] - value).abs().max().item()
                assert difference < 10 * TOLERANCE[dtype], (
                    f"{plan_name} on rank {rank}: {tensor} differs by {difference}"
                )


class NoLayers:
    """An empty network, to list the names of the plans."""

    name, layers = "", ()


def test_dropout_mask_on_device_matches_native_module():
    from deeppool.torch.sampled_random import _keeps_on_device

    for seed, iteration, name, first, samples, elements in [
        (0, 0, "dropout", 0, 3, 20),
        (1 << 40, 77, "ü.1/2", 5, 2, 8),
        (3, 1, "x", 0, 0, 5),
    ]:
        native = dropout_keeps(seed, iteration, name, first, samples, elements, 0.3)
        by_operations = _keeps_on_device(
            seed, iteration, name, first, samples, elements, 0.3, torch.device("cpu")
        )
        assert torch.equal(native, by_operations)
    kept = dropout_keeps(0, 0, "dropout", 0, 100, 1000, 0.3).double().mean().item()
    assert abs(kept - 0.7) < 0.01
