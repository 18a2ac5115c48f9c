"""Detection of multi-head scaled dot-product attention.

A candidate is executed on random inputs in double precision and compared with a reference attention. This
accepts every equivalent implementation, from ``torch.nn.MultiheadAttention`` to matrix products with a
mask, and rejects others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional as F

from deeppool.tracing.island import Island, Writer, of_function
from deeppool.tracing.kinds import Op
from deeppool.tracing.program import PerSample, Step, Stored
from deeppool.tracing.units import Unit, Units

CORES = ("scaled_dot_product_attention", "softmax", "_safe_softmax")


@dataclass
class AttentionLayer:
    """One of the layers that an attention is split into."""

    name: str
    #: The kind; ``None`` for an opaque layer.
    op: Op | None
    #: Indices of values, or names of other layers of the attention.
    inputs: list[int | str]
    island: Island
    reason: str | None = None
    steps: list[Step] = field(default_factory=list)


def find(units: Units) -> None:
    """Merges the steps of each self-attention into one unit.

    The input of such an attention is one sequence with queries, keys and values concatenated.
    """
    for core in [step for step in units.steps if step.op in CORES and units.dynamic(step.index)]:
        owner = units.units[units.owner()[core.index]]
        if owner.is_call and isinstance(units.modules[owner.module], nn.MultiheadAttention):
            continue
        region = _region(units, core)
        if region is None:
            continue
        units.merge(region, "")
        merged = units.units[units.owner()[core.index]]
        drops = any(_drops(units.steps[index]) for index in merged.steps)
        merged.what = "attention with dropout" if drops else "attention of another kind"
        merged.module, merged.merged = core.module, []


def layers(units: Units, unit: Unit, free_name: Callable[[str], str]) -> list[AttentionLayer] | None:
    """Returns the layers of a unit if it is an attention, otherwise ``None``."""
    module = units.modules[unit.module] if unit.is_call else None
    if isinstance(module, nn.MultiheadAttention):
        return _of_module(units, unit, module, free_name)
    cores = [units.steps[index] for index in unit.steps if units.steps[index].op in CORES]
    inputs = units.needs(unit)[1]
    if len(cores) != 1 or len(inputs) != 1 or len(unit.steps) < 2:
        return None
    sample, output = units.steps[inputs[0]].sample, units.steps[unit.steps[-1]].sample
    if sample is None or output is None or len(sample) != 2 or sample != (output[0], 3 * output[1]):
        return None
    if any(_drops(units.steps[index]) for index in unit.steps):
        return None
    heads = _heads(cores[0])
    island = Writer(units, unit).island(unit.module, unit.steps[-1], inputs, False)
    for causal in (False, True):
        if (
            heads
            and output[1] % heads == 0
            and _computes(island, sample, lambda x, t: attend(x, heads, causal))
        ):
            island.name = free_name(unit.module or "attention")
            op: Op = {"multi_head_attention": {"heads": heads, "causal": causal}}
            return [AttentionLayer(island.name, op, [inputs[0]], island)]
    return None


def attend(x: torch.Tensor, heads: int, causal: bool, dropout: float = 0.0) -> torch.Tensor:
    """Computes a multi-head self-attention.

    Args:
        x: Queries, keys and values, of shape ``(samples, positions, 3 * features)``.
        heads: Number of heads.
        causal: Whether each position attends only to itself and earlier positions.
        dropout: Probability of dropping an attention weight.

    Returns:
        A tensor of shape ``(samples, positions, features)``.
    """
    samples, positions, features = x.shape
    # Each of q, k and v: (samples, heads, positions, features per head).
    parts = x.view(samples, positions, 3, heads, features // 3 // heads).permute(2, 0, 3, 1, 4)
    result = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], dropout_p=dropout, is_causal=causal)
    return result.transpose(1, 2).reshape(samples, positions, features // 3)


def _region(units: Units, core: Step) -> list[int] | None:
    """Returns the steps from queries, keys and values to the attention's output."""
    users: dict[int, list[int]] = {}
    for index in sorted(units.live):
        for needed in units.steps[index].refs():
            users.setdefault(needed, []).append(index)
    chain = [core.index]
    while True:
        last = units.steps[chain[-1]]
        ends = last.sample is not None and len(last.sample) == 2 and last.rows == 1
        if ends and len(chain) > 1:
            region = _back(units, chain, last.sample or ())
            if region is not None:
                return region
        following = users.get(last.index, [])
        if len(following) != 1 or _learns(units.steps[following[0]]) or last.index == units.program.output:
            return None
        chain.append(following[0])


def _back(units: Units, chain: list[int], output: tuple[int, ...]) -> list[int] | None:
    """Returns the steps of the chain and their predecessors up to the single input of the attention.

    Returns ``None`` if there is no such input, or if a step uses a parameter.
    """
    wanted = (output[0], 3 * output[1])
    pending, region, sources = list(chain), set[int](), set[int]()
    while pending:
        index = pending.pop()
        step = units.steps[index]
        if index in region or index in units.free:
            continue
        if index not in chain and step.sample == wanted and step.rows == 1:
            sources.add(index)
            continue
        if index == 0 or _learns(step):
            return None
        region.add(index)
        pending.extend(step.refs())
    return sorted(region) if len(sources) == 1 else None


def _learns(step: Step) -> bool:
    return any(isinstance(leaf, Stored) and leaf.is_parameter for leaf in step.leaves())


def _drops(step: Step) -> bool:
    """Returns whether a step applies dropout."""
    if step.op == "scaled_dot_product_attention":
        return bool(step.argument("dropout_p", 0.0) > 0)
    return step.is_random and not (step.op.startswith("dropout") and step.argument("p") == 0)


def _heads(core: Step) -> int:
    """Returns the number of heads, from a shape ``(samples,) heads, positions, ...`` of scores or outputs."""
    if core.dims is None or len(core.dims) < 3:
        return 0
    heads = 1
    for dim in core.dims[:-2]:
        heads *= dim.count if isinstance(dim, PerSample) else dim
    return heads


def _computes(
    island: Island,
    sample: tuple[int, ...],
    expected: Callable[[torch.Tensor, list[torch.Tensor]], torch.Tensor],
) -> bool:
    """Returns whether an island computes the expected function, for random parameters and inputs."""
    generator = torch.Generator().manual_seed(0)

    def random(shape: tuple[int, ...] | torch.Size) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    tensors = [
        (random(tensor.shape) if isinstance(tensor, nn.Parameter) else tensor.detach().cpu()).to(
            torch.float64 if tensor.is_floating_point() else tensor.dtype
        )
        for tensor in island.tensors()
    ]
    x = random((2, *sample))
    try:
        with torch.no_grad():
            result, wanted = island.execute(tensors, x), expected(x, tensors)
    except RuntimeError:
        return False  # For example, mixed data types because of a constant in single precision.
    return result.shape == wanted.shape and bool(
        ((result - wanted).abs().max() <= 1e-9 * wanted.abs().max()).item()
    )


def _of_module(
    units: Units, unit: Unit, module: nn.MultiheadAttention, free_name: Callable[[str], str]
) -> list[AttentionLayer] | None:
    """Returns the layers of PyTorch's attention module: projection, attention, output projection."""
    inputs, heads, features = units.needs(unit)[1], module.num_heads, module.embed_dim
    has_bias = module.in_proj_bias is not None
    if len(inputs) != 1 or module.in_proj_weight is None or has_bias != (module.out_proj.bias is not None):
        return None
    output = unit.steps[-1]
    sample = units.steps[inputs[0]].sample
    if (
        sample is None
        or len(sample) != 2
        or units.steps[output].sample != sample
        or units.steps[inputs[0]].rows != 1
    ):
        return None
    path = unit.module
    projection, projection_back = (
        _projection(path, "in_proj_", has_bias),
        _projection(f"{path}.out_proj", "", has_bias),
    )
    names = [stored.name for stored in (*projection, *projection_back)]
    whole = Writer(units, unit).island(path, output, inputs, False)
    stored_names = [stored.name for stored, _ in whole.stored]
    if sorted(name for name in stored_names if name in names) != sorted(names):
        return None

    def expected(causal: bool) -> Callable[[torch.Tensor, list[torch.Tensor]], torch.Tensor]:
        def run(x: torch.Tensor, tensors: list[torch.Tensor]) -> torch.Tensor:
            by_name = dict(zip(stored_names, tensors))
            chosen = [by_name[name] for name in names]
            middle = len(chosen) // 2
            return F.linear(attend(F.linear(x, *chosen[:middle]), heads, causal), *chosen[middle:])

        return run

    for causal in (False, True):
        if not _computes(whole, sample, expected(causal)):
            continue
        positions, p = sample[0], module.dropout
        first = _linear(units, free_name(f"{path}.in_proj"), projection, (positions, 3 * features))
        name = free_name(path)
        island = _attention(name, heads, causal, p, module, (positions, features))
        last = _linear(units, free_name(f"{path}.out_proj"), projection_back, (positions, features))
        op: Op | None = {"multi_head_attention": {"heads": heads, "causal": causal}}
        core = AttentionLayer(name, op, [first.name], island)
        if p > 0:
            core.op, core.reason = None, "attention with dropout"
            core.steps = [units.steps[index] for index in unit.steps if units.steps[index].op in CORES]
        first.inputs, last.inputs = [inputs[0]], [name]
        return [first, core, last]
    return None


def _projection(owner: str, prefix: str, has_bias: bool) -> list[Stored]:
    names = ["weight", "bias"] if has_bias else ["weight"]
    return [
        Stored(f"{owner}.{prefix}{name}" if owner else f"{prefix}{name}", owner, prefix + name, True)
        for name in names
    ]


def _linear(units: Units, name: str, stored: list[Stored], output: tuple[int, ...]) -> AttentionLayer:
    island = of_function(name, F.linear, output, [(one, units.modules[one.owner]) for one in stored])
    return AttentionLayer(
        name, {"linear": {"out_features": output[-1], "bias": len(stored) == 2}}, [], island
    )


def _attention(
    name: str, heads: int, causal: bool, dropout: float, module: nn.Module, output: tuple[int, ...]
) -> Island:
    def run(samples: int, tensors: list[torch.Tensor], training: list[bool], x: torch.Tensor) -> torch.Tensor:
        return attend(x, heads, causal, dropout if training[0] else 0.0)

    source = f"# deeppool.tracing.attention.attend(x, {heads}, {causal}, {dropout})"
    return Island(name, run, source, (), (module,), output)
