"""A background job in the idle time of a rank.

The multiplexer of the Rust runtime (``gpu_mux::CpuDriver``) decides which job runs next. It averages the
duration of the gap after each foreground step and of the background's steps, and runs a background step
if it is expected to end before the gap does. Delays of the foreground are charged to a budget of 1% of
the time.
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

#: Period, in iterations, of the iterations without background, which measure the foreground alone.
ALONE_EVERY = 5
#: Number of first iterations that are not measured, because they allocate memory.
WARM_UP = 3


@dataclass(frozen=True)
class BackgroundReport:
    """Measurements of a background job on this rank, and of its effect on the foreground."""

    steps: int
    """Number of calls of its callable."""
    busy_s: float
    """Total duration of these calls."""
    iteration_s: float
    """Median foreground iteration time with the background."""
    alone_s: float
    """Median foreground iteration time without the background."""

    @property
    def slowdown(self) -> float:
        """Iteration time with the background divided by the time without it."""
        return self.iteration_s / self.alone_s if self.alone_s > 0 else float("nan")

    def __str__(self) -> str:
        return (
            f"background: {self.steps} steps in {self.busy_s:.2f} s; foreground iteration "
            f"{1e3 * self.iteration_s:.2f} ms, {1e3 * self.alone_s:.2f} ms without background "
            f"(slowdown {self.slowdown:.3f})"
        )


class Background:
    """Runs iterations of the foreground together with a background job."""

    def __init__(self, job: Callable[[], object], device: torch.device) -> None:
        self._driver = _deeppool.CpuDriver()
        self._driver.add(_Job(job, device))
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        #: Iteration times by whether the foreground ran alone.
        self._times: dict[bool, list[float]] = {False: [], True: []}
        self._iteration = 0

    def finish(self, foreground: Executor) -> None:
        """Runs the foreground until its iteration is complete."""
        is_alone = self._iteration % ALONE_EVERY == ALONE_EVERY - 1
        began = time.perf_counter()
        with self._foreground_stream():
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
        if error is not None:  # Python shows the same warning once.
            warnings.warn(f"the background job failed and is stopped: {error!r}", stacklevel=2)

    @contextmanager
    def _foreground_stream(self) -> Iterator[None]:
        """On a GPU, runs the ``with`` block on a stream of higher priority than the background's."""
        if self._stream is None:
            yield
            return
        callers = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(callers)
        with torch.cuda.stream(self._stream):
            yield
        callers.wait_stream(self._stream)

    def report(self) -> BackgroundReport:
        """Returns the measurements so far."""
        ((steps, busy_s, _),) = self._driver.background()
        medians = [statistics.median(times) if times else float("nan") for times in self._times.values()]
        return BackgroundReport(steps, busy_s, *medians)


class _Foreground:
    """An iteration of the foreground as a job of the driver.

    On a GPU the steps are enqueued asynchronously, and the iteration ends when the device completes them.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._end: torch.cuda.Event | None = None

    def poll(self) -> State:
        state, site = self._executor.poll()
        if state != _deeppool.CpuDriver.FINISHED or self._executor.device.type != "cuda":
            return state, site
        if self._end is None:
            self._end = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._end.record()
        # The last site is the wait for the device.
        return (
            (state, None)
            if _is_over(self._end)
            else (_deeppool.CpuDriver.COMMUNICATING, len(self._executor.program.steps))
        )

    def run(self) -> None:
        self._executor.run()


class _Job:
    """The user's callable as a job of the driver.

    On a GPU it runs on a stream of low priority, with at most one step in flight.
    """

    def __init__(self, job: Callable[[], object], device: torch.device) -> None:
        self._job = job
        self._stream: torch.cuda.Stream | None = None
        self._end: torch.cuda.Event | None = None
        if device.type == "cuda":
            # The lowest priority; the foreground's stream has a higher one.
            self._stream = torch.cuda.Stream(device, priority=0)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(device))
            self._end = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def poll(self) -> State:
        driver = _deeppool.CpuDriver
        return (driver.READY if self._end is None or _is_over(self._end) else driver.WAITING), 0

    def run(self) -> None:
        # The foreground may have disabled gradients; the background needs them.
        with torch.enable_grad(), torch.cuda.stream(self._stream):
            self._job()
            if self._end is not None and self._stream is not None:
                self._end.record(self._stream)


def _is_over(event: torch.cuda.Event) -> bool:
    return bool(event.query())  # type: ignore[no-untyped-call]
