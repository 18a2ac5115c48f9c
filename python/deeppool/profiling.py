"""Measurement of the layer times of a PyTorch module, executed by PyTorch on the user's device."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from deeppool._requirements import require_torch

require_torch("deeppool.profiling")

import torch  # noqa: E402
from torch import nn  # noqa: E402

from deeppool import _deeppool  # noqa: E402
from deeppool.costs import Profile  # noqa: E402
from deeppool.errors import InputError  # noqa: E402
from deeppool.profiling_journal import Bar, Journal, Spread  # noqa: E402
from deeppool.tracing import Traced, TracedLayer, trace  # noqa: E402
from deeppool.tracing.exporting import batch_of  # noqa: E402

SCHEMA = "deeppool/profile/v1"

#: Number of untimed executions before the timed ones.
WARM_UP = 3

#: Minimum duration of a timed sequence of graph launches. Events have a resolution of 0.5 µs.
GPU_SPAN_US = 500.0


def profile(
    module: Traced | nn.Module,
    batches: Sequence[int],
    device: str | torch.device = "cpu",
    *,
    example_inputs: tuple[torch.Tensor, ...] = (),
    output: str | PathLike[str] | None = None,
    repeats: int = 10,
) -> Profile:
    """Measures the forward and backward times of each layer of a module and of the whole module.

    Layers with the same kind, options and shapes are measured once. On a GPU, each layer is captured in
    a CUDA graph and timed by events, which excludes the launch overhead of Python; a layer that cannot be
    captured is launched from Python. On a CPU, layers are timed by the clock with PyTorch's number of
    threads. The module is moved to the device and back. Its parameters, buffers and gradients do not
    change.

    With ``output``, measurements are kept in ``OUTPUT.journal`` until the profile is written, and an
    interrupted call is resumed from there. A progress bar is shown on a terminal.

    Args:
        module: A traced module, or a module to be traced with ``example_inputs``.
        batches: Batch sizes in samples, ascending.
        device: Device to measure on, such as ``cpu``, ``cuda`` or ``cuda:1``.
        example_inputs: Inputs of the module for tracing.
        output: File for the profile.
        repeats: Number of measurements of each time. The result is their median.

    Returns:
        The profile, for :func:`deeppool.plan` and the command ``deeppool``.

    Raises:
        InputError: The batch sizes are not ascending, the device does not exist, or ``output`` cannot be
            written.
    """
    sizes = list(batches)
    if not sizes or sizes[0] < 1 or any(a >= b for a, b in zip(sizes, sizes[1:])):
        raise InputError(f"expected batch sizes of at least 1 in ascending order, got {sizes}")
    if repeats < 1:
        raise InputError(f"expected at least one repeat, got {repeats}")
    traced = module if isinstance(module, Traced) else trace(module, *example_inputs)
    traced.check_unchanged()
    target = _device(device)
    structures = _structures(traced)
    journal = Journal(output, _conditions(traced, target, repeats))
    with journal, _moved_to(traced.module, target):
        measured = _measure(traced, structures, sizes, target, repeats, journal)
    result = Profile.from_dict(_document(traced, structures, sizes, target, repeats, measured))
    if output is not None:
        try:
            result.save(output)
        except OSError as error:
            raise InputError(f"{os.fspath(output)}: {error}") from error
        journal.delete()
    return result


#: Prefix of the ranges of :func:`marked`.
MARK = "deeppool:"


@contextlib.contextmanager
def marked(module: Traced | nn.Module) -> Iterator[None]:
    """Marks the calls of a module and its submodules in traces of PyTorch's profiler.

    Each call within the ``with`` block is a range, recorded by :func:`torch.profiler.record_function`, that
    is named ``deeppool:`` and the path of the submodule. By these ranges, ``deeppool profile --kineto`` and
    ``deeppool compare-trace`` assign the times of the trace to layers.

    >>> import torch
    >>> module = torch.nn.Linear(2, 3)
    >>> with torch.profiler.profile() as profiler, marked(module):
    ...     module(torch.randn(4, 2)).sum().backward()
    >>> "deeppool:" in [event.key for event in profiler.key_averages()]
    True

    Args:
        module: A module, or a traced one. It may be wrapped, as by ``DistributedDataParallel``, when it is
            called.
    """
    root = module.module if isinstance(module, Traced) else module
    # A stack for each thread, since `DataParallel` calls replicas in threads.
    local = threading.local()

    def enter(name: str) -> Callable[..., None]:
        def hook(called: nn.Module, inputs: Any) -> None:
            opened = torch.profiler.record_function(name)
            opened.__enter__()  # type: ignore[no-untyped-call]
            if not hasattr(local, "opened"):
                local.opened = []
            local.opened.append(opened)

        return hook

    def leave(called: nn.Module, inputs: Any, output: Any) -> None:
        local.opened.pop().__exit__(None, None, None)

    hooks = []
    for path, part in root.named_modules():
        hooks.append(part.register_forward_pre_hook(enter(f"{MARK}{path}"), prepend=True))
        hooks.append(part.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


# Measured operations.


def _device(name: str | torch.device) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"cannot use the device {name!s}: {str(error).splitlines()[0]}") from error
    return device


def _structures(traced: Traced) -> dict[str, str]:
    """Returns each layer's ``structure`` of the profile format: kind, options and shapes as text."""
    modelled = json.loads(_deeppool.modelled_profile(traced.network.to_json(), "a100", [1]))
    return {layer["name"]: layer["structure"] for layer in modelled["layers"]}


@contextlib.contextmanager
def _moved_to(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Moves a module to a device in training mode, and restores its device, modes and buffers."""
    tensors = [*module.parameters(), *module.buffers()]
    home = tensors[0].device if tensors else device
    modes = {part: part.training for part in module.modules()}
    module.to(device)
    saved = [(buffer, buffer.clone()) for buffer in module.buffers()]
    module.train()
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        with torch.no_grad():
            for buffer, value in saved:
                buffer.copy_(value)
        module.to(home)
        for part, mode in modes.items():
            part.training = mode


def _measure(
    traced: Traced,
    structures: dict[str, str],
    sizes: Sequence[int],
    device: torch.device,
    repeats: int,
    journal: Journal,
) -> dict[str, dict[str, Spread]]:
    """Measures all layers and the whole network.

    Returns:
        The times of each pass by ``STRUCTURE@BATCH``, with ``network`` as the structure of the network.
    """
    pending: dict[str, TracedLayer] = {}
    for layer in traced.layers:
        pending.setdefault(structures[layer.name], layer)
    examples = [example.to(device) for example in traced.example_inputs]
    needs = _needs_gradient(traced)
    values: dict[str, torch.Tensor] = {}
    total = (len(pending) + 1) * len(sizes)
    with Bar(total) as bar:
        for size in sizes:
            if all(f"{structure}@{size}" in journal.found for structure in [*pending, "network"]):
                bar.step(len(pending) + 1, "")
                continue
            if not values:
                values = _layer_outputs(traced, examples)
            for structure, layer in pending.items():
                bar.step(1, f"{layer.name}, {size} samples")
                if f"{structure}@{size}" in journal.found:
                    continue
                inputs = [batch_like(values[name], size).requires_grad_(needs[name]) for name in layer.inputs]
                extra = _labels(traced, layer, inputs[0])
                learned = [p for _, p in layer.island.named_parameters() if p.requires_grad]
                journal.add(
                    f"{structure}@{size}", _times(layer.island, inputs, extra, learned, device, repeats)
                )
            bar.step(1, f"the whole network, {size} samples")
            if f"network@{size}" not in journal.found:
                journal.add(
                    f"network@{size}",
                    _network_times(traced, [batch_like(one, size) for one in examples], device, repeats),
                )
    return journal.found


def batch_like(examples: torch.Tensor, samples: int) -> torch.Tensor:
    """Returns a batch of the given number of samples by repeating the examples."""
    return examples.detach()[torch.arange(samples, device=examples.device) % len(examples)]


def _layer_outputs(traced: Traced, examples: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the output of each layer for a batch of two samples."""
    with torch.no_grad():
        values = traced.values(*batch_of(examples, 2))
        for layer in (layer for loss in traced.losses for layer in loss.layers[:-1]):
            values[layer.name] = layer.island(*(values[name] for name in layer.inputs))
    return values


def _needs_gradient(traced: Traced) -> dict[str, bool]:
    """Returns whether each layer's output needs a gradient: it or a predecessor has parameters to learn."""
    needs = dict.fromkeys(traced.call.examples, False)
    for layer in traced.layers:
        learns = any(parameter.requires_grad for _, parameter in layer.island.named_parameters())
        needs[layer.name] = learns or any(needs[name] for name in layer.inputs)
    return needs


def _labels(traced: Traced, layer: TracedLayer, scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns targets for a loss layer, and nothing for other layers."""
    loss = next((loss for loss in traced.losses if loss.name == layer.name), None)
    if loss is None:
        return ()
    if layer.kind == "softmax_cross_entropy":
        return (torch.zeros(scores.shape[:-1], dtype=torch.long, device=scores.device),)
    if layer.kind == "elementwise_loss" and loss.targets is None:
        return (torch.zeros_like(scores),)
    assert loss.targets is not None
    return (batch_like(loss.targets.to(scores.device), len(scores)),)


def _network_times(
    traced: Traced, batch: list[torch.Tensor], device: torch.device, repeats: int
) -> dict[str, Spread]:
    """Measures the module with its loss, and the update of its parameters by SGD with momentum."""
    learned = [parameter for parameter in traced.module.parameters() if parameter.requires_grad]

    def forward(*batch: torch.Tensor) -> torch.Tensor:
        outputs = traced.call.run_all(traced.module, batch)
        values = {loss.output: value for loss, value in zip(traced.losses, outputs, strict=True)}
        for layer in traced.loss_layers:
            inputs = [values[name] for name in layer.inputs]
            values[layer.name] = layer.island(*inputs, *_labels(traced, layer, inputs[0]))
        return torch.stack([loss.weight * values[loss.name].mean() for loss in traced.losses]).sum()

    times = _times(forward, batch, (), learned, device, repeats, graphs=False)
    copies = [parameter.detach().clone() for parameter in learned]
    for copy in copies:
        copy.grad = torch.zeros_like(copy)
    optimizer = torch.optim.SGD(copies, lr=1e-3, momentum=0.9) if copies else None
    update: list[float] = []
    for index in range(WARM_UP + repeats):
        with _clock(device) as took:
            if optimizer is not None:
                optimizer.step()
        if index >= WARM_UP:
            update.append(took())
    times["update"] = Spread.of(update)
    return times


# Timing.


@contextlib.contextmanager
def _clock(device: torch.device) -> Iterator[Callable[[], float]]:
    """Measures the duration of the ``with`` block in microseconds, by CUDA events on a GPU."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()

        def between() -> float:
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e3

        yield between
        end.record()
    else:
        took = [time.perf_counter()]
        yield lambda: took[0] * 1e6
        took[0] = time.perf_counter() - took[0]


def _times(
    run: Callable[..., torch.Tensor],
    inputs: Sequence[torch.Tensor],
    extra: tuple[torch.Tensor, ...],
    learned: Sequence[torch.Tensor],
    device: torch.device,
    repeats: int,
    graphs: bool = True,
) -> dict[str, Spread]:
    wanted = [tensor for tensor in [*inputs, *learned] if tensor.requires_grad]
    if device.type == "cuda" and graphs:
        try:
            return _captured(run, inputs, extra, wanted, device, repeats)
        except RuntimeError:
            # The layer copies to the host, or does something else that cannot be captured.
            torch.cuda.synchronize(device)
    forward: list[float] = []
    backward: list[float] = []
    gradient: torch.Tensor | None = None
    for index in range(WARM_UP + repeats):
        with _clock(device) as took:
            output = run(*inputs, *extra)
        times = [took()]
        if wanted and output.requires_grad:
            gradient = torch.ones_like(output) if gradient is None else gradient
            with _clock(device) as took:
                torch.autograd.grad(output, wanted, gradient, allow_unused=True)
            times.append(took())
        else:
            times.append(0.0)
        if index >= WARM_UP:
            forward.append(times[0])
            backward.append(times[1])
    return {"forward": Spread.of(forward), "backward": Spread.of(backward)}


def _captured(
    run: Callable[..., torch.Tensor],
    inputs: Sequence[torch.Tensor],
    extra: tuple[torch.Tensor, ...],
    wanted: Sequence[torch.Tensor],
    device: torch.device,
    repeats: int,
) -> dict[str, Spread]:
    """Measures the passes as CUDA graphs."""
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                output = run(*inputs, *extra)
                gradient = torch.ones_like(output)
                if wanted and output.requires_grad:
                    torch.autograd.grad(output, wanted, gradient, allow_unused=True)
        torch.cuda.current_stream().wait_stream(stream)
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(forward):
            output = run(*inputs, *extra)
        result = {"forward": _replayed(forward, device, repeats), "backward": Spread(0.0, 0.0)}
        if wanted and output.requires_grad:
            with torch.cuda.graph(backward, pool=forward.pool()):
                torch.autograd.grad(output, wanted, gradient, allow_unused=True)
            result["backward"] = _replayed(backward, device, repeats)
    return result


def _replayed(graph: torch.cuda.CUDAGraph, device: torch.device, repeats: int) -> Spread:
    def launch(times: int) -> float:
        with _clock(device) as took:
            for _ in range(times):
                graph.replay()
        return took() / times

    once = max(launch(WARM_UP), 1.0)
    times = max(1, round(GPU_SPAN_US / once))
    return Spread.of([launch(times) for _ in range(repeats)])


# Profile document.


def _conditions(traced: Traced, device: torch.device, repeats: int) -> dict[str, Any]:
    network = hashlib.sha256(json.dumps(traced.graph, sort_keys=True).encode()).hexdigest()
    return {
        "network": network,
        "device": _device_name(device),
        "torch": torch.__version__,
        "repeats": repeats,
    }


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    threads = torch.get_num_threads()
    return f"{name}, {threads} thread{'' if threads == 1 else 's'}"


def _precision(module: nn.Module) -> str:
    dtypes = {parameter.dtype for parameter in module.parameters()}
    short = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}
    return "+".join(sorted(short.get(dtype, str(dtype)) for dtype in dtypes)) or "f32"


def _document(
    traced: Traced,
    structures: dict[str, str],
    sizes: Sequence[int],
    device: torch.device,
    repeats: int,
    measured: dict[str, dict[str, Spread]],
) -> dict[str, Any]:
    def row(key: str, size: int) -> dict[str, Any]:
        columns: dict[str, Any] = {"batch": size}
        for phase, spread in measured[f"{key}@{size}"].items():
            columns[f"{phase}_us"], columns[f"{phase}_mad_us"] = round(spread.us, 3), round(spread.mad_us, 3)
        return columns

    layers = [
        {
            "name": layer.name,
            "kind": layer.kind,
            "structure": structures[layer.name],
            "times": [row(structures[layer.name], size) for size in sizes],
        }
        for layer in traced.layers
    ]
    libraries = {"torch": torch.__version__.replace("+", " ")}
    if device.type == "cuda" and torch.version.cuda is not None:
        libraries["cuda"] = torch.version.cuda
    return {
        "schema": SCHEMA,
        "model": traced.graph["name"],
        "device": _device_name(device),
        "origin": "measured",
        "measurement": {
            "profiler": importlib.metadata.version("deeppool"),
            "libraries": libraries,
            "precision": _precision(traced.module),
            "repeats": repeats,
        },
        "layers": layers,
        "network": [row("network", size) for size in sizes],
    }
