"""Grouping of steps into units, which become layers.

Each call of a leaf module is a unit, and so is each functional operation between modules. A layer must have
one output tensor whose first dimension is the batch. Units are therefore modified as follows:

- A value through which no gradient passes to the input (positions, masks computed from tokens, tables
  computed from parameters) is computed by each unit that uses it.
- A unit with another output (several tensors, another first dimension, integers) is merged with its
  consumers.
- Steps that write to each other's memory are merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from deeppool.tracing.state import Observed, is_of_pytorch
from deeppool.tracing.program import PerSample, Program, Ref, Step, Stored, map_arguments

#: Modules with children that are treated as leaf modules.
WHOLE = (nn.MultiheadAttention,)

#: Operations that do not use the values of their first argument.
LIKE = {
    "new_zeros",
    "new_ones",
    "new_full",
    "new_empty",
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
}


@dataclass
class Unit:
    """Steps that form one layer."""

    #: Path of the module that contains them.
    module: str
    #: Whether they are a complete call of this module.
    is_call: bool
    call: str
    #: Indices in execution order, without free steps.
    steps: list[int]
    #: Reasons for merging units into this one.
    merged: list[str] = field(default_factory=list)
    #: Description of the unit as a reason for an opaque layer, if known.
    what: str = ""


class Units:
    """The units of a program in topological order, with the values passed between them."""

    def __init__(self, module: nn.Module, program: Program, observed: Observed | None = None) -> None:
        self.program = program
        self.observed = observed
        #: Whether islands compute what was expected, by their structure.
        self.known: dict[Any, bool] = {}
        #: Examples of the network's inputs.
        self.examples: list[torch.Tensor] = []
        self.modules = dict(module.named_modules(remove_duplicate=False))
        self.steps = program.steps
        self._find_writers()
        #: Steps that each step depends on.
        self.before = [tuple(self._before(step.index)) for step in self.steps]
        self.live = self._live()
        self.free = self._free()
        self.units: list[Unit] = self._first()
        self._merge_writers()
        self.repair()

    # Steps and memory.

    def _find_writers(self) -> None:
        """Finds the memory of each value and the steps that write to it."""
        self.root: list[object] = []
        self.writers: dict[object, list[int]] = {}
        for step in self.steps:
            shared = [leaf for leaf in step.views if isinstance(leaf, Ref | Stored)]
            root: object = step.index
            if shared:
                first = shared[0]
                root = self.root[first.index] if isinstance(first, Ref) else first
            self.root.append(root)
            if any(isinstance(leaf, Ref | Stored) for leaf in step.writes):
                self.writers.setdefault(root, []).append(step.index)

    def _before(self, index: int) -> Iterable[int]:
        """Yields the steps that a step depends on: producers of its arguments, and writers to them."""
        step = self.steps[index]
        for needed in step.refs:
            yield needed
            yield from (
                writer for writer in self.writers.get(self.root[needed], []) if needed < writer < index
            )

    def _live(self) -> set[int]:
        # Updates of buffers, such as running statistics, are live without uses of their results.
        pending = list(self.program.outputs)
        pending += [w for root, writers in self.writers.items() if isinstance(root, Stored) for w in writers]
        live: set[int] = set()
        while pending:
            index = pending.pop()
            if index not in live:
                live.add(index)
                pending.extend(self.before[index])
        return live

    def _free(self) -> set[int]:
        """Returns the free steps, which each unit that uses them repeats."""
        depends: list[bool] = []
        learned: list[bool] = []
        free: set[int] = set()
        for step in self.steps:
            needed = [] if step.op in LIKE else list(self.before[step.index])
            is_input = self.is_input(step.index)
            depends.append(is_input or any(depends[i] for i in needed))
            own = any(isinstance(leaf, Stored) and leaf.is_parameter for leaf in step.leaves)
            learned.append(own or any(learned[i] for i in needed))
            if is_input:
                # Integer inputs, such as tokens, have no gradient.
                if step.dtype is not None and not step.dtype.is_floating_point:
                    free.add(step.index)
            elif all(i in free for i in needed) and not step.is_random and not self._changes_buffer(step):
                if not (depends[-1] and learned[-1]):
                    free.add(step.index)
        return free

    def is_input(self, index: int) -> bool:
        """Returns whether a step is an input of the network."""
        return index < self.program.inputs

    def release(self, steps: Iterable[int]) -> None:
        """Makes steps free, whose results are the same for all inputs."""
        self.free |= set(steps)
        self.units = self._first()
        self._merge_writers()
        self.repair()

    def _changes_buffer(self, step: Step) -> bool:
        return any(isinstance(leaf, Stored) for leaf in step.writes)

    def constant(self, argument: Any, samples: int | None = None) -> torch.Tensor | None:
        """Computes an argument that depends only on constants and buffers; otherwise returns ``None``.

        Args:
            argument: Argument of a step.
            samples: Number of samples for which to compute it, if it may depend on that.
        """
        computed: dict[int, Any] = {}

        def value(leaf: Any, reader: int = len(self.steps)) -> Any:
            match leaf:
                case Ref(index) if (
                    index in self.free
                    and not self.is_input(index)
                    and not self._is_changed(index, reader)
                ):
                    if index not in computed:
                        step = self.steps[index]
                        arguments, keywords = map_arguments(
                            lambda leaf: value(leaf, index), (step.args, step.kwargs)
                        )
                        if step.writes:
                            arguments = map_arguments(_copied, arguments)
                        computed[index] = step.target(*arguments, **keywords)
                    return computed[index]
                case Stored(constant=torch.Tensor()):
                    return leaf.constant
                case Stored(is_parameter=False):
                    return getattr(self.modules[leaf.owner], leaf.attribute)
                case PerSample(count) if samples is not None:
                    return samples * count
                case Ref() | Stored() | PerSample():
                    raise _NotConstant
            return leaf

        try:
            with torch.no_grad():
                result = value(argument)
        except _NotConstant:
            return None
        return result if isinstance(result, torch.Tensor) else None

    def _is_changed(self, index: int, reader: int) -> bool:
        """Returns whether a step before ``reader`` writes to the memory of an earlier value."""
        return any(index < writer < reader for writer in self.writers.get(self.root[index], []))

    def has_constant_mode(self, path: str) -> bool:
        """Returns whether a module's code does not depend on its training mode."""
        module = self.modules.get(path)
        if self.observed is None or module is None or is_of_pytorch(module):
            return False
        return not self.observed.reads_training(module)

    def dynamic(self, index: int) -> bool:
        """Returns whether a step is live and belongs to exactly one unit."""
        return index in self.live and index not in self.free and not self.is_input(index)

    # Grouping.

    def _is_leaf(self, path: str) -> bool:
        module = self.modules.get(path)
        return module is not None and path != "" and (isinstance(module, WHOLE) or not any(module.children()))

    def _first(self) -> list[Unit]:
        units: list[Unit] = []
        for step in self.steps:
            if not self.dynamic(step.index):
                continue
            leaf = self._is_leaf(step.module)
            if leaf and units and units[-1].call == step.call:
                units[-1].steps.append(step.index)
            else:
                units.append(Unit(step.module, leaf, step.call, [step.index]))
        return units

    def needs(self, unit: Unit) -> tuple[list[int], list[int]]:
        """Returns the dependencies of a unit.

        Returns:
            The free steps that it repeats, in order, and the values of other units that it uses, in order
            of first use. The first values are the network's inputs.
        """
        own = set(unit.steps)
        repeated: set[int] = set()
        inputs: list[int] = []
        pending: list[tuple[int, bool]] = []
        for index in unit.steps:
            pending.extend((i, self.steps[index].op in LIKE) for i in self.before[index] if i not in own)
        # A stack, so that inputs are in the order in which the steps use them.
        pending.reverse()
        while pending:
            index, is_like = pending.pop()
            if index in repeated:
                continue
            if index in self.free and not self.is_input(index):
                repeated.add(index)
                step = self.steps[index]
                more = [(i, step.op in LIKE) for i in self.before[index] if i not in own]
                pending.extend(reversed(more))
            elif not is_like and index not in inputs:
                inputs.append(index)
        return sorted(repeated), inputs

    def stored(self, unit: Unit) -> list[Stored]:
        """Returns the distinct stored tensors that a unit uses, in order."""
        tensors: dict[str, Stored] = {}
        for index in sorted([*self.needs(unit)[0], *unit.steps]):
            for leaf in self.steps[index].leaves:
                if isinstance(leaf, Stored):
                    tensors.setdefault(leaf.name, leaf)
        return list(tensors.values())

    def parameter(self, stored: Stored) -> tuple[int, ...]:
        """Returns the shape of a parameter; empty for other stored tensors."""
        if not stored.is_parameter:
            return ()
        return tuple(getattr(self.modules[stored.owner], stored.attribute).shape)

    def owner(self) -> dict[int, int]:
        """Returns the index of each step's unit."""
        return {index: position for position, unit in enumerate(self.units) for index in unit.steps}

    def outputs(self) -> list[list[int]]:
        """Returns for each unit the values that other units or the network's output use."""
        owner = self.owner()
        outputs: list[list[int]] = [[] for _ in self.units]

        def take(value: int, position: int | None) -> None:
            if value in owner and owner[value] != position and value not in outputs[owner[value]]:
                outputs[owner[value]].append(value)

        for position, unit in enumerate(self.units):
            for value in self.needs(unit)[1]:
                take(value, position)
        for output in self.program.outputs:
            take(output, None)
        return outputs

    # Merging.

    def _merge_writers(self) -> None:
        """Merges steps that write to memory with later steps that read it through another value."""
        users: dict[object, set[int]] = {}
        for step in self.steps:
            for leaf in step.refs:
                users.setdefault(self.root[leaf], set()).add(step.index)
        for root, writers in self.writers.items():
            if isinstance(root, Stored):
                continue
            for writer in writers:
                changed = self.steps[writer].refs[0]
                others = [
                    user
                    for user in users.get(root, ())
                    if user > writer
                    and any(r < writer and self.root[r] == root for r in self.steps[user].refs)
                ]
                if others and self.dynamic(writer):
                    together = [*others, writer, changed, *(i for i in [root] if isinstance(i, int))]
                    self.merge(
                        [i for i in together if self.dynamic(i)],
                        "a tensor is changed in place while others use it",
                    )

    def merge(self, steps: list[int], why: str) -> None:
        """Merges the units of the given steps, with all units on paths between them.

        Args:
            steps: Steps of the units.
            why: Reason, for the description of an opaque layer.
        """
        owner = self.owner()
        chosen = {owner[index] for index in steps if index in owner}
        if len(chosen) < 2:
            return
        before: list[int] = []  # Bit set of each unit's ancestors and itself.
        takes: list[set[int]] = []
        for position, unit in enumerate(self.units):
            needed = {owner[i] for i in self.needs(unit)[1] if i in owner} - {position}
            takes.append(needed)
            bits = 1 << position
            for producer in needed:
                bits |= before[producer]
            before.append(bits)
        mask = sum(1 << position for position in chosen)
        last = max(chosen)
        reached = mask
        for position in range(min(chosen), last + 1):
            if takes[position] and any(reached >> producer & 1 for producer in takes[position]):
                reached |= 1 << position
        ancestors = 0
        for position in chosen:
            ancestors |= before[position]
        inside = [p for p in range(len(self.units)) if (reached & ancestors | mask) >> p & 1]
        members = [self.units[position] for position in inside]
        reasons = [reason for unit in members for reason in unit.merged]
        merged = Unit(
            _common([unit.module for unit in members]),
            False,
            "",
            sorted(index for unit in members for index in unit.steps),
            list(dict.fromkeys([*reasons, why])),
        )
        rest = [unit for position, unit in enumerate(self.units) if position not in inside]
        self.units = self._sorted([*rest, merged])

    def _sorted(self, units: list[Unit]) -> list[Unit]:
        """Sorts units topologically, with execution order as the tie-break."""
        self.units = sorted(units, key=lambda unit: unit.steps[-1])
        owner = self.owner()
        done: dict[int, None] = {}

        def visit(position: int) -> None:
            stack = [(position, False)]
            while stack:
                current, ready = stack.pop()
                if current in done:
                    continue
                if ready:
                    done[current] = None
                    continue
                stack.append((current, True))
                needed = {owner[i] for i in self.needs(self.units[current])[1] if i in owner}
                stack.extend((p, False) for p in sorted(needed - {current}, reverse=True))

        for position in range(len(self.units)):
            visit(position)
        return [self.units[position] for position in done]

    def repair(self) -> None:
        """Merges units with unsuitable outputs with their consumers."""
        while True:
            consumers = self._consumers()
            outputs = self.outputs()
            for position, unit in enumerate(self.units):
                why = self.unfit(unit, outputs[position])
                if why is None:
                    continue
                together = [unit.steps[0], *(self.units[p].steps[0] for p in consumers[position])]
                if len(set(together)) < 2:
                    continue  # The network's output, which is checked when layers are created.
                self.merge(together, why)
                break
            else:
                return

    def _consumers(self) -> list[set[int]]:
        owner = self.owner()
        consumers: list[set[int]] = [set() for _ in self.units]
        for position, unit in enumerate(self.units):
            for value in self.needs(unit)[1]:
                if value in owner:
                    consumers[owner[value]].add(position)
        return consumers

    def unfit(self, unit: Unit, outputs: list[int]) -> str | None:
        """Returns the reason for which a unit cannot be a layer, or ``None``."""
        if not outputs:
            return None
        if len(outputs) > 1:
            return "it has several outputs"
        step = self.steps[outputs[0]]
        if step.dims is None:
            return "it has several outputs"
        if step.sample is None:
            return "its first dimension is not the batch"
        if step.dtype is None or not step.dtype.is_floating_point:
            return "its output is not floating-point"
        if not self.needs(unit)[1]:
            return "it has no input"
        return None


class _NotConstant(Exception):
    pass


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _common(paths: list[str]) -> str:
    """Returns the path of the innermost module that contains all paths."""
    parts = [path.split(".") if path else [] for path in paths]
    shared = []
    for level in zip(*parts):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return ".".join(shared)
