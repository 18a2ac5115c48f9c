//! `deeppool train --background`: sharing between jobs, and resuming from checkpoints.

use std::path::Path;

use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, json, newest_checkpoint, refused, succeed};
use crate::comparison::random_plan;

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

/// Writes `pipeline.json`: a plan on four ranks in which each layer is on another rank than the one
/// before, so that all ranks wait most of the time.
fn pipeline_plan(folder: &Path) {
    let plan = "plan --model digits-cnn --device cpu-core --batch 32 --gpus 4 --mode dp --json";
    let mut plan = json(folder, plan);
    for (index, layer) in plan["layers"].as_array_mut().unwrap().iter_mut().enumerate() {
        layer["ranks"] = serde_json::json!([index % 4]);
        layer["gpus"] = 1.into();
    }
    std::fs::write(folder.join("pipeline.json"), plan.to_string()).unwrap();
}

/// Checks that jobs on some of four ranks learn what they learn alone, also after they resume.
/// `launch` is the command before `train`, and `ranks` its option.
fn jobs_on_some_ranks_learn(launch: &str, ranks: &str) {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    random_plan(path, 3);
    pipeline_plan(path);
    let foreground = format!("{TRAIN} {ranks} --plan pipeline.json --policy naive");
    let plain = foreground.replace(" --policy naive", "");
    let without = numbers(&json(path, &format!("{launch} {plain} --iterations 60"))["losses"]);
    let specs = ["digits-cnn:16@2", "digits-cnn:32@random3.json", "digits-cnn:8@1"];
    let options = specs.map(|spec| format!("--background {spec}")).join(" ");
    let kept = "--checkpoint run --checkpoint-every 15 --resume";
    let mut first = [0; 3];
    for until in [30, 60] {
        let report = json(path, &format!("{launch} {foreground} {options} {kept} --iterations {until}"));
        let begun = report["first_iteration"].as_u64().unwrap() as usize;
        let losses = numbers(&report["losses"]);
        let largest = losses.iter().zip(&without[begun..]).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(largest <= if launch.is_empty() { 0.0 } else { 1e-4 }, "{largest}");
        for (index, (size, batch)) in [(2, 16), (3, 32), (1, 8)].into_iter().enumerate() {
            let job = &report["background"]["jobs"][index];
            assert_eq!(job["name"], format!("digits-cnn:{batch}@{size}"));
            assert_eq!(job["ranks"].as_array().unwrap().len(), size);
            let found = numbers(&job["iteration_losses"]);
            let done = first[index] + found.len();
            assert_eq!(job["iterations"], serde_json::json!([done]));
            let seed = index + 1;
            let alone = format!(
                "train --model digits-cnn --data digits --ranks 1 --batch {batch} --iterations {done} --seed \
                 {seed} --json"
            );
            let alone = numbers(&json(path, &alone)["losses"]);
            let pairs = alone[first[index]..].iter().zip(&found);
            let largest = pairs.map(|(alone, beside)| (alone - beside).abs()).fold(0.0, f64::max);
            println!("{}: {} iterations, {largest:.1e}", specs[index], found.len());
            assert!(!found.is_empty() && largest <= 1e-4, "{alone:?} {found:?}");
            first[index] = done;
        }
    }
}

#[test]
fn jobs_on_some_ranks_learn_what_they_learn_alone() {
    jobs_on_some_ranks_learn("", "--ranks 4");
}

#[cfg(feature = "mpi")]
#[test]
fn jobs_on_some_processes_learn_what_they_learn_alone() {
    if std::process::Command::new("mpirun").arg("--version").output().is_err() {
        println!("SKIPPED: there is no mpirun on the PATH");
        return;
    }
    jobs_on_some_ranks_learn("launch --ranks 4 --", "");
}

#[test]
fn jobs_on_ranks_that_do_not_exist_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    random_plan(path, 3);
    let run = format!("{TRAIN} --ranks 2 --iterations 2 --background");
    refused(path, &format!("{run} digits-cnn:8@3"), "needs 3 ranks, and the run has 2");
    refused(path, &format!("{run} digits-cnn:32@random3.json"), "needs 3 ranks, and the run has 2");
    refused(path, &format!("{run} digits-cnn:8@random3.json"), "32 samples a batch, not 8");
    refused(path, &format!("{run} digits-cnn:1@2"), "2 ranks are more than the 1 samples");
    let shown = command(path, &format!("{} digits-cnn:8@1", run.replace(" --json", ""))).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("digits-cnn:8@1") && shown.contains(", ranks 1"), "{shown}");
}

#[cfg(feature = "cuda")]
#[test]
fn jobs_of_several_gpus_are_refused_and_a_job_of_one_gpu_learns() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let gpus = "--engine cuda --gpus 2 --emulate-gpus 2 --mode dp --device a100 --policy naive";
    let run = format!("{TRAIN} {gpus} --iterations 6 --background");
    refused(path, &format!("{run} digits-cnn:8@2"), "needs collectives");
    let report = json(path, &format!("{run} digits-cnn:8@1"));
    let job = &report["background"]["jobs"][0];
    let found = numbers(&job["iteration_losses"]);
    let alone = format!(
        "train --model digits-cnn --data digits --ranks 1 --batch 8 --iterations {} --seed 1 --json",
        found.len()
    );
    let alone = numbers(&json(path, &alone)["losses"]);
    assert_eq!(
        (&job["ranks"], &job["iterations"]),
        (&serde_json::json!([1]), &serde_json::json!([found.len()]))
    );
    assert!(!found.is_empty());
    assert!(
        alone.iter().zip(&found).all(|(alone, beside)| (alone - beside).abs() <= 1e-4),
        "{alone:?} {found:?}"
    );
}
