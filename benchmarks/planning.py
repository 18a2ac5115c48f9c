#!/usr/bin/env python3
"""Measures the user time of `deeppool plan` with one or two binaries, run alternately.

Usage: planning.py RUNS BINARY [BINARY], such as `planning.py 5 old/deeppool target/release/deeppool`.
Prints one CSV row for each question and binary: the median user time, all user times, the maximum
resident memory, the iteration time of the plan and its gap to the lower bound. With two binaries, the
ratio of the medians follows.
"""

import json
import os
import statistics
import subprocess
import sys

POD = "--link dgx-a100-pod"
QUESTIONS = {
    "vgg16 8": "--model vgg16 --gpus 8 --batch 32",
    "vgg16 64": f"--model vgg16 --gpus 64 --batch 64 {POD}",
    "vgg16 1024": "--model vgg16 --gpus 1024 --batch 1024",
    "inception-v3 8": "--model inception-v3 --gpus 8 --batch 32",
    "inception-v3 64": f"--model inception-v3 --gpus 64 --batch 64 {POD}",
    "inception-v3 1024": "--model inception-v3 --gpus 1024 --batch 1024",
    "resnet-50 64": f"--model resnet-50 --gpus 64 --batch 256 {POD}",
    "digits-cnn 8": "--model digits-cnn --gpus 8 --batch 32",
    "big-lstm 8": "--model big-lstm --gpus 8 --batch 32",
}
DEEP = {
    "gpt2 96 blocks 64": f"--model gpt2 --blocks 96 --gpus 64 --batch 64 --memory unlimited {POD}",
    "gpt2 1000 blocks 64": f"--model gpt2 --blocks 1000 --gpus 64 --batch 64 --memory unlimited {POD}",
}


def run(binary: str, question: str) -> tuple[float, int, dict]:
    """Returns the user time in seconds, the maximum resident memory in MB, and the plan."""
    command = [binary, "plan", "--device", "a100", "--json", *question.split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed")
    return usage.ru_utime, usage.ru_maxrss // 1024, json.loads(text)


def main() -> None:
    runs, binaries = int(sys.argv[1]), sys.argv[2:]
    print("question,binary,median_user_s,user_s,max_memory_mb,iteration_us,gap,ratio")
    for name, question in (QUESTIONS | DEEP).items():
        # Only the last binary knows `--blocks`.
        used = [(index, binary) for index, binary in enumerate(binaries) if name in QUESTIONS]
        used = used or [(len(binaries) - 1, binaries[-1])]
        results = {index: [] for index, _ in used}
        for _ in range(runs):
            for index, binary in used:
                results[index].append(run(binary, question))
        first = None
        for index, _ in used:
            times = [result[0] for result in results[index]]
            median = statistics.median(times)
            memory, plan = max(result[1] for result in results[index]), results[index][0][2]
            ratio = "" if first is None else f"{median / first:.3f}"
            first = first or median
            all_times = " ".join(f"{time:.2f}" for time in times)
            gap = plan.get("gap")
            gap = "" if gap is None else f"{gap:.3f}"
            us = f"{plan['iteration_us']:.3f}"
            row = [name, str(index), f"{median:.3f}", all_times, str(memory), us, gap, ratio]
            print(",".join(row), flush=True)


if __name__ == "__main__":
    main()
