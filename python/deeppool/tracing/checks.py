"""Checks of the layers of a traced module: those of no known kind run alone, and do not mix samples."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from deeppool.tracing import grouping, losses
from deeppool.tracing.cost import cost
from deeppool.tracing.draft import Draft
from deeppool.tracing.errors import TraceError
from deeppool.tracing.exporting import batch_of

#: Training mode of each submodule.
Modes = dict[nn.Module, bool]

#: Number of samples of the batch that layers are checked with.
SAMPLES = 4

#: Number of samples of the larger batch that costs of opaque layers are counted with. The smaller
#: one has one sample less, and at least two: of one sample, PyTorch copies fewer tensors.
COST_SAMPLES = 3

#: Number of elements of a batch of a layer's output from which the layer runs on several threads.
SMALL = 1 << 17

#: Recurrent operations. They draw random numbers in training mode only, for dropout.
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def set_modes(modes: Modes) -> None:
    """Sets the training mode of each submodule."""
    for part, mode in modes.items():
        part.training = mode


def check_layers(
    modes: Modes,
    drafts: list[Draft],
    batch: dict[str, torch.Tensor],
    targets: Mapping[str, torch.Tensor | None],
) -> dict[str, dict[str, Any]]:
    """Checks that no opaque layer mixes samples, and counts the costs of these layers.

    Layers of a known kind compute each sample alone. They are run if an opaque layer needs their output.
    ``targets`` are those of each loss, by its layer.

    Returns:
        The fields of each opaque layer in the graph format, by name.
    """
    needed = _needed(drafts)
    drafts = [draft for draft in drafts if draft.name in needed]
    last_use = {name: index for index, draft in enumerate(drafts) for name in draft.inputs}
    values = dict(batch)
    costs: dict[str, dict[str, Any]] = {}
    for index, draft in enumerate(drafts):
        inputs = [values[name] for name in draft.inputs]
        if draft.name in targets:
            if draft.op is None:
                costs[draft.name] = losses.cost_of(draft.island, inputs[0], targets[draft.name])
            continue
        with _probed(draft, SAMPLES):
            if draft.op is None:
                costs[draft.name] = _opaque(draft, inputs)
            values[draft.name] = _output(modes, draft, inputs)
        for name in draft.inputs:
            if last_use[name] == index:
                values.pop(name, None)
    return costs


def _needed(drafts: list[Draft]) -> set[str]:
    """Returns the names of the opaque layers, and of those whose outputs they need."""
    needed: set[str] = set()
    for draft in reversed(drafts):
        if draft.op is None or draft.name in needed:
            needed.update((draft.name, *draft.inputs))
    return needed


def _output(modes: Modes, draft: Draft, inputs: list[torch.Tensor]) -> torch.Tensor:
    """Returns a layer's output in evaluation mode.

    Raises:
        TraceError: It is opaque and mixes samples.
    """
    # Random numbers of a layer that draws them in evaluation mode, too, differ between calls.
    draws = any(step.is_random and step.op not in RECURRENT for step in draft.steps)
    normalizes = any(step.op == "batch_norm" for step in draft.steps)
    # Not the first, last or middle sample: reversing a batch does not move the middle.
    middle = slice(1, 2)
    is_same = True
    set_modes(dict.fromkeys(modes, False))
    with torch.no_grad():
        output: torch.Tensor = draft.island(*inputs)
        if tuple(output.shape[1:]) != draft.island.output_shape:
            raise TraceError(
                f"layer `{draft.name}` returns samples of another shape for {len(output)} samples"
            )
        if draft.op is None and not draws and not normalizes:
            alone = draft.island(*(tensor[middle] for tensor in inputs))
            is_same = _is_same(alone, output[middle])
    set_modes(modes)
    if not is_same:
        raise TraceError(
            f"layer `{draft.name}` mixes the samples of a batch: its output for a sample depends on "
            "other samples, so ranks cannot share a batch"
        )
    return output


@contextlib.contextmanager
def _probed(draft: Draft, samples: int) -> Iterator[None]:
    """Names the layer in errors of its execution.

    A layer of small operations runs on one thread: on a busy machine each operation would wait for all
    threads.
    """
    threads = torch.get_num_threads()
    is_small = len(draft.steps) > grouping.MAX_OPERATIONS
    is_small |= samples * math.prod(draft.island.output_shape) < SMALL
    try:
        if is_small:
            torch.set_num_threads(1)
        yield
    except TraceError:
        raise
    except Exception as error:
        problem = (str(error).strip().splitlines() or [""])[0]
        raise TraceError(
            f"layer `{draft.name}` cannot be run alone on {samples} samples ({type(error).__name__}: "
            f"{problem}): give examples whose elements may be in any order, or make the layer a module that "
            "takes and returns one tensor"
        ) from error
    finally:
        if is_small:
            torch.set_num_threads(threads)


def random_outputs(
    modes: Modes, drafts: list[Draft], output: str, examples: dict[str, torch.Tensor]
) -> list[torch.Tensor]:
    """Returns an output of the module for three batches of random inputs, in evaluation mode.

    ``drafts`` are the layers before the losses, and ``output`` is the one that computes the output.

    Each element of an input is that of a random example.
    """
    generator = torch.Generator().manual_seed(0)
    rows = batch_of(examples.values(), 8)
    outputs = []
    set_modes(dict.fromkeys(modes, False))
    with torch.no_grad():
        for _ in range(3):
            values = {}
            for name, of_input in zip(examples, rows):
                chosen = torch.randint(8, (losses.SAMPLES, *of_input.shape[1:]), generator=generator)
                values[name] = of_input.gather(0, chosen.to(of_input.device))
            for draft in drafts:
                with _probed(draft, losses.SAMPLES):
                    values[draft.name] = draft.island(*(values[name] for name in draft.inputs))
            outputs.append(values[output])
    set_modes(modes)
    return outputs


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors differ by rounding only. Infinite values, as of masks, must be equal."""
    if not one.numel():
        return True
    bound = 1e-9 if one.dtype == torch.float64 else 1e-3
    difference = float((one - other).abs().max())
    if math.isfinite(difference):
        return difference <= bound * float(other.abs().max()) + 1e-12
    finite = other.isfinite()
    if finite.all():
        return False
    same = torch.equal(one.where(~finite, 0).nan_to_num(2.0), other.where(~finite, 0).nan_to_num(2.0))
    return same and _is_same(one[finite], other[finite])


def _opaque(draft: Draft, inputs: list[torch.Tensor]) -> dict[str, Any]:
    parameters = list(draft.island.named_parameters())
    names = [name.rpartition(".")[2] for name, _ in parameters]
    if len(set(names)) < len(names):
        names = [name for name, _ in parameters]
    recurrent = any(step.op in RECURRENT for step in draft.steps)
    document: dict[str, Any] = {
        "op": "+".join(dict.fromkeys(step.op.strip("_") for step in draft.steps))[:60],
        "output": list(draft.island.output_shape),
        "parameters": [{"name": name, "dims": list(p.shape)} for name, (_, p) in zip(names, parameters)],
    }
    fewer = [tensor[:COST_SAMPLES] for tensor in inputs]
    return document | cost(draft.island, [parameter for _, parameter in parameters], fewer, recurrent)
