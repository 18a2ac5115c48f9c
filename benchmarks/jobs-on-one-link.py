#!/usr/bin/env python3
"""Measures two training jobs on two hosts whose network they share, and simulates them.

    python benchmarks/jobs-on-one-link.py --bin target/release/deeppool [--rate 200mbit] [--rounds 5]
                                          [--output FILE]

The hosts are network namespaces of this machine with one link of the given rate between them. Each job has a
rank on each host and runs under `mpirun`; its all-reduces are rings. Every round measures both jobs alone and
together. The simulation (`deeppool simulate --jobs`) uses layer times that `deeppool profile` measures here,
and the bandwidth that one TCP stream reaches on the link. It writes one JSON object: the median iteration
time of each job in each round, alone and together, the simulated ones, and their ratios. It needs root,
iproute2, Open MPI, and a `deeppool` with the feature `mpi`.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
#: Features of a sample, and width of the hidden layers.
FEATURES, WIDTH, CLASSES = 256, 1024, 10
BATCH = 4
#: Bytes of the stream that measures the bandwidth of the link.
STREAM_BYTES = 32 << 20
#: Hidden layers and iterations of each job. Both take about the same time together.
JOBS = {"small": (2, 36), "large": (3, 20)}
MPIRUN = (
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
    "OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none "
    "OMPI_MCA_coll_libnbc_iallreduce_algorithm=1 "
    "mpirun --mca plm rsh --mca btl_tcp_if_include net0 --mca oob_tcp_if_include net0 -n 2 -H host1:1,host2:1"
)


class Hosts:
    """Two hosts with a link between them, as long as the context is open."""

    def __init__(self, folder, rate):
        self.folder = folder
        script = REPOSITORY / "crates/deeppool-cli/tests/hosts/hosts"
        self.script = subprocess.Popen(
            [script, folder, rate], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self):
        line = self.script.stdout.readline().strip()
        if line != "ready":
            raise SystemExit(f"the hosts do not start: {line}")
        number = self.script.pid
        self.inside = Path(f"/proc/{number}/task/{number}/children").read_text().strip()
        return self

    def __exit__(self, *_):
        self.script.stdin.close()
        self.script.wait()

    def start(self, host, line):
        """Starts a line of shell commands on a host."""
        enter = ["nsenter", "--target", self.inside, "--pid", "--mount", "--uts", "--net", "--"]
        return subprocess.Popen(
            [*enter, self.folder / "agent", host, line],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def bandwidth(self):
        """Returns the bytes per second of one TCP stream from host1 to host2."""
        receive = (
            "import socket, time\ns = socket.create_server(('10.0.0.2', 5000)); c, _ = s.accept()\n"
            "c.recv(1); start, n = time.perf_counter(), 1\n"
            f"while n < {STREAM_BYTES}: n += len(c.recv(1 << 16))\n"
            "print(n / (time.perf_counter() - start))"
        )
        send = (
            "import socket, time\ntime.sleep(0.5)\n"
            f"socket.create_connection(('10.0.0.2', 5000)).sendall(bytes({STREAM_BYTES}))"
        )
        for name, text in (("receive.py", receive), ("send.py", send)):
            (self.folder / name).write_text(text)
        receiver = self.start("host2", f"python3 {self.folder}/receive.py")
        self.start("host1", f"python3 {self.folder}/send.py").communicate()
        return float(receiver.communicate()[0])


def network(name, hidden):
    """Returns a multilayer perceptron, whose gradients take much longer to send than to compute."""
    layers, last = [], "input"
    for index in range(hidden):
        linear = {"linear": {"out_features": WIDTH, "bias": True}}
        layers.append({"name": f"hidden{index}", "op": linear, "inputs": [last]})
        last = f"hidden{index}"
    layers.append(
        {"name": "scores", "op": {"linear": {"out_features": CLASSES, "bias": True}}, "inputs": [last]}
    )
    layers.append({"name": "loss", "op": "softmax_cross_entropy", "inputs": ["scores"]})
    return {"schema": "deeppool/graph/v1", "name": name, "input": [FEATURES], "layers": layers}


def start(hosts, command, name):
    """Starts a job under mpirun."""
    train = (
        f"train --graph {hosts.folder}/{name}.json --data synthetic --batch {BATCH} --lr 0.0001 --mode dp "
        f"--iterations {JOBS[name][1]} --json"
    )
    return hosts.start("host1", f"{MPIRUN} --mca plm_rsh_agent {hosts.folder}/agent {command} {train}")


def finish(name, process):
    """Returns the median iteration time of a job in microseconds."""
    output = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"job {name} failed with exit code {process.returncode}")
    return json.loads(output)["iteration_us"]["median"]


def simulated(command, folder, bandwidth):
    """Returns the simulated iteration times of each job, alone and beside the other, in microseconds."""
    level = {"bandwidth_bytes_per_s": 4e9, "startup_us": 1.0, "latency_us": 1.0}
    between = {"bandwidth_bytes_per_s": bandwidth, "startup_us": 100.0, "latency_us": 100.0}
    link = {"schema": "deeppool/link/v1", "name": "one link"}
    link["levels"] = [{"ranks": len(JOBS), **level}, between]
    (folder / "link.json").write_text(json.dumps(link))
    jobs = []
    for index, name in enumerate(JOBS):
        batches = f"{BATCH // 2},{BATCH}"
        measure = f"profile --graph {name}.json --engine cpu --batches {batches} -o {name}-times.json"
        run(command, folder, measure)
        job = {"name": name, "model": f"{name}.json", "profile": f"{name}-times.json", "batch": BATCH}
        jobs.append({**job, "mode": "dp", "on_gpus": [index, len(JOBS) + index]})
    cluster = {"schema": "deeppool/cluster-jobs/v1", "link": "link.json", "gpus": 2 * len(JOBS), "jobs": jobs}
    (folder / "jobs.json").write_text(json.dumps(cluster))
    report = json.loads(run(command, folder, "simulate --jobs jobs.json --iterations 40 --json"))
    return {job["name"]: [job["iteration_alone_us"], job["iteration_us"]] for job in report["jobs"]}


def run(command, folder, arguments):
    """Runs a command of `deeppool` and returns what it prints."""
    line = [command, *arguments.split()]
    return subprocess.run(line, cwd=folder, check=True, text=True, stdout=subprocess.PIPE).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", type=Path, required=True, help="`deeppool`, built with the feature mpi")
    parser.add_argument("--rate", default="200mbit", help="rate of the link, as `tc` takes it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="file for the results")
    arguments = parser.parse_args()
    command = arguments.bin.resolve()
    with tempfile.TemporaryDirectory() as folder, Hosts(Path(folder), arguments.rate) as hosts:
        for name, (hidden, _) in JOBS.items():
            (hosts.folder / f"{name}.json").write_text(json.dumps(network(name, hidden)))
        bandwidth = statistics.median(hosts.bandwidth() for _ in range(3))
        predicted = simulated(command, hosts.folder, bandwidth)
        alone, together = {name: [] for name in JOBS}, {name: [] for name in JOBS}
        for _ in range(arguments.rounds):
            for name in JOBS:
                alone[name].append(finish(name, start(hosts, command, name)))
            started = {name: start(hosts, command, name) for name in JOBS}
            for name, process in started.items():
                together[name].append(finish(name, process))
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, text=True, stdout=subprocess.PIPE
    )
    result = {
        "command": f"benchmarks/jobs-on-one-link.py --rate {arguments.rate} --rounds {arguments.rounds}",
        "machine": f"{os.cpu_count()} virtual processors, {platform.machine()}, {platform.system()}",
        "commit": commit.stdout.strip(),
        "rate": arguments.rate,
        "tcp_bytes_per_s": bandwidth,
        "jobs": [],
    }
    print("job     alone: measured simulated ratio   together: measured simulated ratio")
    for name in JOBS:
        measured = [statistics.median(times[name]) for times in (alone, together)]
        ratios = [model / time for model, time in zip(predicted[name], measured)]
        result["jobs"].append(
            {
                "name": name,
                "alone_us": alone[name],
                "together_us": together[name],
                "simulated_alone_us": predicted[name][0],
                "simulated_together_us": predicted[name][1],
                "simulated_over_measured": ratios,
            }
        )
        times = [f"{time / 1e3:9.1f} ms" for pair in zip(measured, predicted[name]) for time in pair]
        print(f"{name:7} {times[0]} {times[1]} {ratios[0]:.3f}   {times[2]} {times[3]} {ratios[1]:.3f}")
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
