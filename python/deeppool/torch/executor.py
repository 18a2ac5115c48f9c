"""Execution of a rank's program on two lanes.

The compute lane runs on the calling thread. Collectives of the communication lane are started as soon as
their dependencies are complete, in program order, which is the same on all ranks. A step of the compute
lane waits only for the steps in its ``after`` list. All-reduces therefore overlap the backward pass, and
redistributions overlap other branches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch

from deeppool import _deeppool
from deeppool.torch.communication import Communication, Pending, Value
from deeppool.torch.program import RankProgram, Step, Values
from deeppool.torch.segments import LayerPasses, Segment, runs
from deeppool.torch.synchronized_norm import SynchronizedNorm

State = tuple[int, int | None]


@dataclass(frozen=True)
class Event:
    """An executed step, with its start and end. A collective ends when its result is available."""

    step: int
    label: str
    lane: str
    began_us: float
    ended_us: float


class _Run(NamedTuple):
    """Steps of the compute lane that run together, and the collectives that they depend on."""

    steps: list[int]
    calls: list[Callable[[], None]]
    waits: list[int]


class Executor:
    """Runs iterations of a program. It is also a job of :class:`deeppool._deeppool.CpuDriver`.

    Args:
        program: The rank's program.
        layers: Passes of each layer, by name.
        no_samples: Output of each layer for zero samples, by name.
        communication: Process groups of the program.
        device: The rank's device.
        records: Whether :attr:`events` are recorded. Each layer then has its own autograd graph.
    """

    def __init__(
        self,
        program: RankProgram,
        layers: Mapping[str, LayerPasses],
        no_samples: Mapping[str, torch.Tensor],
        communication: Communication,
        device: torch.device,
        records: bool = False,
    ) -> None:
        self.program = program
        self.events: list[Event] = []
        """Steps of the last iteration, if recorded."""
        self._records = records
        self._layers, self._no_samples, self._communication, self.device = (
            layers,
            no_samples,
            communication,
            device,
        )
        self.values = Values(program)
        self._batch: dict[str, Sequence[torch.Tensor]] = {}
        self._norms = {
            name: SynchronizedNorm(layers[name].norm, layers[name].parameters)
            for name in program.synchronized
        }
        self._segments: dict[int, Segment] = {}
        all_runs = runs(program, is_fused=not records)
        run_of = {index: steps for steps in all_runs for index in steps}
        self._runs = [
            _Run(steps, self._calls(steps, run_of), self._collectives_before(*steps)) for steps in all_runs
        ]
        run_index = {step: number for number, run in enumerate(self._runs) for step in run.steps}
        self._communicate = [i for i, step in enumerate(program.steps) if step.lane == "communication"]
        #: Dependencies of each collective: number of runs of the compute lane, and collectives.
        self._after = {
            i: (
                max(
                    (run_index[after] + 1 for after in program.steps[i].after if after in run_index),
                    default=0,
                ),
                self._collectives_before(i),
            )
            for i in self._communicate
        }
        self._pending: dict[int, Pending] = {}
        self._began: dict[int, float] = {}
        self._done: set[int] = set()
        self._computed = self._started = 0

    def _collectives_before(self, *steps: int) -> list[int]:
        return sorted(
            {
                after
                for i in steps
                for after in self.program.steps[i].after
                if self.program.steps[after].lane == "communication"
            }
        )

    # Running

    def begin(self, inputs: Sequence[torch.Tensor], labels: torch.Tensor) -> None:
        """Starts an iteration with the inputs and labels of the global batch."""
        self._batch = {"features": inputs, "labels": [labels]}
        self.values.clear()
        self._pending.clear()
        self._done.clear()
        self._computed = self._started = 0
        self.events = []

    def finish(self) -> None:
        """Runs the iteration to its end, waiting for collectives."""
        while self._computed < len(self._runs):
            self._start_collectives()
            for collective in self._runs[self._computed].waits:
                self._wait_for(collective)
            self.run()
        for collective in self._communicate:
            self._wait_for(collective)

    def poll(self) -> State:
        """Returns the state of the compute lane and the next step's index, without blocking."""
        self._start_collectives()
        driver, is_over = _deeppool.CpuDriver, self._computed == len(self._runs)
        waits = self._communicate if is_over else self._runs[self._computed].waits
        missing = next((collective for collective in waits if not self._is_done(collective)), None)
        if missing is not None:
            return driver.COMMUNICATING, missing
        return (driver.FINISHED, None) if is_over else (driver.READY, self._runs[self._computed].steps[0])

    def run(self) -> None:
        """Runs the next steps of the compute lane."""
        run = self._runs[self._computed]
        began = time.perf_counter()
        for call in run.calls:
            call()
        self._record(run.steps, began)
        self._computed += 1

    def _record(self, steps: Sequence[int], began: float) -> None:
        for index in steps if self._records else ():
            step = self.program.steps[index]
            self.events.append(Event(index, step.label, step.lane, began * 1e6, time.perf_counter() * 1e6))

    def _start_collectives(self) -> None:
        """Starts collectives in program order until one has incomplete dependencies."""
        while self._started < len(self._communicate):
            computed, collectives = self._after[self._communicate[self._started]]
            if self._computed < computed or not all(self._is_done(c) for c in collectives):
                return
            self._start(self._communicate[self._started])

    def _start(self, index: int) -> None:
        step = self.program.steps[index]
        collective = self.program.collectives[step.collective]
        self._began[index] = time.perf_counter()
        values = [self.values.take(index, buffer) for buffer in self.program.received(index)]
        if collective.op == "redistribute":
            # Layers' outputs and their gradients have the same shape.
            layer = self.program.buffers[step.writes[0]].layer if step.writes else ""
            held = values[0].detach() if values else self._no_samples[layer]
            shape = self.program.layers[layer].shape if layer else ()
            self._pending[index] = self._communication.start_redistribution(
                step.collective, collective, held, shape
            )
        else:
            # Addends of an output have an autograd graph.
            values = [value.detach() if isinstance(value, torch.Tensor) else value for value in values]
            self._pending[index] = self._communication.start_all_reduce(collective, values)
        self._started += 1

    def _is_done(self, index: int) -> bool:
        """Returns whether a collective is complete. Stores its results on completion."""
        if index in self._done:
            return True
        pending = self._pending.get(index)
        if pending is None or not pending.is_complete():
            return False
        self._complete(index)
        return True

    def _wait_for(self, index: int) -> None:
        while index not in self._pending and index not in self._done:
            # Start earlier collectives first: all ranks start them in program order.
            first = self._communicate[self._started]
            for other in self._after[first][1]:
                self._wait_for(other)
            self._start(first)
        if index not in self._done:
            self._complete(index)

    def _complete(self, index: int) -> None:
        for buffer, value in zip(self.program.steps[index].writes, self._pending.pop(index).wait()):
            self.values.put(index, buffer, value)
        self._done.add(index)
        self._record([index], self._began[index])

    # Steps

    def _calls(self, steps: list[int], run_of: Mapping[int, list[int]]) -> list[Callable[[], None]]:
        """Returns the calls that execute a run."""
        program = self.program
        if program.steps[steps[0]].layer in self._norms:
            return [partial(self._normalize, steps[0], program.steps[steps[0]])]

        if program.steps[steps[0]].op == "sum_addends":
            return [partial(self._sum_addends, steps[0], program.steps[steps[0]])]

        def with_op(op: str) -> list[int]:
            return [index for index in steps if program.steps[index].op == op]

        # Loads come first in a run. Sums that are not computed by autograd come after its passes.
        calls: list[Callable[[], None]] = [
            partial(self._load, index, program.steps[index]) for index in with_op("load_batch")
        ]
        sums = with_op("accumulate_gradient")
        if forward := [index for index in steps if index in program.connected]:
            backward = next((run_of[index] for index in program.connected[forward[-1]]), [])
            segment = Segment(program, self._layers, self.values, forward, backward)
            self._segments |= dict.fromkeys(backward, segment)
            calls.append(segment.forward)
        elif steps[0] in self._segments:
            segment = self._segments[steps[0]]
            calls.append(segment.backward)
            sums = segment.sums
        return [*calls, *(partial(self._add_up, index, program.steps[index]) for index in sums)]

    def _load(self, index: int, step: Step) -> None:
        samples = step.loaded(self._batch[step.part])
        self.values.put(index, step.writes[0], samples.to(self.device, non_blocking=True))

    def _add_up(self, index: int, step: Step) -> None:
        terms = [self.values.take(index, buffer) for buffer in step.reads]
        is_of_parameters = isinstance(terms[0], list)
        total = (
            [sum(each[1:], each[0]) for each in zip(*terms)] if is_of_parameters else sum(terms[1:], terms[0])
        )
        self.values.put(index, step.writes[0], total)

    def _sum_addends(self, index: int, step: Step) -> None:
        self.values.put(index, step.writes[0], self.values.take(index, step.reads[0]).sum(0))

    def _normalize(self, index: int, step: Step) -> None:
        norm = self._norms[step.layer]
        inputs = [self.values.take(index, buffer).detach() for buffer in self.program.received(index)]
        outputs: Sequence[Value]
        match step.op, step.pass_:
            case "forward", "forward_moments":
                outputs = [norm.moments(*inputs)]
            case "forward", pass_:
                # A recomputation does not update the running statistics.
                outputs = [norm.forward(inputs[0], inputs[1], pass_ == "forward")]
            case _, "backward_moments":
                outputs = norm.gradient_moments(*inputs)
            case _:
                outputs = [norm.backward(*inputs)]
        for buffer, value in zip(step.writes, outputs):
            self.values.put(index, buffer, value)
