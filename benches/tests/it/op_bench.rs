//! Tests of the `op-bench` command on an emulated GPU.

use std::process::Command;

use cuda_emulator::Emulator;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{Bench, text};

const BENCH: Bench = Bench(env!("CARGO_BIN_EXE_op-bench"));

fn on_emulator(arguments: &str) -> Command {
    let mut command = BENCH.command();
    command.args(arguments.split_whitespace());
    command.env("DEEPPOOL_EMULATED_GPUS", "1").env("CUDA_EMULATOR_KERNEL_NS", "20000");
    command.env("CUDA_EMULATOR_LIBRARY", Emulator::library().unwrap());
    command
}

#[test]
fn every_kernel_of_an_iteration_is_timed() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("found.json");
    let run = format!("--model digits-cnn --batch 2 --repeats 1 --out {}", out.display());
    let output = on_emulator(&run).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("digits-cnn, 2 samples, f32") && table.contains("virtual times"), "{table}");

    let report: Value = serde_json::from_str(&std::fs::read_to_string(out).unwrap()).unwrap();
    assert_eq!(report["schema"], "deeppool/op-bench/v1");
    assert_eq!((&report["times"], &report["batch"]), (&"virtual".into(), &2.into()));
    let rows = report["rows"].as_array().unwrap();
    let mut compared = 0;
    for row in rows {
        // Each launch takes as long as the emulator is told.
        let launches = row["launches"].as_f64().unwrap();
        assert_eq!(row["time_us"], Value::from(20.0 * launches), "{row}");
        assert!(launches >= 1.0, "{row}");
        let operation = row["operation"].as_str().unwrap();
        let library = match operation.split(' ').next().unwrap() {
            "conv2d" => "cuDNN",
            "linear" => "cuBLASLt",
            _ => {
                assert!(row["candidate"] == "own" && row["parts"].as_array().unwrap().is_empty(), "{row}");
                continue;
            }
        };
        for part in row["parts"].as_array().unwrap() {
            let candidates = part["candidates"].as_array().unwrap();
            let names: Vec<_> =
                candidates.iter().map(|candidate| candidate["name"].as_str().unwrap()).collect();
            assert!(names[0].starts_with(library) && names.last() == Some(&"own"), "{part}");
            assert!(candidates.iter().all(|candidate| candidate["time_us"].as_f64() > Some(0.0)), "{part}");
        }
        compared += row["parts"].as_array().unwrap().len();
    }
    assert!(compared >= 10, "{compared} parts with several candidates");
    let steps: Vec<&Value> = rows.iter().flat_map(|row| row["steps"].as_array().unwrap()).collect();
    for network_layer in ["conv1", "conv2_3x3", "concat", "pool1", "dropout", "fc2", "loss"] {
        for phase in ["forward", "backward"] {
            let is_step = |step: &&Value| step["layer"] == network_layer && step["phase"] == phase;
            assert!(steps.iter().any(is_step), "{phase} {network_layer}");
        }
    }
    assert!(steps.iter().any(|step| step["phase"] == "update"));
    // A convolution of 2 samples from 1x8x8 to 16x8x8 with 3x3 filters.
    assert_eq!(rows[0]["bytes"], 4 * (2 * 64 + 16 * 9 + 16 + 2 * 1024));
}

#[test]
fn kernels_for_tensor_cores_are_timed_in_either_order_of_images() {
    let report = |options: &str| -> Value {
        let run = format!("--model digits-cnn --batch 2 --repeats 1 --json --precision bf16 {options}");
        let output = on_emulator(&run).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let last = report("--image-layout channels-last");
    assert_eq!((&last["precision"], &last["image_layout"]), (&"bf16".into(), &"channels-last".into()));
    let rows = last["rows"].as_array().unwrap();
    let convolutions = rows.iter().filter(|row| row["operation"].as_str().unwrap().starts_with("conv2d"));
    let parts = convolutions.flat_map(|row| row["parts"].as_array().unwrap());
    let is_of_cudnn = |part: &Value| part["chosen"].as_str().unwrap().starts_with("cuDNN");
    assert!(parts.clone().count() >= 10 && parts.clone().all(is_of_cudnn), "{last}");
    // Emulated launches take equal times. Own kernels need fewer launches, and exist only with
    // channels first.
    let fastest = report("");
    let us = fastest["image_layouts_us"].as_array().unwrap();
    assert_eq!(fastest["image_layout"], "channels-first");
    assert!(us[0].as_f64().unwrap() < us[1].as_f64().unwrap(), "{fastest}");
}

#[test]
fn bad_input_is_one_line_with_the_cause() {
    BENCH.refused("--batch 2", "--model");
    BENCH.refused("--model resnet-99", "unknown model `resnet-99`");
    BENCH.refused("--model digits-cnn --batch 0", "--batch");
    BENCH.refused("--model digits-cnn --precision f64", "expected f32, tf32 or bf16");
    BENCH.refused("--model digits-cnn --image-layout nhwc", "expected channels-first or channels-last");
    BENCH.refused("--onnx /nowhere/net.onnx", "/nowhere/net.onnx: ");
    BENCH.refused("--model digits-cnn --onnx /nowhere/net.onnx", "--onnx");
}
