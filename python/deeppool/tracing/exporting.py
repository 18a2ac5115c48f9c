"""Exports of a module by ``torch.export``."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from deeppool.tracing.call import Call, caches_off
from deeppool.tracing.errors import TraceError

#: Prefix of the module's path in its export, and of the constants' names.
MODULE, CONSTANT = "module", "constant_"


class _Called(nn.Module):
    """A module that takes the network's inputs and returns its outputs."""

    def __init__(self, module: nn.Module, call: Call) -> None:
        super().__init__()
        self.module, self.call = module, call
        for index, constant in enumerate(call.constants):
            self.register_buffer(f"{CONSTANT}{index}", constant, persistent=False)

    def forward(self, *batch: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        constants = [getattr(self, f"{CONSTANT}{index}") for index in range(len(self.call.constants))]
        results = self.call.run_all(self.module, batch, constants)
        return results[0] if len(results) == 1 else tuple(results)


def path_in_module(path: str) -> str:
    """Converts a path in the export to that in the module."""
    return "" if path == MODULE else path.removeprefix(f"{MODULE}.")


def export_batch(
    module: nn.Module, call: Call, batch: tuple[torch.Tensor, ...]
) -> torch.export.ExportedProgram:
    """Exports a module, in its current mode and with caches off, for the samples of a batch.

    Raises:
        TraceError: It cannot be exported.
    """
    try:
        with warnings.catch_warnings(), caches_off(module), _quiet():
            # Ignore warnings about caches of modules, such as an LSTM's list of weights.
            warnings.filterwarnings("ignore", message="The tensor attributes")
            called = _Called(module, call)
            called.training = module.training
            return torch.export.export(called, batch, strict=False)
    except TraceError:
        raise
    except Exception as error:
        problem = str(error).strip().split("\n")[0]
        raise TraceError(
            f"{type(module).__name__} cannot be exported with {len(batch[0])} samples "
            f"({type(error).__name__}: {problem}): its control flow must not depend on the values of tensors "
            "(set the probability of skipping layers, such as `layerdrop`, to 0)"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Discards the program that ``torch.export`` prints if it fails, and its warnings about it."""
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    level = log.level
    printed = io.StringIO()
    log.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stderr(printed):
            yield
        sys.stderr.write(printed.getvalue())
    finally:
        log.setLevel(level)


@contextlib.contextmanager
def simple_calls(module: nn.Module) -> Iterator[dict[tuple[int, int], bool]]:
    """Records for each call of a leaf module whether it takes one positional tensor and returns one."""
    simple: dict[tuple[int, int], bool] = {}
    counts: dict[int, int] = {}

    def note(called: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        number = counts.get(id(called), 0)
        counts[id(called)] = number + 1
        one = len(args) == 1 and isinstance(args[0], torch.Tensor) and not kwargs
        simple[id(called), number] = one and isinstance(output, torch.Tensor)

    hooks = [
        part.register_forward_hook(note, with_kwargs=True)
        for part in module.modules()
        if not any(part.children())
    ]
    try:
        yield simple
    finally:
        for hook in hooks:
            hook.remove()


def batch_of(examples: Iterable[torch.Tensor], samples: int) -> tuple[torch.Tensor, ...]:
    """Returns a batch of distinct samples: each input of the network, from examples of it."""
    return tuple(_rows_of(example, samples) for example in examples)


def _rows_of(example: torch.Tensor, samples: int) -> torch.Tensor:
    """Returns distinct samples of an input.

    Repetitions of an example are flipped and rolled. Integers, such as tokens, may not be valid at other
    positions: they are repeated unchanged if the examples differ.
    """
    is_changed = example.is_floating_point() or bool((example == example[:1]).all())
    rows = []
    for index in range(samples):
        row, again = example[index % len(example)], index // len(example)
        rows.append(row.flip(-1).roll(again, -1) if again and row.dim() and is_changed else row)
    return torch.stack(rows)
