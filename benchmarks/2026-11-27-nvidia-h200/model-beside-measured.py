#!/usr/bin/env python3
"""Prints PyTorch's measured iterations beside what `deeppool simulate --device h200` predicts.

    model-beside-measured.py path/to/deeppool
"""

import json
import subprocess
import sys
from pathlib import Path

measured = {}
for path in sorted(Path(__file__).parent.glob("pytorch-iterations*.jsonl")):
    for line in path.read_text().splitlines()[1:]:
        row = json.loads(line)
        if "iteration_us" in row:
            key = row["network"], row["batch"], row["precision"]
            measured.setdefault(key, row["iteration_us"][0])

print(f"{'':12}{'batch':>7}{'f32':>10}{'TF32':>10}{'bf16':>10}{'model h200':>12}{'by TF32':>10}")
for network, batch in dict.fromkeys(key[:2] for key in measured):
    command = [sys.argv[1], "simulate", "--model", network, "--device", "h200", "--gpus", "1", "--mode", "dp"]
    command += ["--batch", str(batch), "--memory", "unlimited", "--json"]
    model = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["iteration_us"]
    line = f"{network:12}{batch:7}"
    for precision in ["f32", "tf32", "bf16"]:
        time = measured.get((network, batch, precision))
        line += f"{time / 1e3:10.2f}" if time else f"{'':>10}"
    tf32 = measured.get((network, batch, "tf32"))
    print(line + f"{model / 1e3:12.2f}" + (f"{model / tf32 - 1:+10.0%}" if tf32 else ""))
