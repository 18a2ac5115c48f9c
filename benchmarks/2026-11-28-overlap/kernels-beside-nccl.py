#!/usr/bin/env python3
"""Prints how much longer kernels take beside NCCL's, by traces of PyTorch's profiler.

    kernels-beside-nccl.py TRACE.json.gz ...

A kernel of a name, grid and block counts as beside NCCL's if they run during nine tenths of its time, and as alone if they
run during none of it. Its time alone is the median of at least two runs.
"""

import gzip
import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

for path in sys.argv[1:]:
    document = json.load(gzip.open(path))
    events = document["traceEvents"] if isinstance(document, dict) else document
    kernels = [event for event in events if event.get("cat") in ("kernel", "Kernel")]
    is_nccl = [("nccl" in kernel["name"].lower(), kernel) for kernel in kernels]
    transfers = [(kernel["ts"], kernel["ts"] + kernel["dur"]) for nccl, kernel in is_nccl if nccl]
    alone, beside = defaultdict(list), defaultdict(list)
    for kernel in (kernel for nccl, kernel in is_nccl if not nccl):
        start, end = kernel["ts"], kernel["ts"] + kernel["dur"]
        shared = sum(max(0, min(end, last) - max(start, first)) for first, last in transfers)
        arguments = kernel.get("args", {})
        key = kernel["name"], str(arguments.get("grid")), str(arguments.get("block"))
        if shared > 0.9 * kernel["dur"]:
            beside[key].append(kernel["dur"])
        elif shared == 0:
            alone[key].append(kernel["dur"])
    keys = [key for key in beside if len(alone[key]) >= 2]
    expected = sum(median(alone[key]) * len(beside[key]) for key in keys)
    found = sum(sum(beside[key]) for key in keys)
    count = sum(len(beside[key]) for key in keys)
    if expected:
        print(f"{Path(path).name}: {count} kernels, {expected:.0f} us alone, {found:.0f} us beside NCCL: {found / expected:.2f} times")
