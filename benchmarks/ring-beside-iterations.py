#!/usr/bin/env python3
"""Times training iterations of PyTorch on one GPU beside a kernel that does what an all-reduce does to it.

    ring-beside-iterations.py OUT.jsonl [--seconds 200]

The kernel has NCCL's launch of a ring (640 threads a block, one block a channel, about 96 registers a
thread, so that no other block fits beside it on a multiprocessor) and its memory traffic: it reads its own
and received data and writes what it sends, at a given rate. Both operands and the result are in the memory
of this GPU, as a received buffer is that a neighbour writes; nothing is sent. An iteration is a CUDA graph,
as in 2026-11-27-nvidia-h200/pytorch_iterations.py. Each line has the time of an iteration alone and
beside the kernel, which runs all the time: median of alternating rounds, in microseconds.
"""

import argparse
import gc
import importlib.util
import json
import statistics
import sys
import time
from pathlib import Path

import cupy
import numpy
import torch

spec = importlib.util.spec_from_file_location(
    "pytorch_iterations", Path(__file__).parent / "2026-11-27-nvidia-h200" / "pytorch_iterations.py")
iterations = importlib.util.module_from_spec(spec)
spec.loader.exec_module(iterations)

# Registers hold what a thread loads at once, as in NCCL's unrolled loops.
RING = r"""
extern "C" __global__ __launch_bounds__(640, 1)
void ring(const float4* own, const float4* received, float4* sent, long long vectors, volatile int* stop,
          long long ns_per_piece, unsigned long long* pieces) {
    const int unroll = 16;
    const long long piece = 640LL * unroll;
    long long share = vectors / gridDim.x / piece * piece;
    long long first = share * blockIdx.x;
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    long long done = 0;
    for (long long at = 0;; at = at + piece < share ? at + piece : 0) {
        __shared__ int ended;
        if (threadIdx.x == 0) ended = *stop;
        __syncthreads();
        if (ended) break;
        float4 a[unroll], b[unroll];
        #pragma unroll
        for (int i = 0; i < unroll; i++) a[i] = own[first + at + i * 640 + threadIdx.x];
        #pragma unroll
        for (int i = 0; i < unroll / 2; i++) b[i] = __ldcv(&received[first + at + i * 640 + threadIdx.x]);
        #pragma unroll
        for (int i = 0; i < unroll; i++) {
            float4 c = i < unroll / 2 ? b[i] : __ldcv(&received[first + at + i * 640 + threadIdx.x]);
            a[i].x += c.x; a[i].y += c.y; a[i].z += c.z; a[i].w += c.w;
        }
        #pragma unroll
        for (int i = 0; i < unroll; i++) sent[first + at + i * 640 + threadIdx.x] = a[i];
        done++;
        do {
            asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        } while ((long long)(now - begin) < done * ns_per_piece);
        __syncthreads();
    }
    if (threadIdx.x == 0) pieces[blockIdx.x] = done;
}
"""
PIECE_BYTES = 640 * 16 * 16

# Network, precision, batch.
WORK = [
    ("resnet-50", "bf16", 64), ("gpt2", "bf16", 4), ("vgg16", "tf32", 16), ("resnet-50", "tf32", 16),
    ("resnet-50", "bf16", 4), ("vgg16", "bf16", 64), ("vit-b-16", "bf16", 16), ("wrn-101-2", "tf32", 16),
]
# Channels and sent bytes a second. 24 channels and 363 GB/s are a ring of eight H100, 229 GB/s one
# of eight A100.
RINGS = [(24, 363e9), (24, 229e9), (16, 363e9), (32, 363e9), (24, 1e6)]


class Ring:
    """The kernel on a stream of its own, from `start` to `stop`."""

    def __init__(self):
        self.kernel = cupy.RawKernel(RING, "ring", options=("-std=c++17",))
        self.buffers = [cupy.zeros(256 << 20, dtype=cupy.uint8) for _ in range(3)]
        self.flag = cupy.cuda.alloc_pinned_memory(4)
        self.value = numpy.frombuffer(self.flag, dtype="int32", count=1)
        self.pieces = cupy.zeros(64, dtype=cupy.uint64)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.begin, self.end = cupy.cuda.Event(), cupy.cuda.Event()

    def start(self, channels, rate):
        self.channels = channels
        self.value[0] = 0
        nanoseconds = int(PIECE_BYTES * channels / rate * 1e9)
        self.begin.record(self.stream)
        with self.stream:
            vectors = self.buffers[0].nbytes // 16
            arguments = (*self.buffers, vectors, self.flag.ptr, nanoseconds, self.pieces)
            self.kernel((channels,), (640,), arguments)
        self.end.record(self.stream)
        time.sleep(0.003)

    def stop(self):
        """Ends the kernel and returns the bytes a second that it sent."""
        self.value[0] = 1
        self.stream.synchronize()
        elapsed = cupy.cuda.get_elapsed_time(self.begin, self.end) / 1e3
        return float(self.pieces[: self.channels].sum()) * PIECE_BYTES / elapsed


def graph_of(name, precision, batch):
    iterations.set_precision(precision)
    gc.collect()
    torch.cuda.empty_cache()
    step = iterations.iteration(name, precision, batch)
    return iterations.captured(step), step


def timed(graph, stream, launches):
    with torch.cuda.stream(stream):
        return iterations.timed(graph, launches)


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=200, help="leave out what has not begun by then")
    arguments = parser.parse_args()
    finish = time.monotonic() + arguments.seconds
    ring = Ring()
    # Not the default stream, which would wait for all others.
    stream = torch.cuda.Stream()
    with open(arguments.out, "w") as out:
        head = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                "registers": ring.kernel.num_regs, "shared_bytes": ring.kernel.shared_size_bytes}
        print(json.dumps(head), file=out, flush=True)
        print(json.dumps(head), flush=True)
        for name, precision, batch in WORK:
            if time.monotonic() > finish:
                continue
            try:
                graph, step = graph_of(name, precision, batch)
                launches = max(2, int(30_000 / timed(graph, stream, 2)))
                rows = {which: ([], []) for which in RINGS}
                alone = []
                for _ in range(5):
                    alone.append(timed(graph, stream, launches))
                    for which in RINGS:
                        ring.start(*which)
                        rows[which][0].append(timed(graph, stream, launches))
                        rows[which][1].append(ring.stop())
                for (channels, rate), (times, rates) in rows.items():
                    row = {"network": name, "precision": precision, "batch": batch, "channels": channels,
                           "rate": rate, "rate_reached": statistics.median(rates),
                           "alone_us": statistics.median(alone), "beside_us": statistics.median(times),
                           "ratios": sorted(round(b / a, 4) for a, b in zip(alone, times))}
                    print(json.dumps(row), file=out, flush=True)
                    print(name, precision, batch, channels, f"{rate:.3g} {row['rate_reached']:.3g}",
                          f"{row['alone_us']:.0f} us, {row['beside_us'] / row['alone_us']:.3f} times",
                          flush=True)
                del graph, step
            except Exception as error:
                print(name, precision, batch, repr(error)[:300], file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
