//! Samples, options and GPUs that a command leaves out or changes: one line on standard error has
//! their number.

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{refused, warned};

const TRAIN: &str = "train --model digits-cnn --data digits";
const PLAN: &str = "plan --model digits-cnn --device cpu-core";

/// Checks that a call prints a warning that begins with `expected`, and no other one.
fn warns(folder: &TempDir, arguments: &str, expected: &str) {
    let (_, warnings) = warned(folder.path(), arguments);
    assert!(warnings.len() == 1 && warnings[0].starts_with(expected), "{arguments}: {warnings:?}");
}

/// Checks that a call prints no warning. Returns standard output.
fn silent(folder: &TempDir, arguments: &str) -> String {
    let (said, warnings) = warned(folder.path(), arguments);
    assert!(warnings.is_empty(), "{arguments}: {warnings:?}");
    said
}

#[test]
fn samples_that_fill_no_batch_are_counted() {
    let folder = TempDir::new().unwrap();
    let train = format!("{TRAIN} --ranks 1 --json");
    let expected = "each epoch leaves out 461 of 1437 training samples, which do not fill a batch of 488";
    warns(&folder, &format!("{train} --batch 488 --epochs 1"), expected);
    warns(&folder, &format!("{train} --batch 488 --iterations 2"), expected);
    // Less than an epoch, and a batch that divides the samples.
    silent(&folder, &format!("{train} --batch 488 --iterations 1"));
    let report: Value =
        serde_json::from_str(&silent(&folder, &format!("{train} --batch 479 --epochs 1"))).unwrap();
    assert_eq!(report["losses"].as_array().unwrap().len(), 3);
}

#[test]
fn changed_options_of_training_are_counted() {
    let folder = TempDir::new().unwrap();
    let train = format!("{TRAIN} --batch 8 --iterations 1 --json");
    warns(
        &folder,
        &format!("{train} --ranks 1 --policy naive"),
        "left out --policy, which is for background",
    );
    silent(&folder, &format!("{train} --ranks 1 --policy naive --background digits-cnn:8"));
    warns(&folder, &format!("{train} --ranks 1 --timeout 60"), "left out --timeout 60, which is for ranks");
    let (_, warnings) = warned(folder.path(), &format!("{train} --ranks 2 --threads-per-rank 1000"));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let expected = format!("the ranks share {cores} threads, one for each core, instead of");
    assert!(warnings.len() == 1 && warnings[0].starts_with(&expected), "{warnings:?}");
    assert!(warnings[0].ends_with("which makes 2000"), "{warnings:?}");
}

#[test]
fn repeated_batches_are_counted() {
    let folder = TempDir::new().unwrap();
    let epochs = "epochs --model digits-cnn --data digits --seeds 1 --target 0.01 -o curve.json";
    warns(
        &folder,
        &format!("{epochs} --batches 479,479,479"),
        "left out 2 of 3 --batches, which are there twice",
    );
    silent(&folder, &format!("{epochs} --batches 479"));
}

#[test]
fn gpus_and_gpu_counts_that_cannot_be_used_are_counted() {
    let folder = TempDir::new().unwrap();
    let few = format!("{PLAN} --gpus 8 --batch 3 --json");
    warns(&folder, &format!("{few} --mode dp"), "left out 5 of 8 GPUs: ");
    let simulate = few.replace("plan", "simulate");
    warns(&folder, &format!("{simulate} --mode dp"), "left out 5 of 8 GPUs: ");
    let counts = format!("{PLAN} --gpus 4 --batch 8 --gpu-counts");
    warns(
        &folder,
        &format!("{counts} 1,2,16,5"),
        "left out 2 of --gpu-counts 1,2,16,5: more than the 4 GPUs",
    );
    silent(&folder, &format!("{counts} 1,2,4"));
}

#[test]
fn plans_without_room_for_background_jobs_are_counted() {
    let folder = TempDir::new().unwrap();
    let compare = "plan --model vgg16 --device a100 --gpus 2 --batch 8 --compare --json";
    let (_, warnings) = warned(folder.path(), &format!("{compare} --memory 4GB"));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let counts: Vec<usize> = warnings[0].split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(warnings[0].starts_with("left out ") && counts[0] > 0 && counts[0] <= counts[1], "{warnings:?}");
    silent(&folder, compare);
    // Half of the batch fits on each of two GPUs, and the whole batch on none.
    let half = compare.replace("--batch 8", "--batch 64 --memory 5.5GB --background digits-cnn:8");
    warns(&folder, &half, "left out data parallelism on 1 of the GPU counts, ");
}

#[test]
fn options_without_effect_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let dp = format!("{PLAN} --gpus 4 --batch 8 --mode dp");
    refused(path, &format!("{dp} --amplification 2"), "--amplification is for burst plans");
    refused(path, &format!("{dp} --gpu-counts 1,2"), "--gpu-counts is for burst plans");
    refused(
        path,
        &format!("{TRAIN} --ranks 2 --batch 8 --iterations 1 --mode dp --amplification 3"),
        "--amplification is for burst plans",
    );
    for options in ["--batches 16", "--within 2"] {
        refused(path, &format!("plan --problem p.json {options}"), "--batches and --within are for");
    }
    let to_accuracy = format!("{PLAN} --gpus 4 --to-accuracy resnet-50");
    for options in ["--background vgg16:8", "--limit-rule total"] {
        refused(path, &format!("{to_accuracy} {options}"), "cannot be used with");
    }
}
