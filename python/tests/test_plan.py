"""Plans, simulations and comparisons of networks."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command import BIN, needs_command

import deeppool
from deeppool import Background, InputError, Network, NoPlanError, Plan, Profile


def vgg16(**other: object) -> Plan:
    arguments = {"gpus": 8, "batch": 32, "device": "a100", "amplification": 1.5, **other}
    return deeppool.plan("vgg16", **arguments)  # type: ignore[arg-type]


def test_burst_plan_is_within_its_limit_and_faster_than_data_parallelism() -> None:
    plan = vgg16()
    assert plan.mode == "bp"
    assert plan.amplification <= 1.5
    assert plan.iteration_us < plan.data_parallel.iteration_us
    assert plan.gap is not None and plan.gap >= 0
    assert {rank for ranks in plan.ranks.values() for rank in ranks} <= set(range(8))
    assert [layer.name for layer in plan.layers] == [layer.name for layer in Network.zoo("vgg16").layers[1:]]
    assert vgg16() == plan, "planning is deterministic"


def test_data_parallel_plan_has_all_layers_on_all_gpus() -> None:
    plan = vgg16(mode="data-parallel")
    assert plan.mode == "dp"
    assert all(layer.gpus == 8 for layer in plan.layers)
    assert plan.iteration_us == plan.data_parallel.iteration_us


def test_frontier_is_sorted_and_deadline_plan_is_no_worse() -> None:
    frontier = deeppool.frontier("vgg16", gpus=8, batch=32, device="a100", max_plans=50)
    times = [plan.iteration_us for plan in frontier]
    assert times == sorted(times)
    assert [plan.gpu_time_us for plan in frontier] == sorted(
        (plan.gpu_time_us for plan in frontier), reverse=True
    )
    late = vgg16(mode="deadline", deadline_us=2 * times[0])
    assert late.iteration_us <= 2 * times[0]
    assert late.amplification <= frontier[0].amplification
    assert vgg16(mode="knee").amplification_limit is None


def test_unreachable_limits_raise_no_plan_error() -> None:
    with pytest.raises(NoPlanError):
        vgg16(memory="1.5GB")
    with pytest.raises(
        NoPlanError, match="no plan takes 1 us or less: the smallest iteration time that can be reached is 12"
    ):
        vgg16(mode="deadline", deadline_us=1.0)
    assert vgg16(memory="unlimited").memory_limit_bytes is None


def test_error_of_too_large_a_batch_names_one_that_fits() -> None:
    def resnet(batch: int) -> Plan:
        return deeppool.plan(
            "resnet-50", gpus=2, batch=batch, device="a100", memory="8GB", gpu_counts=[1, 2], prove="off"
        )

    with pytest.raises(NoPlanError, match=r"the largest batch that fits is \d+$") as error:
        resnet(8192)
    batch = int(str(error.value).rpartition(" ")[2])
    assert batch < 8192
    # The search estimates memory, and may miss a plan that just fits. It then names a smaller
    # batch.
    try:
        plan = resnet(batch)
    except NoPlanError as missed:
        smaller = int(str(missed).rpartition(" ")[2])
        assert 0.98 * batch < smaller < batch
        plan = resnet(smaller)
    peak, limit = plan.memory_peak_bytes, plan.memory_limit_bytes
    assert peak is not None and limit is not None and peak <= limit


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "a101"}, "unknown device `a101`.*did you mean `a100`"),
        ({"device": None}, "give either a device"),
        ({"link": "dgx-a101"}, "dgx-a101"),
        ({"gpus": 0}, "number of GPUs"),
        ({"batch": 0}, "batch is empty"),
        ({"mode": "fast"}, "unknown mode 'fast'"),
        ({"mode": "deadline"}, "deadline_us"),
        ({"amplification": 0.5}, "0.5"),
        ({"memory": "forty"}, "40GB"),
        ({"gpu_counts": "some"}, "powers-of-two"),
        ({"effort": -1.0}, "effort"),
    ],
)
def test_wrong_arguments_raise_input_error(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        vgg16(**arguments)


def test_plan_file_round_trips(tmp_path: Path) -> None:
    plan = vgg16()
    plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert again == plan
    assert again.network is None
    simulated = deeppool.simulate(again, network="vgg16")
    assert simulated == deeppool.simulate(plan)
    with pytest.raises(InputError, match="network=..."):
        deeppool.simulate(again)
    (tmp_path / "plan.json").write_text(
        (tmp_path / "plan.json").read_text().replace('"gpus": 8', '"gpus": -8', 1)
    )
    with pytest.raises(InputError, match="plan.json.*gpus"):
        Plan.load(tmp_path / "plan.json")


@needs_command
def test_command_and_package_read_each_others_plans(tmp_path: Path) -> None:
    run = [
        str(BIN),
        "plan",
        "--model",
        "vgg16",
        "--device",
        "a100",
        "--gpus",
        "8",
        "--batch",
        "32",
        "--amplification",
        "1.5",
    ]
    subprocess.run([*run, "-o", str(tmp_path / "theirs.json")], check=True, capture_output=True)
    ours = vgg16()
    assert Plan.load(tmp_path / "theirs.json") == ours
    ours.save(tmp_path / "ours.json")
    simulate = [str(BIN), "simulate", "--model", "vgg16", "--plan", str(tmp_path / "ours.json"), "--json"]
    report = json.loads(subprocess.run(simulate, check=True, capture_output=True).stdout)
    assert report["iteration_us"] == deeppool.simulate(ours).iteration_us


def test_simulated_iteration_time_equals_planned() -> None:
    plan = vgg16()
    alone = deeppool.simulate(plan, timeline=True)
    assert alone.iteration_us == pytest.approx(plan.iteration_us, rel=1e-6)
    assert alone.background_samples_per_s == 0
    assert alone.timeline is not None and alone.timeline["traceEvents"]
    shared = deeppool.simulate(plan, background=Background("resnet-18", 8))
    assert shared.background_samples_per_s > 0
    assert shared.foreground_slowdown >= 1
    assert deeppool.Simulation.from_dict(shared.to_dict()) == shared
    with pytest.raises(InputError, match="polite"):
        deeppool.simulate(plan, policy="polite")


def test_comparison_has_all_modes_and_advice() -> None:
    compared = deeppool.compare("vgg16", gpus=4, batch=16, device="a100", background=Background("vgg16", 8))
    assert {point.mode for point in compared.points} == {"dp", "dp+col", "bp", "bp+col", "partition", "bg"}
    assert "foreground" in compared.advice
    assert deeppool.Comparison.from_dict(compared.to_dict()) == compared
    best = max(point.total_samples_per_s for point in compared.of("bp+col"))
    assert best >= max(point.total_samples_per_s for point in compared.of("dp"))


def test_profile_replaces_device_model(tmp_path: Path) -> None:
    profile = Profile.modelled("vgg16", "a100", [1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 32])
    profile.save(tmp_path / "profile.json")
    plan = vgg16(device=None, profile=tmp_path / "profile.json")
    assert plan.device == "a100"
    assert plan.iteration_us == pytest.approx(vgg16().iteration_us, rel=0.02)
    with pytest.raises(InputError, match="is of `?vgg16|vgg16"):
        deeppool.plan("vgg11", gpus=2, batch=8, profile=profile)
    with pytest.raises(InputError, match="either a device"):
        vgg16(profile=profile)
    with pytest.raises(InputError, match="none.json"):
        vgg16(device=None, profile=tmp_path / "none.json")


def test_devices_and_links_are_listed() -> None:
    devices = {device.name: device for device in deeppool.devices()}
    assert devices["h100"].memory_bytes == 80_000_000_000
    assert devices["cpu-core"].memory_bytes is None
    assert "dgx-a100" in deeppool.links()


def test_plan_picture_is_svg_with_a_block_per_layer_group() -> None:
    plan = deeppool.plan("inception-v3", gpus=128, batch=256, device="a100")
    root = ElementTree.fromstring(plan._repr_svg_())
    blocks = root.findall("{http://www.w3.org/2000/svg}rect")
    assert len(blocks) > 2
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any("GPU" in title for title in titles)
    bottom = float((root.get("viewBox") or "").split()[3])
    assert all(float(block.get("y") or 0) + float(block.get("height") or 0) <= bottom for block in blocks)


def test_network_with_opaque_layer_is_planned_and_simulated() -> None:
    document = Network.zoo("digits-cnn").to_dict()
    work = {"flops": 5000, "bytes": 8000, "kernels": 1}
    act = next(layer for layer in document["layers"] if layer["op"] == "gelu_tanh")
    act["op"] = {"opaque": {"op": "silu", "output": [16, 8, 8], "forward": work, "backward": work}}
    network = Network.from_dict(document)
    assert [layer.name for layer in network.opaque_layers] == [act["name"]]
    plan = deeppool.plan(network, gpus=4, batch=64, device="a100")
    assert deeppool.simulate(plan).iteration_us == pytest.approx(plan.iteration_us, rel=1e-6)


def test_ctrl_c_ends_the_search() -> None:
    program = (
        "import deeppool, sys\n"
        "print('begins', flush=True)\n"
        "deeppool.plan('gpt2', gpus=1024, batch=1024, device='a100', effort=1e6, memory='unlimited')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    time.sleep(0.5)
    assert process.poll() is None, "the search ended before it was interrupted"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_other_threads_run_during_the_search() -> None:
    ticks = 0
    over = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not over.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=count)
    thread.start()
    vgg16(effort=4.0)
    over.set()
    thread.join()
    assert ticks > 5
