"""Features of `BurstParallel`: program options, checkpoints, gradients, events and background jobs."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from plan_documents import random_plan, data_parallel, plan_document  # noqa: E402
from ranks import on_ranks  # noqa: E402
from small_networks import Branches, batches, losses_alone, make, steps, with_sampled_dropout  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import deeppool  # noqa: E402
from deeppool.torch import BurstParallel  # noqa: E402
from deeppool.tracing import trace  # noqa: E402

WORLD = 4
BATCH = 10
ITERATIONS = 6


def traced(name):
    module = make(name)
    return module, trace(module, next(batches(name, BATCH, 1))[0][:2])


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(model, name, optimizer, first=0, end=ITERATIONS):
    return steps(model, optimizer, list(batches(name, BATCH, end))[first:])


def program_options():
    """Returns losses with micro-batches, some without samples on some ranks, and with checkpointing."""
    results = {}
    for name, options in [
        ("branches", {"micro_batches": 3}),
        ("transformer", {"micro_batches": 4}),
        ("tied", {"micro_batches": 2}),
        ("branches", {"checkpoints": ["stem", "cat"]}),
        ("skips", {"checkpoints": ["stem.2", "add"]}),
    ]:
        module, parts = traced(name)
        names = [layer.name for layer in parts.network.layers]
        if "checkpoints" in options:
            options = {"checkpoints": [layer for layer in options["checkpoints"] if layer in names]}
            assert options["checkpoints"]
        plan = random_plan(parts.network, WORLD, BATCH, 5, **options)
        if "checkpoints" in options:
            plan = data_parallel(parts.network, WORLD, BATCH, **options)
        model = BurstParallel(parts, plan)
        losses = train(model, name, sgd(model))
        results[name, *options] = losses, model.state_dict() if name == "skips" else None
    return results


def checkpoints():
    """Resumes a run from a checkpoint by another plan. Returns the losses and the checkpoint."""
    name = "skips"
    module, parts = traced(name)
    model = BurstParallel(parts, random_plan(parts.network, WORLD, BATCH, 7))
    optimizer = sgd(model)
    train(model, name, optimizer, end=3)
    model.synchronize(optimizer)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    module, parts = traced(name)
    other = BurstParallel(parts, random_plan(parts.network, WORLD, BATCH, 8))
    other.iteration = 3
    other_optimizer = sgd(other)
    other.load_state_dict(saved[0])
    other_optimizer.load_state_dict(saved[1])
    return train(other, name, other_optimizer, first=3), saved[0]


def norms_by_shard(checkpoints=()):
    """Returns the maximum difference to DistributedDataParallel, which also normalizes each shard."""
    batch, shard = 8, slice(2 * dist.get_rank(), 2 * dist.get_rank() + 2)
    module = make("skips")
    module.dropout.p = 0.0
    theirs = copy.deepcopy(module)
    parts = trace(module, torch.randn(2, 3, 6, 6, dtype=torch.float64))
    plan = data_parallel(parts.network, WORLD, batch, sync_batch_norm=False, checkpoints=checkpoints)
    model = BurstParallel(parts, plan)
    parallel = DistributedDataParallel(theirs)
    optimizers = sgd(model), sgd(parallel)
    worst = 0.0
    for inputs, targets in batches("skips", batch, 4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        ours = model(inputs, targets)
        ours.backward()
        loss = F.cross_entropy(parallel(inputs[shard]), targets[shard])
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        worst = max(worst, abs(ours.item() - mean.item() / WORLD))
    state = model.state_dict()
    if dist.get_rank() == 0:
        for name, value in theirs.state_dict().items():
            worst = max(worst, (state[name] - value).abs().max().item())
    return worst


def recomputed_norms_by_shard():
    """Returns the maximum difference to DistributedDataParallel with recomputed normalizations."""
    return norms_by_shard(["stem.2", "add"])


def gradients():
    """Tests accumulated gradients, clipping, frozen parameters and evaluation."""
    module, parts = traced("branches")
    model = BurstParallel(parts, random_plan(parts.network, WORLD, BATCH, 9))
    (first, second) = batches("branches", BATCH, 2)
    (0.5 * model(*first)).backward()
    (0.5 * model(*second)).backward()
    norm = model.clip_grad_norm_(0.01).item()
    own = {
        name: parameter.grad.clone()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }

    module, _ = traced("branches")
    module.stem.requires_grad_(False)
    module.three[0].requires_grad_(False)
    parts = trace(module, first[0][:2])
    model = BurstParallel(parts, random_plan(parts.network, WORLD, BATCH, 10))
    optimizer = sgd(model)
    losses = train(model, "branches", optimizer)
    model.eval()
    try:
        model(first[0])
        stale = None
    except RuntimeError as error:
        stale = str(error)
    model.synchronize()
    return norm, own, losses, stale, model(first[0])


def searched(network):
    return deeppool.plan(network, device="a100", gpus=WORLD, batch=BATCH, gpu_counts="all")


def order_of_steps():
    """Returns the lanes and labels of the executed steps, in the order of their starts."""
    _, parts = traced("branches")
    model = BurstParallel(parts, searched(parts.network))
    model.record()
    train(model, "branches", sgd(model), end=2)
    events = sorted(model.events(), key=lambda event: event.began_us)
    assert all(event.ended_us >= event.began_us for event in events)
    return [(event.lane, event.label) for event in events]


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.left, self.right, self.fc = (
            nn.Linear(4, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 3),
        )

    def forward(self, x):
        x = self.stem(x)
        return self.fc(self.left(x) + self.right(x))


class Meets(torch.autograd.Function):
    """A barrier between two branches in both passes: fails unless they run concurrently."""

    @staticmethod
    def forward(ctx, x, name, other):
        ctx.names = name, other
        Meets.meet("forward", name, other)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        Meets.meet("backward", *ctx.names)
        return gradient, None, None

    @staticmethod
    def meet(pass_, name, other):
        store = dist.distributed_c10d._get_default_store()
        store.set(f"{pass_}/{name}", "here")
        store.wait([f"{pass_}/{other}"], __import__("datetime").timedelta(seconds=30))


def branches_meet():
    module = TwoBranches()
    parts = trace(module, torch.randn(2, 4))
    ranks = {"left": [0], "right": [1]}
    model = BurstParallel(
        parts, plan_document(parts.network, WORLD, 4, lambda layer: ranks.get(layer, [0, 1, 2, 3]))
    )
    for name, other in [("left", "right"), ("right", "left")]:
        passes = model._layers[name]
        passes.run = lambda x, run=passes.run, name=name, other=other: Meets.apply(run(x), name, other)
    # The probe runs all layers on each rank: open the barrier for it.
    dist.distributed_c10d._get_default_store().set("forward/left", "here")
    dist.distributed_c10d._get_default_store().set("forward/right", "here")
    model._prepare(torch.randn(4, 4))
    dist.barrier()
    if dist.get_rank() == 0:
        for branch in ("left", "right"):
            dist.distributed_c10d._get_default_store().delete_key(f"forward/{branch}")
    dist.barrier()
    loss = model(torch.randn(4, 4), torch.tensor([0, 1, 2, 0]))
    loss.backward()
    return True


class Background:
    """A background job that trains a small module."""

    def __init__(self):
        torch.manual_seed(3)
        self.module = nn.Linear(6, 1)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.05)
        self.inputs = torch.randn(20, 6)
        self.losses = []

    def __call__(self):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.module(self.inputs), self.inputs.sum(1, keepdim=True))
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())


def with_background():
    name = "branches"
    _, parts = traced(name)
    job = Background()
    # The first rank has the most work, so that others are idle.
    plan = plan_document(
        parts.network,
        WORLD,
        BATCH,
        lambda layer: [0] if "three" in layer or "five" in layer else [0, 1, 2, 3],
    )
    model = BurstParallel(parts, plan, background=job)
    losses = train(model, name, sgd(model), end=ITERATIONS)
    report = model.background_report()

    def fails():
        raise ValueError("no more data")

    _, parts = traced(name)
    model = BurstParallel(parts, plan, background=fails)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        again = train(model, name, sgd(model), end=ITERATIONS)
    return losses, again, job.losses, report, [str(warning.message) for warning in warned]


class Encoder(nn.Module):
    """A transformer layer with dropout inside its attention."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(17, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        self.head = nn.Linear(8, 17)

    def forward(self, tokens):
        return self.head(self.layer(self.tokens(tokens)))


def dropout_in_attention():
    """Returns losses of plans with all samples on one rank and with shards."""
    losses = []
    for ranks in ([1], [0, 1, 2, 3], [3, 0]):
        torch.manual_seed(4)
        module = Encoder().double()
        parts = trace(module, next(batches("tied", BATCH, 1))[0][:2])
        model = BurstParallel(
            parts, plan_document(parts.network, WORLD, BATCH, lambda _, ranks=ranks: ranks), seed=5
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            losses.append(train(model, "tied", sgd(model)))
    return losses


CASES = (
    program_options,
    dropout_in_attention,
    checkpoints,
    norms_by_shard,
    recomputed_norms_by_shard,
    gradients,
    order_of_steps,
    branches_meet,
    with_background,
)


def all_cases():
    return {case.__name__: case() for case in CASES}


@pytest.fixture(scope="module")
def results():
    return on_ranks(WORLD, all_cases)


def close(some, others, tolerance=1e-9):
    return all(abs(a - b) < tolerance for a, b in zip(some, others, strict=True))


def test_micro_batches_and_checkpointing_do_not_change_losses(results):
    for of_rank in results:
        for (name, *options), (losses, state) in of_rank["program_options"].items():
            expected, state_alone = losses_alone(name, BATCH, ITERATIONS)
            assert close(losses, expected), (name, options)
            for tensor, value in (state or {}).items():
                assert torch.allclose(value, state_alone[tensor], atol=1e-9), tensor


def test_dropout_in_attention_does_not_depend_on_the_plan(results):
    for of_rank in results:
        alone, data_parallel_, some = of_rank["dropout_in_attention"]
        assert close(alone, data_parallel_) and close(alone, some)
        assert len(set(alone)) == len(alone)


def test_run_is_resumed_from_checkpoint_of_another_plan(results):
    expected, _ = losses_alone("skips", BATCH, ITERATIONS)
    for of_rank in results:
        losses, state = of_rank["checkpoints"]
        assert close(losses, expected[3:])
        # The plain module can load it.
        make("skips").load_state_dict(state, strict=True)


def test_norm_per_shard_matches_distributed_data_parallel(results):
    for case in "norms_by_shard", "recomputed_norms_by_shard":
        assert max(of_rank[case] for of_rank in results) < 1e-9, case


def test_gradients_accumulate_and_are_clipped_by_the_global_norm(results):
    module = with_sampled_dropout(make("branches"))
    for inputs, targets in batches("branches", BATCH, 2):
        (0.5 * F.cross_entropy(module(inputs), targets)).backward()
    norm = nn.utils.clip_grad_norm_(module.parameters(), 0.01).item()
    seen = set()
    for of_rank in results:
        own_norm, own, *_ = of_rank["gradients"]
        assert abs(own_norm - norm) < 1e-9
        for name, gradient in own.items():
            assert torch.allclose(gradient, module.get_parameter(name).grad, atol=1e-9), name
        seen |= own.keys()
    assert seen == {name for name, _ in module.named_parameters()}


def test_frozen_parameters_and_evaluation_match_the_module(results):
    module = with_sampled_dropout(make("branches"))
    module.stem.requires_grad_(False)
    module.three[0].requires_grad_(False)
    optimizer = sgd(module)
    losses = []
    for inputs, targets in batches("branches", BATCH, ITERATIONS):
        optimizer.zero_grad()
        loss = F.cross_entropy(module(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    plain = Branches().double().eval()
    plain.load_state_dict(module.state_dict())
    scores = plain(next(batches("branches", BATCH, 1))[0])
    for of_rank in results:
        *_, found_losses, stale, output = of_rank["gradients"]
        assert close(found_losses, losses)
        assert stale is not None and "synchronize()" in stale
        assert torch.allclose(output, scores, atol=1e-9)


def test_steps_start_in_program_and_simulated_order(results):
    _, parts = traced("branches")
    plan = searched(parts.network)
    simulated = deeppool.simulate(plan, timeline=True).timeline
    assert simulated is not None
    of_sim = sorted(
        (event for event in simulated["traceEvents"] if event["ph"] == "X"), key=lambda event: event["ts"]
    )
    for rank, of_rank in enumerate(results):
        (program,) = plan.program(rank=rank)["ranks"]
        for lane in ("compute", "communication"):
            began = [label for of_lane, label in of_rank["order_of_steps"] if of_lane == lane]
            assert began == [
                step["label"]
                for step in program["steps"]
                if step["lane"] == lane and step["op"] != "optimizer_step"
            ]
            # Steps without duration are not simulated, and the user runs the optimizer.
            names = [event["name"] for event in of_sim if event["pid"] == rank + 1 and event["cat"] == lane]
            names = [name for name in names if not name.startswith("update ")]
            assert [label for label in began if label in names] == names
    assert of_sim


def test_branches_on_different_ranks_run_concurrently(results):
    assert all(of_rank["branches_meet"] for of_rank in results)


def test_background_job_runs_and_does_not_change_losses(results):
    expected, _ = losses_alone("branches", BATCH, ITERATIONS)
    for of_rank in results:
        losses, again, of_job, report, warned = of_rank["with_background"]
        assert close(losses, expected)
        assert close(again, expected)
        assert report.steps == len(of_job)
        assert "slowdown" in str(report)
        assert any("no more data" in message for message in warned) or not warned
    steps = [of_rank["with_background"][3].steps for of_rank in results]
    assert sum(steps) > 0, "the background ran on no rank"
    trained = max((of_rank["with_background"][2] for of_rank in results), key=len)
    assert len(trained) < 5 or trained[-1] < trained[0]
    assert any(of_rank["with_background"][4] for of_rank in results), (
        "no warning about the failed background job"
    )
