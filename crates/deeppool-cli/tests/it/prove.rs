//! `deeppool plan --prove`: the budget of the lower bound.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, json, refused, succeed};

/// A question whose proof takes several times as long as its search.
const HARD: &str = "plan --model inception-v3 --device a100 --gpus 64 --batch 64";

#[test]
fn the_proof_changes_no_plan() {
    let folder = TempDir::new().unwrap();
    let plan = |prove: &str| {
        json(folder.path(), &format!("plan --model vgg11 --device a100 --gpus 4 --batch 32 --json {prove}"))
    };
    let (usual, off, timed) = (plan(""), plan("--prove off"), plan("--prove 100ms"));
    for field in ["layers", "order", "iteration_us", "gpu_time_us"] {
        assert_eq!((&usual[field], &usual[field]), (&off[field], &timed[field]), "{field}");
    }
    assert_eq!(usual, plan("--prove default"));
    assert!(usual["lower_bound_us"].as_f64().unwrap() > 0.0);
    assert_eq!(usual["planning"]["is_reproducible"], true);
    assert!(off["lower_bound_us"].is_null() && off["gap"].is_null());
    assert_eq!(
        (&off["planning"]["proof_end"], &off["planning"]["proof_operations"]),
        (&"off".into(), &0.into())
    );
    assert_eq!(timed["planning"]["is_reproducible"], false);
    let said = succeed(folder.path(), "plan --model vgg11 --device a100 --gpus 2 --batch 32 --prove off");
    assert!(said.contains("no lower bound was asked for"), "{said}");
    refused(
        folder.path(),
        "plan --model vgg11 --device a100 --gpus 2 --batch 32 --prove soon",
        "such as 30s",
    );
}

/// A signal during the search ends the command without a plan, so the test tries again later,
/// until the signal comes during the proof.
#[test]
fn ctrl_c_during_the_proof_prints_the_plan() {
    let folder = TempDir::new().unwrap();
    let mut wait = 200;
    while wait < 60_000 {
        let mut plan = command(folder.path(), &format!("{HARD} --prove 10min --json"));
        let plan = plan.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        let process = plan.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &process]).status().unwrap().success());
        let output = plan.wait_with_output().unwrap();
        if output.status.code() == Some(0) {
            let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(plan["planning"]["proof_end"], "stopped");
            assert_eq!(plan["planning"]["is_reproducible"], false);
            assert!(plan["iteration_us"].as_f64().unwrap() > 0.0);
            return;
        }
        assert!(output.stdout.is_empty());
        wait = wait * 3 / 2;
    }
    panic!("no plan was printed");
}
