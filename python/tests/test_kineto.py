"""Traces of PyTorch's profiler: what the command `deeppool` makes of processor traces of real modules."""

import json
import subprocess

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torchvision  # noqa: E402
from command import BIN, needs_command  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.profiler import ProfilerActivity  # noqa: E402
from traced_networks import GPT2  # noqa: E402

from deeppool.profiling import marked  # noqa: E402
from deeppool.tracing import trace  # noqa: E402

SAMPLES, ITERATIONS = 4, 3

NETWORKS = {
    "resnet18": (lambda: torchvision.models.resnet18(num_classes=7), lambda: torch.randn(SAMPLES, 3, 32, 32)),
    "gpt": (lambda: GPT2(61, 16, 32, 2, 2), lambda: torch.randint(0, 61, (SAMPLES, 16))),
}


def deeppool(folder, *arguments):
    command = [str(BIN), *arguments, "--json"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0 and not result.stderr, (arguments, result.stderr)
    return json.loads(result.stdout)


def record(module, batch, folder):
    """Records iterations with marks and stacks. Returns the time of all operators in microseconds."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    scores = module(batch).flatten(0, -2)
    labels = torch.randint(0, scores.shape[-1], (len(scores),))

    def iteration():
        optimizer.zero_grad()
        F.cross_entropy(module(batch).flatten(0, -2), labels).backward()
        optimizer.step()

    iteration()
    activities = [ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, with_stack=True, record_shapes=True) as profiler:
        with marked(module):
            for _ in range(ITERATIONS):
                iteration()
    profiler.export_chrome_trace(str(folder / "marks.json"))
    document = json.loads((folder / "marks.json").read_text())
    events = document["traceEvents"]
    document["traceEvents"] = [event for event in events if not event["name"].startswith("deeppool:")]
    (folder / "stacks.json").write_text(json.dumps(document))
    document["traceEvents"] = [e for e in document["traceEvents"] if "nn.Module" not in e["name"]]
    (folder / "unnamed.json").write_text(json.dumps(document))
    rows = profiler.key_averages()
    is_range = [row.key.startswith(("deeppool:", "Optimizer.", "ProfilerStep")) for row in rows]
    return sum(row.self_cpu_time_total for row, ranged in zip(rows, is_range) if not ranged), events


def inside(events, path):
    """Returns the time of the outermost operators in all calls of a submodule in microseconds."""
    operators = sorted(
        (e for e in events if e.get("cat") == "cpu_op"), key=lambda event: (event["ts"], -event["dur"])
    )
    calls = [e for e in events if e["name"] == f"deeppool:{path}"]
    total = 0.0
    for call in calls:
        end = call["ts"]
        for operator in operators:
            if end <= operator["ts"] < call["ts"] + call["dur"] and operator["tid"] == call["tid"]:
                total += operator["dur"]
                end = operator["ts"] + operator["dur"]
    return total


@needs_command
@pytest.mark.parametrize("name", NETWORKS)
def test_operators_of_processor_traces_are_assigned_to_layers(name, tmp_path):
    torch.manual_seed(0)
    make, example = NETWORKS[name]
    module, batch = make(), example()
    traced = trace(module, batch[:2])
    traced.network.save(tmp_path / "net.json")
    operators_us, events = record(module, batch, tmp_path)

    reports = {}
    for kind in ("marks", "stacks"):
        trace_file = f"{kind}.json"
        report = deeppool(
            tmp_path, "profile", "--graph", "net.json", "--kineto", trace_file, "-o", f"{kind}-profile.json"
        )
        reports[kind] = report
        (recorded,) = report["traces"]
        assert (recorded["batch"], recorded["iterations"]) == (SAMPLES, ITERATIONS)
        assert recorded["assigned_share"] >= 0.95, recorded["unassigned"]
        assert recorded["total_us"] * ITERATIONS == pytest.approx(operators_us, rel=0.01)
        (whole,) = report["profile"]["network"]
        layers_us = sum(whole[f"{part}_us"] for part in ("forward", "backward", "update"))
        unassigned_us = sum(row["us"] for row in recorded["unassigned"])
        assert (layers_us + unassigned_us) * ITERATIONS == pytest.approx(operators_us, rel=0.01)

    layers = {layer["name"]: layer["times"][0] for layer in reports["marks"]["profile"]["layers"]}
    assert list(layers) == [layer.name for layer in traced.layers]
    # Operators between two modules belong to the layer of one of them.
    is_exact = []
    for layer in traced.layers:
        calls = sum(event["name"] == f"deeppool:{layer.name}" for event in events)
        part = layer.island.module
        if part is not None and not any(part.children()) and calls == ITERATIONS:
            forward_us = inside(events, layer.name) / ITERATIONS
            assigned_us = layers[layer.name]["forward_us"]
            is_exact.append(assigned_us == pytest.approx(forward_us, rel=1e-3, abs=0.1))
            assert assigned_us > forward_us or is_exact[-1], layer.name
    assert len(is_exact) > 10 and sum(is_exact) > 0.8 * len(is_exact)
    # Without marks, the same operators are assigned by their order and the calls of modules.
    stacks = {layer["name"]: layer["times"][0] for layer in reports["stacks"]["profile"]["layers"]}
    marks_us = sum(times["forward_us"] + times["backward_us"] for times in layers.values())
    moved_us = sum(
        abs(times[key] - stacks[name][key])
        for name, times in layers.items()
        for key in ("forward_us", "backward_us")
    )
    assert moved_us <= 0.02 * marks_us, moved_us / marks_us

    compare = ("compare-trace", "--graph", "net.json", "--kineto", "marks.json")
    compared = deeppool(tmp_path, *compare, "--profile", "marks-profile.json")
    for layer in compared["layers"]:
        for key in ("forward_us", "backward_us"):
            assert layer["simulated"][key] == pytest.approx(layer["recorded"][key], rel=0.01, abs=0.1)

    command = [BIN, "profile", "--graph", "net.json", "--kineto", "unnamed.json", "-o", "x.json"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1
    assert "the trace has no names of modules: 100.0% of the time of all operators" in refused.stderr


def test_marks_end_with_the_block_and_with_exceptions():
    class Fails(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2, 2)

        def forward(self, x):
            self.fc(x)
            raise ValueError("no output")

    module = Fails()
    with torch.profiler.profile() as profiler:
        with marked(module):
            for _ in range(2):
                with pytest.raises(ValueError):
                    module(torch.zeros(1, 2))
        module.fc(torch.zeros(1, 2))
    counts = {event.key: event.count for event in profiler.key_averages()}
    assert (counts["deeppool:"], counts["deeppool:fc"]) == (2, 2)
    assert not module._forward_hooks and not module.fc._forward_pre_hooks
