//! Opaque layers are planned, simulated and counted like other layers, and no engine runs them.

use std::fs;

use layer_graph::{LayerGraph, LayerKind, LayerTensor, Linear, Opaque, OpaquePass, Shape};
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{deeppool, json, refused, succeed};

/// Returns a network with an opaque activation and an opaque loss.
fn network() -> LayerGraph {
    let mut net = LayerGraph::new("net", Shape::features(256)).unwrap();
    let x = net.add("fc1", Linear::new(512), [net.input()]).unwrap();
    let swish = Opaque::new("swish", Shape::features(512))
        .parameters([LayerTensor::new("beta", [])])
        .forward(OpaquePass { flops: 6 * 512, bytes: 8 * 512, kernels: 2 })
        .backward(OpaquePass { flops: 12 * 512, bytes: 16 * 512, kernels: 3 })
        .saved_bytes(4 * 512);
    let x = net.add("act", swish, [x]).unwrap();
    let x = net.add("fc2", Linear::new(10), [x]).unwrap();
    let loss = Opaque::new("mse_loss", Shape::features(1))
        .forward(OpaquePass { flops: 30, bytes: 84, kernels: 1 })
        .backward(OpaquePass { flops: 20, bytes: 84, kernels: 1 })
        .loss(10);
    net.add("loss", loss, [x]).unwrap();
    net
}

/// Returns a folder with the network as a file.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("net.json"), network().to_json()).unwrap();
    folder
}

const SIZE: &str = "--device a100 --batch 32";

#[test]
fn opaque_layers_are_planned_simulated_and_reported() {
    let folder = folder();
    let folder = folder.path();
    let planned = json(folder, &format!("plan --graph net.json {SIZE} --gpus 4 -o plan.json --json"));
    assert_eq!(planned["opaque_layers"], serde_json::json!(["act", "loss"]));
    let simulated = json(folder, "simulate --graph net.json --plan plan.json --json");
    let time = |value: &Value| value["iteration_us"].as_f64().unwrap();
    assert!((time(&simulated) - time(&planned)).abs() < 1e-6 * time(&planned), "{simulated}");

    let models = json(folder, "models --graph net.json --json");
    assert_eq!(models["models"][0]["parameters"], 256 * 512 + 512 + 1 + 512 * 10 + 10);
    assert_eq!(models["models"][0]["opaque_layers"], planned["opaque_layers"]);
    let said = succeed(folder, &format!("plan --graph net.json {SIZE} --gpus 4"));
    assert!(said.contains("2 layers are opaque"), "{said}");
    assert!(said.contains("1 mse_loss, 1 swish"), "{said}");
    succeed(folder, &format!("simulate --graph net.json {SIZE} --gpus 2 --background net.json:8"));
}

/// One worker of two GPUs with different layers on each. These networks cannot be trained.
#[test]
fn recurrent_networks_are_faster_on_two_gpus() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    for (model, at_least) in [("gnmt-in-chunks", 1.6), ("big-lstm", 1.7)] {
        let size = format!("--model {model} --device a100 --gpus 2 --batch 128 --gpu-counts 1");
        let planned = json(folder, &format!("plan {size} -o plan.json --json"));
        let time = |report: &Value, field: &str| report[field].as_f64().unwrap();
        let speed_up = time(&planned, "single_gpu_us") / time(&planned, "iteration_us");
        assert!(speed_up > at_least, "{model}: {speed_up}");
        let simulated = json(folder, &format!("simulate --model {model} --plan plan.json --json"));
        let ratio = time(&simulated, "iteration_us") / time(&planned, "iteration_us");
        assert!((ratio - 1.0).abs() < 1e-3, "{model}: {ratio}");
        let training = format!("train --model {model} --data synthetic --ranks 2 --batch 4");
        refused(folder, &training, "cannot be trained on labelled data");
    }
}

#[test]
fn saved_bytes_of_opaque_layers_count() {
    let folder = folder();
    let folder = folder.path();
    let text = network().to_json().replace("\"saved_bytes\": 2048", "\"saved_bytes\": 1002048");
    std::fs::write(folder.join("more.json"), text).unwrap();
    let peak = |file: &str| {
        let plan = json(folder, &format!("plan --graph {file} {SIZE} --gpus 1 --json"));
        plan["memory_peak_bytes"].as_u64().unwrap()
    };
    // The fullest step is another one, where some other buffers are not in use.
    let more = peak("more.json") - peak("net.json");
    assert!((31_000_000..=32_000_000).contains(&more), "{more}");
}

#[test]
fn engines_reject_opaque_layers() {
    let folder = folder();
    let expected = "layer `act` cannot be measured: of its operation `swish` only the cost is known";
    refused(folder.path(), "profile --graph net.json --engine cpu --batches 1 -o profile.json", expected);

    // With a known loss, so that synthetic data can be generated.
    let mut net = LayerGraph::new("net", Shape::features(64)).unwrap();
    let x = net.add("fc", Linear::new(10), [net.input()]).unwrap();
    let x = net.add("act", Opaque::new("swish", Shape::features(10)), [x]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [x]).unwrap();
    fs::write(folder.path().join("net.json"), net.to_json()).unwrap();
    let expected = "cannot run layer `act`: only the cost of its operation `swish` is known";
    let train = "train --graph net.json --data synthetic --ranks 2 --batch 4 --iterations 1";
    let output = deeppool(folder.path(), train);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains(expected) && errors.trim_end().lines().count() == 1, "{errors}");
}
