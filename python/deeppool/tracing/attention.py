"""Detection of multi-head scaled dot-product attention.

Its input is one sequence with queries, keys and values in one vector, or three: queries, keys and values, of
which the keys may be the values. Queries and keys may be rotated first. Learned numbers of relative
positions, or linear biases, may be added to the products, and an integer input of the network may say which
keys are padding. A candidate is executed on random inputs in double precision and compared with a reference
attention, with dropout for the same random numbers. This accepts every equivalent implementation, from
``torch.nn.MultiheadAttention`` to matrix products with a mask, and rejects others. A query all of whose keys
are padding is not compared: its output is zero in the layer, and the mean of the values in some networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from deeppool.tracing.biases import (
    constants,
    distances_of,
    linear_biases,
    relative_buckets,
    slopes,
    with_relative_positions,
)
from deeppool.tracing.island import Island, Writer, of_function
from deeppool.tracing.layouts import Layout, layouts
from deeppool.tracing.parts import Part, computes, linear_part, stored_of
from deeppool.tracing.program import PerSample, Ref, Step, Stored
from deeppool.tracing.rotations import find as rotations_of
from deeppool.tracing.rotations import rotate
from deeppool.tracing.units import Unit, Units

#: Number of a mask from which on, downwards, keys are hidden.
HIDDEN = -1e4
CORES = ("scaled_dot_product_attention", "softmax", "_safe_softmax")


def find(units: Units) -> None:
    """Merges the steps of each attention into one unit."""
    for core in [step for step in units.steps if step.op in CORES and units.dynamic(step.index)]:
        owner = units.units[units.owner()[core.index]]
        if owner.is_call and isinstance(units.modules[owner.module], nn.MultiheadAttention):
            continue
        region = _region(units, core)
        if region is None:
            continue
        units.merge(region, "")
        merged = units.units[units.owner()[core.index]]
        merged.what = "attention of another kind"
        merged.module, merged.merged = core.module, []


def layers(units: Units, unit: Unit, free_name: Callable[[str], str]) -> list[Part] | None:
    """Returns the layers of a unit if it is an attention, otherwise ``None``."""
    module = units.modules[unit.module] if unit.is_call else None
    if isinstance(module, nn.MultiheadAttention):
        return _of_module(units, unit, module, free_name)
    cores = [units.steps[index] for index in unit.steps if units.steps[index].op in CORES]
    if len(cores) != 1 or len(unit.steps) < 2 and cores[0].op != "scaled_dot_product_attention":
        return None
    drops = [units.steps[index] for index in unit.steps if _probability(units.steps[index]) > 0]
    if len(drops) > 1:
        return None
    (core,) = cores
    for inputs in _orders(units, unit, core):
        masks = [index for index in inputs if _is_mask(units, index)]
        shapes = [units.steps[index].sample or () for index in inputs if index not in masks]
        different = list(dict.fromkeys(inputs))
        writer = Writer(units, unit)
        island = writer.island(unit.module, unit.steps[-1], different, False)
        compared = island
        if any(writer.converts_in_vain(units.steps[index]) for index in unit.steps):
            compared = Writer(units, unit, True).island(unit.module, unit.steps[-1], different, False)
        candidates = _candidates(units, unit, core, shapes)
        if masks:
            candidates = [options | {"padding": True} for options in candidates]
        learned = [stored for stored in units.stored(unit) if stored.is_parameter]
        if learned:
            candidates = with_relative_positions(units, unit, learned, candidates)
        mode = units.modules[(drops[0] if drops else core).module]
        samples = [units.steps[index].sample or () for index in different]
        places = [different.index(index) for index in inputs]
        tables = [index for index, (stored, _) in enumerate(island.stored) if stored in learned]
        for options in candidates:

            def expected(x: list[torch.Tensor], t: list[torch.Tensor]) -> torch.Tensor:
                return attend(*(x[place] for place in places), *(t[index] for index in tables), **options)

            # Networks round slopes to single precision.
            tolerance = 1e-5 if "alibi" in options else 1e-9
            key = (options, places, tables)
            of_masks = {different.index(mask): _dtype(units, mask) for mask in masks}
            if computes(units.known, compared, samples, expected, key, tolerance, masks=of_masks):
                name = free_name(unit.module or "attention")
                if len(different) < len(inputs):
                    stored = [island.stored[index] for index in tables]
                    island = _attention(name, options, mode, island.output_shape, stored)
                island.name = name
                return [Part(name, {"multi_head_attention": options}, list(inputs), island, drops)]
        if len(different) < len(inputs) or learned:
            continue
        prepared = _prepared(units, unit, core, free_name, compared, inputs, mode)
        if prepared is not None:
            return prepared
    return None


def _prepared(
    units: Units,
    unit: Unit,
    core: Step,
    free_name: Callable[[str], str],
    island: Island,
    inputs: list[int],
    mode: nn.Module,
) -> list[Part] | None:
    """Returns the layers of a unit that rotates queries and keys, or divides one input in another order.

    Args:
        mode: Module whose training mode decides whether weights are dropped.
    """
    masks = [index for index in inputs if _is_mask(units, index)]
    inputs = [index for index in inputs if index not in masks]
    samples = [units.steps[index].sample or () for index in inputs]
    output, heads = units.steps[unit.steps[-1]].sample, _heads(core)
    if output is None or len(output) != 2 or heads == 0 or output[1] % heads:
        return None
    width = output[1] // heads
    orders: list[Layout | None] = [None]
    if len(inputs) == 1:
        orders = [*layouts(samples[0][1], output, heads)]
    rotations = rotations_of(units, unit, output[0], width)
    for layout in orders:
        shapes = samples if layout is None else layout.shapes(output[0])
        candidates = _candidates(units, unit, core, shapes)
        if masks:
            candidates = [options | {"padding": True} for options in candidates]
        # A vector in the usual order without rotations is the input of an attention.
        plain = [None] if layout is not None and layout.is_interleaved else []
        for rotation in (*rotations, *plain):
            turn: Callable[[torch.Tensor], torch.Tensor] = _unchanged
            if rotation is not None:
                turn = partial(rotate, **rotation)
            for options in candidates:

                def expected(x: list[torch.Tensor], t: list[torch.Tensor]) -> torch.Tensor:
                    q, k, v = x[:3] if layout is None else layout.divide(x[0])
                    return attend(turn(q), turn(k), v, *x[len(samples) :], **options)

                # Networks round angles and slopes to single precision.
                of_inputs = [*samples, *(units.steps[mask].sample or () for mask in masks)]
                key = (layout, rotation, options)
                of_masks = {len(samples) + place: _dtype(units, mask) for place, mask in enumerate(masks)}
                if computes(units.known, island, of_inputs, expected, key, 1e-5, masks=of_masks):
                    return _parts(unit, free_name, inputs, masks, key, shapes, mode)
    return None


def _unchanged(x: torch.Tensor) -> torch.Tensor:
    return x


def _parts(
    unit: Unit,
    free_name: Callable[[str], str],
    inputs: list[int],
    masks: list[int],
    found: tuple[Layout | None, dict[str, Any] | None, dict[str, Any]],
    shapes: list[tuple[int, ...]],
    mode: nn.Module,
) -> list[Part]:
    """Returns the layers of an attention with a layout, a rotation and options."""
    (layout, rotation, options), path = found, unit.module or "attention"
    result: list[Part] = []
    taken: list[int | str] = [*inputs]
    if layout is not None and rotation is None and layout.queries == 1:
        result = layout.join(shapes[0][0], path, inputs[0], free_name)
        taken = [result[-1].name]
    elif layout is not None:
        result, names = layout.parts(shapes[0][0], path, inputs[0], free_name)
        taken = [*names]
    if rotation is not None:
        turn: Callable[[torch.Tensor], torch.Tensor] = partial(rotate, **rotation)
        for place, what in enumerate(("queries", "keys")):
            name = free_name(f"{path}.rotated_{what}")
            turned = of_function(name, turn, shapes[place])
            result.append(Part(name, {"rotary_embedding": rotation}, [taken[place]], turned))
            taken[place] = name
    name = free_name(path)
    attended = _attention(name, options, mode, shapes[0])
    return [*result, Part(name, {"multi_head_attention": options}, [*taken, *masks], attended)]


def _is_mask(units: Units, index: int) -> bool:
    """Returns whether a value is an integer input of the network with a vector for each sample."""
    step = units.steps[index]
    return (
        units.is_input(index)
        and not _dtype(units, index).is_floating_point
        and len(step.sample or ()) == 1
    )


def _dtype(units: Units, index: int) -> torch.dtype:
    """Returns the type of an input of the network."""
    dtype = units.steps[index].dtype
    assert dtype is not None
    return dtype


def attend(
    *inputs: torch.Tensor,
    heads: int,
    causal: bool,
    window: int | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    relative: dict[str, int] | None = None,
    alibi: dict[str, Any] | None = None,
    padding: bool = False,
) -> torch.Tensor:
    """Computes a multi-head attention.

    Args:
        inputs: Queries, keys and values, of shape ``(samples, positions, 3 * features)``. Or queries, of
            shape ``(samples, positions, heads * d)``, keys and values, both of shape
            ``(samples, key_positions, key_heads * d)``. Groups of heads share the key heads in order. With
            ``padding``, then a tensor of shape ``(samples, key_positions)``. With ``relative``, the last
            one is a tensor of shape ``(buckets, heads)``.
        heads: Number of heads.
        causal: Whether each position attends only to itself and earlier positions.
        window: Maximum number of positions that each one of a causal attention attends to.
        scale: Factor of the products of queries and keys; by default ``d ** -0.5``.
        dropout: Probability of dropping an attention weight.
        relative: Options of :func:`relative_buckets`. The table's number for the bucket of a query and a key,
            and for the head, is added to their scaled product.
        alibi: Arguments of :func:`slopes`. The distance of a query and a key, times the negative slope of the
            head, is added to their scaled product.
        padding: Whether an input is 0 for keys that no query attends to. The output of a query without any
            key is zero.

    Returns:
        A tensor of shape ``(samples, positions, features)``.
    """
    parts = list(inputs)
    table = parts.pop() if relative is not None else None
    visible = parts.pop() if padding else None
    q, k, v = parts[0].chunk(3, dim=-1) if len(parts) < 3 else parts
    width = q.shape[-1] // heads
    # Each of q, k and v: (samples, heads, positions, features per head).
    q, k, v = (part.reshape(*part.shape[:2], -1, width).transpose(1, 2) for part in (q, k, v))
    if k.shape[1] < heads:
        k, v = (part.repeat_interleave(heads // part.shape[1], dim=1) for part in (k, v))
    mask = None
    if relative is not None or window is not None or alibi is not None or padding:
        distances = distances_of(q.shape[2], k.shape[2]).to(q.device)
        mask = torch.zeros((), dtype=q.dtype, device=q.device)
        if relative is not None and table is not None:
            buckets = relative_buckets(distances, causal=causal, **relative)
            assert buckets is not None
            mask = table.to(q.dtype)[buckets].permute(2, 0, 1)
        if alibi is not None:
            first, of_distance = alibi.get("first", 0), slopes(**alibi).to(q)[:, None, None]
            mask = mask - of_distance[first : first + heads] * distances.abs()
        if causal:
            hidden = (distances > 0) | (distances <= -(window or q.shape[2]))
            mask = mask.masked_fill(hidden, -math.inf)
    alone = None
    if visible is not None and mask is not None:
        mask = mask.expand(q.shape[2], k.shape[2]) if mask.dim() < 2 else mask
        mask = mask.masked_fill((visible <= 0.5)[:, None, None], -math.inf)
        # Queries without a key. Finite numbers have finite gradients.
        alone = mask.isneginf().all(-1, keepdim=True)
        mask = mask.masked_fill(alone, 0.0)
    result = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal and mask is None, scale=scale)
    if alone is not None:
        result = result.masked_fill(alone, 0.0)
    return result.transpose(1, 2).flatten(2)


def _orders(units: Units, unit: Unit, core: Step) -> list[list[int]]:
    """Returns the orders in which the inputs of a unit may be those of an attention."""
    inputs = units.needs(unit)[1]
    masks = [index for index in inputs if _is_mask(units, index)]
    if len(masks) > 1:
        return []
    if masks:
        inputs = [index for index in inputs if index not in masks]
    return [[*order, *masks] for order in _orders_of(units, unit, core, inputs)]


def _orders_of(units: Units, unit: Unit, core: Step, inputs: list[int]) -> list[list[int]]:
    """Returns the orders in which inputs may be the queries, keys and values."""
    if any(len(units.steps[index].sample or ()) != 2 or units.steps[index].rows != 1 for index in inputs):
        return []
    if len(inputs) == 1:
        return [inputs]
    # Keys and values may be the same.
    if len(inputs) not in (2, 3):
        return []
    if core.op == "scaled_dot_product_attention":
        found = [_reached(units, unit, core.argument(name), inputs) for name in ("query", "key", "value")]
        return [[index for (index,) in found]] if all(len(one) == 1 for one in found) else []
    if len(inputs) == 2:
        return [[first, second, second] for first, second in (inputs, inputs[::-1])]
    scores = _reached(units, unit, core.args[0], inputs)
    values = [index for index in inputs if index not in scores]
    return [[*scores, *values], [*reversed(scores), *values]] if len(scores) == 2 else []


def _reached(units: Units, unit: Unit, argument: Any, inputs: list[int]) -> list[int]:
    """Returns the inputs of a unit on which an argument depends."""
    pending = [argument.index] if isinstance(argument, Ref) else []
    seen = set[int]()
    while pending:
        index = pending.pop()
        if index not in seen:
            seen.add(index)
            if index not in inputs:
                pending.extend(units.steps[index].refs)
    return [index for index in inputs if index in seen]


def _candidates(units: Units, unit: Unit, core: Step, shapes: list[tuple[int, ...]]) -> list[dict[str, Any]]:
    """Returns the options of the attentions of these shapes that a unit may compute."""
    output, heads = units.steps[unit.steps[-1]].sample, _heads(core)
    if output is None or len(output) != 2 or not heads or output[1] % heads:
        return []
    (positions, features), width = output, output[1] // heads
    if len(shapes) == 1:
        fits, is_square = shapes[0] == (positions, 3 * features), True
    else:
        queries, keys, values = shapes
        is_square = keys[0] == positions
        fits = queries == output and keys == values and keys[1] % width == 0
        fits = fits and heads % (keys[1] // width) == 0
    if not fits:
        return []
    scales: list[dict[str, Any]] = [{}]
    factor = _factor(units, unit, core, width)
    if factor > 0 and not math.isclose(factor, width**-0.5, rel_tol=1e-9):
        scales.append({"scale": factor})
    masks: list[dict[str, Any]] = [{"causal": False}]
    if is_square:
        masks.append({"causal": True})
        masks += [{"causal": True, "window": window} for window in _windows(units, unit, positions)]
    drops = [one for index in unit.steps if (one := _probability(units.steps[index])) > 0]
    dropout = {"dropout": drops[0]} if drops else {}
    found = [{"heads": heads, **mask, **scale, **dropout} for scale in scales for mask in masks]
    biases = linear_biases(units, unit, heads, shapes)
    return [one | {"alibi": alibi} for alibi in biases for one in found] + found


def _windows(units: Units, unit: Unit, positions: int) -> list[int]:
    """Returns the numbers of keys that the masks in a unit show to the last query."""
    found = set[int]()
    for mask in constants(units, unit, lambda sizes: sizes[-2:] == [positions, positions]):
        last = mask.reshape(-1, positions, positions)[0, -1]
        seen = last if mask.dtype == torch.bool else last > HIDDEN
        found |= {int(count) for count in (seen.sum(), positions - seen.sum())}
    return sorted(found - {0, positions})


def _factor(units: Units, unit: Unit, core: Step, width: int) -> float:
    """Returns the product of the factors in the steps of an attention."""
    factor = 1.0
    if core.op == "scaled_dot_product_attention":
        factor = core.argument("scale") or width**-0.5
    for index in unit.steps:
        step = units.steps[index]
        if step.op == "baddbmm":
            factor *= float(step.argument("alpha"))
        number = _number(units, step)
        if number:
            factor *= number if step.op == "mul" else 1 / number
    return factor


def _number(units: Units, step: Step) -> float | None:
    """Returns the factor of a multiplication by a number, or the divisor of a division."""
    if step.op not in ("mul", "div") or len(step.args) != 2 or not isinstance(step.args[0], Ref):
        return None
    number = step.args[1]
    if isinstance(number, Ref | Stored):
        constant = units.constant(number)
        number = constant.item() if constant is not None and constant.numel() == 1 else None
    return float(number) if isinstance(number, int | float) else None


def _region(units: Units, core: Step) -> list[int] | None:
    """Returns the steps from queries, keys and values to the attention's output."""
    users: dict[int, list[int]] = {}
    for index in sorted(units.live):
        for needed in units.steps[index].refs:
            users.setdefault(needed, []).append(index)
    chain = [core.index]
    while True:
        last = units.steps[chain[-1]]
        ends = last.sample is not None and len(last.sample) == 2 and last.rows == 1
        if ends and len(chain) > 1:
            for sources in (1, 3):
                region = _back(units, chain, last.sample or (), sources)
                if region is not None and (sources == 1 or _is_closed(region, users)):
                    return region
        following = users.get(last.index, [])
        is_output = last.index in units.program.outputs
        if len(following) != 1 or _learns(units.steps[following[0]]) or is_output:
            return None
        chain.append(following[0])


def _back(units: Units, chain: list[int], output: tuple[int, ...], sources: int) -> list[int] | None:
    """Returns the steps of the chain and their predecessors up to the one or three inputs of the attention.

    Returns ``None`` if there are no such inputs, or if a step uses a parameter.
    """

    def is_input(step: Step) -> bool:
        if step.rows != 1 or step.sample is None or len(step.sample) != 2:
            return False
        if sources == 1:
            return step.sample[0] == output[0] and step.sample[1] > output[1]
        return _number(units, step) is None

    pending, region, found = list(chain), set[int](), set[int]()
    while pending:
        index = pending.pop()
        step = units.steps[index]
        if index in region or index in units.free:
            continue
        if index not in chain and is_input(step):
            found.add(index)
            continue
        if units.is_input(index) or _learns(step):
            return None
        region.add(index)
        pending.extend(step.refs)
    return sorted(region) if len(found) == sources else None


def _is_closed(region: list[int], users: dict[int, list[int]]) -> bool:
    """Returns whether only the last step of a region is used by others."""
    return all(user in region for index in region[:-1] for user in users.get(index, []))


def _learns(step: Step) -> bool:
    return any(isinstance(leaf, Stored) and leaf.is_parameter for leaf in step.leaves)


def _probability(step: Step) -> float:
    """Returns the probability of a step's dropout, 0 if it draws no random numbers."""
    if step.op == "scaled_dot_product_attention":
        return float(step.argument("dropout_p", 0.0))
    if not step.is_random:
        return 0.0
    return float(step.argument("p")) if step.op in ("dropout", "dropout_") else 1.0


def _heads(core: Step) -> int:
    """Returns the number of heads, from a shape ``(samples,) heads, positions, ...`` of scores or outputs."""
    if core.dims is None or len(core.dims) < 3:
        return 0
    heads = 1
    for dim in core.dims[:-2]:
        heads *= dim.count if isinstance(dim, PerSample) else dim
    return heads


def _of_module(
    units: Units, unit: Unit, module: nn.MultiheadAttention, free_name: Callable[[str], str]
) -> list[Part] | None:
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
        stored_of(path, "in_proj_", has_bias),
        stored_of(f"{path}.out_proj", "", has_bias),
    )
    names = [stored.name for stored in (*projection, *projection_back)]
    whole = Writer(units, unit).island(path, output, inputs, False)
    stored_names = [stored.name for stored, _ in whole.stored]
    if sorted(name for name in stored_names if name in names) != sorted(names):
        return None

    def expected(options: dict[str, Any]) -> Callable[[list[torch.Tensor], list[torch.Tensor]], torch.Tensor]:
        def run(inputs: list[torch.Tensor], tensors: list[torch.Tensor]) -> torch.Tensor:
            by_name = dict(zip(stored_names, tensors))
            chosen = [by_name[name] for name in names]
            middle = len(chosen) // 2
            attended = attend(F.linear(inputs[0], *chosen[:middle]), **options)
            return F.linear(attended, *chosen[middle:])

        return run

    drops = {"dropout": module.dropout} if module.dropout > 0 else {}
    for causal in (False, True):
        options = {"heads": heads, "causal": causal, **drops}
        order = [stored_names.index(name) for name in names]
        if not computes(units.known, whole, [sample], expected(options), (options, order)):
            continue
        positions = sample[0]
        of_inputs, of_output = (positions, 3 * features), (positions, features)
        first = linear_part(units, free_name(f"{path}.in_proj"), projection, inputs[0], of_inputs)
        name = free_name(path)
        island = _attention(name, options, module, of_output)
        core = Part(name, {"multi_head_attention": options}, [first.name], island)
        last = linear_part(units, free_name(f"{path}.out_proj"), projection_back, name, of_output)
        return [first, core, last]
    return None


def _attention(
    name: str,
    options: dict[str, Any],
    mode: nn.Module,
    output: tuple[int, ...],
    stored: Sequence[tuple[Stored, nn.Module | None]] = (),
) -> Island:
    """Returns the island of an attention. Its weights are dropped if ``mode`` is in training mode."""
    in_evaluation = options | {"dropout": 0.0}

    def run(n: int, tensors: list[torch.Tensor], training: list[bool], *x: torch.Tensor) -> torch.Tensor:
        return attend(*x, *tensors, **(options if training[0] else in_evaluation))

    arguments = ", ".join(f"{name}={value}" for name, value in options.items())
    source = f"# deeppool.tracing.attention.attend(*inputs, {arguments})"
    return Island(name, run, source, stored, (mode,), output)
