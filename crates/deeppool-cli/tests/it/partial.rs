//! Commands with partial backpropagation.

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{json, losses, refused, succeed};

const PLAN: &str = "plan --model vgg16 --device a100 --gpus 8 --batch 32";
const TRAIN: &str = "train --model digits-cnn --data digits --batch 32 --json";

#[test]
fn planned_times_equal_simulated_times() {
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
    // The burst plan keeps its limit and is at least as fast as data parallelism.
    let burst = json(path, &format!("{PLAN} --spb 4 --amplification 1.6 --json"));
    assert!(burst["amplification"].as_f64() <= Some(1.6));
    assert!(burst["iteration_us"].as_f64() <= burst["dp"]["iteration_us"].as_f64());
    assert_eq!(json(path, &format!("{PLAN} --spb 1 --json")), json(path, &format!("{PLAN} --json")));
}

/// Reports for each rank the computation and memory of each of its roles.
#[test]
fn simulations_report_the_times_of_each_rank() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let simulate = "simulate --model vgg16 --device a100 --gpus 8 --batch 32";
    let number = |value: &Value, field: &str| value[field].as_f64().unwrap();
    let parts = ["computing_us", "communicating_us", "idle_us"];
    let burst = "--amplification 1.6";
    for options in ["--mode dp --spb 4", "--mode dp --spb 3 --background vgg16:8", "--spb 2", burst] {
        let report = json(path, &format!("{simulate} {options} --json"));
        let by_rank = report["by_rank"].as_array().unwrap();
        assert_eq!(by_rank.len(), 8);
        for rank in by_rank {
            let all: f64 = parts.iter().map(|part| number(rank, part)).sum();
            assert!((all / number(&report, "iteration_us") - 1.0).abs() < 1e-6, "{options}: {rank}");
        }
        for part in parts {
            let sum: f64 = by_rank.iter().map(|rank| number(rank, part)).sum();
            assert!((sum - number(&report, part)).abs() < 1.0, "{options}: {part}");
        }
    }
    let report = json(path, &format!("{simulate} --mode dp --spb 4 --json"));
    let (mut computing, mut needed) = (Vec::new(), Vec::new());
    for rank in report["by_rank"].as_array().unwrap() {
        let iterations = rank["by_iteration"].as_array().unwrap();
        let mean = iterations.iter().map(|of| number(of, "computing_us")).sum::<f64>() / 4.0;
        assert!((mean / number(rank, "computing_us") - 1.0).abs() < 1e-3, "{rank}");
        let mut of_rank: Vec<(f64, f64)> =
            iterations.iter().map(|of| (number(of, "computing_us"), number(of, "needed_bytes"))).collect();
        of_rank.sort_by(|a, b| a.partial_cmp(b).unwrap());
        computing.push(of_rank[0].0 / of_rank[3].0);
        needed.push(of_rank[3].1 - of_rank[0].1);
    }
    // Shallow roles compute less and keep fewer activations.
    assert!(computing.iter().all(|&share| share < 0.6), "{computing:?}");
    assert!(needed.iter().all(|&bytes| bytes > 1e6), "{needed:?}");
    let whole = json(path, &format!("{simulate} {burst} --json"));
    assert!(whole["by_rank"].as_array().unwrap().iter().all(|rank| rank.get("by_iteration").is_none()));
    let text = succeed(path, &format!("{simulate} --mode dp --spb 4"));
    assert!(text.contains("Where each rank's time goes"), "{text}");
}

/// Memory limits include what several iterations keep.
#[test]
fn partial_plans_keep_memory_limits_and_gpu_counts() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let peak = |plan: &Value| plan["memory_peak_bytes"].as_u64().unwrap();
    let free = json(path, &format!("{PLAN} --mode dp --spb 4 --json"));
    // Data parallelism cannot do with less: the gradients of its rotation are the larger part.
    for (mode, limit) in [("dp", peak(&free)), ("burst", peak(&free) - 1_000_000)] {
        // 1 GB is reserved.
        let memory = limit + 1_000_000_000;
        let kept = json(path, &format!("{PLAN} --mode {mode} --spb 4 --memory {memory} -o kept.json --json"));
        assert!(peak(&kept) <= limit, "{mode}");
    }
    refused(path, &format!("{PLAN} --spb 4 --memory 1100MB"), "no plan fits");
    let few = json(path, &format!("{PLAN} --spb 4 --gpu-counts 1,2 --json"));
    assert!(few["layers"].as_array().unwrap().iter().all(|layer| layer["gpus"].as_u64() <= Some(2)));
}

#[test]
fn training_resumes_within_a_rotation() {
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
    // With a plan file.
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
