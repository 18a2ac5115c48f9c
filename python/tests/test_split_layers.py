"""`BurstParallel` by plans that split layers, against one process and PyTorch's tensor parallelism."""

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from plan_documents import plan_document, random_split_plan  # noqa: E402
from ranks import on_ranks  # noqa: E402
from small_networks import batches, losses_alone, make, steps  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from deeppool.torch import BurstParallel  # noqa: E402
from deeppool.tracing import trace  # noqa: E402

BATCH, ITERATIONS = 8, 5


def trained(name, seed, micro_batches, resumed, shared=()):
    """Trains by a random split plan, and, if `resumed`, continues on another one from the state.

    `shared` are the splits of the layers that share a parameter.
    """
    module = make(name)
    samples = batches(name, BATCH, ITERATIONS)
    traced = trace(module, next(batches(name, BATCH, 1))[0])

    def model_of(seed):
        plan = random_split_plan(
            traced.network, dist.get_world_size(), BATCH, seed, shared, micro_batches=micro_batches
        )
        assert '"division"' in plan
        return BurstParallel(traced, plan)

    model = model_of(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for iteration, (inputs, targets) in enumerate(samples):
        if resumed and iteration == ITERATIONS // 2:
            model.synchronize(optimizer)
            model = model_of(seed + 1)
            model.iteration = iteration
        optimizer.zero_grad()
        loss = model(inputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


#: Splits of layers that share a parameter, which hold the same part of it.
BY_FEATURES = (("tokens", ("features", 2)), ("head", ("inputs", 2)))
BY_POSITIONS = (("tokens", ("positions", 2)), ("head", ("positions", 2)), ("loss", ("positions", 4)))
#: Network, seed of the plan, micro-batches, whether the training is resumed by another plan, and
#: the splits of some layers.
CASES = [
    ("skips", 2, 1, True),
    ("branches", 3, 2, False),
    ("resampled", 9, 1, True),
    ("transformer", 4, 1, True),
    ("transformer", 5, 2, False),
    ("tied", 6, 1, False, BY_FEATURES),
    ("tied", 7, 2, False, BY_POSITIONS),
    ("mixture", 12, 2, True, (("experts", ("positions", 4)), ("experts.router", ("positions", 2)))),
    ("rows", 8, 1, True, (*BY_POSITIONS, *((f"blocks.{i}.fc1", ("positions", 2)) for i in (0, 1)))),
]


def all_results():
    """Returns the results of all tests on one rank. The processes are started once, as that takes longer."""
    return [trained(*case) for case in CASES], by_megatron(), clipped()


@pytest.fixture(scope="module")
def results():
    return on_ranks(4, all_results)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_random_splits_train_as_one_process(results, case):
    expected, state = losses_alone(CASES[case][0], BATCH, ITERATIONS)
    for by_case, _, _ in results:
        losses, own = by_case[case]
        assert losses == pytest.approx(expected, abs=1e-9)
        for key, value in state.items():
            assert torch.allclose(own[key].double(), value.double(), atol=1e-9), key


class Block(nn.Module):
    """A block of a transformer. Queries, keys and values have one linear layer, or one each."""

    def __init__(self, features, heads, fused):
        super().__init__()
        self.width = features // heads
        self.norm1, self.norm2 = nn.LayerNorm(features), nn.LayerNorm(features)
        if fused:
            self.qkv = nn.Linear(features, 3 * features)
        else:
            self.q, self.k, self.v = (nn.Linear(features, features) for _ in range(3))
        self.proj = nn.Linear(features, features)
        self.fc1, self.fc2 = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)

    def forward(self, x):
        normed = self.norm1(x)
        if hasattr(self, "qkv"):
            parts = self.qkv(normed).chunk(3, -1)
        else:
            parts = (self.q(normed), self.k(normed), self.v(normed))
        # A rank of tensor parallelism has a part of the heads.
        heads = (part.unflatten(-1, (-1, self.width)).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class TwoBlocks(nn.Module):
    def __init__(self, fused=True):
        super().__init__()
        self.tokens = nn.Embedding(17, 32)
        self.blocks = nn.Sequential(Block(32, 4, fused), Block(32, 4, fused))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 17)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens))))


def two_blocks():
    torch.manual_seed(3)
    return TwoBlocks().double()


def separate(module):
    """Returns the same network with separate queries, keys and values."""
    state = {}
    for name, value in module.state_dict().items():
        if "qkv" in name:
            parts = value.chunk(3)
            state |= {name.replace("qkv", part): one.clone() for part, one in zip("qkv", parts)}
        else:
            state[name] = value.clone()
    other = TwoBlocks(fused=False).double()
    other.load_state_dict(state)
    return other


def losses_of(step, parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    return steps(step, optimizer, batches("transformer", BATCH, ITERATIONS))


def loss_of(module):
    return lambda inputs, targets: F.cross_entropy(module(inputs).flatten(0, 1), targets.flatten())


def by_megatron():
    """Trains by Megatron's layout, here and with PyTorch's tensor parallelism."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    world, module = dist.get_world_size(), two_blocks()
    theirs = separate(module)
    styles = dict.fromkeys(("q", "k", "v", "fc1"), ColwiseParallel) | dict.fromkeys(
        ("proj", "fc2"), RowwiseParallel
    )
    for block in theirs.blocks:
        parallelize_module(
            block,
            init_device_mesh("cpu", (world,)),
            {name: style() for name, style in styles.items()},
        )
    expected = losses_of(loss_of(theirs), theirs.parameters())
    return expected, [by_heads(two_blocks()), by_heads(separate(two_blocks()))]


def by_heads(module):
    """Trains by Megatron's layout. Returns the losses and the trained state."""
    world = dist.get_world_size()
    traced = trace(module, next(batches("transformer", BATCH, 1))[0])
    kinds = {layer.name: layer.kind for layer in traced.layers}
    assert list(kinds.values()).count("multi_head_attention") == 2
    columns, rows = ("qkv", "q", "k", "v", "fc1"), ("proj", "fc2")
    splits = {}
    for name, kind in kinds.items():
        last = name.rpartition(".")[2]
        if last in rows:
            splits[name] = ("inputs", world)
        elif last in columns or kind in ("gelu", "multi_head_attention"):
            splits[name] = ("features", world)
        elif kind != "cross_entropy" and name != "loss":
            splits[name] = ("copies", world)
    plan = plan_document(traced.network, world, BATCH, lambda _: range(world), splits=splits)
    model = BurstParallel(traced, plan)
    return losses_of(model, model.parameters()), model.state_dict()


def test_megatron_layout_trains_as_parallelize_module(results):
    alone = two_blocks()
    losses = losses_of(loss_of(alone), alone.parameters())
    for _, (theirs, ours), _ in results:
        assert theirs == pytest.approx(losses, abs=1e-9)
        for module, (losses_of_module, state) in zip((alone, separate(alone)), ours, strict=True):
            assert losses_of_module == pytest.approx(theirs, abs=1e-9)
            for name, value in module.state_dict().items():
                assert torch.allclose(state[name], value, atol=1e-9), name


def clipped():
    module = two_blocks()
    traced = trace(module, next(batches("transformer", BATCH, 1))[0])
    plan = random_split_plan(traced.network, dist.get_world_size(), BATCH, 7)
    model = BurstParallel(traced, plan)
    inputs, targets = next(batches("transformer", BATCH, 1))
    model(inputs, targets).backward()
    return float(model.clip_grad_norm_(0.5))


def test_clipping_counts_each_part_once(results):
    alone = two_blocks()
    loss_of(alone)(*next(batches("transformer", BATCH, 1))).backward()
    expected = float(torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.5))
    for _, _, norm in results:
        assert norm == pytest.approx(expected, rel=1e-9)
