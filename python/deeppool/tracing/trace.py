"""Tracing of modules: converts each unit of a module's program to layers of known kinds or an opaque one."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from deeppool.tracing import attention, losses, refusals
from deeppool.tracing.cost import cost
from deeppool.tracing.draft import Draft
from deeppool.tracing.errors import TraceError
from deeppool.tracing.fingerprint import fingerprint
from deeppool.tracing.island import BatchNorm, Writer, buffers_kept, of_function
from deeppool.tracing.kinds import SHAPE, Kind, Op, Pieces, Same, Unknown, kind_of
from deeppool.tracing.program import Step, batch_of, export
from deeppool.tracing.state import Watch, is_of_pytorch, observe
from deeppool.tracing.traced import Traced, TracedLayer
from deeppool.tracing.units import Unit, Units

SCHEMA = "deeppool/graph/v1"

#: Training mode of each submodule.
Modes = dict[nn.Module, bool]

#: Number of samples of the batch that layers are checked with.
SAMPLES = 4


def trace(
    module: nn.Module,
    *example_inputs: torch.Tensor,
    loss: nn.Module | Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    targets: torch.Tensor | None = None,
    name: str | None = None,
) -> Traced:
    """Converts a module to a network, with each of its layers as a module.

    The module is exported by ``torch.export`` in training mode. Its layers are its leaf modules, with their
    names, and the operations between them, named after the enclosing module and the operation. A layer that
    a kind of the graph format expresses exactly has that kind. Any other layer is *opaque*, with the
    floating-point operations and bytes of its operations, and :attr:`Traced.opaque` has the reason.

    The module, its mode and its buffers do not change.

    Args:
        module: A module that takes and returns one tensor of shape ``(samples, ...)``.
        example_inputs: One tensor with at least one sample.
        loss: Loss to minimise, a function of output and targets. It becomes the last layer, ``loss``. The
            default is :class:`torch.nn.CrossEntropyLoss` of class scores; a sample's scores have the shape
            ``(classes,)``, ``(positions, classes)`` or ``(classes, height, width)``, and its targets are
            class indices, -100 if ignored, or class probabilities. A given cross-entropy takes samples of
            shape ``(classes, positions)``, too, as PyTorch does, if the targets have the shape
            ``(samples, positions)`` or both sizes are equal. Class weights, ignored labels and label
            smoothing of :class:`torch.nn.CrossEntropyLoss` and :class:`torch.nn.NLLLoss` are supported. Any
            other loss is a mean over samples of a loss of each sample. It is compared on random batches
            between a batch and its shards.
        targets: Targets of the examples, of shape ``(samples, ...)``. Required with losses other than
            cross-entropy.
        name: Name of the network; by default that of the module's class.

    Raises:
        TraceError: The module cannot be exported, a layer mixes samples or updates state in a way that ranks
            cannot do on their own samples, or the loss is no mean over samples. The message names the layer.
    """
    if len(example_inputs) != 1 or not isinstance(example_inputs[0], torch.Tensor):
        raise TraceError(
            f"a network has one input, and {len(example_inputs)} were given: wrap the module in one that "
            "takes one tensor, and computes the others from it"
        )
    example = example_inputs[0]
    if example.dim() < 2 or len(example) == 0:
        raise TraceError(
            "expected a batch of examples of shape (samples, ...), got a tensor of shape "
            f"{list(example.shape)}"
        )
    with (
        _training(module) as modes,
        buffers_kept(module.buffers()),
        torch.random.fork_rng(devices=_devices(module)),
    ):
        refusals.check_modules(module)
        observed = observe(module, batch_of(example, 2))
        program = export(module, example)
        units = Units(module, program, observed)
        refusals.check_steps(units)
        counters = refusals.counters(units, observed)
        attention.find(units)
        drafts, output = _Layers(units).drafts()
        refusals.check_norms(drafts)
        refusals.check_backward(module, observed, drafts)
        scores = program.steps[program.output].sample
        if scores is None:
            raise TraceError("the first dimension of the output is not the batch")
        last, of_samples = losses.drafts(loss, output, scores, targets)
        drafts += last
        _tie(drafts)
        if last[-1].op is None:
            losses.needs_targets(targets)
        if targets is not None:
            losses.check_targets(of_samples, targets)
        costs = _check_layers(modes, drafts, batch_of(example, SAMPLES), targets)
        outputs = [] if of_samples.is_known else _random_outputs(modes, drafts, output, example)
        losses.check(of_samples, outputs, targets)
        watch = Watch(module, observed, _followed(units, drafts))
    document = {
        "schema": SCHEMA,
        "name": name or type(module).__name__,
        "input": list(example.shape[1:]),
        "layers": [_document(draft, costs) for draft in drafts],
    }
    layers = [
        TracedLayer(draft.name, draft.kind, tuple(draft.inputs), draft.island, draft.parameters_of)
        for draft in drafts
    ]
    opaque = {draft.name: draft.reason or "" for draft in drafts if draft.op is None}
    return Traced(
        document,
        layers,
        opaque,
        output,
        len(last),
        module,
        fingerprint(module),
        (example,),
        targets,
        loss=of_samples,
        counters=counters,
        watch=watch,
    )


class _Layers:
    """Converts units to layers with kinds and names."""

    def __init__(self, units: Units) -> None:
        self.units = units
        #: Values of each unit that other units use.
        self.outputs = units.outputs()
        #: Number of units that use each parameter, by name.
        self.users = Counter(
            tensor.name for unit in units.units for tensor in units.stored(unit) if tensor.is_parameter
        )
        self.names = {"input", "loss"}
        #: Name of the layer that produces each value.
        self.layer_of = {0: "input"}

    def drafts(self) -> tuple[list[Draft], str]:
        """Returns the layers, and the name of the one that produces the network's output."""
        drafts: list[Draft] = []
        for unit, outputs in zip(self.units.units, self.outputs):
            drafts += self._layers(unit, outputs)
        if self.units.program.output not in self.layer_of:
            raise TraceError("the network's output does not depend on its input")
        return drafts, self.layer_of[self.units.program.output]

    def _layers(self, unit: Unit, outputs: list[int]) -> list[Draft]:
        if not outputs:
            return []  # Its result is unused.
        attention_layers = attention.layers(self.units, unit, self._free_name)
        if attention_layers is not None:
            drafts = []
            for layer in attention_layers:
                inputs = [self.layer_of[value] if isinstance(value, int) else value for value in layer.inputs]
                drafts.append(Draft(layer.name, layer.op, inputs, layer.island, layer.reason, layer.steps))
            self.layer_of[outputs[0]] = drafts[-1].name
            return drafts
        module = self.units.modules.get(unit.module)
        observed = self.units.observed
        if unit.is_call and module is not None and refusals.own_backward(module, observed) is not None:
            return [self._opaque(unit, outputs, ["its gradient is not that of its operations"])]
        steps = self._significant(unit)
        matches = [(step, kind_of(self.units, step)) for step in steps]
        unknown = [match.reason for _, match in matches if isinstance(match, Unknown)]
        if unknown or len(outputs) > 1:
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
        island = Writer(self.units, part).island(name, step.index, list(match.inputs), is_simple)
        if step.op == "batch_norm":
            module = self.units.modules[part.module]
            island.norm = BatchNorm(step, self.units.modules, module if _is_norm(module) else None)
        inputs = [self.layer_of[value] for value in match.inputs]
        return Draft(name, match.op, inputs, island, steps=[step])

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
        called = self._free_name(f"{name}.bias")
        island = of_function(called, torch.add, step.sample, [(bias, modules[bias.owner])])
        return [
            first,
            Draft(called, None, [name], island, "the bias of a layer with a shared weight", [step]),
        ]

    def _pieces(self, unit: Unit, step: Step, match: Pieces) -> list[Draft]:
        name = (
            unit.module if unit.is_call and len(unit.steps) == 1 else self._functional(unit.module, step.op)
        )
        name = self._free_name(name)
        drafts: list[Draft] = []
        for piece in match.pieces:
            called = name + piece.suffix
            inputs = [drafts[-1].name if drafts else self.layer_of[match.value]]
            drafts.append(Draft(called, piece.op, inputs, of_function(called, piece.function, piece.output)))
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


def _tie(drafts: list[Draft]) -> None:
    """Sets ``parameters_of`` of layers that share an earlier layer's parameters."""
    owners: dict[tuple[int, ...], str] = {}
    users: dict[int, str] = {}
    for draft in drafts:
        parameters = tuple(id(parameter) for _, parameter in draft.island.named_parameters())
        if not parameters:
            continue
        if parameters in owners:
            draft.parameters_of = owners[parameters]
            continue
        for parameter in parameters:
            if parameter in users:
                raise TraceError(
                    f"layers `{users[parameter]}` and `{draft.name}` share some but not all of their "
                    "parameters: let them share all (for example, without bias), or make them one module"
                )
            users[parameter] = draft.name
        owners[parameters] = draft.name


def _document(draft: Draft, costs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {"name": draft.name}
    document["op"] = draft.op if draft.op is not None else {"opaque": costs[draft.name]}
    document["inputs"] = draft.inputs
    if draft.parameters_of is not None:
        document["parameters_of"] = draft.parameters_of
    return document


# Checks.


def _check_layers(
    modes: Modes, drafts: list[Draft], batch: torch.Tensor, targets: torch.Tensor | None
) -> dict[str, dict[str, Any]]:
    """Checks that no layer mixes samples, and counts the costs of opaque layers.

    Returns:
        The fields of each opaque layer in the graph format, by name.
    """
    last_use = {name: index for index, draft in enumerate(drafts) for name in draft.inputs}
    values = {"input": batch}
    costs: dict[str, dict[str, Any]] = {}
    for index, draft in enumerate(drafts):
        inputs = [values[name] for name in draft.inputs]
        if draft.name == "loss":
            if draft.op is None:
                costs[draft.name] = losses.cost_of(draft.island, inputs[0], targets)
            continue
        # Random numbers of a layer that draws them in evaluation mode, too, differ between calls.
        draws = any(step.is_random for step in draft.steps)
        if draft.op is None:
            costs[draft.name] = _opaque(draft, inputs)
        _set(dict.fromkeys(modes, False))
        with torch.no_grad():
            values[draft.name] = output = draft.island(*inputs)
            if tuple(output.shape[1:]) != draft.island.output_shape:
                raise TraceError(
                    f"layer `{draft.name}` returns samples of another shape for {len(batch)} samples"
                )
            # Not the first, last or middle sample: reversing a batch does not move the middle.
            middle = slice(1, 2)
            alone = draft.island(*(tensor[middle] for tensor in inputs))
        _set(modes)
        normalizes = any(step.op == "batch_norm" for step in draft.steps)
        if not draws and not normalizes and not _is_same(alone, output[middle]):
            raise TraceError(
                f"layer `{draft.name}` mixes the samples of a batch: its output for a sample depends on "
                "other samples, so ranks cannot share a batch"
            )
        for name in draft.inputs:
            if last_use[name] == index:
                values.pop(name, None)
    return costs


def _random_outputs(
    modes: Modes, drafts: list[Draft], output: str, example: torch.Tensor
) -> list[torch.Tensor]:
    """Returns outputs of the module for three batches of random inputs, in evaluation mode.

    Each element of an input is that of a random example.
    """
    generator = torch.Generator().manual_seed(0)
    rows = batch_of(example, 8)
    outputs = []
    _set(dict.fromkeys(modes, False))
    with torch.no_grad():
        for _ in range(3):
            chosen = torch.randint(8, (losses.SAMPLES, *example.shape[1:]), generator=generator)
            values = {"input": rows.gather(0, chosen.to(rows.device))}
            for draft in drafts:
                if draft.name == "loss":
                    break
                values[draft.name] = draft.island(*(values[name] for name in draft.inputs))
            outputs.append(values[output])
    _set(modes)
    return outputs


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    bound = 1e-9 if one.dtype == torch.float64 else 1e-3
    largest = float(other.abs().max()) if other.numel() else 0.0
    return float((one - other).abs().max()) <= bound * largest + 1e-12 if one.numel() else True


def _opaque(draft: Draft, inputs: list[torch.Tensor]) -> dict[str, Any]:
    parameters = list(draft.island.named_parameters())
    names = [name.rpartition(".")[2] for name, _ in parameters]
    if len(set(names)) < len(names):
        names = [name for name, _ in parameters]
    recurrent = any(step.op in ("lstm", "gru", "rnn_tanh", "rnn_relu") for step in draft.steps)
    document: dict[str, Any] = {
        "op": "+".join(dict.fromkeys(step.op.strip("_") for step in draft.steps))[:60],
        "output": list(draft.island.output_shape),
        "parameters": [{"name": name, "dims": list(p.shape)} for name, (_, p) in zip(names, parameters)],
    }
    return document | cost(draft.island, [parameter for _, parameter in parameters], inputs, recurrent)


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
        _set(before)


def _set(modes: Modes) -> None:
    for part, mode in modes.items():
        part.training = mode
