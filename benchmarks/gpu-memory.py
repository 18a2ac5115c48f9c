"""Memory that training takes on a GPU, beside the predicted memory.

    python3 benchmarks/gpu-memory.py DEEPPOOL OUT.json [NETWORK:BATCH ...]

DEEPPOOL is the program, built with the feature cuda. Each network is trained for a few iterations on one
GPU, while the used memory of the card is read every 10 ms by NVML. The memory of the smallest network,
without its own buffers, is that of the CUDA context and of the loaded kernels; it is subtracted from the
others. What is left over the prediction are the workspaces of the kernels and the granularity of
allocations.
"""

import ctypes
import json
import subprocess
import sys
import threading
import time

NETWORKS = [
    *("digits-cnn:8", "resnet-18:64", "resnet-50:64", "vgg11:32", "vgg16:32", "vit-b-16:32"),
    "inception-v3:32",
]
ITERATIONS = 6


class Memory(ctypes.Structure):
    """The structure nvmlMemory_t, in bytes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Card:
    """The first GPU, by NVML."""

    def __init__(self) -> None:
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        if self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)):
            sys.exit("NVML finds no GPU: run it on a machine with one")

    def used(self) -> int:
        memory = Memory()
        if self.nvml.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)):
            sys.exit("NVML cannot read the memory of the GPU")
        return memory.used


def peak_of(card: Card, command: list[str]) -> tuple[int, dict]:
    """Runs a command. Returns the maximum growth of the used memory of the card, and the command's JSON."""
    before, peak, ended = card.used(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.is_set():
            peak = max(peak, card.used() - before)
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        output = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    finally:
        ended.set()
        watcher.join()
    return peak, json.loads(output.stdout)


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program, out, *networks = sys.argv[1:]
    card, rows, context = Card(), [], 0
    for network in networks or NETWORKS:
        model, batch = network.split(":")
        data = "digits" if model.startswith("digits") else "synthetic"
        command = [
            *(program, "train", "--model", model, "--data", data, "--batch", batch, "--ranks", "1"),
            *("--engine", "cuda", "--iterations", str(ITERATIONS), "--json"),
        ]
        peak, report = peak_of(card, command)
        allocated = report["memory"]["allocated_bytes"]
        if not rows:
            context = peak - allocated
        row = {
            "network": model,
            "batch": int(batch),
            "predicted_bytes": report["memory"],
            "measured_bytes": peak,
            "context_bytes": context,
            "iteration_us": report["iteration_us"],
            "losses": report["losses"],
        }
        rows.append(row)
        off = (peak - context) / allocated - 1
        sizes = f"predicted {allocated / 1e6:8.1f} MB, measured {(peak - context) / 1e6:8.1f} MB ({off:+.1%})"
        print(f"{model:14} {batch:>4} {sizes}", flush=True)
    with open(out, "w") as file:
        json.dump({"command": " ".join(sys.argv[1:]), "rows": rows}, file, indent=1)


main()
