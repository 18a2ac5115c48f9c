"""Random modules trained by `BurstParallel` against the modules alone, or refused."""

import copy
import os
import random

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from plan_documents import random_plan  # noqa: E402
from random_modules import Case  # noqa: E402
from ranks import on_ranks  # noqa: E402

from deeppool import DeepPoolError  # noqa: E402
from deeppool.torch import BurstParallel  # noqa: E402
from deeppool.tracing import trace  # noqa: E402

#: More in continuous integration.
MODULES = int(os.environ.get("DEEPPOOL_MODULES", "30"))
WORLDS = (1, 2, 3)
TOLERANCE = 1e-8


def differs(one, other):
    """Returns whether two numbers or tensors differ. NaNs are equal."""
    one, other = torch.as_tensor(one).double(), torch.as_tensor(other).double()
    return not torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def trained_both_ways(module, loss, criterion, batches, change=None, plan=random_plan, seed=0, **options):
    """Trains a module by `BurstParallel` and a copy of it alone.

    Args:
        criterion: The loss of the module alone.
        change: Called with each of both modules and the iteration before it runs. It returns whether it
            changes the module.

    Returns:
        `None` if losses, state and evaluation are the same, "refused: ..." for an error while tracing, in
        the first iteration, directly after a change or for targets, and another text for a difference.
    """
    alone, batch = copy.deepcopy(module), len(batches[0][0])
    try:
        parts = trace(module, batches[0][0], loss=loss, targets=batches[0][1])
        model = BurstParallel(parts, plan(parts.network, dist.get_world_size(), batch, seed, **options))
    except DeepPoolError as error:
        return f"refused: {error}"
    model.train()
    alone.train()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.5) for one in (model, alone)]
    for iteration, (inputs, targets) in enumerate(batches):
        changed = [change(one, iteration) for one in (module, alone)] if change is not None else [False]
        for optimizer in optimizers:
            optimizer.zero_grad()
        expected = criterion(alone(inputs), targets)
        # Invalidate the rows that the rank must not read.
        others = [row for row in range(batch) if row not in model.samples]
        inputs, targets = inputs.clone(), targets.clone()
        inputs[others], targets[others] = (float("nan") if inputs.is_floating_point() else -1), -1
        try:
            loss = model(inputs, targets)
        except DeepPoolError as error:
            is_early = iteration == 0 or changed[0] or "targets of the batch are" in str(error)
            return f"refused: {error}" if is_early else f"iteration {iteration}, without a change: {error}"
        if differs(loss.detach(), expected.detach()):
            return f"iteration {iteration}: loss {loss.item()}, alone {expected.item()}"
        loss.backward()
        if expected.requires_grad:
            expected.backward()
        for optimizer in optimizers:
            optimizer.step()
    state = model.state_dict()
    for name, value in alone.state_dict().items():
        if differs(state[name], value):
            return f"{name} is {state[name]}, alone {value}"
    model.eval()
    alone.eval()
    inputs = batches[0][0]
    return "evaluation" if differs(model(inputs).detach(), alone(inputs).detach()) else None


def has_norm(module):
    return any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in module.modules())


def trained(seed):
    case = Case(seed)
    # Each micro-batch is normalized separately.
    options = {"micro_batches": 2} if not has_norm(case.module) and random.Random(seed).random() < 0.3 else {}
    return trained_both_ways(
        case.module, case.loss, case.criterion, case.batches, case.change, seed=seed, **options
    )


def trained_all(seeds):
    results = {}
    for seed in seeds:
        try:
            results[seed] = trained(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {Case(seed)}") from error
    return results


@pytest.mark.parametrize("world", WORLDS)
def test_random_modules_train_as_alone_or_are_refused(world):
    seeds = [seed for seed in range(MODULES) if WORLDS[seed % len(WORLDS)] == world]
    by_rank = on_ranks(world, trained_all, seeds)
    for results in by_rank:
        for seed, result in results.items():
            assert result is None or result.startswith("refused: "), f"seed {seed}: {result}\n{Case(seed)}"
            same = [other[seed] is None for other in by_rank]
            assert len(set(same)) == 1, f"seed {seed}: only some ranks refused it"
    refused = [result for result in by_rank[0].values() if result is not None]
    assert len(refused) < 0.7 * len(seeds) or len(seeds) < 10, refused
    assert all("\n" not in message for message in refused), refused
