#!/usr/bin/env python3
"""Trains a network of the comparison with PyTorch in its fastest settings, on a GPU or on the CPU.

    fastest.py resnet-18 --initial FILE --data FILE --iterations 50 > settings.json
    fastest.py resnet-18 --initial FILE --data FILE --iterations 50 --settings settings.json

For each mode it times all combinations of layout (NCHW, channels last), `cudnn.benchmark` and optimizer
(fused, foreach), and then trains in the fastest one. With --settings the fastest ones of an earlier report
are taken. Modes:

- f32: single precision without TF32;
- f32-deterministic: the same with deterministic algorithms only;
- tf32: single precision, where convolutions and matrix products round their factors to TF32;
- bf16: automatic mixed precision in bfloat16, with parameters in single precision.

On a GPU an iteration is one launch of a CUDA graph, in which gradients are set to None before the backward
pass. A time is from the copy of the samples to the end of the iteration. On the CPU the same iteration runs
without a graph, and modes other than bf16 compute the same. Prints a JSON document: command, versions,
device, and for each mode the timed settings, the fastest one, its losses and the times of its iterations.
"""

import argparse
import contextlib
import copy
import gc
import itertools
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from networks import NETWORKS, read_data
from safetensors.torch import load_file
from torch.nn import functional as F

SCHEMA = "deeppool/pytorch-fastest/v1"
MODES = ("f32", "f32-deterministic", "tf32", "bf16")
LAYOUTS = {"nchw": torch.contiguous_format, "channels-last": torch.channels_last}
OPTIMIZERS = ("fused", "foreach")
WARM_UP = 3


class Training:
    """A network in training with the given settings. On a GPU its iteration is captured."""

    def __init__(self, model, network, device, mode, setting):
        apply(mode, setting)
        self.layout = LAYOUTS[setting["layout"]]
        self.device, self.mode, self.batch = device, mode, network.batch
        self.model = copy.deepcopy(model).to(device, memory_format=self.layout).train()
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=network.lr, momentum=network.momentum, **{setting["optimizer"]: True}
        )
        self.inputs = torch.zeros(network.batch, *network.sample_shape, device=device)
        self.inputs = self.inputs.to(memory_format=self.layout)
        self.labels = torch.zeros(network.batch, dtype=torch.int64, device=device)
        self.graph = None
        if device == "cuda":
            self.capture()

    def compute(self):
        """Computes one iteration. Gradients are None at its begin."""
        # Each parameter is cast once an iteration, so a cache of casts has no use.
        bf16 = torch.autocast(self.device, torch.bfloat16, enabled=self.mode == "bf16", cache_enabled=False)
        with bf16:
            loss = F.cross_entropy(self.model(self.inputs), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def capture(self):
        """Captures an iteration, after a few that let libraries choose kernels and allocate."""
        initial = copy.deepcopy(self.model.state_dict())
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.optimizer.zero_grad(set_to_none=True)
                self.compute()
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.compute()
        with torch.no_grad():
            for name, tensor in self.model.state_dict().items():
                tensor.copy_(initial[name])
            for state in self.optimizer.state.values():
                state["momentum_buffer"].zero_()

    def iterate(self, inputs, labels):
        """Trains on a batch and returns the loss and the microseconds."""
        self.synchronize()
        began = time.perf_counter()
        self.inputs.copy_(inputs, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)
        if self.graph:
            self.graph.replay()
        else:
            self.optimizer.zero_grad(set_to_none=True)
            self.loss = self.compute()
        self.synchronize()
        return self.loss.item(), (time.perf_counter() - began) * 1e6

    def synchronize(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def run(self, data, iterations):
        """Returns the losses and the microseconds of the first iterations."""
        inputs, labels = (tensor[: iterations * self.batch] for tensor in data)
        # Samples have the layout already in host memory, as from a data loader.
        inputs = inputs.to(memory_format=self.layout)
        if self.device == "cuda":
            inputs, labels = inputs.pin_memory(), labels.pin_memory()
        firsts = range(0, iterations * self.batch, self.batch)
        rows = [self.iterate(inputs[i : i + self.batch], labels[i : i + self.batch]) for i in firsts]
        return [list(column) for column in zip(*rows)]


def apply(mode, setting):
    tf32 = mode in ("tf32", "bf16")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = setting["cudnn_benchmark"]
    deterministic = mode == "f32-deterministic"
    # An operator without a deterministic kernel warns.
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic = deterministic


@contextlib.contextmanager
def training(*arguments):
    made = Training(*arguments)
    try:
        yield made
    finally:
        made.model = made.optimizer = made.graph = made.loss = None
        gc.collect()
        if made.device == "cuda":
            torch.cuda.empty_cache()


def time_settings(options, model, network, data):
    """Returns the rows of all settings with the given `cudnn.benchmark`: mode, setting, median time."""
    rows = []
    for mode, layout, optimizer in itertools.product(options.modes, LAYOUTS, OPTIMIZERS):
        setting = {
            "layout": layout,
            "cudnn_benchmark": options.time == "benchmark",
            "optimizer": optimizer,
        }
        row = {"mode": mode, "setting": setting}
        try:
            with training(model, network, options.device, mode, setting) as made:
                times = made.run(data, options.timed_iterations)[1]
            row["median_us"] = round(statistics.median(times[1:]), 1)
        except RuntimeError as error:
            row["error"] = str(error).splitlines()[0]
        rows.append(row)
    return rows


def timed_rows():
    """Times all settings, each value of `cudnn.benchmark` in a process.

    A process keeps the algorithm that it first chose for a convolution, however it chose it.
    """
    rows = []
    for value in ("heuristics", "benchmark"):
        command = [sys.executable, *sys.argv, "--time", value]
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if result.returncode:
            sys.exit(f"{shlex.join(command)}: exit {result.returncode}")
        rows += json.loads(result.stdout)
    return rows


def choose(modes, rows):
    """Returns the timed settings of each mode, and the fastest one."""
    chosen = {}
    for mode in modes:
        timed = [{name: row[name] for name in row if name != "mode"} for row in rows if row["mode"] == mode]
        finished = [row for row in timed if "median_us" in row]
        if not finished:
            sys.exit(f"{mode}: no setting trains the network: {timed[0]['error']}")
        fastest = min(finished, key=lambda row: row["median_us"])
        chosen[mode] = {"fastest": fastest["setting"], "timed": timed}
    return chosen


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--initial", required=True, help="file of the initial weights")
    parser.add_argument("--data", required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--timed-iterations", type=int, default=12, help="iterations of each setting")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--settings", type=Path, help="report whose fastest settings are taken")
    parser.add_argument("--time", choices=["heuristics", "benchmark"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.device == "cuda":
        require_cuda()
    else:
        torch.set_num_threads(1)

    network = NETWORKS[options.network]
    if options.settings:
        chosen = json.loads(options.settings.read_text())["modes"]
    elif not options.time:
        chosen = choose(options.modes, timed_rows())
    model = network.make()
    model.load_state_dict(load_file(options.initial))
    data = read_data(options.data)
    if options.time:
        print(json.dumps(time_settings(options, model, network, data)))
        return
    modes = {}
    for mode in options.modes:
        setting = chosen[mode]["fastest"]
        with training(model, network, options.device, mode, setting) as made:
            losses, times = made.run(data, options.iterations)
        modes[mode] = chosen[mode] | {"losses": losses, "iteration_us": times}
    print(json.dumps({"schema": SCHEMA, **facts(options), "modes": modes}))


def require_cuda():
    """Ends the program without a CUDA device: with an error if GPU_REQUIRED is 1."""
    if not torch.cuda.is_available():
        print("SKIPPED: no CUDA device")
        sys.exit(1 if os.environ.get("GPU_REQUIRED") == "1" else 0)


def facts(options):
    on_gpu = options.device == "cuda"
    return {
        "command": shlex.join(sys.argv),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if on_gpu else None,
        "device": torch.cuda.get_device_name() if on_gpu else "CPU",
        "network": options.network,
        "batch": NETWORKS[options.network].batch,
    }


if __name__ == "__main__":
    main()
