"""Plans of problems that are no networks."""

from pathlib import Path

import pytest

from deeppool import Edge, InputError, Node, NoPlanError, Option, PlanProblem


def problem() -> PlanProblem:
    conv = Node("conv", [Option(1, 100.0), Option(2, 60.0), Option(4, 40.0, all_reduce_us=2.0)])
    fc = Node("fc", [Option(1, 50.0), Option(4, 45.0)])
    return PlanProblem.of(4, [conv, fc], [Edge("conv", "fc", [[0.0, 5.0], [5.0, 5.0], [5.0, 0.0]])])


def test_the_fastest_plan_within_a_limit_is_found() -> None:
    # On two GPUs and one: 60 + 5 + 50, and 2 * 60 + 2 * 5 + 50 of GPU time.
    plan = problem().plan(amplification=1.25)
    assert plan.iteration_us == pytest.approx(115.0)
    assert plan.amplification == pytest.approx(180 / 150)
    assert [layer.gpus for layer in plan.layers] == [2, 1]
    fastest = problem().plan(amplification=None, frontier=True)
    assert fastest.iteration_us == pytest.approx(42 + 45)
    assert fastest.frontier is not None
    assert min(time for time, _ in fastest.frontier) == pytest.approx(87)
    assert problem().plan(mode="data-parallel").layers[0].gpus == 4


def test_files_go_both_ways(tmp_path: Path) -> None:
    problem().save(tmp_path / "problem.json")
    assert PlanProblem.load(tmp_path / "problem.json") == problem()


def test_a_training_problem_is_planned_by_its_program() -> None:
    times = {"forward_us": 50.0, "backward_us": 100.0, "update_us": 5.0}
    half = {"forward_us": 30.0, "backward_us": 60.0, "update_us": 5.0}
    document = {
        "schema": "deeppool/plan-problem/v2",
        "gpus": 2,
        "nodes": [{"name": "a", "gradient_bytes": 100, "options": [{"gpus": 1, **times}, {"gpus": 2, **half}]}],
        "edges": [],
        "all_reduce": [{"gpus": 2, "startup_us": 1.0, "us_per_byte": 0.0}],
    }
    plan = PlanProblem.from_dict(document).plan()
    assert plan.layers[0].gpus == 2
    assert plan.iteration_us == pytest.approx(96.0)
    assert plan.single_gpu_us == pytest.approx(155.0)


def test_what_is_wrong_is_said_with_its_place() -> None:
    with pytest.raises(NoPlanError):
        problem().plan(mode="deadline", deadline_us=10.0)
    with pytest.raises(InputError, match="`conw`, which is no node"):
        PlanProblem.of(1, [Node("conv", [Option(1, 1.0)])], [Edge("conw", "conv", [[0.0]])])
    with pytest.raises(InputError, match="conv.*needs 8 GPUs"):
        PlanProblem.of(4, [Node("conv", [Option(1, 10.0), Option(8, 1.0)])]).plan()
    with pytest.raises(InputError, match="schema"):
        PlanProblem.from_dict({"schema": "deeppool/plan-problem/v9"}).plan()
