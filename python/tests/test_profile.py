"""Profiling of PyTorch modules."""

import json
import os

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from deeppool import InputError, Profile, plan, profiling, simulate  # noqa: E402
from deeppool.tracing import trace  # noqa: E402


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.SiLU(inplace=True),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.SiLU(inplace=True),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(8 * 64, 5),
    )


@pytest.fixture(scope="module")
def traced():
    return trace(network(), torch.randn(2, 3, 8, 8), name="small")


@pytest.fixture
def counted(monkeypatch):
    """Counts measurements, and raises `KeyboardInterrupt` after `limit` of them."""
    calls = {"count": 0, "limit": None}
    measure = profiling._times

    def times(*arguments, **keywords):
        if calls["count"] == calls["limit"]:
            raise KeyboardInterrupt
        calls["count"] += 1
        return measure(*arguments, **keywords)

    monkeypatch.setattr(profiling, "_times", times)
    return calls


def test_profile_has_times_of_each_layer_and_can_be_planned(traced, tmp_path):
    path = tmp_path / "small.json"
    for attempt in range(10):
        profiling.profile(traced, [1, 2, 4, 8], output=path, repeats=5)
        try:
            planned = plan(traced.network, gpus=4, batch=8, profile=path, link="shared-memory")
            break
        except InputError as error:
            # Other load on the machine disturbs measurements.
            assert "disturbed" in str(error) and attempt < 9
    document = Profile.load(path).to_dict()
    assert document["schema"] == "deeppool/profile/v1" and document["origin"] == "measured"
    assert [layer["name"] for layer in document["layers"]] == [layer.name for layer in traced.layers]
    for layer in document["layers"]:
        assert [row["batch"] for row in layer["times"]] == [1, 2, 4, 8]
        assert all(row["forward_us"] > 0 and row["forward_mad_us"] >= 0 for row in layer["times"])
        assert all(row["backward_us"] > 0 for row in layer["times"])
    assert all(row["forward_us"] > 0 and row["update_us"] > 0 for row in document["network"])
    assert not os.path.exists(f"{path}.journal")
    assert planned.origin == "measured" and [layer.name for layer in planned.layers] == [
        layer.name for layer in traced.layers
    ]
    assert simulate(planned).iteration_us > 0


def test_layers_of_the_same_structure_are_measured_once(traced, counted):
    document = profiling.profile(traced, [2], repeats=1).to_dict()
    # One of two SiLUs is not measured; the whole network is.
    assert counted["count"] == len(traced.layers)
    times = {layer["name"]: layer["times"] for layer in document["layers"]}
    assert times["2"] == times["4"] != times["0"]


def test_first_layer_has_no_backward_time_without_parameters(traced):
    module = nn.Sequential(nn.ReLU(), nn.Linear(4, 3))
    document = profiling.profile(module, [2], example_inputs=(torch.randn(2, 4),), repeats=1).to_dict()
    times = {layer["name"]: layer["times"][0]["backward_us"] for layer in document["layers"]}
    assert times["0"] == 0 and times["1"] > 0


def test_interrupted_profile_is_resumed(traced, counted, tmp_path):
    path = tmp_path / "small.json"
    counted["limit"] = 5
    with pytest.raises(KeyboardInterrupt):
        profiling.profile(traced, [1, 2], output=path, repeats=1)
    journal = tmp_path / "small.json.journal"
    kept = journal.read_text().splitlines()
    assert len(kept) == 1 + 5 and not path.exists()
    # Truncate the last line, as by an interruption.
    journal.write_text("\n".join([*kept[:-1], kept[-1][:20]]))
    counted.update(count=0, limit=None)
    profiling.profile(traced, [1, 2], output=path, repeats=1)
    assert counted["count"] == 2 * len(traced.layers) - 4
    first = json.loads(kept[1])
    assert (
        round(first["times"]["forward"]["us"], 3)
        == Profile.load(path).to_dict()["layers"][0]["times"][0]["forward_us"]
    )


def test_journal_of_other_conditions_is_discarded(traced, counted, tmp_path):
    path = tmp_path / "small.json"
    counted["limit"] = 3
    with pytest.raises(KeyboardInterrupt):
        profiling.profile(traced, [1], output=path, repeats=1)
    counted.update(count=0, limit=None)
    profiling.profile(traced, [1], output=path, repeats=2)
    assert counted["count"] == len(traced.layers)


def test_profiling_does_not_change_the_module():
    module = network().eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    profiling.profile(module, [2], example_inputs=(torch.randn(2, 3, 8, 8),), repeats=1)
    assert not module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_custom_loss_is_profiled():
    module = nn.Linear(4, 3)
    traced = trace(module, torch.randn(2, 4), loss=nn.L1Loss(), targets=torch.randn(2, 3))
    document = profiling.profile(traced, [3], repeats=1).to_dict()
    assert document["layers"][-1]["kind"] == "opaque" and document["layers"][-1]["times"][0]["forward_us"] > 0


@pytest.mark.parametrize(
    ("batches", "device", "message"),
    [
        ([], "cpu", "ascending"),
        ([2, 1], "cpu", "ascending"),
        ([0], "cpu", "at least 1"),
        ([1], "cuda:99", "device cuda:99"),
        ([1], "abacus", "device abacus"),
    ],
)
def test_wrong_arguments_raise_input_error(traced, batches, device, message):
    with pytest.raises(InputError, match=message):
        profiling.profile(traced, batches, device)


def test_unwritable_output_fails_before_measuring(traced, counted, tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        profiling.profile(traced, [1], output=tmp_path / "nowhere" / "small.json")
    assert counted["count"] == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="SKIPPED: PyTorch has no GPU")
def test_layers_are_profiled_on_a_gpu(traced):
    document = profiling.profile(traced, [1, 64], "cuda", repeats=5).to_dict()
    assert "cuda" in document["measurement"]["libraries"]
    assert all(row["forward_us"] > 0.5 for layer in document["layers"] for row in layer["times"])
    assert next(traced.module.parameters()).device.type == "cpu"
