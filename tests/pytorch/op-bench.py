#!/usr/bin/env python3
"""Times the layers of a network in PyTorch, forward and backward, beside the kernels of deeppool.

    cargo build --release -p benches --features cuda --bin op-bench
    tests/pytorch/op-bench.py resnet-18 --batch 8 --bin target/release/op-bench

Each layer is timed alone: on a GPU as replays of a CUDA graph, by the device's clock. Layers are the modules
without children, and attention as a whole. A module that is called several times is a layer for each call,
with the number of the call in its name, as deeppool names them. Layers are joined by name: kernels of a layer
count for the module of this name, or for the one that the layer is part of. Sums of gradients belong to no
layer; the optimizer is left out. It fails if deeppool has no kernels of a layer of PyTorch's.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from compare import run
from fastest import LAYOUTS, MODES, apply, facts, require_cuda
from networks import NETWORKS
from torch import nn

SCHEMA = "deeppool/pytorch-op-bench/v1"
REPEATS = 5
# Minimum microseconds of a repeat: shorter work runs several times in each.
MIN_REPEAT_US = 200
PHASES = ("forward", "backward")


class Loss(nn.Module):
    """A network with the cross-entropy loss as a module of the name `loss`."""

    def __init__(self, network):
        super().__init__()
        self.network, self.loss = network, nn.CrossEntropyLoss()

    def forward(self, inputs, labels):
        return self.loss(self.network(inputs), labels)


def calls(model, inputs, labels):
    """Returns the calls of all layers in one training iteration: name, module, arguments."""
    found, handles = [], []
    for name, module in model.named_modules():
        is_noop = isinstance(module, nn.Dropout) and module.p == 0
        is_layer = isinstance(module, nn.MultiheadAttention) or not list(module.children())
        if is_layer and not is_noop:
            if hasattr(module, "inplace"):
                # A repeat must find the same input.
                module.inplace = False
            name = name.removeprefix("network.")

            def record(module, args, kwargs, name=name):
                found.append((name, module, args, kwargs))

            handles.append(module.register_forward_pre_hook(record, with_kwargs=True))
    model(inputs, labels)
    for handle in handles:
        handle.remove()
    total, seen = Counter(name for name, *_ in found), Counter()
    for name, *call in found:
        seen[name] += 1
        yield (f"{name}{seen[name]}" if total[name] > 1 else name, *call)


def detached(value):
    """Returns a tensor as an input that needs a gradient where it did."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def time_call(module, args, kwargs, options):
    """Returns the microseconds of the forward and of the backward pass of one call of a module."""
    # The same tensor as several arguments, as in self-attention, stays one.
    inputs = {id(value): detached(value) for value in (*args, *kwargs.values())}
    args = [inputs[id(value)] for value in args]
    kwargs = {name: inputs[id(value)] for name, value in kwargs.items()}
    tensors = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
    wanted = [tensor for tensor in (*tensors, *module.parameters()) if tensor.requires_grad]

    def forward():
        bf16 = torch.autocast(
            options.device, torch.bfloat16, enabled=options.mode == "bf16", cache_enabled=False
        )
        with bf16:
            output = module(*args, **kwargs)
        return output[0] if isinstance(output, tuple) else output

    def backward():
        torch.autograd.grad(output, wanted, gradient, retain_graph=True, allow_unused=True)

    if options.device == "cpu":
        forward_us = timed_on_cpu(forward)
        output = forward()
        gradient = torch.ones_like(output)
        return forward_us, timed_on_cpu(backward) if wanted else 0.0
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        forward_us = timed_on_gpu(forward, stream)
        output = forward()
        gradient = torch.ones_like(output)
        return forward_us, timed_on_gpu(backward, stream) if wanted else 0.0


def timed_on_cpu(work):
    work()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1e6)
    return statistics.median(times)


def timed_on_gpu(work, stream):
    """Returns the median microseconds of a replay of the work, captured after three runs of it."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()

    def replays(count):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3

    replays(3)
    count = max(1, round(MIN_REPEAT_US / max(replays(1), 1.0)))
    return statistics.median(replays(count) / count for _ in range(REPEATS))


def layers(options):
    """Returns the times of all layers, by name."""
    network = NETWORKS[options.network]
    layout = LAYOUTS[options.layout]
    apply(options.mode, {"cudnn_benchmark": True})
    model = Loss(network.make()).train().to(options.device, memory_format=layout)
    inputs = torch.randn(options.batch, *network.sample_shape, device=options.device)
    labels = torch.randint(10, (options.batch,), device=options.device)
    rows = {}
    for name, module, args, kwargs in list(calls(model, inputs.to(memory_format=layout), labels)):
        forward_us, backward_us = time_call(module, args, kwargs, options)
        rows[name] = {"forward": round(forward_us, 2), "backward": round(backward_us, 2)}
    return rows


def joined_name(layer, rows):
    """Returns the name among the rows of a layer of deeppool, or its own name if they lack it."""
    repeated = re.fullmatch(r"(.+)_(\d+)", layer)
    # Calls of one module in an ONNX file are called `relu`, `relu_1`, and so on.
    of_call = f"{repeated[1]}{int(repeated[2]) + 1}" if repeated else f"{layer}1"
    parents = (layer.rsplit(".", count)[0] for count in range(1, layer.count(".") + 1))
    return next((name for name in (layer, of_call, *parents) if name in rows), layer)


def joined(rows, ours):
    """Returns rows of layers with the times of both: `None` where one of them has no such layer."""
    by_layer, without = {}, {}
    for row in ours:
        for step in row["steps"]:
            layer, phase = step["layer"], step["phase"]
            if phase not in PHASES:
                continue
            if layer is None:
                key = f"({row['operation']})"
                without.setdefault(key, Counter())[phase] += row["time_us"]
                continue
            by_layer.setdefault(joined_name(layer, rows), Counter())[phase] += row["time_us"]
    names = list(rows) + [name for name in by_layer if name not in rows]
    table = [
        {
            "layer": name,
            "pytorch_us": rows.get(name),
            "deeppool_us": dict(by_layer[name]) if name in by_layer else None,
        }
        for name in names
    ]
    return table + [
        {"layer": name, "pytorch_us": None, "deeppool_us": dict(times)} for name, times in without.items()
    ]


def show(options, document):
    """Prints a line for each layer, and the sums, in microseconds."""
    ours = document["deeppool"]
    print(f"{options.network}, {options.batch} samples; PyTorch on {document['device']}, {options.mode}")
    if ours:
        print(f"deeppool on {ours['device']}, {ours['times']} times")
    header = [f"{who} {phase}" for phase in PHASES for who in ("PyTorch", "deeppool")]
    print(f"{'layer':<52}" + "".join(f"{title:>18}" for title in header))
    sums = Counter()
    for row in document["rows"]:
        cells = []
        for phase in PHASES:
            for who in ("pytorch_us", "deeppool_us"):
                us = (row.get(who) or {}).get(phase)
                sums[phase, who] += us or 0
                cells.append(f"{'-' if us is None else format(us, '.1f'):>18}")
        print(f"{row['layer']:<52}" + "".join(cells))
    totals = [sums[phase, who] for phase in PHASES for who in ("pytorch_us", "deeppool_us")]
    print(f"{'sum':<52}" + "".join(f"{total:>18.1f}" for total in totals))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--mode", choices=MODES, default="f32")
    parser.add_argument("--layout", choices=LAYOUTS, default="nchw")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--bin", type=Path, help="program op-bench of deeppool, which runs on the first GPU")
    parser.add_argument("--out", type=Path, help="write the times and deeppool's report to this JSON file")
    options = parser.parse_args()
    if options.device == "cuda":
        require_cuda()
    else:
        torch.set_num_threads(1)
    ours = of_deeppool(options) if options.bin else None
    rows = joined(layers(options), ours["rows"] if ours else [])
    document = {"schema": SCHEMA, **facts(options), "batch": options.batch, "mode": options.mode}
    document |= {"layout": options.layout, "rows": rows, "deeppool": ours}
    if options.out:
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    show(options, document)
    missing = [row["layer"] for row in rows if not row["deeppool_us"]]
    if ours and missing:
        sys.exit(f"deeppool has no kernels of the layers {', '.join(missing)}")


def of_deeppool(options):
    with tempfile.TemporaryDirectory() as folder:
        named = NETWORKS[options.network].arguments(Path(folder))
        return json.loads(run([options.bin.resolve(), *named, "--batch", options.batch, "--json"]))


if __name__ == "__main__":
    main()
