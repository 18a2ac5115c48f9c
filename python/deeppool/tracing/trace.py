"""Tracing of modules: converts each unit of a module's program to layers of known kinds or an opaque one."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from deeppool.tracing import (
    activations,
    attention,
    experts,
    grouping,
    linears,
    losses,
    norms,
    positions,
    recurrent,
    refusals,
    stochastic_depth,
)
from deeppool.tracing.call import Call, caches_off
from deeppool.tracing.checks import SAMPLES, Modes, check_layers, random_outputs, set_modes
from deeppool.tracing.draft import Draft
from deeppool.tracing.errors import TraceError
from deeppool.tracing.exporting import batch_of
from deeppool.tracing.fingerprint import fingerprint
from deeppool.tracing.island import BatchNorm, Island, Writer, buffers_kept, of_function
from deeppool.tracing.kinds import SHAPE, Kind, Op, Pieces, Same, Unknown, kind_of, label
from deeppool.tracing.losses import LossFunction
from deeppool.tracing.program import Step, export
from deeppool.tracing.state import Watch, is_of_pytorch, observe
from deeppool.tracing.traced import Traced, TracedLayer, TracedLoss
from deeppool.tracing.units import Unit, Units
from deeppool.tracing.wanted_losses import wanted_losses

SCHEMA = "deeppool/graph/v1"


def trace(
    module: nn.Module,
    *example_inputs: Any,
    loss: LossFunction | None | Mapping[str, LossFunction | None] | Sequence[LossFunction | None] = None,
    targets: torch.Tensor | None | Mapping[str, torch.Tensor] | Sequence[torch.Tensor] = None,
    loss_weights: Mapping[str, float] | Sequence[float] | None = None,
    name: str | None = None,
    **keywords: Any,
) -> Traced:
    """Converts a module to a network, with each of its layers as a module.

    The module is exported by ``torch.export`` in training mode. Its layers are its leaf modules, with their
    names, and the operations between them, named after the enclosing module and the operation. A layer that
    a kind of the graph format expresses exactly has that kind. Any other layer is *opaque*, with the
    floating-point operations and bytes of its operations, and :attr:`Traced.opaque` has the reason.

    Positions that count the tokens other than padding, as in RoBERTa, are those of sequences without padding
    if the examples have none. Padding tokens are then an error.

    The module, its mode and its buffers do not change. Key-value caches of `transformers` are off while it
    is traced.

    Args:
        module: A module that takes tensors and returns one of shape ``(samples, ...)``. Of a dictionary, a
            dataclass or a tuple, the network's output is ``logits``, ``last_hidden_state`` or ``out``, or
            else the only tensor.
        example_inputs: Arguments of the module. The first tensor, of shape ``(samples, ...)`` with at least
            one sample, is the network's input ``input``. Other tensors of shape ``(samples, ...)`` are
            inputs, too, with the names of their parameters, if their rows differ; with equal rows, such as
            those of the mask of an example without padding, they are constants. All other arguments are
            constants of the network.
        loss: Loss to minimise, a function of output and targets. It becomes the last layer, ``loss``. The
            default is :class:`torch.nn.CrossEntropyLoss` of class scores; a sample's scores have the shape
            ``(classes,)``, ``(positions, classes)`` or ``(classes, height, width)``, and its targets are
            class indices, -100 if ignored, or class probabilities. A given cross-entropy takes samples of
            shape ``(classes, positions)``, too, as PyTorch does, if the targets have the shape
            ``(samples, positions)`` or both sizes are equal. Class weights, ignored labels and label
            smoothing of :class:`torch.nn.CrossEntropyLoss` and :class:`torch.nn.NLLLoss` are supported. Any
            other loss is a mean over samples of a loss of each sample. It is compared on random batches
            between a batch and its shards. If several outputs have a loss, such as those of auxiliary
            classifiers, it is a dictionary of their losses by the names of the outputs, or a sequence of
            those of the first outputs. They become the layers ``loss.NAME``, and the network's loss is their
            sum.
        targets: Targets of the examples, of shape ``(samples, ...)``. Required with losses other than
            cross-entropy. Of several losses, those of all, or a dictionary or sequence as ``loss``.
        loss_weights: Factors of the losses in their sum, by name or in the order of a sequence ``loss``; 1 by
            default.
        name: Name of the network; by default that of the module's class.
        keywords: Keyword arguments of the module, as ``example_inputs``.

    Raises:
        TraceError: The module cannot be exported, a layer mixes samples or updates state in a way that ranks
            cannot do on their own samples, or the loss is no mean over samples. The message names the layer.
    """
    wanted = wanted_losses(loss, targets, loss_weights)
    outputs_with_loss = [one.output for one in wanted if one.output is not None]
    call = Call(module, example_inputs, keywords, outputs_with_loss or None)
    examples = call.examples
    with (
        _training(module) as modes,
        buffers_kept(module.buffers()),
        torch.random.fork_rng(devices=_devices(module)),
    ):
        refusals.check_modules(module)
        with caches_off(module):
            observed = observe(module, call)
        program = export(module, call)
        units = Units(module, program, observed)
        units.examples = list(examples.values())
        positions.release(units)
        refusals.check_steps(units)
        counters = refusals.counters(units, observed)
        attention.find(units)
        experts.find(units)
        grouping.group(units)
        drafts, outputs = _layers(units, [*examples, *(one.layer for one in wanted)])
        refusals.check_norms(drafts)
        refusals.check_backward(module, observed, drafts)
        body, found = list(drafts), []
        for one, output, value in zip(wanted, outputs, program.outputs, strict=True):
            scores = program.steps[value].sample
            if scores is None:
                raise TraceError("the first dimension of the output is not the batch")
            last, of_samples = losses.drafts(one.function, output, scores, one.targets, one.layer)
            drafts += last
            executed = of_samples.example if one.targets is None else one.targets
            if last[-1].op is None:
                losses.needs_targets(executed)
            if one.targets is not None:
                losses.check_targets(of_samples, one.targets)
            found.append((one, output, last, of_samples, executed))
        batch = dict(zip(examples, batch_of(examples.values(), SAMPLES)))
        costs = check_layers(modes, drafts, batch, {one.layer: executed for one, *_, executed in found})
        for one, output, _, of_samples, _ in found:
            values = [] if of_samples.is_known else random_outputs(modes, body, output, examples)
            losses.check(of_samples, values, one.targets)
        watch = Watch(module, observed, _followed(units, drafts))
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "name": name or type(module).__name__,
        "input": list(examples["input"].shape[1:]),
        "layers": [_document(draft, costs) for draft in drafts],
    }
    for one in wanted:
        if one.weight != 1:
            (of_loss,) = [layer for layer in document["layers"] if layer["name"] == one.layer]
            of_loss["loss_weight"] = one.weight
    further = [
        {"name": name, "shape": list(example.shape[1:])} for name, example in list(examples.items())[1:]
    ]
    document |= {"further_inputs": further} if further else {}
    layers = [
        TracedLayer(draft.name, draft.kind, tuple(draft.inputs), draft.island, draft.parameters_of)
        for draft in drafts
    ]
    opaque = {draft.name: draft.reason or "" for draft in drafts if draft.op is None}
    layer_of = {layer.name: layer for layer in layers}
    traced_losses = [
        TracedLoss(
            output, tuple(layer_of[draft.name] for draft in last), of_samples, one.weight, one.targets
        )
        for one, output, last, of_samples, _ in found
    ]
    return Traced(
        document,
        layers,
        opaque,
        traced_losses,
        module,
        fingerprint(module),
        tuple(examples.values()),
        call=call,
        absent={draft.absent for draft in drafts if draft.absent is not None},
        counters=counters,
        watch=watch,
    )


class _Layers:
    """Converts units to layers with kinds and names."""

    def __init__(self, units: Units, names: list[str]) -> None:
        self.units = units
        #: Values of each unit that other units use.
        self.outputs = units.outputs()
        #: Number of units that use each parameter, by name.
        self.users = Counter(
            tensor.name for unit in units.units for tensor in units.stored(unit) if tensor.is_parameter
        )
        self.names = {*names, "loss"}
        #: Name of the layer that produces each value.
        self.layer_of = dict(enumerate(names[: units.program.inputs]))

    def drafts(self) -> tuple[list[Draft], list[str]]:
        """Returns the layers, and the names of those that produce the network's outputs."""
        drafts: list[Draft] = []
        for unit, outputs in zip(self.units.units, self.outputs):
            drafts += self._layers(unit, outputs)
        values = self.units.program.outputs
        if any(value not in self.layer_of for value in values):
            raise TraceError("the network's output does not depend on its input")
        return drafts, [self.layer_of[value] for value in values]

    def _layers(self, unit: Unit, outputs: list[int]) -> list[Draft]:
        if not outputs:
            return []  # Its result is unused.
        parts = attention.layers(self.units, unit, self._free_name)
        if parts is None:
            parts = recurrent.layers(self.units, unit, outputs, self._free_name)
        if parts is None:
            parts = experts.layers(self.units, unit, outputs, self._free_name)
        if parts is not None:
            drafts = []
            for layer in parts:
                inputs = [self.layer_of[value] if isinstance(value, int) else value for value in layer.inputs]
                drafts.append(Draft(layer.name, layer.op, inputs, layer.island, steps=layer.draws))
            self.layer_of[outputs[0]] = drafts[-1].name
            return drafts
        module = self.units.modules.get(unit.module)
        observed = self.units.observed
        own = refusals.own_backward(module, observed) if unit.is_call and module is not None else None
        if own is not None:
            activation = activations.with_own_gradient(self.units, unit) if len(outputs) == 1 else None
            if activation is not None:
                return [self._formula(unit, outputs[0], activation)]
            return [self._opaque(unit, outputs, ["its gradient is not that of its operations"])]
        steps = self._significant(unit)
        matches = [(step, kind_of(self.units, step)) for step in steps]
        unknown = [match.reason for _, match in matches if isinstance(match, Unknown)]
        is_formula = len(outputs) == 1 and (len(steps) > 1 or unknown)
        finders = (activations, norms, stochastic_depth, linears) if is_formula else ()
        formula = next((kind for finder in finders if (kind := finder.find(self.units, unit))), None)
        if formula is not None:
            return [self._formula(unit, outputs[0], formula)]
        if unknown or unit.what or len(outputs) > 1:
            return [self._opaque(unit, outputs, unknown)]
        kinds = [match for _, match in matches if isinstance(match, Kind)]
        drafts = []
        for step, match in matches:
            if isinstance(match, Same):
                self.layer_of[step.index] = self.layer_of[match.value]
            elif isinstance(match, Pieces):
                drafts += self._pieces(unit, step, match)
                self.layer_of[step.index] = drafts[-1].name
            elif isinstance(match, Kind) and self._shares_without_bias(step):
                drafts += self._without_bias(unit, step, match)
                self.layer_of[step.index] = drafts[-1].name
            elif isinstance(match, Kind):
                drafts.append(self._known(unit, step, match, kinds))
                self.layer_of[step.index] = drafts[-1].name
        return drafts

    def _significant(self, unit: Unit) -> list[Step]:
        """Returns the steps of a unit, without the updates of a batch normalization's counters."""
        steps = [self.units.steps[index] for index in unit.steps]
        if any(step.op == "batch_norm" for step in steps):
            return [step for step in steps if not step.writes]
        return steps

    def _known(self, unit: Unit, step: Step, match: Kind, kinds: list[Kind]) -> Draft:
        alone = len(kinds) == 1
        part = (
            unit
            if alone and len(self._significant(unit)) == 1
            else Unit(unit.module, False, "", [step.index])
        )
        learns = any(tensor.is_parameter for tensor in self.units.stored(part))
        # Of several layers, the one with parameters gets the module's name: parameter names match.
        has_name = unit.is_call and (alone or learns or match is kinds[-1] and not self._learns(unit))
        wanted = match.name or (unit.module if has_name else self._functional(unit.module, step.op))
        name = self._free_name(wanted)
        is_simple = part.is_call and self.units.program.simple_calls.get(unit.call, False)
        needs_tokens = set(self.units.needs(part)[1]) > set(match.inputs)
        if label(match.op) == "position_embedding" and needs_tokens:
            island = self._positions(name, part, step, match)
        else:
            island = Writer(self.units, part).island(name, step.index, list(match.inputs), is_simple)
        if step.op == "batch_norm":
            module = self.units.modules[part.module]
            island.norm = BatchNorm(step, self.units.modules, module if _is_norm(module) else None)
        inputs = [self.layer_of[value] for value in match.inputs]
        return Draft(name, match.op, inputs, island, steps=[step], absent=match.absent)

    def _positions(self, name: str, part: Unit, step: Step, match: Kind) -> Island:
        """Returns the layer of positions that do not depend on the tokens without padding."""
        assert isinstance(match.op, dict) and step.sample is not None
        options, (length, features) = match.op["position_embedding"], step.sample
        first, count = options.get("first", 0), 1 if options.get("repeated") else length
        (table,) = [one for one in self.units.stored(part) if one.is_parameter]

        def add(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
            return x + table.reshape(-1, features)[first : first + count]

        return of_function(name, add, step.sample, [(table, self.units.modules[table.owner])])

    def _formula(self, unit: Unit, output: int, kind: Kind) -> Draft:
        """Returns the layer of a module that computes a kind by several operations."""
        name = self._free_name(unit.module)
        is_simple = unit.is_call and self.units.program.simple_calls.get(unit.call, False)
        island = Writer(self.units, unit).island(name, output, list(kind.inputs), is_simple)
        self.layer_of[output] = name
        steps = [self.units.steps[index] for index in unit.steps]
        return Draft(name, kind.op, [self.layer_of[kind.inputs[0]]], island, steps=steps)

    def _shares_without_bias(self, step: Step) -> bool:
        """Returns whether a linear layer shares its weight with other layers, but not its bias."""
        if step.op != "linear" or step.argument("bias") is None:
            return False
        return self.users[step.argument("weight").name] > 1 and self.users[step.argument("bias").name] == 1

    def _without_bias(self, unit: Unit, step: Step, match: Kind) -> list[Draft]:
        """Splits the bias off into a separate layer, because layers share all of their parameters or none."""
        assert step.sample is not None
        weight, bias = step.argument("weight"), step.argument("bias")
        name = self._free_name(unit.module if unit.is_call else self._functional(unit.module, step.op))
        modules = self.units.modules
        product = of_function(name, F.linear, step.sample, [(weight, modules[weight.owner])])
        op: Op = {"linear": {"out_features": step.sample[-1], "bias": False}}
        first = Draft(name, op, [self.layer_of[value] for value in match.inputs], product)
        called = self._free_name(bias.name)
        island = of_function(called, torch.add, step.sample, [(bias, modules[bias.owner])])
        if len(step.sample) != 2:
            reason = "the bias of a layer with a shared weight, of something other than sequences"
            return [first, Draft(called, None, [name], island, reason, [step])]
        # A vector that is added to all positions.
        added: Op = {"position_embedding": {"positions": 1, "repeated": True}}
        return [first, Draft(called, added, [name], island, steps=[step])]

    def _pieces(self, unit: Unit, step: Step, match: Pieces) -> list[Draft]:
        learns = any(piece.stored for piece in match.pieces)
        has_name = unit.is_call and (len(unit.steps) == 1 or learns)
        name = self._free_name(unit.module if has_name else self._functional(unit.module, step.op))
        drafts: list[Draft] = []
        for piece in match.pieces:
            called = name + piece.suffix if piece.name is None else self._free_name(piece.name)
            inputs = [drafts[-1].name if drafts else self.layer_of[match.value]]
            stored = [(one, self.units.modules[one.owner]) for one in piece.stored]
            island = of_function(called, piece.function, piece.output, stored)
            drafts.append(Draft(called, piece.op, inputs, island))
        return drafts

    def _learns(self, unit: Unit) -> bool:
        return any(tensor.is_parameter for tensor in self.units.stored(unit))

    def _opaque(self, unit: Unit, outputs: list[int], unknown: list[str]) -> Draft:
        steps = [self.units.steps[index] for index in unit.steps]
        if len(outputs) > 1 or self.units.steps[outputs[0]].sample is None:
            raise TraceError(
                f"the output of layer `{unit.module or steps[-1].op}` is not a batch of samples: it must "
                "be one tensor whose first dimension is the batch"
            )
        significant = [step for step in steps if not isinstance(kind_of(self.units, step), Same)] or steps
        names = list(dict.fromkeys(step.op for step in significant))
        wanted = (
            unit.module
            if unit.is_call or unit.module and (unit.merged or unit.what)
            else self._functional(unit.module, names[-1])
        )
        name = self._free_name(wanted)
        inputs = self.units.needs(unit)[1]
        if not inputs:
            raise TraceError(f"layer `{name}` does not depend on the input")
        is_simple = unit.is_call and self.units.program.simple_calls.get(unit.call, False)
        island = Writer(self.units, unit).island(name, outputs[0], inputs, is_simple and len(inputs) == 1)
        self.layer_of[outputs[0]] = name
        reasons = [reason for reason in unknown if not reason.startswith(SHAPE)] or unknown
        reason = unit.what or "; ".join(dict.fromkeys([*unit.merged, *reasons]))
        return Draft(name, None, [self.layer_of[value] for value in inputs], island, reason, significant)

    def _functional(self, module: str, op: str) -> str:
        op = op.strip("_")
        return f"{module}.{op}" if module else op

    def _free_name(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self.names:
            name, number = f"{wanted}.{number}", number + 1
        self.names.add(name)
        return name


def _is_norm(module: nn.Module) -> bool:
    kind = nn.modules.batchnorm._BatchNorm
    return isinstance(module, kind) and is_of_pytorch(module)


def _followed(units: Units, drafts: list[Draft]) -> set[nn.Module]:
    """Returns the modules whose layers call them, and so follow their attributes."""
    calls: dict[nn.Module, set[str]] = {}
    for step in units.steps:
        if step.module in units.modules and units.dynamic(step.index):
            calls.setdefault(units.modules[step.module], set()).add(step.call)
    islands: Counter[nn.Module] = Counter()
    for draft in drafts:
        module = draft.island.module
        if module is None or not draft.island.calls_module:
            continue
        own = {id(parameter) for parameter in module.parameters(recurse=False)}
        uses_all = own <= {id(parameter) for parameter in draft.island.parameters()}
        normalizes = any(step.op == "batch_norm" for step in draft.steps)
        if uses_all and (not normalizes or draft.island.norm is not None and _is_norm(module)):
            islands[module] += 1
    return {module for module, count in islands.items() if count == len(calls.get(module, ()))}


def _layers(units: Units, names: list[str]) -> tuple[list[Draft], list[str]]:
    """Returns the layers, and the names of those that produce the network's outputs.

    ``names`` are those of the inputs, and others that layers may not have.

    A layer has all of another one's parameters or none. Layers that share some are merged.

    Raises:
        TraceError: Such layers cannot be merged.
    """
    while True:
        drafts, outputs = _Layers(units, names).drafts()
        shared = _tie(drafts)
        if shared is None:
            return drafts, outputs
        parameter, layers = shared
        count = len(units.units)
        steps = [draft.steps[0].index for draft in layers if draft.steps]
        what = f"layers share the parameter `{parameter}`"
        if len(steps) == len(layers):
            units.merge(steps, what)
            units.repair()
            units.units[units.owner()[steps[0]]].what = what
        if len(units.units) == count:
            raise TraceError(
                f"layers `{layers[0].name}` and `{layers[1].name}` share some but not all of their "
                "parameters: let them share all (for example, without bias), or make them one module"
            )


def _tie(drafts: list[Draft]) -> tuple[str, tuple[Draft, Draft]] | None:
    """Sets ``parameters_of`` of layers that share an earlier layer's parameters.

    Returns:
        A parameter of two layers that share some but not all of their parameters, and these layers.
    """
    owners: dict[tuple[int, ...], str] = {}
    users: dict[int, Draft] = {}
    for draft in drafts:
        named = list(draft.island.named_parameters())
        parameters = tuple(id(parameter) for _, parameter in named)
        if not parameters:
            continue
        if parameters in owners:
            draft.parameters_of = owners[parameters]
            continue
        for name, parameter in named:
            if id(parameter) in users:
                return name, (users[id(parameter)], draft)
            users[id(parameter)] = draft
        owners[parameters] = draft.name
    return None


def _document(draft: Draft, costs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {"name": draft.name}
    document["op"] = draft.op if draft.op is not None else {"opaque": costs[draft.name]}
    document["inputs"] = draft.inputs
    if draft.parameters_of is not None:
        document["parameters_of"] = draft.parameters_of
    return document


def _devices(module: nn.Module) -> list[torch.device]:
    return list({tensor.device for tensor in module.parameters() if tensor.device.type == "cuda"})


@contextlib.contextmanager
def _training(module: nn.Module) -> Iterator[Modes]:
    """Sets a module to training mode, and restores the modes of its submodules afterwards."""
    before = {part: part.training for part in module.modules()}
    module.train()
    try:
        yield {part: part.training for part in module.modules()}
    finally:
        set_modes(before)
