"""Progress of a profile: a journal file to resume an interrupted one, and a progress bar."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

from deeppool.errors import InputError


@dataclass
class Spread:
    """Median and median absolute deviation of repeated measurements."""

    us: float
    """Median in microseconds."""
    mad_us: float
    """Median absolute deviation in microseconds."""

    @classmethod
    def of(cls, times_us: Sequence[float]) -> Spread:
        median = statistics.median(times_us)
        return cls(median, statistics.median(abs(value - median) for value in times_us))


class Journal:
    """A file of the measurements so far, one JSON line each, next to the output.

    Its first line holds the conditions of the measurements. A journal with other conditions is discarded.

    Args:
        output: Path of the profile; without it, nothing is written.
        conditions: Network, device, version of PyTorch and number of repeats.
    """

    def __init__(self, output: str | PathLike[str] | None, conditions: dict[str, Any]) -> None:
        self.path = None if output is None else Path(f"{os.fspath(output)}.journal")
        self.conditions = conditions
        self.found: dict[str, dict[str, Spread]] = {}
        self.file: TextIO | None = None

    def __enter__(self) -> Journal:
        if self.path is None:
            return self
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
            is_same = bool(lines) and _parsed(lines[0]) == self.conditions
            for line in lines[1:] if is_same else []:
                entry = _parsed(line)
                if entry is None:
                    break  # The program ended while it wrote this line.
                self.found[entry["what"]] = {
                    phase: Spread(**spread) for phase, spread in entry["times"].items()
                }
            self.file = self.path.open("w", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{self.path}: {error}") from error
        self._write(self.conditions)
        for key, times in self.found.items():
            self._write(_entry(key, times))
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()

    def add(self, key: str, times: dict[str, Spread]) -> None:
        """Adds the times of ``STRUCTURE@BATCH``."""
        self.found[key] = times
        self._write(_entry(key, times))

    def delete(self) -> None:
        """Deletes the file, once the profile is written."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _write(self, entry: dict[str, Any]) -> None:
        if self.file is not None:
            self.file.write(json.dumps(entry) + "\n")
            self.file.flush()


def _entry(key: str, times: dict[str, Spread]) -> dict[str, Any]:
    return {"what": key, "times": {phase: asdict(spread) for phase, spread in times.items()}}


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) else None


class Bar:
    """A progress bar on a terminal."""

    WIDTH = 30

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.shown = sys.stderr.isatty()

    def __enter__(self) -> Bar:
        return self

    def step(self, count: int, label: str) -> None:
        """Shows the start of a step.

        Args:
            count: Number of units that the step completes.
            label: Description of the step.
        """
        if self.shown:
            filled = self.WIDTH * self.done // self.total
            bar = "#" * filled + "." * (self.WIDTH - filled)
            print(f"\r\x1b[K[{bar}] {self.done}/{self.total} {label}", end="", file=sys.stderr, flush=True)
        self.done += count

    def __exit__(self, *_: object) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
