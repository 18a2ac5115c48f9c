"""Layers of PyTorch's recurrent modules, ``torch.nn.LSTM`` and ``torch.nn.GRU``.

A layer of such a module is a linear layer, which multiplies all positions by the input weights, and a
recurrence. A bidirectional one has both for each direction, and a concatenation of their outputs. It must
start from a state of zeros, and give the outputs only. The module is executed on random inputs and compared
with these layers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from deeppool.tracing.checks import RECURRENT
from deeppool.tracing.island import Island, Writer, of_function
from deeppool.tracing.parts import Part, computes, linear_part, stored_of
from deeppool.tracing.units import Unit, Units

#: The cell of each module, and its number of gates.
CELLS: dict[type[nn.Module], tuple[str, int]] = {nn.LSTM: ("lstm", 4), nn.GRU: ("gru", 3)}


def layers(
    units: Units, unit: Unit, outputs: list[int], free_name: Callable[[str], str]
) -> list[Part] | None:
    """Returns the layers of a unit if it is a call of such a module, otherwise ``None``."""
    module = units.modules[unit.module] if unit.is_call else None
    if not isinstance(module, nn.RNNBase) or type(module) not in CELLS:
        return None
    cell, gates = CELLS[type(module)]
    inputs = units.needs(unit)[1]
    if len(inputs) != 1 or len(outputs) != 1 or module.proj_size:
        return None
    sample = units.steps[inputs[0]].sample
    if sample is None or len(sample) != 2 or units.steps[inputs[0]].rows != 1:
        return None
    directions = ("", "_reverse") if module.bidirectional else ("",)
    of_direction = (sample[0], module.hidden_size)
    output = (sample[0], len(directions) * module.hidden_size)
    if units.steps[outputs[0]].sample != output or units.steps[outputs[0]].rows != 1:
        return None
    whole = Writer(units, unit).island(unit.module, outputs[0], inputs, False)
    names = [stored.name for stored, _ in whole.stored]
    # For each direction of a level, the weight and the bias of the input, and those of the state.
    levels = [
        [
            [stored_of(unit.module, "", module.bias, f"_{part}_l{level}{end}") for part in ("ih", "hh")]
            for end in directions
        ]
        for level in range(module.num_layers)
    ]
    order = [stored.name for level in levels for parts in level for part in parts for stored in part]
    if sorted(names) != sorted(order):
        return None

    def expected(inputs: list[torch.Tensor], tensors: list[torch.Tensor]) -> torch.Tensor:
        by_name, (x,) = dict(zip(names, tensors)), inputs
        for level in levels:
            results = []
            for is_reverse, (of_input, of_state) in enumerate(level):
                gates = F.linear(x, *(by_name[stored.name] for stored in of_input))
                weights = (by_name[stored.name] for stored in of_state)
                results.append(recur(gates, *weights, cell=cell, is_reverse=is_reverse == 1))
            x = concatenate(*results)
        return x

    # In evaluation there is no dropout between the layers. Large weights would amplify rounding
    # errors.
    deviation = 0.5 * module.hidden_size**-0.5
    options = (cell, module.bias, [names.index(name) for name in order])
    if not computes(
        units.known, whole, [sample], expected, options, is_training=False, deviation=deviation
    ):
        return None
    result: list[Part] = []
    taken: int | str = inputs[0]
    prefix = f"{unit.module}." if unit.module else ""
    of_gates = (sample[0], gates * module.hidden_size)
    for level, of_directions in enumerate(levels):
        if module.dropout > 0 and level > 0:
            name = free_name(f"{prefix}dropout_l{level - 1}")
            result.append(_dropout(units, unit, module, name, taken, output))
            taken = name
        ends: list[int | str] = []
        for end, (of_input, of_state) in zip(directions, of_directions):
            linear = linear_part(units, free_name(f"{prefix}ih_l{level}{end}"), of_input, taken, of_gates)
            name = free_name(f"{prefix}hh_l{level}{end}")
            function = partial(recur, cell=cell, is_reverse=end != "")
            island = of_function(name, function, of_direction, [(one, module) for one in of_state])
            op = {"recurrence": {"cell": cell, "bias": module.bias} | ({"reversed": True} if end else {})}
            result += [linear, Part(name, op, [linear.name], island)]
            ends.append(name)
        taken = ends[0]
        if len(ends) > 1:
            taken = free_name(f"{prefix}concat_l{level}")
            result.append(Part(taken, "concat", ends, of_function(taken, concatenate, output)))
    return result


def concatenate(*inputs: torch.Tensor) -> torch.Tensor:
    """Concatenates tensors along their features."""
    return torch.cat(inputs, -1)


def _dropout(
    units: Units, unit: Unit, module: nn.RNNBase, name: str, taken: int | str, output: tuple[int, ...]
) -> Part:
    def run(n: int, tensors: list[torch.Tensor], training: list[bool], *x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x[0], module.dropout, training[0])

    island = Island(name, run, f"# F.dropout(x, {module.dropout})", (), (module,), output)
    draws = [units.steps[index] for index in unit.steps if units.steps[index].op in RECURRENT]
    return Part(name, {"dropout": {"probability": module.dropout}}, [taken], island, draws)


def recur(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    cell: str,
    is_reverse: bool = False,
) -> torch.Tensor:
    """Computes a recurrence from a state of zeros.

    Args:
        x: The gates, in PyTorch's order, without the products of the state, of shape
            ``(samples, positions, gates * width)``.
        weight: Weight of the state, of shape ``(gates * width, width)``.
        bias: Bias of these products.
        cell: ``lstm`` or ``gru``.
        is_reverse: Whether positions are computed from the last to the first.

    Returns:
        The states, of shape ``(samples, positions, width)``.
    """
    state = memory = x.new_zeros((x.shape[0], weight.shape[1]))
    order = -1 if is_reverse else 1
    states = []
    for gates in x.unbind(1)[::order]:
        products = F.linear(state, weight, bias)
        if cell == "lstm":
            i, f, g, o = (gates + products).chunk(4, 1)
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
            state = o.sigmoid() * memory.tanh()
        else:
            (r, z, n), (of_r, of_z, of_n) = gates.chunk(3, 1), products.chunk(3, 1)
            new = (n + (r + of_r).sigmoid() * of_n).tanh()
            state = new + (z + of_z).sigmoid() * (state - new)
        states.append(state)
    return torch.stack(states[::order], 1)
