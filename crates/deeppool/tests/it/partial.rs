//! Commands with partial backpropagation.

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{json, losses, refused, succeed};

const PLAN: &str = "plan --model vgg16 --device a100 --gpus 8 --batch 32";
const TRAIN: &str = "train --model digits-cnn --data digits --batch 32 --json";

#[test]
fn a_plan_says_what_is_partial_and_takes_what_is_simulated() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let whole = json(path, &format!("{PLAN} --mode dp --json"));
    assert!(whole["lowering"].get("partial").is_none());
    for depth in ["layers", "time"] {
        let plan = json(path, &format!("{PLAN} --mode dp --spb 4 --spb-depth {depth} -o plan.json --json"));
        let partial = &plan["lowering"]["partial"];
        assert_eq!(
            (partial["parts"].as_u64(), partial["lowest"].as_array().map(Vec::len)),
            (Some(4), Some(3))
        );
        let simulated = json(path, "simulate --model vgg16 --plan plan.json --json");
        let us = |report: &Value, field: &str| report[field].as_f64().unwrap();
        let ratio = us(&simulated, "iteration_us") / us(&plan, "iteration_us");
        assert!((ratio - 1.0).abs() < 1e-9, "{depth}: {ratio}");
        assert!(us(&plan, "iteration_us") < us(&whole, "iteration_us"));
        let saved = if depth == "layers" { 0.8 } else { 0.92 };
        assert!(us(&plan, "computing_us") < saved * us(&whole, "computing_us"));
    }
    // Within its limit, and no slower than data parallelism there.
    let burst = json(path, &format!("{PLAN} --spb 4 --amplification 1.6 --json"));
    assert!(burst["amplification"].as_f64() <= Some(1.6));
    assert!(burst["iteration_us"].as_f64() <= burst["dp"]["iteration_us"].as_f64());
    assert_eq!(json(path, &format!("{PLAN} --spb 1 --json")), json(path, &format!("{PLAN} --json")));
}

/// As whole backpropagation does, with what several iterations hold.
#[test]
fn plans_keep_what_they_are_asked_for() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let peak = |plan: &Value| plan["memory_peak_bytes"].as_u64().unwrap();
    let free = json(path, &format!("{PLAN} --mode dp --spb 4 --json"));
    let limit = peak(&free) - 1_000_000;
    // A gigabyte is the system's.
    let memory = limit + 1_000_000_000;
    for mode in ["dp", "burst"] {
        let kept = json(path, &format!("{PLAN} --mode {mode} --spb 4 --memory {memory} -o kept.json --json"));
        assert!(peak(&kept) <= limit, "{mode}");
    }
    refused(path, &format!("{PLAN} --spb 4 --memory 1100MB"), "no plan fits");
    let few = json(path, &format!("{PLAN} --spb 4 --gpu-counts 1,2 --json"));
    assert!(few["layers"].as_array().unwrap().iter().all(|layer| layer["gpus"].as_u64() <= Some(2)));
}

#[test]
fn training_goes_on_amid_a_rotation() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let undisturbed = losses(&json(path, &format!("{TRAIN} --ranks 3 --spb 4 --iterations 7")));
    let mut found = Vec::new();
    for until in [2, 5, 7] {
        let kept = "--checkpoint kept --resume";
        let run = format!("{TRAIN} --ranks 3 --spb 4 --iterations {until} {kept}");
        found.extend(losses(&json(path, &run)));
    }
    assert_eq!(undisturbed, found);
    // A plan's file says it.
    let plan = "plan --model digits-cnn --device cpu-core --gpus 3 --batch 32 --spb 4 -o plan.json";
    succeed(path, plan);
    let planned = losses(&json(path, &format!("{TRAIN} --plan plan.json --iterations 7")));
    let off = planned.iter().zip(&undisturbed).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off < 1e-5, "{off:.1e}");
}

#[test]
fn what_cannot_be_is_one_line() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    refused(path, &format!("{PLAN} --spb 33"), "at most the samples of the batch");
    refused(path, &format!("{PLAN} --spb 0"), "--spb");
    refused(path, &format!("{PLAN} --spb-depth time"), "--spb");
    refused(path, &format!("{PLAN} --spb 4 --compare"), "--compare");
    refused(path, &format!("{PLAN} --spb 4 --explain"), "--explain");
    succeed(path, &format!("{PLAN} --spb 2 --mode dp -o plan.json"));
    refused(path, "lower --model vgg16 --plan plan.json -o program.json", "--iteration");
    succeed(path, "lower --model vgg16 --plan plan.json -o program.json --iteration 3");
    let program: Value =
        serde_json::from_str(&std::fs::read_to_string(path.join("program.json")).unwrap()).unwrap();
    let ops = program["ranks"][0]["steps"].as_array().unwrap().iter().map(|step| step["op"].as_str());
    assert!(ops.flatten().any(|op| op == "scale_gradient"));
    let text = std::fs::read_to_string(path.join("plan.json")).unwrap();
    for (from, to, expected) in [
        ("features.14", "features.99", "features.99"),
        ("\"parts\": 2", "\"parts\": 0", "lowering.partial.parts"),
        ("\"parts\": 2", "\"parts\": 33", "lowering.partial.parts"),
        ("\"parts\": 2", "\"parts\": 8", "lowering.partial.lowest"),
    ] {
        assert!(text.contains(from), "{from}");
        std::fs::write(path.join("other.json"), text.replace(from, to)).unwrap();
        refused(path, "simulate --model vgg16 --plan other.json", expected);
    }
}
