"""Another job in the time in which a rank has nothing to do.

What runs next is decided by the multiplexer that also drives the Rust runtime (``gpu_mux::CpuDriver``): it learns how long the gap after
each step is, and how long a step of the background takes, and lets one run where it should end before the foreground is back; delays
that happen nevertheless are charged to a budget of 1% of the time.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from deeppool import _deeppool
from deeppool.torch.executor import Executor, State

#: Every so many iterations the background pauses, which shows what the foreground takes alone.
ALONE_EVERY = 5
#: Iterations at the beginning that allocate memory.
WARM_UP = 3


@dataclass(frozen=True)
class BackgroundReport:
    """What a background job did on this rank, and what that did to the foreground."""

    steps: int
    """How often its callable ran."""
    busy_s: float
    """How long, all together."""
    iteration_s: float
    """The median time of an iteration of the foreground with the background beside it."""
    alone_s: float
    """That of the iterations in which the background paused."""

    @property
    def slowdown(self) -> float:
        """With the background / without."""
        return self.iteration_s / self.alone_s if self.alone_s > 0 else float("nan")

    def __str__(self) -> str:
        return (
            f"background: {self.steps} steps in {self.busy_s:.2f} s; foreground {1e3 * self.iteration_s:.2f} ms an iteration, "
            f"{1e3 * self.alone_s:.2f} ms without it (slowdown {self.slowdown:.3f})"
        )


class Background:
    """Runs iterations of the foreground with a job beside it."""

    def __init__(self, job: Callable[[], object], device: torch.device) -> None:
        self._driver = _deeppool.CpuDriver()
        self._driver.add(_Job(job, device))
        is_cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device, priority=-1) if is_cuda else None  # type: ignore[no-untyped-call]
        #: Of iterations with the background, and without.
        self._times: dict[bool, list[float]] = {False: [], True: []}
        self._iteration = 0

    def finish(self, foreground: Executor) -> None:
        """Runs the foreground's iteration to its end."""
        is_alone = self._iteration % ALONE_EVERY == ALONE_EVERY - 1
        began = time.perf_counter()
        with self._in_front():
            if is_alone:
                foreground.finish()
                if self._stream is not None:
                    self._stream.synchronize()
            else:
                self._driver.run(_Foreground(foreground))
        if self._iteration >= WARM_UP:
            self._times[is_alone].append(time.perf_counter() - began)
        self._iteration += 1
        ((_, _, error),) = self._driver.background()
        if error is not None:  # of which Python warns once
            warnings.warn(f"the background job failed and does not run any more: {error!r}", stacklevel=2)

    @contextmanager
    def _in_front(self) -> Iterator[None]:
        """On a GPU the foreground runs on a stream of higher priority than the background's."""
        if self._stream is None:
            yield
            return
        users = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(users)
        with torch.cuda.stream(self._stream):
            yield
        users.wait_stream(self._stream)

    def report(self) -> BackgroundReport:
        ((steps, busy_s, _),) = self._driver.background()
        medians = [statistics.median(times) if times else float("nan") for times in self._times.values()]
        return BackgroundReport(steps, busy_s, *medians)


class _Foreground:
    """The foreground's iteration. On a GPU its steps are only handed over by the host: it ends when the device is through."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._end: torch.cuda.Event | None = None

    def poll(self) -> State:
        state, place = self._executor.poll()
        if state != _deeppool.CpuDriver.FINISHED or self._executor.device.type != "cuda":
            return state, place
        if self._end is None:
            self._end = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._end.record()
        # The last place is the wait for the device.
        return (
            (state, None)
            if _is_over(self._end)
            else (_deeppool.CpuDriver.COMMUNICATING, len(self._executor.program.steps))
        )

    def run(self) -> None:
        self._executor.run()


class _Job:
    """The user's callable. On a GPU it launches on a stream of low priority, one step at a time."""

    def __init__(self, job: Callable[[], object], device: torch.device) -> None:
        self._job = job
        self._stream: torch.cuda.Stream | None = None
        self._end: torch.cuda.Event | None = None
        if device.type == "cuda":
            # The lowest priority that there is; the foreground has a higher one.
            self._stream = torch.cuda.Stream(device, priority=0)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(device))
            self._end = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def poll(self) -> State:
        driver = _deeppool.CpuDriver
        return (driver.READY if self._end is None or _is_over(self._end) else driver.WAITING), 0

    def run(self) -> None:
        # The foreground may be in any mode; the background trains.
        with torch.enable_grad(), torch.cuda.stream(self._stream):
            self._job()
            if self._end is not None and self._stream is not None:
                self._end.record(self._stream)


def _is_over(event: torch.cuda.Event) -> bool:
    return bool(event.query())  # type: ignore[no-untyped-call]
