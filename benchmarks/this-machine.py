#!/usr/bin/env python3
"""Simulated against measured iterations on the processors of this machine.

    cargo build --release -p deeppool-cli --features mpi
    benchmarks/this-machine.py OUT [--rounds 5] [--deeppool target/release/deeppool] [--prefix "chrt -f 1"]

For each network, with ranks that are threads and ranks that are processes: profiles the layers on
2 ranks, plans data parallelism and a burst plan, and simulates both, alone and beside a background
job. The predictions are written to OUT/predictions.json before anything is trained. Then all plans
are trained in turns. OUT/runs.csv has every run, OUT/results.csv and
OUT/results.txt the medians beside the predictions. A prediction holds if it is within 10% of the
measured median plus half of the interquartile range of the runs; a background throughput if it is
within 25%.
"""

import argparse
import csv
import json
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys

RANKS = 2
# Network, global batch, shards, amplification limit of the burst plan, iterations of a run,
# background job.
JOBS = [
    ("resnet-18", 4, "1,2,4", 1.03, 12, "resnet-18:1"),
    ("vgg11", 4, "1,2,4", 1.03, 6, "resnet-18:1"),
    ("digits-cnn", 1024, "8,512,1024", 1.03, 60, "digits-cnn:8"),
]
MODES = ["dp", "bp", "dp+col", "bp+col"]
KINDS = ["threads", "processes"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--deeppool", default="target/release/deeppool")
    parser.add_argument("--prefix", default="", help="command in front of each deeppool")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    command = shlex.split(arguments.prefix) + [arguments.deeppool]
    predictions = predict(command, arguments.out)
    (arguments.out / "predictions.json").write_text(json.dumps(predictions, indent=1) + "\n")
    runs = measure(command, arguments.out, arguments.rounds)
    report(arguments, predictions, runs)


def deeppool(command, *arguments, launch=False):
    launcher = ["launch", "--ranks", str(RANKS), "--"] if launch else []
    whole = [*command, *launcher, *map(str, arguments)]
    done = subprocess.run(whole, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def costs(out, model, kind, background=None):
    options = ["--model", model, "--profile", out / f"{model}-{kind}.json"]
    options += ["--link", out / f"{model}-{kind}-link.json"]
    if background:
        profile = out / f"{background.split(':')[0]}-{kind}.json"
        options += ["--background", background, "--background-profile", profile]
    return options


def predict(command, out):
    predictions = {}
    of_kinds = [(kind, *job) for kind in KINDS for job in JOBS]
    for kind, model, _, shards, _, _, _ in of_kinds:
        profile, link = out / f"{model}-{kind}.json", out / f"{model}-{kind}-link.json"
        shown = deeppool(
            command, "profile", "--model", model, "--engine", "cpu", "--ranks", RANKS,
            "--batches", shards, "-o", profile, "--link-output", link, launch=kind == "processes")
        (out / f"{model}-{kind}-profile.txt").write_text(shown)
    for kind, model, batch, _, limit, _, background in of_kinds:
        for mode in MODES:
            plan = out / f"{model}-{kind}-{mode[:2]}.json"
            if mode == "dp":
                search = ["--mode", "dp"]
            else:
                search = ["--amplification", limit]
            if mode in ("dp", "bp"):
                size = ["--gpus", RANKS, "--batch", batch]
                deeppool(command, "plan", *costs(out, model, kind), *size, *search, "-o", plan)
            beside = background if mode.endswith("+col") else None
            options = [*costs(out, model, kind, beside), "--plan", plan, "--json"]
            simulated = json.loads(deeppool(command, "simulate", *options))
            predictions[f"{model} {kind} {mode}"] = {
                "simulated_us": simulated["iteration_us"],
                "planned_us": json.loads(plan.read_text())["iteration_us"],
                "background_samples_per_s": simulated.get("background_samples_per_s", 0.0),
            }
    return predictions


def measure(command, out, rounds):
    runs = []
    with open(out / "runs.csv", "w", newline="") as file:
        columns = ["round", "model", "mode", "ranks", "iteration_us", "background_samples_per_s"]
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for turn in range(rounds):
            for model, _, _, _, iterations, background in JOBS:
                for mode in MODES:
                    for kind in KINDS:
                        beside = background if mode.endswith("+col") else None
                        shown = deeppool(
                            command, "train", *costs(out, model, kind, beside),
                            "--plan", out / f"{model}-{kind}-{mode[:2]}.json", "--data", "synthetic",
                            "--iterations", iterations, "--lr", "0.00001", "--json",
                            launch=kind == "processes")
                        trained = json.loads(shown)
                        runs.append({"round": turn, "model": model, "mode": mode, "ranks": kind,
                                     "iteration_us": trained["iteration_us"]["median"],
                                     "background_samples_per_s": trained["background_samples_per_s"]})
                        writer.writerow(runs[-1])
                        file.flush()
    return runs


def report(arguments, predictions, runs):
    rows = []
    for model, batch, *_ in JOBS:
        for kind in KINDS:
            for mode in MODES:
                key = (model, mode, kind)
                of = [run for run in runs if (run["model"], run["mode"], run["ranks"]) == key]
                times = [run["iteration_us"] for run in of]
                median = statistics.median(times)
                several = times if len(times) > 1 else times * 2
                quarters = statistics.quantiles(several, n=4, method="inclusive")
                predicted = predictions[f"{model} {kind} {mode}"]
                measured_rate = statistics.median(run["background_samples_per_s"] for run in of)
                rate = predicted["background_samples_per_s"]
                error = predicted["simulated_us"] - median
                rows.append({
                    "model": model, "batch": batch, "ranks": kind, "mode": mode,
                    "planned_us": predicted["planned_us"] if mode in ("dp", "bp") else "",
                    "simulated_us": predicted["simulated_us"], "measured_us": median,
                    "quartile_1_us": quarters[0], "quartile_3_us": quarters[2],
                    "simulated_over_measured": predicted["simulated_us"] / median,
                    "holds": abs(error) <= 0.1 * median + (quarters[2] - quarters[0]) / 2,
                    "background_simulated": rate, "background_measured": measured_rate,
                    "background_holds": abs(rate - measured_rate) <= 0.25 * measured_rate,
                })
    with open(arguments.out / "results.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    commit = head.stdout.strip()
    lines = [
        "$ " + shlex.join(["benchmarks/this-machine.py", *sys.argv[1:]]),
        f"commit: {commit}, release; machine: {processor()}",
        "times in ms an iteration: the median and the quartiles of the runs, a run being the median",
        "of its iterations",
        "",
        f"{'network':<12}{'ranks':<11}{'mode':<8}{'planned':>9}{'simulated':>11}{'measured':>10}"
        f"{'quartiles':>20}{'sim/meas':>10}{'holds':>7}{'BG simulated':>14}{'BG measured':>13}{'holds':>7}",
    ]
    for row in rows:
        ms = lambda us: f"{us / 1e3:.1f}" if us != "" else "-"
        beside = row["mode"].endswith("+col")
        lines.append(
            f"{row['model']:<12}{row['ranks']:<11}{row['mode']:<8}{ms(row['planned_us']):>9}"
            f"{ms(row['simulated_us']):>11}{ms(row['measured_us']):>10}"
            f"{ms(row['quartile_1_us']) + ' to ' + ms(row['quartile_3_us']):>20}"
            f"{row['simulated_over_measured']:>10.3f}{'yes' if row['holds'] else 'NO':>7}"
            + (f"{row['background_simulated']:>14.1f}{row['background_measured']:>13.1f}"
               f"{'yes' if row['background_holds'] else 'NO':>7}"
               if beside else f"{'-':>14}{'-':>13}{'-':>7}"))
    lines.append("")
    of = {(row["model"], row["ranks"], row["mode"]): row for row in rows}
    for model, *_ in JOBS:
        for kind in KINDS:
            for beside in ("", "+col"):
                dp, bp = of[model, kind, "dp" + beside], of[model, kind, "bp" + beside]
                measured, simulated = (dp[by] / bp[by] for by in ("measured_us", "simulated_us"))
                close = max(measured, 1 / measured) <= 1.1
                agrees = (measured > 1) == (simulated > 1)
                verdict = "too close" if close else "ranked rightly" if agrees else "WRONG"
                lines.append(f"DP over BP, {model}, {kind}{beside}: measured {measured:.2f}, "
                             f"simulated {simulated:.2f}: {verdict}")
    lines.append(f"iterations that hold: {sum(row['holds'] for row in rows)} of {len(rows)}")
    (arguments.out / "results.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':')[1].strip()}, {platform.machine()}"
    return platform.machine()


main()
