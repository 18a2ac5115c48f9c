#!/usr/bin/env python3
"""Runs all commands on generated wrong inputs, and reports those that misbehave.

    tests/wrong-inputs.py [--bin target/debug] [--cases 500] [--seed 0] [--only N]

Files are truncated, mutated, missing or special; numbers are edge cases. A command must not panic, abort, run
longer than 10 s, use more than 2 GiB, print more than three lines of errors, replace a special file, or exit
with a code other than 0, 1 or 2. Needs only Python 3.11.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 10
BYTES = 2 << 30
LINES = 3

ROOT = Path(__file__).resolve().parent.parent
NETWORK = ROOT / "crates/deeppool-cli/tests/data/small.onnx"

NUMBERS = [
    "0",
    "-1",
    "1",
    "2",
    "3",
    "-0",
    "0.5",
    "1e-320",
    "1e308",
    "-1e308",
    "1e999",
    "nan",
    "inf",
    "-inf",
    "65536",
    "1048576",
    "1048577",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999",
    "",
    " ",
    "1,",
    ",",
    "1,2",
    "0x10",
    "1_000",
    "two",
    "٣",
    "1e3",
    "+1",
]
WORDS = [
    "",
    " ",
    "-",
    "--",
    "vgg",
    "VGG-16",
    "none",
    "../..",
    "a" * 5000,
    "\u200b",
    "vgg16:",
    ":8",
    "vgg16:0",
    "vgg16:-1",
    "vgg16:99999999999",
    "vgg16:1048576",
    "ü",
    "a\nb",
    "%s%n",
    "$(id)",
    "nul",
    "/dev/zero/x",
]

# Valid commands, whose options and files are mutated. {name} is a file.
COMMANDS = [
    ["deeppool", "models"],
    ["deeppool", "models", "--onnx", "{net.onnx}"],
    [
        "deeppool",
        "profile",
        "--model",
        "digits-cnn",
        "--engine",
        "cpu",
        "--batches",
        "1,2",
        "--threads",
        "1",
        "--repeats",
        "10",
        "-o",
        "{out}",
    ],
    ["deeppool", "profile", "--model", "vgg16", "--device", "a100", "--batches", "1,2,4", "-o", "{out}"],
    [
        "deeppool",
        "profile",
        "--onnx",
        "{net.onnx}",
        "--device",
        "{device.json}",
        "--batches",
        "1",
        "-o",
        "{out}",
    ],
    ["deeppool", "fit", "--profile", "{profile.json}", "--name", "mine", "-o", "{out}"],
    [
        "deeppool",
        "import-profile",
        "--onnx",
        "{net.onnx}",
        "--from",
        "{times.prof}",
        "--device",
        "a100",
        "-o",
        "{out}",
    ],
    [
        "deeppool",
        "plan",
        "--model",
        "digits-cnn",
        "--device",
        "a100",
        "--gpus",
        "4",
        "--batch",
        "16",
        "--amplification",
        "2",
        "-o",
        "{out}",
    ],
    [
        "deeppool",
        "plan",
        "--model",
        "digits-cnn",
        "--profile",
        "{profile.json}",
        "--link",
        "{link.json}",
        "--gpus",
        "2",
        "--batch",
        "8",
    ],
    [
        "deeppool",
        "plan",
        "--model",
        "digits-cnn",
        "--device",
        "a100",
        "--gpus",
        "4",
        "--batch",
        "16",
        "--memory",
        "1GB",
        "--gpu-counts",
        "1,2",
        "--deadline",
        "5ms",
        "--dot",
        "{out}",
    ],
    [
        "deeppool",
        "plan",
        "--model",
        "digits-cnn",
        "--device",
        "a100",
        "--gpus",
        "4",
        "--batch",
        "16",
        "--compare",
        "--background",
        "digits-cnn:8",
        "--svg",
        "{out}",
    ],
    [
        "deeppool",
        "plan",
        "--model",
        "digits-cnn",
        "--device",
        "a100",
        "--gpus",
        "4",
        "--batch",
        "16",
        "--objective",
        "total",
        "--foreground",
        "0.9",
    ],
    [
        "deeppool",
        "plan",
        "--model",
        "digits-cnn",
        "--device",
        "cpu-core",
        "--gpus",
        "4",
        "--to-accuracy",
        "{curve.json}",
        "--batches",
        "32,64",
        "--within",
        "1",
        "--amplification",
        "1.5",
        "-o",
        "{out}",
    ],
    ["deeppool", "plan", "--problem", "{problem.json}", "--amplification", "2", "--pareto", "-o", "{out}"],
    [
        "deeppool",
        "simulate",
        "--model",
        "digits-cnn",
        "--plan",
        "{plan.json}",
        "--iterations",
        "4",
        "--trace",
        "{out}",
    ],
    [
        "deeppool",
        "simulate",
        "--model",
        "digits-cnn",
        "--device",
        "a100",
        "--gpus",
        "2",
        "--batch",
        "8",
        "--background",
        "digits-cnn:8",
        "--policy",
        "default",
        "--rank",
        "1",
        "--workload",
        "{out}",
    ],
    [
        "deeppool",
        "train",
        "--model",
        "digits-cnn",
        "--data",
        "digits",
        "--ranks",
        "2",
        "--batch",
        "32",
        "--iterations",
        "2",
        "--trace",
        "{out}",
        "--lr",
        "0.1",
        "--momentum",
        "0.9",
        "--weight-decay",
        "0.1",
        "--clip-norm",
        "1",
        "--seed",
        "1",
    ],
    [
        "deeppool",
        "train",
        "--model",
        "digits-cnn",
        "--data",
        "digits",
        "--plan",
        "{plan.json}",
        "--iterations",
        "2",
    ],
    [
        "deeppool",
        "train",
        "--onnx",
        "{net.onnx}",
        "--data",
        "synthetic:3",
        "--ranks",
        "2",
        "--batch",
        "8",
        "--iterations",
        "2",
        "--threads-per-rank",
        "1",
        "--background",
        "digits-cnn:8",
    ],
    [
        "deeppool",
        "train",
        "--model",
        "digits-cnn",
        "--data",
        "digits",
        "--ranks",
        "2",
        "--batch",
        "32",
        "--iterations",
        "30",
        "--checkpoint",
        "{run}",
        "--resume",
        "--checkpoint-every",
        "5",
        "--checkpoint-best",
        "--metrics",
        "{out}",
    ],
    [
        "deeppool",
        "train",
        "--model",
        "digits-cnn",
        "--data",
        "digits",
        "--ranks",
        "2",
        "--batch",
        "32",
        "--iterations",
        "2",
        "--init",
        "{weights.safetensors}",
        "--timeout",
        "60",
    ],
    [
        "deeppool",
        "epochs",
        "--model",
        "digits-cnn",
        "--data",
        "digits",
        "--batches",
        "32,256",
        "--seeds",
        "1",
        "--target",
        "0.2",
        "--epochs",
        "2",
        "--lr",
        "0.03",
        "--lr-scaling",
        "sqrt",
        "--momentum",
        "0.9",
        "--threads",
        "1",
        "-o",
        "{out}",
    ],
    [
        "deeppool",
        "eval",
        "--model",
        "digits-cnn",
        "--data",
        "digits",
        "--weights",
        "{weights.safetensors}",
        "--batch",
        "32",
    ],
    ["deeppool", "eval", "--model", "digits-cnn", "--data", "digits", "--checkpoint", "{run}"],
    ["deeppool", "lower", "--model", "digits-cnn", "--plan", "{plan.json}", "--rank", "1", "-o", "{out}"],
    ["deeppool", "export", "--model", "digits-cnn", "--checkpoint", "{run}", "-o", "{out}"],
    ["deeppool", "export", "--onnx", "{net.onnx}", "--seed", "3", "-o", "{out}"],
    ["deeppool", "launch", "--ranks", "2", "--restarts", "0", "--", "train", "--model", "digits-cnn"],
    [
        "deeppool",
        "slurm",
        "--plan",
        "{plan.json}",
        "--nodes",
        "2",
        "--time",
        "1:00:00",
        "--warning",
        "60",
        "--job-name",
        "x",
        "--shared-tmp",
        "-o",
        "{out}",
        "--",
        "train",
        "--model",
        "digits-cnn",
        "--data",
        "digits",
        "--checkpoint",
        "{run}",
    ],
    [
        "deeppool",
        "train",
        "--model",
        "digits-cnn",
        "--data",
        "mnist:{mnist}",
        "--ranks",
        "2",
        "--batch",
        "32",
        "--iterations",
        "2",
    ],
    ["experiments", "layers", "--model", "digits-cnn", "--batch", "8", "--gpus", "4", "--out", "{folder}"],
    [
        "experiments",
        "throughput",
        "--profile",
        "{profile.json}",
        "--link",
        "{link.json}",
        "--batch",
        "8",
        "--gpus",
        "2",
        "--amplification",
        "2",
        "--background-batch",
        "4",
        "--out",
        "{folder}",
    ],
    [
        "experiments",
        "partition",
        "--onnx",
        "{net.onnx}",
        "--batch",
        "8",
        "--gpus",
        "2",
        "--policy",
        "default",
        "--out",
        "{folder}",
    ],
    [
        "experiments",
        "plans",
        "--model",
        "digits-cnn",
        "--batch",
        "8",
        "--device",
        "{device.json}",
        "--link",
        "dgx-a100",
        "--out",
        "{folder}",
    ],
    ["experiments", "throughput", "--sweep", "{sweep.toml}", "--out", "{folder}"],
    ["experiments", "scale", "--model", "digits-cnn", "--batch", "8", "--gpus", "2", "--out", "{folder}"],
    [
        "experiments",
        "validate",
        "--quick",
        "--runs",
        "2",
        "--iterations",
        "2",
        "--ranks",
        "99",
        "--with",
        "{rows.csv}",
        "--out",
        "{folder}",
    ],
    [
        "mux-bench",
        "--workload",
        "{workload.json}",
        "--policy",
        "default",
        "--iterations",
        "3",
        "--parameters",
        "{parameters.json}",
        "--out",
        "{out}",
    ],
    ["mux-bench", "fit", "{measured.json}", "--out", "{out}"],
    [
        "coll-bench",
        "--ranks",
        "2",
        "--sizes",
        "4KiB",
        "--op",
        "all-reduce",
        "--rounds",
        "1",
        "--samples",
        "1",
        "--min-time",
        "1ms",
        "--wait",
        "park",
        "-o",
        "{out}",
    ],
    ["coll-bench", "fit", "{coll.json}", "--name", "mine", "-o", "{out}"],
]


def good_files(run, folder):
    """Creates a valid file of each kind, most of them by the commands."""
    shutil.copy(NETWORK, folder / "net.onnx")
    make = lambda *words: run(folder, [*words], check=True)
    make(
        "deeppool",
        "profile",
        "--model",
        "digits-cnn",
        "--device",
        "a100",
        "--batches",
        "1,2,4,8,16,32",
        "-o",
        "profile.json",
    )
    profile = json.loads((folder / "profile.json").read_text())
    profile["origin"] = "measured"
    profile.pop("accuracy", None)
    (folder / "profile.json").write_text(json.dumps(profile, indent=1))
    make("deeppool", "fit", "--profile", "profile.json", "--name", "mine", "-o", "device.json")
    make(
        "deeppool",
        "plan",
        "--model",
        "digits-cnn",
        "--device",
        "a100",
        "--gpus",
        "2",
        "--batch",
        "32",
        "-o",
        "plan.json",
    )
    make(
        "deeppool",
        "simulate",
        "--model",
        "digits-cnn",
        "--device",
        "a100",
        "--gpus",
        "2",
        "--batch",
        "8",
        "--background",
        "digits-cnn:8",
        "--rank",
        "1",
        "--workload",
        "workload.json",
    )
    make(
        "deeppool",
        "train",
        "--model",
        "digits-cnn",
        "--data",
        "digits",
        "--ranks",
        "2",
        "--batch",
        "32",
        "--iterations",
        "6",
        "--checkpoint",
        "run",
    )
    make(
        "deeppool",
        "epochs",
        "--model",
        "digits-cnn",
        "--data",
        "digits",
        "--batches",
        "32,128",
        "--seeds",
        "1",
        "--target",
        "0.3",
        "-o",
        "curve.json",
    )
    make("deeppool", "export", "--model", "digits-cnn", "--checkpoint", "run", "-o", "weights.safetensors")
    make(
        "coll-bench",
        "--ranks",
        "2,3",
        "--sizes",
        "4KiB,64KiB",
        "--rounds",
        "1",
        "--samples",
        "1",
        "--min-time",
        "1ms",
        "--wait",
        "park",
        "--backend",
        "threads",
        "-o",
        "coll.json",
    )
    make("coll-bench", "fit", "coll.json", "--name", "mine", "-o", "link.json")
    make("mux-bench", "--iterations", "2", "--policy", "default", "--out", "measured.json")
    (folder / "parameters.json").write_text("{}")
    times = [("conv2d", 80), ("ReLU2d", 40), ("adAvgPool2d", 20), ("flatten", 5), ("linear", 13)]
    (folder / "times.prof").write_text("".join(f"{kind}{{}}[8][1,8,8] 0.1 {us} 1\n" for kind, us in times))
    (folder / "sweep.toml").write_text(
        'model = "digits-cnn"\nbatch = [8, 16]\n[[points]]\ngpus = 2\n[[points]]\ngpus = 4\n'
    )
    (folder / "rows.csv").write_text("machine,cores\nx,1\n")
    options = [
        {"gpus": 1, "forward_us": 4.0, "backward_us": 6.0},
        {"gpus": 2, "forward_us": 2.0, "backward_us": 4.0},
    ]
    problem = {
        "schema": "deeppool/plan-problem/v2",
        "gpus": 2,
        "nodes": [{"name": "fc", "gradient_bytes": 4, "options": options}],
        "edges": [],
        "all_reduce": [{"gpus": 2, "startup_us": 1.0, "us_per_byte": 0.0}],
    }
    (folder / "problem.json").write_text(json.dumps(problem))
    mnist = folder / "mnist"
    mnist.mkdir()
    for name, magic in [
        ("train-images-idx3-ubyte", 3),
        ("t10k-images-idx3-ubyte", 3),
        ("train-labels-idx1-ubyte", 1),
        ("t10k-labels-idx1-ubyte", 1),
    ]:
        shape = [64, 8, 8][:magic]
        size = 64 * (64 if magic == 3 else 1)
        header = bytes([0, 0, 8, magic]) + b"".join(count.to_bytes(4, "big") for count in shape)
        (mnist / name).write_bytes(header + bytes(i % 10 for i in range(size)))


def mutate(rng, content):
    """Returns a mutation of a valid file's content."""
    data = bytearray(content)
    kind = rng.choice(
        [
            "cut",
            "cut",
            "flip",
            "flip",
            "number",
            "number",
            "number",
            "delete",
            "repeat",
            "empty",
            "junk",
            "nested",
        ]
    )
    if kind == "cut":
        return bytes(data[: rng.randrange(len(data) + 1)])
    if kind == "flip":
        for _ in range(rng.choice([1, 1, 4, 64])):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)
    if kind == "number":
        text = content.decode("latin-1")
        spans = [match.span() for match in re.finditer(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", text)]
        for start, end in sorted(rng.sample(spans, min(len(spans), rng.choice([1, 1, 3]))), reverse=True):
            text = text[:start] + rng.choice(NUMBERS) + text[end:]
        return text.encode("utf-8")
    if kind == "delete" and data:
        start = rng.randrange(len(data))
        del data[start : start + rng.randrange(1, 200)]
        return bytes(data)
    if kind == "repeat" and data:
        start = rng.randrange(len(data))
        return bytes(data[:start] + data[start : start + 300] * rng.choice([2, 50]) + data[start:])
    if kind == "junk":
        return rng.randbytes(rng.choice([1, 100, 100_000]))
    if kind == "nested":
        return b"[" * 100_000
    return b""


def wrong_folder(rng, path):
    """Mutates, deletes or adds a file of a folder."""
    files = [file for file in path.rglob("*") if file.is_file()]
    file = rng.choice(files)
    choice = rng.randrange(4)
    if choice == 0:
        file.unlink()
    elif choice == 1 and len(files) > 1:
        shutil.copy(rng.choice(files), path / "more")
    else:
        file.write_bytes(mutate(rng, file.read_bytes()))


def make_case(rng, folder):
    """Creates a wrong command with its files, and returns its words."""
    template = rng.choice(COMMANDS)
    files = [word for word in template if "{" in word and not word.startswith(("{out", "{folder"))]
    values = [
        i for i, word in enumerate(template) if i > 1 and template[i - 1].startswith("-") and "{" not in word
    ]
    outputs = [word for word in template if word in ("{out}", "{folder}")]
    wrong = rng.choice(
        (["file"] * 4 if files else [])
        + (["value"] * 4 if values else [])
        + (["output"] if outputs else [])
        + ["words"]
    )
    words = list(template)
    out = "result"
    if wrong == "value":
        for i in rng.sample(values, min(len(values), rng.choice([1, 1, 2]))):
            numeric = re.fullmatch(r"[\d.,]+([a-zA-Z]*)", template[i])
            pool = NUMBERS + WORDS if not numeric else NUMBERS * 3 + WORDS
            # Training and measuring for many iterations is valid, but takes too long.
            if (
                "cpu" in words
                or "epochs" in words
                or words[0] == "coll-bench"
                or "validate" in words
                or words[i - 1] == "--iterations"
            ):
                pool = [value for value in pool if not value.strip("+").isdecimal() or len(value) < 5]
            words[i] = rng.choice(pool) + (numeric.group(1) if numeric and rng.random() < 0.5 else "")
    elif wrong == "words":
        i = rng.randrange(1, len(words))
        choice = rng.randrange(4)
        if choice == 0:
            del words[i]
        elif choice == 1:
            words.insert(i, words[rng.randrange(1, len(words))])
        elif choice == 2:
            words.append(
                rng.choice(
                    [
                        "--nonsense",
                        "--json",
                        "--gpus",
                        "-1",
                        "x",
                        "--help",
                        "--mode",
                        "--mode=dp",
                        "--onnx=/dev/null",
                    ]
                )
            )
        else:
            words[i] = rng.choice(WORDS)
    elif wrong == "output":
        out = rng.choice(
            [
                "/dev/null",
                "/dev/full",
                "-",
                "/dev/stdout",
                ".",
                "missing/file",
                "link",
                "dangling",
                "pipe",
                "x" * 300,
                "",
            ]
        )
    special = rng.choice(files) if wrong == "file" and rng.random() < 0.3 else None
    for i, word in enumerate(words):
        for name in re.findall(r"\{([^}]*)\}", word):
            if name in ("out", "folder"):
                path = out
            else:
                path = name
                if word == special:
                    path = rng.choice(
                        [
                            "none",
                            ".",
                            "/dev/null",
                            "/dev/full",
                            "/",
                            "/proc/self/mem",
                            "dangling",
                            "\x01",
                            "net.onnx",
                            "plan.json",
                        ]
                    )
                elif wrong == "file":
                    target = folder / name
                    wrong_folder(rng, target) if target.is_dir() else target.write_bytes(
                        mutate(rng, target.read_bytes())
                    )
            words[i] = words[i].replace("{" + name + "}", path)
    return [word.replace("\0", "") for word in words]


def kind(path):
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bin", default=ROOT / "target/debug", type=Path)
    parser.add_argument("--cases", default=500, type=int)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()

    def run(folder, words, check=False):
        begin = time.monotonic()
        with open(folder / ".stdout", "wb") as stdout, open(folder / ".stderr", "wb") as stderr:
            process = subprocess.Popen(
                [options.bin.resolve() / words[0], *words[1:]],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            peak = 0
            while process.poll() is None:
                try:
                    status = Path(f"/proc/{process.pid}/status").read_text()
                    peak = max(
                        peak,
                        *(
                            int(line.split()[1]) << 10
                            for line in status.splitlines()
                            if line.startswith("VmHWM")
                        ),
                        0,
                    )
                except (OSError, ValueError):
                    pass
                if time.monotonic() - begin > SECONDS or peak > BYTES:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    break
                time.sleep(0.002)
        seconds = time.monotonic() - begin
        errors = (folder / ".stderr").read_text(errors="replace")
        if check and process.returncode:
            sys.exit(f"{' '.join(words)}: {errors}")
        return process.returncode, errors, seconds, peak

    with tempfile.TemporaryDirectory() as made:
        made = Path(made)
        good_files(run, made)
        counts, bad = {0: 0, 1: 0, 2: 0}, 0
        slowest = (0.0, [])
        for case in range(options.cases):
            if options.only is not None and case != options.only:
                continue
            rng = random.Random(f"{options.seed} {case}")
            with tempfile.TemporaryDirectory() as folder:
                folder = Path(folder)
                shutil.copytree(made, folder, dirs_exist_ok=True)
                os.symlink("plan.json", folder / "link")
                os.symlink("missing", folder / "dangling")
                os.mkfifo(folder / "pipe")
                # Open the reader before the command opens the pipe for writing.
                reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
                words = make_case(rng, folder)
                watched = [
                    "/dev/null",
                    "/dev/full",
                    "/dev/stdout",
                    folder / "link",
                    folder / "dangling",
                    folder / "pipe",
                ]
                kinds = [kind(path) for path in watched]
                code, errors, seconds, peak = run(folder, words)
                os.close(reader)
                problems = []
                if code not in (0, 1, 2):
                    problems.append(f"exit code {code}")
                if "panicked" in errors or "RUST_BACKTRACE" in errors:
                    problems.append("panic")
                if len([line for line in errors.splitlines() if line.strip()]) > LINES and code != 0:
                    problems.append(f"{len(errors.splitlines())} lines of errors")
                if seconds > SECONDS:
                    problems.append(f"{seconds:.0f} s")
                if peak > BYTES:
                    problems.append(f"{peak >> 20} MiB")
                if kinds != [kind(path) for path in watched]:
                    problems.append("a special file was replaced")
                counts[code] = counts.get(code, 0) + 1
                slowest = max(slowest, (seconds, words))
                if problems or options.only is not None:
                    bad += bool(problems)
                    shown = " ".join(
                        repr(word) if not re.fullmatch(r"[\w./:=,-]+", word) else word for word in words
                    )
                    print(
                        f"case {case}: {', '.join(problems) or 'fine'}: {shown[:400]}\n"
                        f"    {errors.strip()[:600]}",
                        flush=True,
                    )
    print(
        f"{sum(counts.values())} wrong inputs: {bad} misbehave; exit codes {counts}; the slowest took "
        f"{slowest[0]:.1f} s: {' '.join(slowest[1])[:200]}"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
