#!/usr/bin/env python3
"""Runs all commands on generated wrong inputs, and reports those that misbehave.

    tests/wrong-inputs.py [--bin target/debug] [--cases 500] [--seed 0] [--only N] [--seconds 10]

Files are truncated, mutated, missing or special; numbers are edge cases, extreme or in another unit;
variables are those of launchers that cannot be connected. A command must not

- panic, abort, run longer than 10 s, or use more than 2 GiB;
- exit with a code other than 0, 1 or 2, or print more than three lines of errors;
- succeed with a number in its output that is not finite, or on a JSON file with text after it;
- replace a special file, or fail and leave a result, a temporary file or a changed input.

Needs only Python 3.11.
"""

import argparse
import fcntl
import gzip
import json
import os
import random
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

BYTES = 2 << 30
LINES = 3

ROOT = Path(__file__).resolve().parent.parent
NETWORK = ROOT / "crates/deeppool-cli/tests/data/small.onnx"

# Finite numbers at which arithmetic overflows, underflows or rounds.
EXTREMES = """
    1e308 -1e308 1.7976931348623157e308 1e-308 5e-324 -5e-324 1e18 -1e18 1e12 1e-12 1e30 -0.0
    9007199254740993 2147483648 4294967296 9223372036854775807 18446744073709551615
""".split()
# Errors of units, such as GB/s for B/s, or s for us.
FACTORS = [1e3, 1e-3, 1e6, 1e-6, 1e9, 1e-9, 1e12, 1e-12]
NUMBERS = [
    *EXTREMES,
    *"0 -1 1 2 3 -0 0.5 1e-320 1e999 nan inf -inf 1e3 +1 1, , 1,2 0x10 1_000 two ٣".split(),
    *"65536 1048576 1048577 4294967295 9223372036854775808 18446744073709551616 1".split(),
    "9" * 23,
    "",
    " ",
]
WORDS = [
    *"- -- vgg VGG-16 none ../.. vgg16: :8 vgg16:0 vgg16:-1 vgg16:99999999999 vgg16:1048576 ü".split(),
    *"%s%n $(id) nul /dev/zero/x --nonsense".split(),
    "",
    " ",
    "a" * 5000,
    "\u200b",
    "a\nb",
]
EXTRA_WORDS = "--nonsense --json --gpus -1 x --help --mode --mode=dp --onnx=/dev/null".split()
SPECIAL_INPUTS = "none . /dev/null /dev/full / /proc/self/mem dangling \x01 net.onnx plan.json".split()
SPECIAL_OUTPUTS = "/dev/null /dev/full - /dev/stdout . missing/file link dangling pipe".split()
SPECIAL_OUTPUTS += ["x" * 300, ""]

# Variables of each launcher, by the role of their value.
LAUNCHERS = [
    {"PMI_RANK": "rank", "PMI_SIZE": "size"},
    {"PMI_RANK": "rank", "PMI_SIZE": "size", "MPI_LOCALRANKID": "rank", "MPI_LOCALNRANKS": "size"},
    {"PMIX_RANK": "rank"},
    {"PMIX_RANK": "rank", "SLURM_STEP_NUM_TASKS": "size", "SLURM_STEP_TASKS_PER_NODE": "size"},
    {"SLURM_PROCID": "rank", "SLURM_NTASKS": "size", "SLURM_LOCALID": "rank"},
    {"FLUX_TASK_RANK": "rank", "FLUX_JOB_SIZE": "size"},
    {"PALS_RANKID": "rank", "PALS_SIZE": "size"},
    {"MV2_COMM_WORLD_RANK": "rank", "MV2_COMM_WORLD_SIZE": "size"},
    {"JSM_NAMESPACE_RANK": "rank", "JSM_NAMESPACE_SIZE": "size"},
    {"HOROVOD_RANK": "rank", "HOROVOD_SIZE": "size"},
    {"ALPS_APP_PE": "rank"},
    {
        "OMPI_COMM_WORLD_RANK": "rank",
        "OMPI_COMM_WORLD_SIZE": "size",
        "OMPI_COMM_WORLD_LOCAL_RANK": "rank",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "size",
    },
    {"RANK": "rank", "WORLD_SIZE": "size"},
    {
        "RANK": "rank",
        "WORLD_SIZE": "size",
        "LOCAL_RANK": "rank",
        "LOCAL_WORLD_SIZE": "size",
        "MASTER_ADDR": "host",
        "MASTER_PORT": "port",
    },
]
ROLES = {
    "rank": ["0", "0", "1", "3"],
    "size": ["1", "2", "4", "4(x2),3"],
    "host": ["127.0.0.1", "localhost", "no-such-host.invalid", ""],
    "port": ["29500", "1", "0", "65536", "-1"],
}
# "\udcff" is a byte that is not UTF-8.
SENSELESS = [*NUMBERS, "x", "4(x", "(x2)", "\udcff", "\n", "1" * 5000]
OVERRIDES = ["none", "NONE", "", "mpich", "0", "\udcff", "none\n"]

# Folders among the files of a case.
INPUT_FOLDERS = ["run", "mnist", "traces"]

# A number in a printed or written text that is not finite. Units may follow.
NOT_FINITE = re.compile(r"(?<![A-Za-z_./-])-?(NaN|nan|inf|Infinity)(x|%|s|ms|us|ns)?(?![A-Za-z_(-])")
NUMBER = re.compile(r"(?<![\w.])-?\d+(\.\d+)?([eE][-+]?\d+)?(?![\w.])")

# Valid commands, whose options and files are mutated. {name} is a file.
COMMANDS = """
deeppool models
deeppool models --onnx {net.onnx}
deeppool models --graph {graph.json} --json
deeppool models --hf {llama.json} --sequence 16 --json
deeppool profile --model digits-cnn --engine cpu --batches 1,2 --threads 1 --repeats 10 -o {out}
deeppool profile --model vgg16 --device a100 --batches 1,2,4 -o {out}
deeppool profile --onnx {net.onnx} --device {device.json} --batches 1 -o {out}
deeppool fit --profile {profile.json} --name mine -o {out}
deeppool import-profile --onnx {net.onnx} --from {times.prof} --device a100 -o {out}
deeppool profile --graph {graph.json} --kineto {kineto.json} --batches 4 --device a100 -o {out}
deeppool compare-trace --graph {graph.json} --kineto {kineto.json} --device {device.json} --batch 4
deeppool plan --model digits-cnn --device a100 --gpus 4 --batch 16 --amplification 2 -o {out}
deeppool plan --model digits-cnn --profile {profile.json} --link {link.json} --gpus 2 --batch 8
deeppool plan --model digits-cnn --device a100 --gpus 4 --batch 16 --memory 1GB --gpu-counts 1,2 \
    --deadline 5ms --dot {out}
deeppool plan --model digits-cnn --device a100 --gpus 4 --batch 16 --compare --background digits-cnn:8 \
    --svg {out}
deeppool plan --model digits-cnn --device a100 --gpus 4 --batch 16 --objective total --foreground 0.9
deeppool plan --model digits-cnn --device cpu-core --gpus 4 --to-accuracy {curve.json} --batches 32,64 \
    --within 1 --amplification 1.5 -o {out}
deeppool plan --hf {gpt2.json} --sequence 16 --device {device.json} --gpus 4 --batch 16 --json
deeppool plan --graph {graph.json} --device {device.json} --link {link.json} --gpus 4 --batch 16 --json
deeppool plan --problem {problem.json} --amplification 2 --pareto -o {out}
deeppool simulate --model digits-cnn --plan {plan.json} --iterations 4 --trace {out}
deeppool simulate --model digits-cnn --device a100 --gpus 2 --batch 8 --background digits-cnn:8 --policy \
    default --rank 1 --workload {out}
deeppool train --model digits-cnn --data digits --ranks 2 --batch 32 --iterations 2 --trace {out} --lr \
    0.1 --momentum 0.9 --weight-decay 0.1 --clip-norm 1 --seed 1
deeppool train --model digits-cnn --data digits --plan {plan.json} --iterations 2
deeppool train --onnx {net.onnx} --data synthetic:3 --ranks 2 --batch 8 --iterations 2 \
    --threads-per-rank 1 --background digits-cnn:8
deeppool train --model digits-cnn --data digits --ranks 2 --batch 32 --iterations 30 --checkpoint {run} \
    --resume --checkpoint-every 5 --checkpoint-best --metrics {out}
deeppool train --model digits-cnn --data digits --ranks 2 --batch 32 --iterations 2 --init \
    {weights.safetensors} --timeout 60
deeppool epochs --model digits-cnn --data digits --batches 32,256 --seeds 1 --target 0.2 --epochs 2 --lr \
    0.03 --lr-scaling sqrt --momentum 0.9 --threads 1 -o {out}
deeppool eval --model digits-cnn --data digits --weights {weights.safetensors} --batch 32
deeppool eval --model digits-cnn --data digits --checkpoint {run}
deeppool lower --model digits-cnn --plan {plan.json} --rank 1 -o {out}
deeppool export --model digits-cnn --checkpoint {run} -o {out}
deeppool export --onnx {net.onnx} --seed 3 -o {out}
deeppool launch --ranks 2 --restarts 0 -- train --model digits-cnn
deeppool slurm --plan {plan.json} --nodes 2 --time 1:00:00 --warning 60 --job-name x --shared-tmp -o \
    {out} -- train --model digits-cnn --data digits --checkpoint {run}
deeppool train --model digits-cnn --data mnist:{mnist} --ranks 2 --batch 32 --iterations 2
experiments layers --model digits-cnn --batch 8 --gpus 4 --out {folder}
experiments throughput --profile {profile.json} --link {link.json} --batch 8 --gpus 2 --amplification 2 \
    --background-batch 4 --out {folder}
experiments partition --onnx {net.onnx} --batch 8 --gpus 2 --policy default --out {folder}
experiments plans --model digits-cnn --batch 8 --device {device.json} --link dgx-a100 --out {folder}
experiments throughput --sweep {sweep.toml} --out {folder}
experiments scale --model digits-cnn --batch 8 --gpus 2 --out {folder}
experiments validate --quick --runs 2 --iterations 2 --ranks 99 --with {rows.csv} --out {folder}
experiments jigsaw --gpus 8 --jobs 10 --seeds 1 --loads 0.7 --skip-philly 1000 --traces {traces} \
    --out {folder}
mux-bench --workload {workload.json} --policy default --iterations 3 --parameters {parameters.json} \
    --out {out}
mux-bench fit {measured.json} --out {out}
coll-bench --ranks 2 --sizes 4KiB --op all-reduce --rounds 1 --samples 1 --min-time 1ms --wait park -o \
    {out}
coll-bench fit {coll.json} --name mine -o {out}
"""
COMMANDS = [shlex.split(line) for line in COMMANDS.strip().splitlines()]

# Commands that make a valid file of each kind.
FILES = """
deeppool profile --model digits-cnn --device a100 --batches 1,2,4,8,16,32 -o profile.json
deeppool plan --model digits-cnn --device a100 --gpus 2 --batch 32 -o plan.json
deeppool simulate --model digits-cnn --device a100 --gpus 2 --batch 8 --background digits-cnn:8 --rank 1 \
    --workload workload.json
deeppool train --model digits-cnn --data digits --ranks 2 --batch 32 --iterations 6 --checkpoint run
deeppool epochs --model digits-cnn --data digits --batches 32,128 --seeds 1 --target 0.3 -o curve.json
deeppool export --model digits-cnn --checkpoint run -o weights.safetensors
coll-bench --ranks 2,3 --sizes 4KiB,64KiB --rounds 1 --samples 1 --min-time 1ms --wait park \
    --backend threads -o coll.json
mux-bench --iterations 2 --policy default --out measured.json
"""


LLAMA = """{"model_type": "llama", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
 "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "max_position_embeddings": 64,
 "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "pad_token_id": 0}"""

GPT2 = """{"model_type": "gpt2", "vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4,
 "n_positions": 64, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.1}"""

GRAPH = """{"schema": "deeppool/graph/v1", "name": "tiny", "input": [1, 8, 8], "layers": [
 {"name": "conv", "inputs": ["input"], "op": {"conv2d": {"out_channels": 4, "kernel": [3, 3],
  "stride": [1, 1], "padding": [1, 1], "groups": 1, "bias": true}}},
 {"name": "flatten", "inputs": ["conv"], "op": "flatten"},
 {"name": "other", "inputs": ["flatten"], "op": {"opaque": {"op": "LSTM", "output": [16],
  "parameters": [{"name": "w", "dims": [4, 4]}], "saved_bytes": 512,
  "forward": {"flops": 1000, "bytes": 2000, "kernels": 3},
  "backward": {"flops": 2000, "bytes": 3000, "kernels": 5}}}},
 {"name": "fc", "inputs": ["other"], "op": {"linear": {"out_features": 10, "bias": true}}},
 {"name": "loss", "inputs": ["fc"], "op": "softmax_cross_entropy"}]}
"""
# A trace of PyTorch's profiler of an iteration of GRAPH.
KINETO = """{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [
 {"ph": "X", "cat": "user_annotation", "name": "deeppool:", "pid": 1, "tid": 1, "ts": 10.0, "dur": 100.0},
 {"ph": "X", "cat": "cpu_op", "name": "aten::conv2d", "pid": 1, "tid": 1, "ts": 11.0, "dur": 30.0,
  "args": {"External id": 1, "Sequence number": 1, "Input Dims": [[4, 1, 8, 8], [4, 1, 3, 3], [4]]}},
 {"ph": "X", "cat": "cpu_op", "name": "aten::flatten", "pid": 1, "tid": 1, "ts": 50.0, "dur": 2.0},
 {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 1, "tid": 1, "ts": 60.0, "dur": 20.0,
  "args": {"Sequence number": 2}},
 {"ph": "X", "cat": "cpu_op", "name": "autograd::engine::evaluate_function: AddmmBackward0", "pid": 1,
  "tid": 1, "ts": 120.0, "dur": 40.0, "args": {"Sequence number": 2}},
 {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": 1, "tid": 1, "ts": 170.0,
  "dur": 9.0}]}
"""
PARAMETERS = """{"schema": "deeppool/device-parameters/v1", "device": "mine", "parameters": {
 "multiprocessors": 108, "hardware_queues": 8, "launch_time_us": 3, "graph_launch_time_us": 2.5,
 "graph_node_time_us": 0.001, "launch_latency_us": 1.85, "kernel_gap_us": 0.9, "graph_node_gap_us": 0.5,
 "completion_latency_us": 1.85, "communication_share": 0.2, "communication_memory": 0.39}}
"""
# GPUs of each node, and in total.
NODES = [("1", 1), ("2", 2), ("4", 4), ("44", 8), ("4444", 16)]
# The published traces, shortened.
TRACES = {
    "philly_jobs.csv.gz": ["timestamp,duration,num_gpus"]
    + [f"2017-09-04 10:{minute}:41,{60 * minute},{gpus}" for minute in range(10, 60, 3) for gpus in (1, 8)],
    "gavel_msr_seed0.csv.gz": ["vc,arrival_s,model,batch,gpus,steps"]
    + [f"0e4a51,{6 * i},ResNet-18,{16 << i % 2},{1 << i % 3},{1000 * i + 1}" for i in range(30)],
    "gavel_reference_jobs.csv.gz": ["arrival_s,job_type,batch_size,scale_factor,total_steps"]
    + [f"{60 * i}.5,ResNet-18,{16 << i % 2},{1 << i % 3},{1000 * i + 1}" for i in range(30)],
    "gavel_alone.csv": ["gpu_type,model,batch,gpus,steps_per_s"]
    + [f"v100,ResNet-18,{batch},{gpus},{4.5 * gpus}" for batch in (16, 32) for gpus in (1, 2, 4)],
    "gavel_v100_pairs.csv": ["gpus,model_a,batch_a,model_b,batch_b,a_alone,b_alone,a_shared,b_shared"]
    + ["1,ResNet-18,16,ResNet-18,32,32.353,24.093,30.1,20.5"],
    "pollux_step_times.csv.gz": ["model,kind,placement_or_nodes,replicas,local_batch,step_s,sync_s"]
    + [f"bert,placement,{nodes},{gpus},4,0.5{gpus},0.01{gpus}" for nodes, gpus in NODES],
}

def good_files(runner, folder):
    """Creates a valid file of each kind, most of them by the commands."""
    shutil.copy(NETWORK, folder / "net.onnx")
    for line in FILES.strip().splitlines():
        runner.succeed(folder, line)
    profile = json.loads((folder / "profile.json").read_text())
    profile["origin"] = "measured"
    profile.pop("accuracy", None)
    (folder / "profile.json").write_text(json.dumps(profile, indent=1))
    # A link fits to these times, other than to those measured beside other work.
    measured = json.loads((folder / "coll.json").read_text())
    for row in measured["rows"]:
        for time_us in ("time_us", "time_p10_us", "time_p90_us"):
            row[time_us] = 5 * row["ranks"] + row["bytes"] / 1e3
    (folder / "coll.json").write_text(json.dumps(measured, indent=1))
    runner.succeed(folder, "coll-bench fit coll.json --name mine -o link.json")
    runner.succeed(folder, "deeppool fit --profile profile.json --name mine -o device.json")
    (folder / "parameters.json").write_text(PARAMETERS)
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
    (folder / "graph.json").write_text(GRAPH)
    (folder / "kineto.json").write_text(KINETO)
    (folder / "llama.json").write_text(LLAMA)
    (folder / "gpt2.json").write_text(GPT2)
    mnist = folder / "mnist"
    mnist.mkdir()
    for part in ("train", "t10k"):
        for name, shape in [("images-idx3", [64, 8, 8]), ("labels-idx1", [64])]:
            header = bytes([0, 0, 8, len(shape)]) + b"".join(count.to_bytes(4, "big") for count in shape)
            values = bytes(i % 10 for i in range(64 * (64 if len(shape) == 3 else 1)))
            (mnist / f"{part}-{name}-ubyte").write_bytes(header + values)
    traces = folder / "traces"
    traces.mkdir()
    for name, rows in TRACES.items():
        content = "\n".join(rows).encode() + b"\n"
        (traces / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def scaled(number, factor):
    """Returns the text of a number times a factor: an integer where both are."""
    value = float(number) * factor
    return str(round(value)) if number.lstrip("-").isdecimal() and value == round(value) else repr(value)


def mutate_numbers(rng, text, kind):
    """Returns a text with other numbers: edge cases, extremes, or in other units."""
    spans = [match.span() for match in NUMBER.finditer(text)]
    chosen = rng.sample(spans, min(len(spans), rng.choice([1, 1, 3])))
    factor = rng.choice(FACTORS)
    keys = sorted(set(re.findall(r'"(\w+)":\s*-?\d', text)))
    if kind == "unit" and keys and rng.random() < 0.5:
        # All fields of a name, as by a program that writes another unit.
        field = re.compile(rf'(?<="{rng.choice(keys)}":)(\s*){NUMBER.pattern}')
        chosen = [(match.end(1), match.end()) for match in field.finditer(text)]
    for start, end in sorted(chosen, reverse=True):
        pools = {"number": NUMBERS, "extreme": EXTREMES}
        new = scaled(text[start:end], factor) if kind == "unit" else rng.choice(pools[kind])
        text = text[:start] + new + text[end:]
    return text


MUTATIONS = """
    cut cut flip flip number number number extreme extreme unit unit delete repeat empty junk nested trailing
""".split()


def mutate(rng, content):
    """Returns a mutation of a valid file's content, and its kind."""
    data = bytearray(content)
    kind = rng.choice(MUTATIONS)
    if kind == "cut":
        data = data[: rng.randrange(len(data) + 1)]
    elif kind == "flip":
        for _ in range(rng.choice([1, 1, 4, 64])):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind in ("number", "extreme", "unit"):
        text = mutate_numbers(rng, content.decode("latin-1"), kind)
        data = text.encode("latin-1" if text.isascii() or not content.isascii() else "utf-8", "replace")
    elif kind == "delete" and data:
        start = rng.randrange(len(data))
        del data[start : start + rng.randrange(1, 200)]
    elif kind == "repeat" and data:
        start = rng.randrange(len(data))
        data[start:start] = data[start : start + 300] * rng.choice([2, 50])
    elif kind == "junk":
        data = rng.randbytes(rng.choice([1, 100, 100_000]))
    elif kind == "nested":
        data = b"[" * 100_000
    elif kind == "trailing":
        data += rng.choice([b"x", b"{}", b"\n[]\n", b" 1", b"}", b",", b"\0", content])
    else:
        data = b""
    return bytes(data), kind


def wrong_folder(rng, path):
    """Mutates, deletes or adds a file of a folder."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    file = rng.choice(files)
    choice = rng.randrange(5)
    if choice == 0:
        file.unlink()
    elif choice == 1 and len(files) > 1:
        shutil.copy(rng.choice(files), path / "more")
    elif file.suffix == ".gz" and choice > 2:
        file.write_bytes(gzip.compress(mutate(rng, gzip.decompress(file.read_bytes()))[0]))
    else:
        file.write_bytes(mutate(rng, file.read_bytes())[0])


@dataclass
class Case:
    """A wrong command."""

    words: list[str]
    # Variables of the environment, beside those of this process.
    variables: dict[str, str] = field(default_factory=dict)
    # Whether the command must fail.
    is_refused: bool = False

    def __str__(self):
        shown = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        shown += [word if re.fullmatch(r"[\w./:=,-]+", word) else repr(word) for word in self.words]
        return " ".join(shown)


def wrong_variables(rng):
    """Returns variables of one or two launchers, most of them with values that make sense."""
    variables = {}
    for launcher in rng.sample(LAUNCHERS, rng.choice([1, 1, 1, 2])):
        is_senseless = rng.random() < 0.4
        for name, role in launcher.items():
            pool = SENSELESS if is_senseless and rng.random() < 0.6 else ROLES[role]
            if rng.random() < 0.95:
                variables[name] = rng.choice(pool)
    if rng.random() < 0.2:
        variables["DEEPPOOL_LAUNCHER"] = rng.choice(OVERRIDES)
    return variables


def wrong_values(rng, words, values):
    """Replaces values of options."""
    # Training and measuring for a large number of iterations is valid, but takes too long.
    is_slow = words[0] == "coll-bench" or any(word in words for word in ("cpu", "epochs", "validate"))
    for i in rng.sample(values, min(len(values), rng.choice([1, 1, 2]))):
        number = re.fullmatch(r"([\d.]+)([\d.,]*)([a-zA-Z]*)", words[i])
        pool = NUMBERS * 3 + WORDS if number else NUMBERS + WORDS
        if number:
            pool = pool + [scaled(number.group(1), factor) + number.group(2) for factor in FACTORS * 3]
        if is_slow or words[i - 1] == "--iterations":
            pool = [value for value in pool if not value.strip("+").isdecimal() or len(value) < 4]
        words[i] = rng.choice(pool) + (number.group(3) if number and rng.random() < 0.5 else "")


def wrong_words(rng, words):
    """Deletes, repeats, adds or replaces a word."""
    i = rng.randrange(1, len(words))
    choice = rng.randrange(4)
    if choice == 0:
        del words[i]
    elif choice == 1:
        words.insert(i, words[rng.randrange(1, len(words))])
    elif choice == 2:
        words.append(rng.choice(EXTRA_WORDS))
    else:
        words[i] = rng.choice(WORDS)


def make_case(rng, folder):
    """Creates a wrong command with its files."""
    words = list(rng.choice(COMMANDS))
    files = [word for word in words if "{" in word and word not in ("{out}", "{folder}")]
    values = [i for i in range(2, len(words)) if words[i - 1].startswith("-") and "{" not in words[i]]
    has_output = "{out}" in words or "{folder}" in words
    kinds = ["words", "variables"] + ["output"] * has_output
    wrong = rng.choice(kinds + ["file"] * 6 * bool(files) + ["value"] * 4 * bool(values))
    case = Case(words)
    out = "result"
    if wrong == "value":
        wrong_values(rng, words, values)
    elif wrong == "words":
        wrong_words(rng, words)
    elif wrong == "variables":
        case.variables = wrong_variables(rng)
    elif wrong == "output":
        out = rng.choice(SPECIAL_OUTPUTS)
    special = rng.choice(files) if wrong == "file" and rng.random() < 0.2 else None
    mutated = rng.choice(files) if wrong == "file" and special is None else None
    for i, word in enumerate(words):
        for name in re.findall(r"\{([^}]*)\}", word):
            path = out if name in ("out", "folder") else name
            if word == special:
                path = rng.choice(SPECIAL_INPUTS)
            elif word == mutated:
                target = folder / name
                if target.is_dir():
                    wrong_folder(rng, target)
                else:
                    content, kind = mutate(rng, target.read_bytes())
                    target.write_bytes(content)
                    case.is_refused |= kind == "trailing" and name.endswith(".json")
            words[i] = words[i].replace("{" + name + "}", path)
    case.words = [word.replace("\0", "") for word in words]
    return case


def kind(path):
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return None


def contents(folder):
    """Returns the content of each regular file of a folder, without those below."""
    files = (path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    return {path.name: path.read_bytes() for path in files if path.name not in (".stdout", ".stderr")}


def texts(folder, case, before):
    """Returns the printed text and the written ones, without the words of the case."""
    paths = [folder / ".stdout"]
    for path in folder.rglob("*"):
        top = path.relative_to(folder).parts[0]
        is_input = top in INPUT_FOLDERS or top in before or top.startswith(".std")
        if path.is_file() and not path.is_symlink() and not is_input:
            paths.append(path)
    for path in paths:
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        if text.lstrip().startswith(("{", "[")):
            text = re.sub(r'"(\\.|[^"\\])*"', '""', text)
        for word in filter(NOT_FINITE.search, case.words):
            text = text.replace(word, "")
        yield path.name, text


@dataclass
class Outcome:
    """Result of a command."""

    code: int
    errors: str
    seconds: float
    # Peak memory in bytes.
    peak: int
    is_late: bool


def misbehaviours(folder, case, outcome, before):
    """Describes what is wrong with the run of a case. `before` has the contents of the files before it."""
    lines = [line for line in outcome.errors.splitlines() if line.strip()]
    if outcome.code not in (0, 1, 2):
        yield f"exit code {outcome.code}"
    if "panicked" in outcome.errors or "RUST_BACKTRACE" in outcome.errors:
        yield "panic"
    if len(lines) > LINES and outcome.code != 0:
        yield f"{len(lines)} lines of errors"
    if outcome.code in (1, 2) and not lines:
        yield "no error"
    if outcome.is_late:
        yield f"{outcome.seconds:.0f} s"
    if outcome.peak > BYTES:
        yield f"{outcome.peak >> 20} MiB"
    if outcome.code == 0 and case.is_refused:
        yield "text after the document is not refused"
    if outcome.code == 0:
        for name, text in texts(folder, case, before):
            if match := NOT_FINITE.search(text):
                shown = text[max(0, match.start() - 30) : match.end() + 30]
                yield f"{name} has a number that is not finite: {shown!r}"
    after = contents(folder)
    if outcome.code in (1, 2):
        changed = sorted(name for name, content in before.items() if after.get(name) != content)
        if changed:
            yield f"failed and changed {', '.join(changed)}"
        if outcome.code == 2 and "result" in after:
            yield "failed and left a result"
        if left := [name for name in after if name.startswith(".tmp")]:
            yield f"left {', '.join(left)}"


class Runner:
    """Runs commands of a folder of programs, each for a maximum time."""

    def __init__(self, programs, seconds):
        self.programs = programs.resolve()
        self.seconds = seconds
        # Variables of a launcher that runs this script are no part of a case.
        known = {name for launcher in LAUNCHERS for name in launcher} | {"DEEPPOOL_LAUNCHER"}
        self.environment = {name: value for name, value in os.environ.items() if name not in known}

    def run(self, folder, words, variables=None):
        """Runs a command in a folder and returns its outcome."""
        begin = time.monotonic()
        with open(folder / ".stdout", "wb") as stdout, open(folder / ".stderr", "wb") as stderr:
            process = subprocess.Popen(
                [self.programs / words[0], *words[1:]],
                cwd=folder,
                env=self.environment | (variables or {}),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            peak, is_late = 0, False
            while process.poll() is None:
                try:
                    status = Path(f"/proc/{process.pid}/status").read_text()
                    peaks = [int(line.split()[1]) << 10 for line in status.splitlines() if "VmHWM" in line]
                    peak = max(peak, *peaks, 0)
                except (OSError, ValueError):
                    pass
                is_late = time.monotonic() - begin > self.seconds
                if is_late or peak > BYTES:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    break
                time.sleep(0.002)
        seconds = time.monotonic() - begin
        errors = (folder / ".stderr").read_text(errors="replace")
        return Outcome(process.returncode, errors, seconds, peak, is_late)

    def succeed(self, folder, line):
        """Runs a command line that makes a valid file."""
        outcome = self.run(folder, shlex.split(line))
        if outcome.code != 0:
            sys.exit(f"{line}: exit code {outcome.code}: {outcome.errors}")


def run_case(runner, made, rng):
    """Runs a generated case in its own folder. Returns it, its outcome, and its misbehaviours."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        shutil.copytree(made, folder, dirs_exist_ok=True)
        os.symlink("plan.json", folder / "link")
        os.symlink("missing", folder / "dangling")
        os.mkfifo(folder / "pipe")
        # Open the reader before the command opens the pipe, with room for a whole result.
        reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
        case = make_case(rng, folder)
        watched = ["/dev/null", "/dev/full", "/dev/stdout"]
        watched += [folder / name for name in ("link", "dangling", "pipe")]
        kinds = [kind(path) for path in watched]
        before = contents(folder)
        outcome = runner.run(folder, case.words, case.variables)
        os.close(reader)
        problems = list(misbehaviours(folder, case, outcome, before))
        if kinds != [kind(path) for path in watched]:
            problems.append("a special file was replaced")
        return case, outcome, problems


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bin", default=ROOT / "target/debug", type=Path)
    parser.add_argument("--cases", default=500, type=int)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--only", type=int)
    parser.add_argument("--seconds", default=10, type=float, help="more for a machine that has other work")
    options = parser.parse_args()
    runner = Runner(options.bin, options.seconds)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        made = Path(made)
        good_files(runner, made)
        counts, bad = {0: 0, 1: 0, 2: 0}, 0
        slowest = (0.0, "")
        for number in range(options.cases):
            if options.only is not None and number != options.only:
                continue
            rng = random.Random(f"{options.seed} {number}")
            case, outcome, problems = run_case(runner, made, rng)
            counts[outcome.code] = counts.get(outcome.code, 0) + 1
            slowest = max(slowest, (outcome.seconds, str(case)))
            if problems or options.only is not None:
                bad += bool(problems)
                lines = [*(problems or ["fine"]), f"{case!s:.400}", outcome.errors.strip()[:600]]
                print(f"case {number}: " + "\n    ".join(lines), flush=True)
    print(
        f"{sum(counts.values())} wrong inputs in {time.monotonic() - begin:.0f} s: {bad} misbehave; "
        f"exit codes {counts}; the slowest took {slowest[0]:.1f} s: {slowest[1]:.200}"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
