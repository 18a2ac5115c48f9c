"""Segments: groups of a rank's layers that share an autograd graph.

Consecutive layers with no other step of the program between them, neither forward nor backward, are one
*segment*. Its forward pass runs on detached inputs. Its backward pass calls autograd once, for the
gradients of these inputs and of the parameters of all its layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from deeppool.torch.program import RankProgram, Ranges, Step, Values
from deeppool.torch.sampled_random import SampledRandom
from deeppool.tracing.island import Island, buffers_kept


class LayerPasses:
    """The passes of a layer in training."""

    def __init__(self, name: str, island: Island, random: SampledRandom) -> None:
        self.name, self.island, self.random, self.run = name, island, random, island.forward
        #: Tensors that its passes train.
        self.parameters: list[torch.Tensor] = [
            parameter for parameter in island.parameters() if parameter.requires_grad
        ]
        #: The module's parameters that they belong to.
        self.trained = self.parameters
        self.norm = island.norm
        #: Box of the random numbers that it draws for a sample; ``None`` for all of the layer's.
        self.random_box: tuple[tuple[int, ...], Ranges] | None = None
        self.draws_random = self.has_fused_attention = False

    def start(self) -> None:
        """Reads the module's tensors before an iteration, if the passes use copies of them."""

    def finish(self) -> None:
        """Writes running statistics to the module's buffers after an iteration, if they are copies."""

    def of_whole(self, gradients: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Returns the gradients of :attr:`trained`, given those of :attr:`parameters`."""
        return gradients

    def buffers(self) -> Iterable[torch.Tensor]:
        """Returns the tensors that a forward pass updates."""
        return self.island.buffers()

    def forward(self, inputs: Sequence[torch.Tensor], first: int) -> torch.Tensor:
        """Runs the forward pass.

        Args:
            inputs: Inputs of the layer.
            first: Index of their first sample in the global batch.
        """
        if not self.draws_random:
            return self.run(*inputs)
        attention = sdpa_kernel(SDPBackend.MATH) if self.has_fused_attention else nullcontext()
        with attention, self.random.begin(self.name, first, len(inputs[0]), self.random_box):
            return self.run(*inputs)

    def recompute(self, inputs: Sequence[torch.Tensor], first: int) -> torch.Tensor:
        """Runs the forward pass again, without updating buffers such as running statistics."""
        with buffers_kept(self.buffers()):
            return self.forward(inputs, first)


def runs(program: RankProgram, is_fused: bool) -> list[list[int]]:
    """Groups the steps of the compute lane into runs.

    A run is the forward passes of a segment with their loads, or its backward passes with their sums of
    gradients.

    Args:
        program: The rank's program.
        is_fused: Whether a segment may have several layers.

    Returns:
        The indices of each run's steps, in program order.
    """
    result: list[list[int]] = []
    waited: set[int] = set()
    for index, step in enumerate(program.steps):
        if step.lane != "compute" or step.op == "optimizer_step":  # Done by the user's optimizer.
            continue
        waits = {after for after in step.after if program.steps[after].lane == "communication"} - waited
        if result and not waits and _joins(program, result[-1], step, is_fused):
            result[-1].append(index)
        else:
            result.append([index])
        waited |= waits
    while len(refined := _refined(program, result)) > len(result):
        result = refined
    return result


def _joins(program: RankProgram, run: list[int], step: Step, is_fused: bool) -> bool:
    """Returns whether a step can be appended to a run."""
    before = [program.steps[index] for index in run]
    if step.layer in program.synchronized or before[-1].layer in program.synchronized:
        return False
    if "sum_addends" in (step.op, before[-1].op):
        return False
    if before[-1].pass_.endswith("_moments") and step.layer == before[-1].layer:
        return True  # The two steps of a batch normalization.
    if not is_fused or not program.awaited.isdisjoint(run):
        return False
    if step.op == "forward" and program.owner(step.layer) in {
        program.owner(other.layer) for other in before if other.op == "forward"
    }:
        # Autograd sums the gradients of shared parameters; the program has one gradient per layer.
        return False
    return all(
        (other.op in ("forward", "load_batch")) == (step.op in ("forward", "load_batch")) for other in before
    )


def _refined(program: RankProgram, current: list[list[int]]) -> list[list[int]]:
    """Splits runs whose matching passes are in different runs."""
    run_of = {index: number for number, run in enumerate(current) for index in run}
    partner: dict[int, int | None] = {}
    for forward, backward in program.connected.items():
        partner[forward] = run_of[backward[-1]] if backward else None
        partner |= {index: run_of[forward] for index in backward}
    refined: list[list[int]] = []
    for run in current:
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
    """The forward pass of a layer in a segment."""

    index: int
    step: Step
    compute: Callable[[list[torch.Tensor], int], torch.Tensor]
    inputs: list[tuple[int, bool, bool]]
    """For each input its buffer, whether a layer of the segment computes it, and, if not, whether its
    gradient is needed."""
    external_gradients: int = 0
    """Number of gradients of the output from outside the segment."""


class Segment:
    """A group of layers that share an autograd graph.

    Args:
        forward: Run of its forward passes.
        backward: Run of its backward passes. If empty, the forward pass does not record a graph.
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
        #: Step and buffer that the gradient of each leaf is written to.
        self._of_leaves: list[tuple[int, int]] = []
        #: Step and buffer that each layer's parameter gradients are written to, and their number.
        self._of_parameters: list[tuple[tuple[int, int], int]] = []
        #: Step and buffer that the gradient of each output is read from.
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
        """Sums of gradients in its backward run that autograd does not compute."""
        for call in self._calls if self._has_backward else ():
            last = program.connected[call.index][-1]
            external = self._from_outside(program, last, program.steps[last].read("output_gradient"), inside)
            call.external_gradients = len(external)
            self._of_outputs += external

    def _from_outside(
        self, program: RankProgram, reader: int, gradient: int, inside: set[int]
    ) -> list[tuple[int, int]]:
        """Returns the terms of a gradient from outside the segment, as (reading step, buffer).

        Autograd sums the other terms.
        """
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
        """Runs the forward passes."""
        values = self._values
        with torch.set_grad_enabled(self._has_backward):
            for call in self._calls:
                taken = {buffer: values.take(call.index, buffer) for buffer, *_ in call.inputs}
                inputs = [
                    taken[b] if is_inside else self._detached(taken[b], is_wanted)
                    for b, is_inside, is_wanted in call.inputs
                ]
                output = call.compute(inputs, call.step.samples[0])
                values.put(call.index, call.step.written("output"), output)
                if "metrics" in call.step.write_roles:
                    values.put(call.index, call.step.written("metrics"), output.detach().sum())
                self._outputs += [output] * call.external_gradients

    def _detached(self, value: torch.Tensor, is_wanted: bool) -> torch.Tensor:
        value = value.detach()
        if is_wanted:
            self._leaves.append(value.requires_grad_())
        return value

    def backward(self) -> None:
        """Runs the backward passes."""
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
            results = torch.autograd.grad(
                [y for y, _ in given],
                wanted,
                [g for _, g in given],
                allow_unused=True,
                materialize_grads=True,
            )
        else:
            results = tuple(torch.zeros_like(tensor) for tensor in wanted)
        gradients = iter(results)
        for target, gradient in zip(self._of_leaves, gradients):
            self._values.put(*target, gradient)
        for target, count in self._of_parameters:
            self._values.put(*target, list(islice(gradients, count)))
