"""Detection of mixtures of experts.

A router, a linear layer without bias, has a score of each expert for each position. The experts with the
largest scores are chosen, and their perceptrons' outputs are summed with the softmax of the scores as
weights. A candidate is executed on random inputs in double precision and compared with a reference. This
accepts every equivalent implementation, from grouped products to a loop over the experts, and rejects others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from deeppool.tracing.island import Writer, of_function
from deeppool.tracing.parts import Part, computes, linear_part
from deeppool.tracing.program import Ref, Step, Stored
from deeppool.tracing.units import Unit, Units

#: Functions of the activations of experts.
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
#: Operations between the router's products and the choice of experts.
BEFORE_CHOICE = ("to", "softmax", "view", "reshape", "alias")


def find(units: Units) -> None:
    """Merges the steps of each mixture of experts, with its router, into one unit."""
    for core in [step for step in units.steps if step.op == "topk" and units.dynamic(step.index)]:
        router = _router(units, core)
        end = None if router is None else _end(units, core, router)
        region = None if router is None or end is None else _region(units, router, end)
        if region is None:
            continue
        units.merge(region, "")
        merged = units.units[units.owner()[core.index]]
        merged.what, merged.merged = "a mixture of experts of another kind", []


def _router(units: Units, core: Step) -> Step | None:
    """Returns the linear layer whose outputs are the scores of a choice."""
    step = core
    while step is core or step.op in BEFORE_CHOICE:
        if not step.args or not isinstance(step.args[0], Ref):
            return None
        step = units.steps[step.args[0].index]
    if step.op != "linear" or step.argument("bias") is not None or step.sample is None:
        return None
    weight = step.argument("weight")
    is_known = isinstance(weight, Stored) and weight.is_parameter and weight.attribute == "weight"
    return step if is_known and units.dynamic(step.index) else None


def _end(units: Units, core: Step, router: Step) -> int | None:
    """Returns the first value with the shape of the router's input on which all users of the router depend.

    Returns ``None`` if no parameter of all experts is used before it.
    """
    if not isinstance(router.args[0], Ref):
        return None
    sample, experts = units.steps[router.args[0].index].sample, (router.sample or ())[-1]
    users: dict[int, list[int]] = {}
    for index in sorted(units.live):
        for needed in units.steps[index].refs:
            users.setdefault(needed, []).append(index)
    dependent, last_user, learns = {router.index}, router.index, False
    for index in range(router.index, len(units.steps)):
        step = units.steps[index]
        shapes = [units.parameter(leaf) for leaf in step.leaves if isinstance(leaf, Stored)]
        learns = learns or any(len(shape) == 3 and shape[0] == experts for shape in shapes)
        if index not in units.live or index > router.index and not dependent & set(step.refs):
            continue
        dependent.add(index)
        # Nothing before this value is used after it.
        is_alone = last_user <= index and index > core.index
        if is_alone and learns and step.sample == sample and units.dynamic(index):
            return index
        last_user = max(last_user, *users.get(index, [index]))
    return None


def _region(units: Units, router: Step, end: int) -> list[int] | None:
    """Returns the steps from the router's input, without it, to the end.

    Returns ``None`` if there is another input, which was computed before.
    """
    start = router.args[0].index
    before, pending = set[int](), [start]
    while pending:
        index = pending.pop()
        if index not in before:
            before.add(index)
            pending.extend(units.steps[index].refs)
    region, pending = set[int](), [end, router.index]
    while pending:
        index = pending.pop()
        if index in region or index in before or not units.dynamic(index):
            continue
        if index < start:
            return None
        region.add(index)
        pending.extend(units.steps[index].refs)
    return sorted(region)


def layers(
    units: Units, unit: Unit, outputs: list[int], free_name: Callable[[str], str]
) -> list[Part] | None:
    """Returns the layers of a unit if it is a mixture of experts with its router, otherwise ``None``."""
    steps = [units.steps[index] for index in unit.steps]
    cores = [step for step in steps if step.op == "topk"]
    router = _router(units, cores[0]) if len(cores) == 1 and len(outputs) == 1 else None
    if router is None or router.index not in unit.steps or any(step.is_random for step in steps):
        return None
    inputs = units.needs(unit)[1]
    sample = units.steps[inputs[0]].sample if len(inputs) == 1 else None
    if sample is None or len(sample) not in (1, 2) or units.steps[outputs[0]].sample != sample:
        return None
    matrices = _matrices(units, unit, router)
    if matrices is None:
        return None
    (first, second), gated = matrices, matrices[0].attribute == "gate_up_proj"
    count, rows, _ = units.parameter(first)
    features, width = units.parameter(second)[1:]
    if features != sample[-1] or units.parameter(first) != (count, width * (2 if gated else 1), features):
        return None
    compared = Writer(units, unit, True).island(unit.module, outputs[0], inputs, False)
    weight = router.argument("weight")
    names = [stored.name for stored, _ in compared.stored]
    order = [names.index(stored.name) for stored in (weight, first, second)]
    used = [step.op for step in steps if step.op in ACTIVATIONS]
    for activation in dict.fromkeys(["gelu_tanh", *used] if "gelu" in used else [*used, *ACTIVATIONS]):
        for normalised in (True, False):
            options: dict[str, Any] = {
                "chosen": cores[0].argument("k"),
                "activation": activation,
                "gated": gated,
                "normalised": normalised,
            }

            def expected(x: list[torch.Tensor], tensors: list[torch.Tensor]) -> torch.Tensor:
                of_router, *of_experts = (tensors[place] for place in order)
                return mix(x[0], F.linear(x[0], of_router), *of_experts, **options)

            if computes(units.known, compared, [sample], expected, (options, order)):
                scores = linear_part(
                    units, free_name(weight.owner), [weight], inputs[0], (*sample[:-1], count)
                )
                stored = [(one, units.modules[one.owner]) for one in (first, second)]
                island = of_function(free_name(first.owner), partial(mix, **options), sample, stored)
                op = {"mixture_of_experts": {"experts": count, "width": width, **options}}
                return [scores, Part(island.name, op, [inputs[0], scores.name], island)]
    return None


def _matrices(units: Units, unit: Unit, router: Step) -> tuple[Stored, Stored] | None:
    """Returns the parameters of both products of all experts, if a unit has no others but its router's."""
    weight = router.argument("weight")
    stored = [one for one in units.stored(unit) if one.constant is None]
    if weight not in stored or not all(one.is_parameter for one in stored):
        return None
    others = sorted((one for one in stored if one != weight), key=lambda one: one.attribute)
    if len(others) != 2 or others[0].owner != others[1].owner:
        return None
    second, first = others
    if second.attribute != "down_proj" or first.attribute not in ("gate_up_proj", "up_proj"):
        return None
    are_of_experts = all(len(units.parameter(one)) == 3 for one in others)
    return (first, second) if are_of_experts else None


def mix(
    x: torch.Tensor,
    scores: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    *,
    chosen: int,
    activation: str,
    gated: bool,
    normalised: bool,
) -> torch.Tensor:
    """Computes a mixture of experts.

    Args:
        x: Features, of shape ``(samples, positions, features)`` or ``(samples, features)``.
        scores: Scores of the router, with as many dimensions, of which the last one is the experts.
        first: Weights of the first product of all experts, of shape ``(experts, rows, features)``. With a
            gate there are ``2 * width`` rows, those of the gate first.
        second: Weights of the second product, of shape ``(experts, features, width)``.
        chosen: Number of experts of a position: those with the largest scores; of equal ones, the first.
        activation: A key of :data:`ACTIVATIONS`.
        gated: Whether the activation of the gate multiplies the other half of the first product.
        normalised: Whether the weights of a position are divided by their sum.

    Returns:
        A tensor of the shape of ``x``.
    """
    flat, scores = x.flatten(0, -2), scores.flatten(0, -2)
    experts = torch.sort(scores, dim=-1, descending=True, stable=True)[1][:, :chosen]
    weights = scores.softmax(-1).gather(1, experts)
    if normalised:
        weights = weights / weights.sum(-1, keepdim=True)
    result = torch.zeros_like(flat)
    for expert in range(first.shape[0]):
        rows, places = (experts == expert).nonzero(as_tuple=True)
        hidden = F.linear(flat[rows], first[expert])
        if gated:
            gate, values = hidden.chunk(2, -1)
            hidden = ACTIVATIONS[activation](gate) * values
        else:
            hidden = ACTIVATIONS[activation](hidden)
        output = F.linear(hidden, second[expert]) * weights[rows, places, None]
        result = result.index_add(0, rows, output.to(result.dtype))
    return result.reshape(x.shape)
