"""Planning problems given by step times."""

from pathlib import Path

import pytest

from deeppool import AllReduce, InputError, Node, NoPlanError, Option, PlanProblem, ProblemPlan, Transfer


def problem() -> PlanProblem:
    moves = [Transfer(i, j, 2.5) for i in (1, 2) for j in (1, 2)]
    conv = Node("conv", [Option(1, 40.0, 60.0), Option(2, 20.0, 40.0)], moves, gradient_bytes=4)
    fc = Node("fc", [Option(1, 20.0, 30.0), Option(2, 18.0, 27.0)])
    return PlanProblem.of(2, [conv, fc], [("conv", "fc")], [AllReduce(2, 0.0, 0.0)])


def test_plan_is_the_fastest_within_the_limit() -> None:
    # On two GPUs and one: 60 + 5 + 50, and 60 + 5 of the second GPU.
    plan = problem().plan(amplification=1.25)
    assert plan.iteration_us == pytest.approx(115.0)
    assert plan.amplification == pytest.approx(180 / 150)
    assert [layer.gpus for layer in plan.layers] == [2, 1]
    assert plan.lower_bound_us is not None and plan.lower_bound_us <= plan.iteration_us
    fastest = problem().plan(amplification=None, frontier=True)
    assert fastest.iteration_us == pytest.approx(60 + 45)
    assert fastest.frontier is not None
    assert min(time for time, _ in fastest.frontier) == pytest.approx(105)
    assert problem().plan(mode="data-parallel").layers[0].gpus == 2


def test_limit_can_apply_to_each_layer() -> None:
    # Layers this short have no limit.
    plan = problem().plan(amplification=1.2, limit_per_layer=True)
    assert [layer.gpus for layer in plan.layers] == [2, 2]
    assert plan.lower_bound_us is None


def test_problem_file_round_trips(tmp_path: Path) -> None:
    problem().save(tmp_path / "problem.json")
    assert PlanProblem.load(tmp_path / "problem.json") == problem()


def test_backward_steps_determine_what_is_kept() -> None:
    # 100 bytes of output and 100 other bytes that are saved, for each of two nodes on one GPU.
    def plan(limit: int, **reads: bool) -> ProblemPlan:
        option = Option(1, 10.0, 20.0, memory_bytes=200, saved_bytes=100)
        first = Node("first", [option], [Transfer(1, 1, 0.0)], output_bytes=100, gradient_bytes=4, **reads)
        second = Node("second", [option], output_bytes=100, gradient_bytes=4, **reads)
        edges, times = [("first", "second")], [AllReduce(1, 0.0, 0.0)]
        return PlanProblem.of(1, [first, second], edges, times, memory_limit_bytes=limit).plan()

    # The second forward step has both outputs and its other values. If nothing is kept for the
    # backward steps, no step needs more.
    none = {"backward_reads_input": False, "backward_reads_output": False}
    assert plan(300, **none).gpus == plan(300, **none, backward_reads_saved=False).gpus == 1
    with pytest.raises(NoPlanError, match="needs 400 bytes"):
        plan(300, **none, backward_reads_saved=True)
    # The second backward step writes the gradients of its input and of its parameters.
    with pytest.raises(NoPlanError, match="needs 504 bytes"):
        plan(300)


def test_errors_name_the_node_or_field() -> None:
    with pytest.raises(NoPlanError):
        problem().plan(mode="deadline", deadline_us=10.0)
    with pytest.raises(InputError, match="no node `conw`"):
        PlanProblem.of(1, [Node("conv", [Option(1, 1.0, 2.0)])], [("conw", "conv")]).plan()
    with pytest.raises(InputError, match="conv.*needs 8 GPUs"):
        PlanProblem.of(4, [Node("conv", [Option(1, 10.0, 20.0), Option(8, 1.0, 2.0)])]).plan()
    with pytest.raises(InputError, match="schema"):
        PlanProblem.from_dict({"schema": "deeppool/plan-problem/v9"}).plan()
    with pytest.raises(InputError, match="write version 2"):
        PlanProblem.from_dict({"schema": "deeppool/plan-problem/v1"}).plan()
