"""Grouping of the operations of an unrolled loop, such as a recurrence over positions, into one layer."""

from __future__ import annotations

from collections import Counter

from deeppool.tracing.kinds import ACTIVATIONS, Unknown, kind_of
from deeppool.tracing.units import Units

#: Maximum number of separate layers that operations without a layer kind are in a call of a module.
MAX_OPERATIONS = 32
#: Operations with a kind that are merged with others of their call, as the last of a recurrence.
MERGED = {"hardtanh", "mul", *ACTIVATIONS}


def group(units: Units) -> None:
    """Merges the operations of a call without a layer kind if they are more than :data:`MAX_OPERATIONS`.

    They stay separate layers if the merged unit would have several outputs, or a batch normalization.
    """
    calls: dict[str, list[int]] = {}
    unknown: Counter[str] = Counter()
    for unit in units.units:
        single = not unit.is_call and len(unit.steps) == 1 and not unit.what and not unit.merged
        if not single:
            continue
        step = units.steps[unit.steps[0]]
        is_unknown = isinstance(kind_of(units, step), Unknown)
        unknown[unit.call] += is_unknown
        if is_unknown or step.op in MERGED:
            calls.setdefault(unit.call, []).append(step.index)
    for call, steps in calls.items():
        if unknown[call] <= MAX_OPERATIONS:
            continue
        before = units.units
        units.merge(steps, f"more than {MAX_OPERATIONS} operations of one module have no layer kind")
        position = units.owner()[steps[0]]
        merged = units.units[position]
        normalizes = any(units.steps[index].op == "batch_norm" for index in merged.steps)
        if normalizes or units.unfit(merged, units.outputs()[position]) is not None:
            units.units = before
