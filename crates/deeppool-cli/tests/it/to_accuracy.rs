//! `deeppool plan --to-accuracy`, and the iteration times behind it.

use std::fs;
use std::time::Duration;

use collectives::LinkModel;
use deeppool::accuracy::{LayerTimes, PlannedIterationTimes};
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{ExecutionPlan, Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::LowerOptions;
use deeppool::simulate::{SimulateOptions, simulate_plan};
use deeppool::time_to_accuracy::{Configuration, StepTimes};
use layer_graph::zoo;
use layer_profile::DeviceModel;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{deeppool, json, refused, succeed};

const CURVE: &str = r#"{"schema":"deeppool/epoch-curve/v1","network":"digits-cnn","dataset":"digits",
    "target":"test accuracy 0.97","origin":"assumed","source":"this test","samples_per_epoch":1437,
    "points":[{"batch":16,"epochs":2,"epochs_min":1,"epochs_max":4},{"batch":64,"epochs":3},
        {"batch":256,"epochs":30}]}"#;
const PLAN: &str = "plan --model digits-cnn --device cpu-core --gpus 4 --to-accuracy curve.json";

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("curve.json"), CURVE).unwrap();
    folder
}

/// Returns the iteration time of an estimate.
fn figure(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap()
}

#[test]
fn step_times_equal_iteration_times_of_plans() {
    let (network, device) = (zoo::model("digits-cnn").unwrap(), DeviceModel::named("a100").unwrap());
    let link = LinkModel::named("dgx-a100").unwrap();
    let steps = PlannedIterationTimes::new(&network, LayerTimes::Device(&device));
    for (workers, gpus_per_worker, batch, limit) in [
        (1, 1, 32, None),
        (4, 1, 64, None),
        (8, 1, 100, None),
        (4, 1, 64, Some(1.5)),
        (3, 1, 32, Some(1.1)),
        (2, 2, 64, None),
        (2, 3, 32, Some(2.5)),
    ] {
        let configuration = Configuration { workers, gpus_per_worker, batch, limit };
        let gpus = configuration.gpus();
        let profile = device.profile(&network, &shard_sizes(batch, gpus)).unwrap();
        let job = Job::new(Costs::new(&network, &profile, &link), batch, LowerOptions::default());
        let mode = match limit {
            None if gpus_per_worker == 1 => Mode::DataParallel,
            None => Mode::Burst { amplification: f64::INFINITY },
            Some(amplification) => Mode::Burst { amplification },
        };
        let of_worker = Some(gpus_per_worker).filter(|&gpus| gpus > 1);
        let plan = find_plan(&job, &PlanRequest::new(gpus, mode).with_worker_gpus(of_worker)).unwrap();
        let simulated = simulate_plan(&job, &plan, &SimulateOptions::default()).unwrap();
        let step = steps.step(&configuration).expect("planned");
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-4;
        assert!(near(step.iteration.as_secs_f64() * 1e6, plan.iteration_us), "{configuration}");
        assert!(near(step.iteration.as_secs_f64(), simulated.iteration.as_secs_f64()), "{configuration}");
        assert!(near(step.active_gpu_time.unwrap().as_secs_f64() * 1e6, plan.gpu_time_us), "{configuration}");
        assert_eq!(step.amplification, Some(plan.amplification), "{configuration}");
        assert!(limit.is_none_or(|limit| plan.amplification <= limit * (1.0 + 1e-9)));
    }
    // Workers do not divide the batch, and no plan keeps the limit.
    let uneven = Configuration { gpus_per_worker: 2, ..Configuration::data_parallel(3, 32) };
    let small = Configuration { limit: Some(0.5), ..Configuration::data_parallel(2, 32) };
    assert_eq!((steps.step(&uneven), steps.step(&small)), (None, None));
    let problems: Vec<(Configuration, String)> =
        steps.into_problems().into_iter().map(|(of, error)| (of, error.to_string())).collect();
    assert!(
        problems[0].0 == uneven && problems[0].1.contains("a multiple of the number of workers"),
        "{}",
        problems[0].1
    );
    assert!(problems[1].0 == small && problems[1].1.contains("at least 1"), "{}", problems[1].1);
}

#[test]
fn answers_equal_enumeration() {
    let folder = folder();
    let report = json(folder.path(), &format!("{PLAN} --batches 32,256,16 --amplification 1.5 --json"));
    let estimates = report["estimates"].as_array().unwrap();
    // On 1, 2 and 4 GPUs, with workers of 1, 2 and 4 GPUs, each batch, with and without the limit.
    assert_eq!(estimates.len(), 6 * 3 * 2);
    for one in estimates {
        let epochs = match one["configuration"]["batch"].as_u64().unwrap() {
            16 => 2.0,
            // Halfway between 16 and 64 on a logarithmic axis.
            32 => 2.5,
            _ => 30.0,
        };
        let batch = figure(&one["configuration"], "batch");
        let time_us = figure(one, "iteration_us") * 1437.0 / batch * epochs;
        assert!((figure(one, "time_us") / time_us - 1.0).abs() < 1e-6, "{one}");
        let gpus =
            figure(&one["configuration"], "workers") * figure(&one["configuration"], "gpus_per_worker");
        let hours = time_us / 3.6e9 * gpus;
        assert!((figure(one, "gpu_hours") / hours - 1.0).abs() < 1e-6, "{one}");
    }
    let least = |name: &str| estimates.iter().map(|one| figure(one, name)).fold(f64::INFINITY, f64::min);
    assert!(figure(&report["chosen"], "time_us") <= least("time_us"));
    let frontier = report["frontier"].as_array().unwrap();
    assert_eq!((&frontier[0], &report["frontier"][0]), (&report["chosen"], &estimates[0]));
    assert!(figure(frontier.last().unwrap(), "gpu_hours") <= least("gpu_hours"));

    let cheap =
        json(folder.path(), &format!("{PLAN} --batches 32,256,16 --amplification 1.5 --within 24 --json"));
    assert!(figure(&cheap["chosen"], "gpu_hours") <= least("gpu_hours"));
}

#[test]
fn the_chosen_plan_is_written() {
    let folder = folder();
    let path = folder.path();
    let said = succeed(path, &format!("{PLAN} --mode dp -o plan.json"));
    for expected in [
        "digits-cnn on digits to test accuracy 0.97; epochs assumed: this test",
        "soonest: ",
        "iterations an epoch x",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    let report = json(path, &format!("{PLAN} --mode dp --json"));
    let (plan, chosen) = (
        ExecutionPlan::from_json(&std::fs::read_to_string(path.join("plan.json")).unwrap()).unwrap(),
        &report["chosen"],
    );
    let of = &chosen["configuration"];
    assert_eq!(
        (of["workers"].as_u64(), of["batch"].as_u64()),
        (Some(plan.gpus as u64), Some(plan.batch as u64))
    );
    let iteration = Duration::from_secs_f64(plan.iteration_us / 1e6);
    assert!((iteration.as_secs_f64() * 1e6 - figure(chosen, "iteration_us")).abs() < 1e-6);
    succeed(path, "simulate --model digits-cnn --plan plan.json");
}

#[test]
fn invalid_options_are_one_line_errors() {
    let folder = folder();
    let path = folder.path();
    for (options, expected) in [
        ("--batch 32", "cannot be used with"),
        ("--compare", "cannot be used with"),
        ("--batches 16,512", "covers global batches of 16 to 256 samples, not 512"),
        ("--within 0", "a number of hours above 0"),
        ("--within nan", "a number of hours above 0"),
        ("--amplification 0.5", "'--amplification <LIMIT>': expected a finite number of at least 1"),
        ("-o no/plan.json", "does not exist"),
    ] {
        refused(path, &format!("{PLAN} {options}"), expected);
    }
    let too_soon =
        "plan --model digits-cnn --gpus 2 --device cpu-core --to-accuracy curve.json --within 1e-9";
    refused(path, too_soon, "nothing reaches the target within 0.000 h: the soonest, ");
    let without = "plan --model digits-cnn --gpus 4 --device cpu-core";
    refused(path, &format!("{without} --to-accuracy none.json"), "none.json: ");
    refused(
        path,
        &format!("{without} --batch 32 --within 2"),
        "--batches and --within are for --to-accuracy",
    );
    refused(
        path,
        "plan --model digits-cnn --gpus 4 --to-accuracy curve.json",
        "give --device NAME or --profile FILE",
    );
    fs::write(path.join("bad.json"), CURVE.replace("64", "6")).unwrap();
    refused(
        path,
        &format!("{without} --to-accuracy bad.json"),
        "bad.json: not a valid epoch curve: at `points[1].batch`",
    );

    let output = deeppool(
        path,
        "plan --model resnet-34 --gpus 64 --device a100 --mode dp --to-accuracy resnet-50 --batches 1632 \
         --memory 16GB",
    );
    let errors = String::from_utf8(output.stderr).unwrap();
    let [first, second] = errors.lines().collect::<Vec<_>>()[..] else { panic!("{errors}") };
    assert_eq!(first, "warning: the epochs are those of `resnet-50`, which stands in for `resnet-34`");
    assert!(
        second.starts_with("warning: left out 1 of 7 candidates, which have no plan, such as 1 x 1 GPUs")
    );
    assert!(second.contains("at batch 1632: no plan fits"), "{second}");
}
