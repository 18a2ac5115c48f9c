//! `deeppool train --background`: sharing between jobs, and resuming from checkpoints.

use std::path::Path;

use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{json, newest_checkpoint, refused, succeed};

const TRAIN: &str = "train --model digits-cnn --data digits --batch 32 --json";
/// Links with which the plan uses both ranks, and each waits for the other.
const LINK: &str = "--link shared-memory";

fn numbers(values: &Value) -> Vec<f64> {
    values.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

/// Reads a file of the newest checkpoint.
fn kept(folder: &Path, name: &str) -> Vec<u8> {
    let newest = newest_checkpoint(&folder.join("run")).unwrap();
    std::fs::read(folder.join("run").join(newest).join(name)).unwrap()
}

/// Returns the number of iterations of a copy of a job in the newest checkpoint.
fn iterations(folder: &Path, name: &str) -> u64 {
    let bytes = kept(folder, name);
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    header.metadata().as_ref().unwrap()["iterations"].parse().unwrap()
}

/// Returns the largest difference of two elements, relative to the largest element of the tensor.
fn difference(some: &[u8], others: &[u8]) -> f32 {
    let (some, others) = (SafeTensors::deserialize(some).unwrap(), SafeTensors::deserialize(others).unwrap());
    assert_eq!(some.len(), others.len());
    let values = |bytes: &[u8]| -> Vec<f32> {
        bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    };
    let of = |(name, tensor): (&str, safetensors::tensor::TensorView<'_>)| {
        let (own, other) = (values(tensor.data()), values(others.tensor(name).unwrap().data()));
        assert_eq!(own.len(), other.len(), "{name}");
        let largest = own.iter().map(|value| value.abs()).fold(f32::MIN_POSITIVE, f32::max);
        own.iter().zip(&other).map(|(own, other)| (own - other).abs() / largest).fold(0.0, f32::max)
    };
    some.iter().map(of).fold(0.0, f32::max)
}

/// Checks that each copy of a background job equals a run of its network alone with as many
/// iterations, with the parameters of the seed of the run, on samples in the order of that seed
/// plus one and the rank. `engine` is the engine of the run beside it.
fn goes_on(engine: &str, iterations_of_foreground: [u64; 2], limit: f32) {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    succeed(path, "export --model digits-cnn --seed 0 -o seed0.safetensors");
    let mut before = 0;
    for until in iterations_of_foreground {
        let kept_in = "--checkpoint run --checkpoint-every 4 --resume";
        let run = format!(
            "{TRAIN} {engine} --mode dp --device a100 --policy naive --background digits-cnn:8 --iterations \
             {until} {kept_in}"
        );
        let report = json(path, &run);
        for rank in 0..2 {
            let name = format!("background-0-rank-{rank}.safetensors");
            let done = iterations(path, &name);
            assert_eq!(report["background"]["jobs"][0]["iterations"][rank], done);
            let alone = format!(
                "train --model digits-cnn --data digits --ranks 1 --batch 8 --iterations {done} --seed {} \
                 --init seed0.safetensors \
                 --checkpoint alone-{until}-{rank} --json",
                rank + 1
            );
            let losses = numbers(&json(path, &alone)["losses"]);
            let newest = newest_checkpoint(&path.join(format!("alone-{until}-{rank}"))).unwrap();
            let alone = path.join(format!("alone-{until}-{rank}")).join(newest).join("rank-0.safetensors");
            let difference = difference(&kept(path, &name), &std::fs::read(alone).unwrap());
            println!("{engine}: rank {rank} after {done} iterations: {difference:.1e}");
            assert!(difference <= limit, "{difference:.1e}");
            let loss = report["background"]["jobs"][0]["losses"][rank].as_f64().unwrap();
            assert!((loss - losses.last().unwrap()).abs() < 1e-4 * loss.abs().max(1.0), "{loss} {losses:?}");
            if rank == 0 {
                assert!(done > before, "{done} iterations, and {before} before");
                before = done;
            }
        }
    }
}

#[test]
fn background_jobs_resume_from_a_checkpoint() {
    goes_on("--ranks 2", [40, 80], 0.0);
}

#[cfg(feature = "cuda")]
#[test]
fn background_jobs_resume_from_a_checkpoint_on_gpus() {
    goes_on("--engine cuda --gpus 2 --emulate-gpus 2", [4, 8], 1e-4);
}

/// The jobs are of another network, with more ranks than before, or new.
#[test]
fn jobs_without_state_in_the_checkpoint_start_anew() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let run = |until: usize, options: &str| {
        let kept = "--checkpoint run --checkpoint-every 10 --resume";
        json(path, &format!("{TRAIN} --iterations {until} --device a100 {LINK} {kept} {options}"))
    };
    run(20, "--ranks 1 --background digits-cnn:8");
    let done = iterations(path, "background-0-rank-0.safetensors");
    run(40, "--ranks 2 --background digits-cnn:8 --background digits-cnn:4");
    for rank in 0..2 {
        assert!(iterations(path, &format!("background-0-rank-{rank}.safetensors")) >= done);
    }
    assert!(iterations(path, "background-1-rank-1.safetensors") > 0);
}

/// On processors device time includes that of other processes, so that the shares are only roughly
/// as the weights: the tests of gpu-mux check them exactly, with a clock of their own.
#[test]
fn the_job_of_larger_weight_gets_more_device_time() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let two = "--background digits-cnn:8 --background digits-cnn:8 --device a100";
    let report =
        json(path, &format!("{TRAIN} --ranks 2 --iterations 200 {two} {LINK} --background-weights 100,1"));
    let jobs = report["background"]["jobs"].as_array().unwrap();
    let rates: Vec<f64> = jobs.iter().map(|job| job["samples_per_s"].as_f64().unwrap()).collect();
    assert!(rates[0] > 4.0 * rates[1], "{rates:?}");
    let all = report["background_samples_per_s"].as_f64().unwrap();
    assert!((rates.iter().sum::<f64>() / all - 1.0).abs() < 1e-6, "{rates:?} {all}");
    assert!(report["simulated_iteration_us"].is_null(), "the simulator has one background job a GPU");

    refused(
        path,
        &format!("{TRAIN} --ranks 2 {two} --background-weights 1"),
        "1 weights for 2 background jobs",
    );
    refused(path, &format!("{TRAIN} --ranks 2 {two} --background-weights 1,0"), "background-weights");
    refused(path, &format!("{TRAIN} --ranks 2 --background-weights 1"), "--background");
}
