#!/usr/bin/env python3
"""Times whole training iterations of PyTorch on one GPU, each as launches of one CUDA graph.

    pytorch_iterations.py OUT.jsonl [--seconds 400] [--networks gpt2 vgg16] [--precisions bf16]

For each network, precision and batch it prints one line of JSON: median and quartiles of the time of an
iteration (forward, loss, backward, SGD with momentum), in microseconds; peak memory; and for each GPU
kernel of one launch how often it runs and for how long. Convolutional networks are in channels-last
layout except in strict f32; cuDNN chooses its algorithms by timing; the optimizer is fused.
"""

import argparse
import gc
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as functional
import torchvision
from torch.profiler import ProfilerActivity, profile

BATCHES = [1, 4, 16, 64, 256]
PRECISIONS = ["f32", "tf32", "bf16"]


class Block(torch.nn.Module):
    """A block of GPT-2: attention and two dense layers, each behind a normalisation."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Gpt2(torch.nn.Module):
    """GPT-2 of 124 million parameters without dropout; returns the loss of predicting the next token."""

    def __init__(self, width=768, heads=12, blocks=12, vocabulary=50257, length=1024):
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.places = torch.nn.Embedding(length, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        logits = functional.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def image(name, **options):
    def build():
        return getattr(torchvision.models, name)(**options)

    return build


NETWORKS = {
    "resnet-50": (image("resnet50"), 224),
    "vgg16": (image("vgg16", dropout=0.0), 224),
    "vit-b-16": (image("vit_b_16"), 224),
    "gpt2": (Gpt2, None),
    "inception-v3": (image("inception_v3", aux_logits=False, init_weights=False, dropout=0.0), 299),
    "wrn-101-2": (image("wide_resnet101_2"), 224),
}


def set_precision(precision):
    allow = precision != "f32"
    torch.backends.cuda.matmul.allow_tf32 = allow
    torch.backends.cudnn.allow_tf32 = allow
    torch.backends.cudnn.benchmark = True


def iteration(name, precision, batch):
    """Returns a function that computes one iteration, on fixed random inputs."""
    build, size = NETWORKS[name]
    torch.manual_seed(0)
    model = build().cuda().train()
    autocast = torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)
    if size is None:
        tokens = torch.randint(50257, (batch, 1024), device="cuda")

        def loss():
            return model(tokens)
    else:
        images = torch.randn(batch, 3, size, size, device="cuda")
        if precision != "f32" and name != "vit-b-16":
            model = model.to(memory_format=torch.channels_last)
            images = images.contiguous(memory_format=torch.channels_last)
        labels = torch.randint(1000, (batch,), device="cuda")
        criterion = torch.nn.CrossEntropyLoss()

        def loss():
            return criterion(model(images), labels)

    def step():
        with autocast:
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def kernels(graph):
    """Returns name, runs and microseconds of each kernel of one launch, or why the profiler has none."""
    try:
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            graph.replay()
            torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error)[:300]
    rows = {}
    for event in profiled.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            count, total = rows.get(event.name, (0, 0.0))
            rows[event.name] = (count + 1, total + event.time_range.elapsed_us())
    longest_first = sorted(rows.items(), key=lambda row: -row[1][1])
    return [[name[:120], count, round(total, 1)] for name, (count, total) in longest_first]


def captured(step):
    """Returns the CUDA graph of a step, after three runs of it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def timed(graph, launches):
    """Returns the microseconds of a launch on the current stream, of several in a row."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(launches):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / launches


def measure(name, precision, batch):
    set_precision(precision)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    # The graph reads the parameters of the step, which is kept until the end.
    step = iteration(name, precision, batch)
    graph = captured(step)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    one = timed(graph, 1)
    launches = max(1, int(60_000 / one))
    times = [timed(graph, launches) for _ in range(9 if one < 100_000 else 4)]
    quartiles = statistics.quantiles(times, n=4)
    return {
        "network": name,
        "precision": precision,
        "batch": batch,
        "launches": launches * len(times),
        "iteration_us": [round(q, 1) for q in (quartiles[1], quartiles[0], quartiles[2])],
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "kernels": kernels(graph),
    }


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=400, help="leave out what has not begun by then")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    with open(arguments.out, "w") as out:
        versions = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(),
            "columns": "iteration_us: median, lower quartile, upper quartile; kernels: name, runs, microseconds",
        }
        print(json.dumps(versions), file=out, flush=True)
        for name in arguments.networks:
            for precision in arguments.precisions:
                for batch in BATCHES:
                    if name == "gpt2" and batch > 16:
                        continue
                    if time.monotonic() > end:
                        print(json.dumps({"left_out": [name, precision, batch]}), file=out, flush=True)
                        continue
                    started = time.monotonic()
                    try:
                        row = measure(name, precision, batch)
                    except Exception as error:  # Out of memory, or an operation that no capture allows.
                        row = {"network": name, "precision": precision, "batch": batch, "error": str(error)[:300]}
                    print(json.dumps(row), file=out, flush=True)
                    brief = {key: value for key, value in row.items() if key != "kernels"}
                    print(f"{time.monotonic() - started:.1f} s", json.dumps(brief), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
