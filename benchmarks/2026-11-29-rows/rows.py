"""Bounds what a split of convolutional networks by rows of their images could gain.

A network whose images have half of the rows stands for two ranks that have half of the rows of each sample
each, without the rows that they would exchange. A batch of 128 of these on 128 GPUs is the work of a batch of
64 on 128 GPUs by rows. Its linear layers are smaller, too, so that the times are a bound.

    python benchmarks/2026-11-29-rows/rows.py target/release/deeppool
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import deeppool

PLAN = "plan --device a100 --link dgx-a100-pod --amplification 100 --splits all --prove off --json".split()


def iteration_ms(*options):
    """Returns the iteration time of the fastest plan, milliseconds."""
    done = subprocess.run([sys.argv[1], *PLAN, *options], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["iteration_us"] / 1000


for model in ("vgg16", "resnet-50", "wrn-101-2", "inception-v3"):
    network = deeppool.Network.zoo(model).to_dict()
    channels, rows, columns = network["input"]
    network["input"] = [channels, rows // 2, columns]
    with tempfile.TemporaryDirectory() as folder:
        half = Path(folder, "half.json")
        half.write_text(json.dumps(network))
        today = {gpus: iteration_ms("--model", model, "--batch", "64", "--gpus", gpus) for gpus in ("64", "128")}
        bound = iteration_ms("--graph", str(half), "--batch", "128", "--gpus", "128")
    print(
        f"{model:13} 64 GPUs {today['64']:.2f} ms, 128 GPUs {today['128']:.2f} ms; half of the rows on 128 GPUs "
        f"{bound:.2f} ms, {100 * (today['128'] / bound - 1):.1f}% faster"
    )
