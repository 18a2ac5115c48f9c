"""Executes the program of a rank: its steps in order, on two lanes.

The compute lane runs on the calling thread. The communication lane is started as far as what it waits for is there, in the program's
order, which is that of all ranks; a step of the compute lane waits only for what it comes after. So all-reduces go on beside the backward
pass, and redistributions beside other branches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from deeppool import _deeppool
from deeppool.torch.communication import Communication, Pending, Value
from deeppool.torch.passes import LayerPasses
from deeppool.torch.program import RankProgram, Step

State = tuple[int, int | None]


@dataclass(frozen=True)
class Event:
    """A step that ran: a collective from its start until its result was there."""

    step: int
    label: str
    lane: str
    began_us: float
    ended_us: float


class Executor:
    """Runs iterations of a program. It is also a job for :class:`deeppool._deeppool.CpuDriver`."""

    def __init__(
        self,
        program: RankProgram,
        layers: Mapping[str, LayerPasses],
        sample_specs: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
        communication: Communication,
        device: torch.device,
    ) -> None:
        self.program = program
        self.events: list[Event] | None = None
        """What ran in the last iteration, where it is to be recorded."""
        self._layers, self._sample_specs, self._communication, self.device = layers, sample_specs, communication, device
        self._values: list[Value | None] = [None] * len(program.buffers)
        self._inputs: torch.Tensor | None = None
        self._labels: torch.Tensor | None = None
        self._readers = program.readers
        self._left_to_read = [0] * len(program.buffers)
        self._counts: dict[str, torch.Tensor] = {}
        is_communication = [step.lane == "communication" for step in program.steps]
        # The optimizer is the user's, and so is clipping.
        left_out = ("optimizer_step", "squared_norm")
        self._compute = [i for i, step in enumerate(program.steps) if not is_communication[i] and step.op not in left_out]
        self._communicate = [i for i, step in enumerate(program.steps) if is_communication[i] and self._is_needed(step)]
        self._waits = [[after for after in step.after if is_communication[after]] for step in program.steps]
        self._runs = {i: self._bound(i, program.steps[i]) for i in self._compute}
        self._pending: dict[int, Pending] = {}
        self._began: dict[int, float] = {}
        self._done: set[int] = set()
        self._computed = self._started = 0

    def _is_needed(self, step: Step) -> bool:
        """All but the squared norm, which is for clipping."""
        return not any(self.program.buffers[buffer].contents == "squared_norm" for buffer in step.writes)

    # Running

    def begin(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        """The next iteration, with the samples of the global batch."""
        self._inputs, self._labels = inputs, labels
        self._pending.clear()
        self._began.clear()
        self._done.clear()
        self._computed = self._started = 0
        if self.events is not None:
            self.events = []

    def finish(self) -> None:
        """Runs the iteration to its end, with nothing beside it."""
        while self._computed < len(self._compute):
            self._start_collectives()
            for collective in self._waits[self._compute[self._computed]]:
                self._wait_for(collective)
            self.run()
        for collective in self._communicate:
            self._wait_for(collective)

    def poll(self) -> State:
        """Whether a step of the compute lane can run. Never blocks."""
        self._start_collectives()
        driver = _deeppool.CpuDriver
        if self._computed < len(self._compute):
            step = self._compute[self._computed]
            missing = next((c for c in self._waits[step] if not self._is_done(c)), None)
            return (driver.READY, step) if missing is None else (driver.COMMUNICATING, missing)
        missing = next((c for c in self._communicate if not self._is_done(c)), None)
        return (driver.FINISHED, None) if missing is None else (driver.COMMUNICATING, missing)

    def run(self) -> None:
        """Runs the next step of the compute lane."""
        index = self._compute[self._computed]
        if self.events is None:
            self._runs[index]()
        else:
            began = time.perf_counter()
            self._runs[index]()
            self._record(index, began)
        self._computed += 1
        step = self.program.steps[index]
        self._was_read(step.reads)
        self._was_written(index, step.writes)

    def value(self, buffer: int) -> Value | None:
        """What a buffer holds."""
        return self._values[buffer]

    def _record(self, index: int, began: float) -> None:
        if self.events is not None:
            step = self.program.steps[index]
            self.events.append(Event(index, step.label, step.lane, began * 1e6, time.perf_counter() * 1e6))

    def _was_read(self, buffers: tuple[int, ...]) -> None:
        """Drops what nobody else reads."""
        for buffer in buffers:
            self._left_to_read[buffer] -= 1
            if self._left_to_read[buffer] <= 0:
                self._values[buffer] = None

    def _was_written(self, index: int, buffers: tuple[int, ...]) -> None:
        for buffer in buffers:
            self._left_to_read[buffer] = self._readers[index, buffer]
            if self._left_to_read[buffer] == 0:
                self._values[buffer] = None

    def _is_computed(self, step: int) -> bool:
        return self._computed == len(self._compute) or step < self._compute[self._computed]

    def _start_collectives(self) -> None:
        """Starts collectives in their order, as far as that goes without waiting."""
        while self._started < len(self._communicate):
            index = self._communicate[self._started]
            for after in self.program.steps[index].after:
                is_collective = self.program.steps[after].lane == "communication"
                if not (self._is_done(after) if is_collective else self._is_computed(after)):
                    return
            self._start(index)

    def _start(self, index: int) -> None:
        step = self.program.steps[index]
        collective = self.program.collectives[step.collective]
        self._began[index] = time.perf_counter()
        if collective.op == "redistribute":
            held = self._tensor(step.reads[0]) if step.reads else None
            layer = self._moved_layer(step)
            shape, dtype = (held.shape[1:], held.dtype) if held is not None else self._sample_specs[layer]
            self._pending[index] = self._communication.start_redistribution(step.collective, collective, held, shape, dtype, self.device)
        else:
            values = [self._value(buffer) for buffer in step.writes]
            self._pending[index] = self._communication.start_all_reduce(collective, values)
        self._was_read(step.reads)
        self._started += 1

    def _moved_layer(self, step: Step) -> str:
        if not step.writes:
            return ""
        return self.program.buffers[step.writes[0]].layer or ""

    def _is_done(self, index: int) -> bool:
        """Whether a collective is complete; if it just became so, its result is put into its place."""
        if index in self._done:
            return True
        pending = self._pending.get(index)
        if pending is None or not pending.is_complete():
            return False
        self._complete(index, pending)
        return True

    def _wait_for(self, index: int) -> None:
        if index in self._done:
            return
        while index not in self._pending:
            # What comes before it is started first: that is the order of all ranks.
            first = self._communicate[self._started]
            for after in self.program.steps[first].after:
                if self.program.steps[after].lane == "communication":
                    self._wait_for(after)
            self._start(first)
        self._complete(index, self._pending[index])

    def _complete(self, index: int, pending: Pending) -> None:
        writes = self.program.steps[index].writes
        for buffer, value in zip(writes, pending.wait()):
            self._values[buffer] = value
        self._was_written(index, writes)
        del self._pending[index]
        self._done.add(index)
        self._record(index, self._began[index])

    # What steps do

    def _value(self, buffer: int) -> Value:
        value = self._values[buffer]
        assert value is not None, f"buffer {buffer} is read before it is written"
        return value

    def _tensor(self, buffer: int) -> torch.Tensor:
        value = self._value(buffer)
        assert isinstance(value, torch.Tensor)
        return value

    def _write(self, buffer: int | None, value: Value) -> None:
        if buffer is not None:
            self._values[buffer] = value

    def _bound(self, index: int, step: Step) -> Callable[[], None]:
        """What a step of the compute lane does, with everything looked up that does not change."""
        match step.op:
            case "load_batch":
                return lambda: self._load(step)
            case "accumulate_gradient":
                return lambda: self._accumulate(step)
            case "forward":
                return self._bound_forward(index, step)
            case "backward":
                return self._bound_backward(index, step)
        raise NotImplementedError(f"step {step.label!r} of operation {step.op!r}")

    def _load(self, step: Step) -> None:
        whole = self._inputs if step.part == "features" else self._labels
        assert whole is not None
        first, end = step.samples
        self._write(step.writes[0], whole[first:end].to(self.device, non_blocking=True))

    def _accumulate(self, step: Step) -> None:
        values = [self._value(buffer) for buffer in step.reads]
        if isinstance(values[0], list):
            self._write(step.writes[0], [_sum(terms) for terms in zip(*values)])
        else:
            self._write(step.writes[0], _sum(values))

    def _bound_forward(self, index: int, step: Step) -> Callable[[], None]:
        layer = self._layers[step.layer]
        inputs = [buffer for buffer, role in zip(step.reads, step.read_roles) if role.startswith("input.") or role == "labels"]
        if step.pass_ == "forward_moments":
            moments = step.written("moments")
            if moments not in self.program.is_reduced:
                return lambda: None
            return lambda: self._write(moments, layer.moments(self._tensor(inputs[0])))
        output = step.written("output")
        if "moments" in step.read_roles and step.read("moments") in self.program.is_reduced:
            read = step.read("moments")
            updates = step.pass_ == "forward"

            def normalize() -> None:
                moments = self._tensor(read)
                self._counts[step.layer] = moments[-1]
                self._write(output, layer.normalize(self._tensor(inputs[0]), moments, updates))

            return normalize
        backward = self._next(index, step.layer, "backward")
        recomputed = self._next(index, step.layer, "forward", "recompute")
        is_taped = backward is not None and (recomputed is None or recomputed > backward)
        wanted = self._wanted(backward, len(inputs))
        metrics = step.written("metrics")
        first = step.samples[0]
        # Running statistics move once.
        keeps_statistics = step.pass_ == "recompute"

        def forward() -> None:
            values = [self._tensor(buffer) for buffer in inputs]
            with layer.statistics_kept() if keeps_statistics else nullcontext():
                result = layer.forward(values, wanted, first, is_taped)
            self._values[output] = result  # type: ignore[index]
            if metrics is not None:
                self._values[metrics] = result.sum()

        return forward

    def _next(self, index: int, layer: str, op: str, pass_: str | None = None) -> int | None:
        """The next step of a layer of this kind."""
        for later in range(index + 1, len(self.program.steps)):
            step = self.program.steps[later]
            if step.layer == layer and step.op == op and (pass_ is None or step.pass_ == pass_):
                return later
        return None

    def _wanted(self, backward: int | None, inputs: int) -> list[bool]:
        """For each input of a layer whether somebody reads its gradient."""
        wanted = [False] * inputs
        for index in range(backward, len(self.program.steps)) if backward is not None else ():
            step = self.program.steps[index]
            if step.op == "backward" and step.layer == self.program.steps[backward].layer:  # type: ignore[index]
                for slot in range(inputs):
                    buffer = step.written(f"input_gradient.{slot}")
                    if buffer is not None:
                        wanted[slot] = self.program.is_read_after(index, buffer)
                if step.pass_ != "backward_moments":
                    break
        return wanted

    def _bound_backward(self, index: int, step: Step) -> Callable[[], None]:
        layer = self._layers[step.layer]
        of_output = step.read("output_gradient")
        of_parameters = step.written("parameter_gradient")
        moments = step.written("gradient_moments")
        is_split = moments is not None or "gradient_moments" in step.read_roles
        slots = [buffer for buffer, role in zip(step.writes, step.write_roles) if role.startswith("input_gradient.")]

        if moments is not None and layer.norm is not None and self._is_synchronized(index, step):

            def sums() -> None:
                reduced, gradients = layer.gradient_moments(self._tensor(of_output))
                self._write(moments, reduced)
                self._write(of_parameters, gradients)

            return sums
        if moments is not None:
            return lambda: self._write(of_parameters, layer.backward_first_half(self._tensor(of_output)))
        if is_split:
            reduced = step.read("gradient_moments")
            if reduced in self.program.is_reduced:
                return lambda: self._write(
                    slots[0],
                    layer.normalize_backward(self._tensor(of_output), self._tensor(reduced), self._counts[step.layer]),
                )

            def second_half() -> None:
                for buffer, gradient in zip(slots, layer.backward_second_half()):
                    if gradient is not None:
                        self._values[buffer] = gradient

            return second_half

        def backward() -> None:
            of_inputs, gradients = layer.backward(self._output_gradient(of_output, step))
            for buffer, gradient in zip(slots, of_inputs):
                if gradient is not None:
                    self._values[buffer] = gradient
            if of_parameters is not None:
                self._values[of_parameters] = gradients

        return backward

    def _is_synchronized(self, index: int, step: Step) -> bool:
        """Whether a batch normalization's forward pass took the moments of several ranks."""
        steps = self.program.steps[:index]
        passes = (other for other in steps if other.layer == step.layer and other.pass_ == "forward_moments")
        return any(other.writes[0] in self.program.is_reduced for other in passes)

    def _output_gradient(self, buffer: int, step: Step) -> torch.Tensor:
        spec = self.program.buffers[buffer]
        if spec.contents != "constant":
            return self._tensor(buffer)
        like = self._layers[step.layer].output_like()
        assert spec.value is not None
        return torch.full_like(like, spec.value)


def _sum(terms: Sequence[Any]) -> torch.Tensor:
    total: torch.Tensor = terms[0] + terms[1]
    for term in terms[2:]:
        total += term
    return total
