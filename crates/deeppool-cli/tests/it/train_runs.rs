//! `deeppool train`: ends, signals, checkpoints, metrics and traces of runs.

use std::process::{Command, Stdio};
use std::time::Duration;

use command_line::files::LockedFile;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, deeppool, files, json, losses, newest_checkpoint, refused, succeed};

const TRAIN: &str = "train --model digits-cnn --data digits --ranks 2 --batch 32";

#[test]
fn non_finite_values_end_a_run_and_keep_the_last_checkpoint() {
    let folder = TempDir::new().unwrap();
    let output = deeppool(folder.path(), &format!("{TRAIN} --lr 1e30 --checkpoint run --checkpoint-every 1"));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    for said in ["iteration 2", "is NaN on rank ", "the output of layer `conv", "smaller learning rate"] {
        assert!(errors.contains(said), "{said}: {errors}");
    }
    // Parameters are large but finite after the first iteration.
    assert_eq!(files(&folder.path().join("run")), ["iteration-0000000001"]);
    // Parameters are not finite after the first iteration.
    let output =
        deeppool(folder.path(), &format!("{TRAIN} --lr 1e300 --checkpoint other --checkpoint-every 1"));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(errors.contains("not finite"), "{errors}");
    let kept = files(&folder.path().join("other"));
    assert!(kept.iter().all(|name| name.ends_with("unfinished")), "{kept:?}");
}

#[test]
fn short_runs_are_prefixes_of_longer_runs() {
    let folder = TempDir::new().unwrap();
    let short = losses(&json(folder.path(), &format!("{TRAIN} --iterations 5 --json")));
    let long = losses(&json(folder.path(), &format!("{TRAIN} --iterations 50 --json")));
    assert_eq!((short.len(), long.len()), (5, 50));
    assert_eq!(short, long[..5]);
}

#[test]
fn resuming_a_finished_run_reports_it() {
    let folder = TempDir::new().unwrap();
    let run = format!("{TRAIN} --iterations 3 --checkpoint run --resume");
    succeed(folder.path(), &run);
    let again = succeed(folder.path(), &run);
    assert!(again.contains("the run is finished") && !again.contains("measured"), "{again}");
}

#[cfg(unix)]
fn signal(process: u32, name: &str) {
    assert!(
        Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap().success()
    );
}

/// The losses before and after a signal equal those of an undisturbed run.
#[cfg(unix)]
#[test]
fn a_stopped_run_writes_a_checkpoint() {
    let folder = TempDir::new().unwrap();
    let run = format!("{TRAIN} --iterations 100000 --checkpoint run --checkpoint-every 10 --resume --json");
    for name in ["TERM", "INT"] {
        let run_folder = folder.path().join("run");
        let before = newest_checkpoint(&run_folder);
        let mut process = command(folder.path(), &run);
        let process = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The run handles signals once it has written a checkpoint.
        while newest_checkpoint(&run_folder) == before {
            std::thread::sleep(Duration::from_millis(10));
        }
        signal(process.id(), name);
        let output = process.wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("stopped after iteration ") && errors.contains("--resume"), "{errors}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let done = report["first_iteration"].as_u64().unwrap() + losses(&report).len() as u64;
        assert_eq!(report["stopped"], true);
        let newest = format!("iteration-{done:010}");
        assert!(files(&folder.path().join("run")).contains(&newest), "{newest}");
    }
    let kept = files(&folder.path().join("run")).pop().unwrap();
    let done: usize = kept.strip_prefix("iteration-").unwrap().parse().unwrap();
    let end = done + 20;
    let rest = format!("{TRAIN} --iterations {end} --checkpoint run --resume --json");
    let rest = losses(&json(folder.path(), &rest));
    let whole = losses(&json(folder.path(), &format!("{TRAIN} --iterations {end} --json")));
    assert_eq!(rest, whole[done..]);
}

#[cfg(unix)]
#[test]
fn a_second_signal_ends_a_run_at_once() {
    let folder = TempDir::new().unwrap();
    // An iteration takes seconds, and the first signal waits for its end.
    let run = "train --model vgg16 --data synthetic --ranks 1 --batch 16 --device a100";
    let mut process = command(folder.path(), run);
    let mut process = process.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // The plan is printed when training starts.
    let mut first = [0];
    std::io::Read::read_exact(process.stdout.as_mut().unwrap(), &mut first).unwrap();
    signal(process.id(), "INT");
    std::thread::sleep(Duration::from_millis(100));
    signal(process.id(), "INT");
    assert_eq!(process.wait().unwrap().code(), Some(130));
}

#[test]
fn plans_from_profiles_are_trained_without_the_profile() {
    let folder = TempDir::new().unwrap();
    // The device is not built in. A measurement beside other tests would be disturbed.
    succeed(folder.path(), "profile --model digits-cnn --device a100 --batches 4,8,16,32 -o profile.json");
    let profile = folder.path().join("profile.json");
    let text = std::fs::read_to_string(&profile).unwrap();
    let text = text.replace("\"a100\"", "\"another GPU\"").replace("\"modelled\"", "\"measured\"");
    std::fs::write(&profile, text).unwrap();
    succeed(
        folder.path(),
        "plan --model digits-cnn --profile profile.json --link shared-memory --gpus 2 --batch 32 -o \
         plan.json",
    );
    let train = "train --model digits-cnn --data digits --plan plan.json --iterations 2";
    let report = json(folder.path(), &format!("{train} --json"));
    assert!(report["planned_iteration_us"].is_number() && report["simulated_iteration_us"].is_null());
    assert!(succeed(folder.path(), train).contains("not known without layer times"));
    let report = json(folder.path(), &format!("{train} --profile profile.json --json"));
    assert!(report["simulated_iteration_us"].is_number());
}

#[test]
fn damaged_checkpoints_are_reported() {
    let folder = TempDir::new().unwrap();
    let run = format!("{TRAIN} --iterations 6 --checkpoint run --checkpoint-every 2 --checkpoint-keep 3");
    succeed(folder.path(), &run);
    let checkpoints = folder.path().join("run");
    assert_eq!(files(&checkpoints), ["iteration-0000000002", "iteration-0000000004", "iteration-0000000006"]);
    std::fs::write(checkpoints.join("iteration-0000000006/rank-0.safetensors"), "cut").unwrap();
    let output = deeppool(folder.path(), &format!("{run} --resume"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("rank-0.safetensors") && said.contains("going on from the one before"), "{said}");
    assert!(
        output.status.success()
            && String::from_utf8(output.stdout).unwrap().contains("resumed after iteration 4")
    );
}

#[test]
fn predictions_include_background_jobs_from_files() {
    let folder = TempDir::new().unwrap();
    let network = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small.onnx");
    std::fs::copy(network, folder.path().join("small.onnx")).unwrap();
    let report = json(folder.path(), &format!("{TRAIN} --iterations 2 --background small.onnx:4 --json"));
    assert_eq!(report["background"]["jobs"][0]["model"], "small");
    assert!(report["simulated_background_samples_per_s"].is_number());
    let text = succeed(folder.path(), &format!("{TRAIN} --iterations 2 --background small.onnx:4"));
    assert!(text.contains("(with the background)"), "{text}");
    let simulate =
        "simulate --model digits-cnn --device a100 --gpus 2 --batch 8 --background small.onnx:4 --json";
    assert!(json(folder.path(), simulate)["background_samples_per_s"].is_number());
}

/// With a large learning rate, the accuracy also falls.
#[test]
fn the_best_checkpoint_is_kept_with_the_newest() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let run = format!(
        "{TRAIN} --lr 0.1 --checkpoint run --checkpoint-keep 1 --checkpoint-best --checkpoint-every 1h --json"
    );
    let first = json(path, &format!("{run} --epochs 3"));
    let second = json(path, &format!("{run} --epochs 8 --resume"));
    let accuracies: Vec<f64> = [first, second]
        .iter()
        .flat_map(|report| report["epochs"].as_array().unwrap().clone())
        .map(|epoch| epoch["test_accuracy"].as_f64().unwrap())
        .collect();
    assert_eq!(accuracies.len(), 8);
    let best = accuracies.iter().copied().fold(0.0, f64::max);
    let epoch = 1 + accuracies.iter().position(|&accuracy| accuracy >= best).unwrap();
    let mut kept = vec![format!("iteration-{:010}", epoch * 44)];
    kept.extend((epoch < 8).then(|| format!("iteration-{:010}", 8 * 44)));
    assert_eq!(files(&path.join("run")), kept);

    let eval = "eval --model digits-cnn --data digits --json --checkpoint run";
    assert_eq!(json(path, &format!("{eval} --best"))["accuracy"].as_f64(), Some(best));
    assert_eq!(json(path, eval)["accuracy"].as_f64(), accuracies.last().copied());
    succeed(path, &format!("{TRAIN} --iterations 2 --checkpoint other"));
    refused(path, &eval.replace("run", "other --best"), "train with --checkpoint-best");
    for every in ["0", "0s", "5 minutes", "-1", "99999999999999999999h"] {
        let error = refused(
            path,
            &format!("{TRAIN} --checkpoint x --checkpoint-every={}", every.replace(' ', "")),
            "30s",
        );
        assert!(error.contains("checkpoint-every"), "{error}");
    }
}

#[test]
fn metrics_are_json_lines_that_resumed_runs_append_to() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let run = format!("{TRAIN} --background digits-cnn:8 --checkpoint run --metrics metrics.jsonl --json");
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(path.join("metrics.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let of = |lines: &[Value], event: &str, field: &str| -> Vec<f64> {
        lines.iter().filter(|line| line["event"] == event).map(|line| line[field].as_f64().unwrap()).collect()
    };
    let first = json(path, &format!("{run} --iterations 50"));
    let second = json(path, &format!("{run} --iterations 90 --resume"));
    let all = lines();
    let losses = [losses(&first), losses(&second)].concat();
    assert_eq!(of(&all, "iteration", "loss"), losses);
    assert_eq!(of(&all, "iteration", "iteration"), (1..=90).map(f64::from).collect::<Vec<_>>());
    assert_eq!(of(&all, "iteration", "epoch")[43..46], [1.0, 2.0, 2.0]);
    assert_eq!(of(&all, "resumed", "iteration"), [50.0]);
    assert_eq!(of(&all, "epoch", "epoch"), [1.0, 2.0]);
    let accuracy = |lines: &[Value]| lines.iter().find_map(|line| line["test_accuracy"].as_f64());
    assert!(accuracy(&all).is_some() && accuracy(&all) == accuracy(first["epochs"].as_array().unwrap()));
    assert_eq!(of(&all, "speed", "iteration").last(), Some(&90.0));
    assert!(of(&all, "speed", "foreground_samples_per_s").iter().all(|&speed| speed > 0.0));
    assert!(of(&all, "speed", "background_samples_per_s").iter().sum::<f64>() > 0.0);

    json(path, &format!("{TRAIN} --iterations 3 --metrics metrics.jsonl --json"));
    assert_eq!(of(&lines(), "iteration", "iteration"), [1.0, 2.0, 3.0], "a new run begins a new file");
    refused(path, &format!("{TRAIN} --metrics none/x"), "make it first");
    let content = std::fs::read(path.join("metrics.jsonl")).unwrap();
    let held = LockedFile::open(path.join("metrics.jsonl")).unwrap();
    refused(path, &format!("{TRAIN} --metrics metrics.jsonl"), "metrics.jsonl: another run is writing this");
    drop(held);
    assert_eq!(std::fs::read(path.join("metrics.jsonl")).unwrap(), content);
    refused(path, &format!("{TRAIN} --metrics - --json"), "--json");
    for checkpoint in files(&path.join("run")) {
        std::fs::write(path.join("run").join(checkpoint).join("checkpoint.json"), "{").unwrap();
    }
    refused(
        path,
        &format!("{TRAIN} --checkpoint run --resume --metrics other.jsonl"),
        "checkpoint.json: EOF",
    );
    assert!(!path.join("other.jsonl").exists(), "a refused run leaves no file");
}

/// Each step occurs once in each of the last three iterations.
#[test]
fn traces_have_the_last_three_iterations_of_every_rank() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let run = format!("{TRAIN} --mode dp --iterations 8 --trace trace.json");
    assert!(succeed(path, &run).contains("foreground"));
    let trace = std::fs::read_to_string(path.join("trace.json")).unwrap();
    let trace: Value = serde_json::from_str(&trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for pid in [1, 2] {
        let of_rank = |event: &&Value| event["pid"] == pid && event["ph"] == "X";
        let names: Vec<&str> =
            events.iter().filter(of_rank).map(|event| event["name"].as_str().unwrap()).collect();
        for step in ["load samples", "forward conv1", "backward fc2", "update fc2"] {
            let times = names.iter().filter(|&&name| name == step).count();
            assert_eq!(times, 3, "{step}: {names:?}");
        }
        let starts = events.iter().filter(of_rank).map(|event| event["ts"].as_f64().unwrap());
        assert!(starts.fold(0.0, f64::max) > 0.0);
    }
    let all_reduces = |event: &&Value| {
        event["cat"] == "communication" && event["args"]["ranks"] == serde_json::json!([0, 1])
    };
    assert!(events.iter().filter(all_reduces).count() >= 6);
    refused(path, &format!("{TRAIN} --iterations 1 --trace none/x"), "make it first");
    refused(path, &format!("{TRAIN} --iterations 1 --trace x --metrics x"), "two results go here");
}
