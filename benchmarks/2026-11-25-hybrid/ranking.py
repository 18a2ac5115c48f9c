#!/usr/bin/env python3
"""Whether choices of workers, GPUs a worker and batch are ranked as real runs rank them: digits-cnn to 97% on this machine.

    benchmarks/2026-11-25-hybrid/ranking.py target/release/deeppool > benchmarks/2026-11-25-hybrid/ranking.txt

Ranks are threads. The prediction is that of `deeppool plan --to-accuracy` with layer times measured here; a real run counts the
training time of its epochs up to the first evaluation that reaches the target.
"""
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CURVE = HERE / "digits-cnn.json"
# Workers, GPUs a worker, global batch, and the learning rate of the curve at that batch.
CHOICES = [(1, 1, 32, 0.0424), (2, 1, 64, 0.06), (1, 2, 32, 0.0424), (2, 1, 128, 0.0849)]
SEEDS, TARGET, TRAINING_SAMPLES = range(5), 0.97, 1437


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def main(deeppool):
    with tempfile.TemporaryDirectory() as folder:
        profile = str(Path(folder) / "profile.json")
        run(deeppool, "profile", "--model", "digits-cnn", "--engine", "cpu", "--batches", "1,8,16,32,64,128", "-o", profile)
        batches = ",".join(str(batch) for batch in sorted({choice[2] for choice in CHOICES}))
        estimates = json.loads(run(
            deeppool, "plan", "--model", "digits-cnn", "--profile", profile, "--gpus", "2", "--worker-gpus", "2",
            "--to-accuracy", str(CURVE), "--batches", batches, "--json"))["estimates"]
        print("workers x GPUs  batch  predicted  measured: median of five seeds (least to most)")
        ranks = []
        for workers, gpus, batch, rate in CHOICES:
            wanted = {"workers": workers, "gpus_per_worker": gpus, "batch": batch, "limit": None}
            predicted = next(one["time_us"] / 1e6 for one in estimates if one["configuration"] == wanted)
            times = []
            for seed in SEEDS:
                mode = ["--mode", "dp"] if gpus == 1 else ["--worker-gpus", str(gpus), "--amplification", "100"]
                report = json.loads(run(
                    deeppool, "train", "--model", "digits-cnn", "--data", "digits", "--ranks", str(workers * gpus),
                    "--batch", str(batch), "--profile", profile, *mode, "--lr", str(rate), "--seed", str(seed),
                    "--epochs", "12", "--json"))
                samples, seconds = TRAINING_SAMPLES // batch * batch, 0.0
                for epoch in report["epochs"]:
                    seconds += samples / epoch["foreground_samples_per_s"]
                    if epoch["test_accuracy"] >= TARGET:
                        break
                else:
                    sys.exit(f"batch {batch}, seed {seed}: never at {TARGET}")
                times.append(seconds)
            median = statistics.median(times)
            ranks.append((predicted, median))
            print(f"{workers} x {gpus}           {batch:5}  {predicted:7.3f} s  {median:.3f} s ({min(times):.3f} to {max(times):.3f})")
        by = [sorted(range(len(ranks)), key=lambda at: ranks[at][which]) for which in (0, 1)]
        print("ranked", "alike" if by[0] == by[1] else "differently", "by prediction and by measurement:", *by)


if __name__ == "__main__":
    main(sys.argv[1])
