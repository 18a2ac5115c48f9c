"""Which layers of a rank are one graph of autograd, and how their passes run.

What happens between layers is the program's. Where nothing of it comes between layers, neither forward nor backward, they are one *segment*:
its forward pass runs on inputs that are cut off from whatever made them, and its backward pass asks autograd once for the gradients of these
inputs and of the parameters of all of its layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from deeppool.torch.program import RankProgram, Step, Values
from deeppool.torch.sampled_random import SampledRandom
from deeppool.tracing.island import Island, buffers_kept


class LayerPasses:
    """A layer of the module, as it is trained."""

    def __init__(self, name: str, island: Island, random: SampledRandom) -> None:
        self.name, self.island, self.random, self.run = name, island, random, island.forward
        self.parameters = [parameter for parameter in island.parameters() if parameter.requires_grad]
        self.draws_random = self.has_fused_attention = False

    def forward(self, inputs: Sequence[torch.Tensor], first: int) -> torch.Tensor:
        """The output for samples of which the first is this one of the global batch."""
        if not self.draws_random:
            return self.run(*inputs)
        attention = sdpa_kernel(SDPBackend.MATH) if self.has_fused_attention else nullcontext()
        with attention, self.random.begin(self.name, first, len(inputs[0])):
            return self.run(*inputs)

    def recompute(self, inputs: Sequence[torch.Tensor], first: int) -> torch.Tensor:
        """The same once more. Running statistics move once."""
        with buffers_kept(self.island):
            return self.forward(inputs, first)


def runs(program: RankProgram, is_fused: bool) -> list[list[int]]:
    """The steps of the compute lane in parts that run as one, in order: the forward passes of a segment with what they load, or its backward
    passes with sums of gradients. If not ``is_fused``, each layer is a segment of its own."""
    found: list[list[int]] = []
    waited: set[int] = set()
    for index, step in enumerate(program.steps):
        if step.lane != "compute" or step.op == "optimizer_step":  # which is the user's
            continue
        waits = {after for after in step.after if program.steps[after].lane == "communication"} - waited
        if found and not waits and _joins(program, found[-1], step, is_fused):
            found[-1].append(index)
        else:
            found.append([index])
        waited |= waits
    while len(refined := _refined(program, found)) > len(found):
        found = refined
    return found


def _joins(program: RankProgram, run: list[int], step: Step, is_fused: bool) -> bool:
    """Whether a step goes on with a run."""
    before = [program.steps[index] for index in run]
    if step.layer in program.synchronized or before[-1].layer in program.synchronized:
        return False
    if before[-1].pass_.endswith("_moments") and step.layer == before[-1].layer:
        return True  # The halves of a batch normalization.
    if not is_fused or not program.awaited.isdisjoint(run):
        return False
    if step.op == "forward" and program.owner(step.layer) in {
        program.owner(other.layer) for other in before if other.op == "forward"
    }:
        # Autograd has one gradient for parameters that several layers share, and the program one of each layer.
        return False
    return all(
        (other.op in ("forward", "load_batch")) == (step.op in ("forward", "load_batch")) for other in before
    )


def _refined(program: RankProgram, found: list[list[int]]) -> list[list[int]]:
    """The parts, cut where the passes that go with theirs are in different parts."""
    part = {index: number for number, run in enumerate(found) for index in run}
    partner: dict[int, int | None] = {}
    for forward, backward in program.connected.items():
        partner[forward] = part[backward[-1]] if backward else None
        partner |= {index: part[forward] for index in backward}
    refined: list[list[int]] = []
    for run in found:
        refined.append([])
        last: list[int | None] = []
        for index in run:
            if index in partner:
                if last and last[0] != partner[index]:
                    refined.append([])
                last = [partner[index]]
            refined[-1].append(index)
    return refined


@dataclass(slots=True)
class _Call:
    """The forward pass of a layer of a segment."""

    index: int
    step: Step
    compute: Callable[[list[torch.Tensor], int], torch.Tensor]
    inputs: list[tuple[int, bool, bool]]
    """Of each its buffer, whether a layer of the segment made it, and, if not, whether its gradient is wanted."""
    given: int = 0
    """How many gradients of the output come from outside of the segment."""


class Segment:
    """Layers that are one graph of autograd.

    Args:
        forward, backward: The runs of its passes. Without a backward pass nothing is kept for one.
    """

    def __init__(
        self,
        program: RankProgram,
        layers: Mapping[str, LayerPasses],
        values: Values,
        forward: list[int],
        backward: list[int],
    ) -> None:
        self._values, self._has_backward = values, bool(backward)
        self._calls: list[_Call] = []
        self._parameters: list[torch.Tensor] = []
        self._leaves: list[torch.Tensor] = []
        self._outputs: list[torch.Tensor] = []
        #: Which step writes the gradients of leaves, and of a layer's parameters with their number, and which reads those of outputs; where.
        self._of_leaves: list[tuple[int, int]] = []
        self._of_parameters: list[tuple[tuple[int, int], int]] = []
        self._of_outputs: list[tuple[int, int]] = []
        self._constants = {
            number: buffer.value
            for number, buffer in enumerate(program.buffers)
            if buffer.contents == "constant"
        }
        made: set[int] = set()
        inside: set[int] = set()
        for index in (index for index in forward if index in program.connected):
            step, passes = program.steps[index], [(i, program.steps[i]) for i in program.connected[index]]
            layer = layers[step.layer]
            gradients = {
                role: (i, buffer) for i, one in passes for role, buffer in zip(one.write_roles, one.writes)
            }
            inputs = []
            for slot, buffer in enumerate(program.received(index)):
                gradient = gradients.get(f"input_gradient.{slot}")
                is_wanted = gradient is not None and buffer not in made and bool(program.readers[gradient])
                if is_wanted and gradient is not None:
                    self._of_leaves.append(gradient)
                elif gradient is not None:
                    inside.add(gradient[1])
                inputs.append((buffer, buffer in made, is_wanted))
            if "parameter_gradient" in gradients:
                self._of_parameters.append((gradients["parameter_gradient"], len(layer.parameters)))
                self._parameters += layer.parameters
            self._calls.append(
                _Call(index, step, layer.recompute if step.pass_ == "recompute" else layer.forward, inputs)
            )
            made.add(step.written("output"))
        self.sums = [index for index in backward if program.steps[index].op == "accumulate_gradient"]
        """Sums of gradients beside its backward passes that autograd does not do."""
        for call in self._calls if self._has_backward else ():
            last = program.connected[call.index][-1]
            given = self._from_outside(program, last, program.steps[last].read("output_gradient"), inside)
            call.given = len(given)
            self._of_outputs += given

    def _from_outside(
        self, program: RankProgram, reader: int, gradient: int, inside: set[int]
    ) -> list[tuple[int, int]]:
        """The terms of a gradient that come from elsewhere, and which steps read them: autograd adds up the others."""
        for index in self.sums:
            if gradient in program.steps[index].writes:
                self.sums.remove(index)
                return [
                    term
                    for read in program.steps[index].reads
                    for term in self._from_outside(program, index, read, inside)
                ]
        return [] if gradient in inside else [(reader, gradient)]

    def forward(self) -> None:
        values = self._values
        with torch.set_grad_enabled(self._has_backward):
            for call in self._calls:
                given = {buffer: values.take(call.index, buffer) for buffer, *_ in call.inputs}
                inputs = [
                    given[b] if is_inside else self._cut_off(given[b], is_wanted)
                    for b, is_inside, is_wanted in call.inputs
                ]
                output = call.compute(inputs, call.step.samples[0])
                values.put(call.index, call.step.written("output"), output)
                if "metrics" in call.step.write_roles:
                    values.put(call.index, call.step.written("metrics"), output.detach().sum())
                self._outputs += [output] * call.given

    def _cut_off(self, value: torch.Tensor, is_wanted: bool) -> torch.Tensor:
        value = value.detach()
        if is_wanted:
            self._leaves.append(value.requires_grad_())
        return value

    def backward(self) -> None:
        wanted, outputs = [*self._leaves, *self._parameters], self._outputs
        self._leaves, self._outputs = [], []
        given = []
        for output, (reader, buffer) in zip(outputs, self._of_outputs):
            constant = self._constants.get(buffer)
            gradient = (
                self._values.take(reader, buffer) if constant is None else torch.full_like(output, constant)
            )
            if output.requires_grad:
                given.append((output, gradient))
        if wanted and given:
            found = torch.autograd.grad(
                [y for y, _ in given],
                wanted,
                [g for _, g in given],
                allow_unused=True,
                materialize_grads=True,
            )
        else:
            found = tuple(torch.zeros_like(tensor) for tensor in wanted)
        gradients = iter(found)
        for place, gradient in zip(self._of_leaves, gradients):
            self._values.put(*place, gradient)
        for place, count in self._of_parameters:
            self._values.put(*place, list(islice(gradients, count)))
