//! `deeppool plan --problem` with problems of the format `deeppool/plan-problem/v2`.

use serde_json::{Value, json as document};
use tempfile::TempDir;

use crate::command::{json, refused, succeed};

/// Returns two nodes on up to 2 GPUs: `conv` is faster on two, `fc` would have to all-reduce 40 MB.
fn problem() -> Value {
    document!({"schema": "deeppool/plan-problem/v2", "gpus": 2,
        "nodes": [
            {"name": "conv", "gradient_bytes": 40_000,
             "options": [{"gpus": 1, "forward_us": 400.0, "backward_us": 800.0, "update_us": 5.0},
                         {"gpus": 2, "forward_us": 210.0, "backward_us": 420.0, "update_us": 5.0}],
             "output": [{"from_gpus": 1, "to_gpus": 1, "transfer_us": 30.0},
                        {"from_gpus": 1, "to_gpus": 2, "transfer_us": 20.0},
                        {"from_gpus": 2, "to_gpus": 2, "transfer_us": 30.0}]},
            {"name": "fc", "gradient_bytes": 40_000_000,
             "options": [{"gpus": 1, "forward_us": 30.0, "backward_us": 60.0, "update_us": 20.0},
                         {"gpus": 2, "forward_us": 20.0, "backward_us": 40.0, "update_us": 20.0}]}],
        "edges": [{"from": "conv", "to": "fc"}],
        "all_reduce": [{"gpus": 2, "startup_us": 10.0, "us_per_byte": 0.0001}]})
}

fn folder_with(problem: &Value) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("problem.json"), problem.to_string()).unwrap();
    folder
}

#[test]
fn a_problem_is_planned() {
    let folder = folder_with(&problem());
    let plan = json(folder.path(), "plan --problem problem.json --amplification 1.5 --json -o report.json");
    assert_eq!(plan["schema"], "deeppool/report/v1");
    assert_eq!(plan["single_gpu_us"], 1315.0);
    assert_eq!(plan["layers"][0], document!({"name": "conv", "gpus": 2, "ranks": [0, 1]}));
    assert_eq!(plan["layers"][1], document!({"name": "fc", "gpus": 1, "ranks": [0]}));
    assert_eq!(plan["order"], document!(["conv", "fc"]));
    let figure = |name: &str| plan[name].as_f64().unwrap();
    assert!(figure("iteration_us") < 1315.0 && figure("amplification") <= 1.5);
    assert!((figure("amplification") - figure("gpu_time_us") / 1315.0).abs() < 1e-9);
    assert!(figure("lower_bound_us") <= figure("iteration_us"));
    assert!((figure("gap") - (figure("iteration_us") / figure("lower_bound_us") - 1.0)).abs() < 1e-9);
    assert!(plan["frontier"].is_null());
    let written = std::fs::read_to_string(folder.path().join("report.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), plan);

    let said = succeed(folder.path(), "plan --problem problem.json --amplification 1.5 --pareto");
    for expected in [
        "plan of the problem, 2 GPUs",
        "(limit 1.5)",
        "no plan within the limit",
        "0 to 1",
        "Pareto frontier",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn each_mode_has_its_plan() {
    let folder = folder_with(&problem());
    let plan = |how: &str| json(folder.path(), &format!("plan --problem problem.json {how} --json"));
    let gpus = |plan: &Value| [0, 1].map(|layer| plan["layers"][layer]["gpus"].as_u64().unwrap());
    assert_eq!(gpus(&plan("--amplification 1")), [1, 1]);
    let late = plan("--deadline 1s --pareto");
    assert_eq!((gpus(&late), &late["deadline_us"]), ([1, 1], &document!(1e6)));
    let points = late["frontier"].as_array().unwrap();
    assert_eq!(points.last().unwrap()["iteration_us"], late["iteration_us"]);
    assert!(points.len() > 1 && points[0]["gpus"] == 2);
    assert!(plan("--knee")["amplification_limit"].is_null());
    let data_parallel = plan("--mode dp");
    assert_eq!(gpus(&data_parallel), [2, 2]);
    // No search, and no bound.
    assert!(data_parallel["gap"].is_null() && data_parallel["lower_bound_us"].is_null());
    assert_eq!(plan("--mode dp --pareto")["frontier"], late["frontier"]);
}

#[test]
fn invalid_problems_are_refused_with_their_path() {
    let plan = "plan --problem problem.json";
    let with = |change: &dyn Fn(&mut Value)| {
        let mut problem = problem();
        change(&mut problem);
        problem
    };
    let cases = [
        (
            with(&|of| of["schema"] = "deeppool/plan-problem/v3".into()),
            "expected \"deeppool/plan-problem/v2\"",
        ),
        (with(&|of| of["schema"] = "deeppool/plan-problem/v1".into()), "is no longer read: write version 2"),
        (
            with(&|of| of["nodes"][0]["options"][1]["forward_us"] = "long".into()),
            "nodes[0].options[1].forward_us",
        ),
        (with(&|of| of["nodes"][0]["time_us"] = 4.into()), "nodes[0]"),
        (with(&|of| of["edges"][0]["to"] = "head".into()), "edges[0].to: there is no node `head`"),
        (with(&|of| of["nodes"][0]["output"] = document!([])), "conv"),
        (with(&|of| of["nodes"][0]["options"][0]["forward_us"] = document!(-1.0)), "forward_us is -1"),
        (with(&|of| of["gpus"] = 0.into()), "problem.json"),
        (with(&|of| of["nodes"][0]["options"] = document!([])), "conv"),
    ];
    for (problem, expected) in cases {
        let said = refused(folder_with(&problem).path(), plan, expected);
        assert!(said.contains("problem.json"), "{said}");
    }
    // Amplification is relative to one GPU.
    let without_one = with(&|of| {
        of["nodes"][1]["options"].as_array_mut().unwrap().remove(0);
    });
    refused(folder_with(&without_one).path(), plan, "node `fc` cannot run on 1 GPUs");
}

#[test]
fn unreachable_limits_and_options_for_networks_are_refused() {
    let folder = folder_with(&problem());
    for (options, expected) in [
        ("--amplification 0.5", "at least 1"),
        ("--amplification NaN", "at least 1"),
        ("--amplification inf", "a finite number of at least 1"),
        ("--deadline 1us", "the smallest iteration time that can be reached is"),
        ("--explain", "cannot be used with"),
        ("--dot plan.dot", "cannot be used with"),
        ("--trace trace.json", "cannot be used with"),
        ("--gpu-counts all", "cannot be used with"),
    ] {
        refused(folder.path(), &format!("plan --problem problem.json {options}"), expected);
    }
    succeed(folder.path(), "plan --problem problem.json --limit-rule total");
}

#[test]
fn per_layer_limits_are_for_chains_without_a_memory_limit() {
    let plan = "plan --problem problem.json --amplification 1.2 --limit-rule per-layer";
    let chain = json(folder_with(&problem()).path(), &format!("{plan} --json"));
    assert_eq!(chain["limit_rule"], "per-layer");
    let mut branches = problem();
    let nodes = branches["nodes"].as_array_mut().unwrap();
    let mut third = nodes[1].clone();
    third["name"] = "head".into();
    nodes.push(third);
    branches["edges"].as_array_mut().unwrap().push(document!({"from": "conv", "to": "head"}));
    refused(folder_with(&branches).path(), plan, "chains only, and node `conv`");
    let mut limited = problem();
    limited["memory_limit_bytes"] = 1_000_000_000.into();
    refused(folder_with(&limited).path(), plan, "memory");
}

#[test]
fn implausible_times_are_planned_and_doubted() {
    for (time, expected) in
        [("2e25", "2e25 us: nanoseconds"), ("1e200", "1e200 us: nanoseconds"), ("3e-9", "3e-9 us: seconds?")]
    {
        let text = format!(
            r#"{{"schema": "deeppool/plan-problem/v2", "gpus": 2, "edges": [], "all_reduce": [],
            "nodes": [{{"name": "a", "gradient_bytes": 0, "options":
            [{{"gpus": 1, "forward_us": {time}, "backward_us": 0, "update_us": 0}}]}}]}}"#
        );
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("problem.json"), text).unwrap();
        let output = crate::command::deeppool(folder.path(), "plan --problem problem.json --pareto");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && errors.contains(expected), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(!said.contains("NaN") && !said.contains("inf"), "{said}");
    }
}
