//! Checkpoints: a stopped run resumes with the same results.

use std::path::Path;
use std::sync::Mutex;

use deeppool::Error;
use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use deeppool::train::{CheckpointConfig, CheckpointEvery, Length, Progress, TrainConfig, TrainReport, train};
use layer_engine::Precision;
use layer_graph::{LayerGraph, zoo};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use tempfile::TempDir;

const BATCH: usize = 120;
/// Number of whole batches of the 1,437 training samples.
const ITERATIONS_PER_EPOCH: usize = 11;

fn run(
    network: &LayerGraph,
    gpus: usize,
    epochs: u64,
    seed: u64,
    checkpoint: Option<(&Path, bool)>,
) -> Result<TrainReport, Error> {
    run_in(Precision::F32, network, (gpus, epochs, seed), checkpoint)
}

fn run_in(
    precision: Precision,
    network: &LayerGraph,
    (gpus, epochs, seed): (usize, u64, u64),
    checkpoint: Option<(&Path, bool)>,
) -> Result<TrainReport, Error> {
    let dataset = Dataset::digits()?;
    // Every other layer on one rank, so that several ranks write to each checkpoint.
    let ranks = (1..network.len()).map(|i| if i % 2 == 0 { vec![gpus - 1] } else { (0..gpus).collect() });
    let placement = Placement::new(network, gpus, ranks.collect())?;
    let checkpoint = checkpoint.map(|(folder, resume)| {
        CheckpointConfig::new(folder).with_every(CheckpointEvery::Iterations(7)).with_resume(resume)
    });
    let lowering = LowerOptions::default().with_precision(precision);
    let training = LoweredTraining::new(network, placement, BATCH, lowering);
    let config = TrainConfig::new(&dataset, &training)
        .with_length(Length::Epochs(epochs))
        .with_seed(seed)
        .with_checkpoint(checkpoint);
    train(&config, &|_| {})
}

#[test]
fn resumed_run_is_bit_identical_and_other_ranks_agree_to_rounding() {
    let network = zoo::model("digits-cnn").unwrap();
    let whole = run(&network, 2, 3, 0, None).unwrap();
    let folder = TempDir::new().unwrap();
    let first = run(&network, 2, 2, 0, Some((folder.path(), true))).unwrap();
    let done = 2 * ITERATIONS_PER_EPOCH;
    assert_eq!(first.losses, whole.losses[..done]);
    let names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!names.is_empty() && names.iter().all(|name| !name.ends_with("unfinished")), "{names:?}");

    let elsewhere = TempDir::new().unwrap();
    for name in &names {
        let copy = elsewhere.path().join(name);
        std::fs::create_dir(&copy).unwrap();
        for file in std::fs::read_dir(folder.path().join(name)).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
    }
    let second = run(&network, 2, 3, 0, Some((folder.path(), true))).unwrap();
    assert_eq!(second.first_iteration, done as u64);
    assert_eq!(second.losses, whole.losses[done..]);
    let moved = run(&network, 3, 3, 0, Some((elsewhere.path(), true))).unwrap();
    for (a, b) in moved.losses.iter().zip(&second.losses) {
        assert!((a - b).abs() <= 1e-4 * b, "{a} and {b}");
    }
}

/// Checkpoints have the master parameters, by the same names in every precision.
#[test]
fn checkpoints_resume_in_any_precision() {
    let network = zoo::model("digits-cnn").unwrap();
    let (f32, bf16) = (Precision::F32, Precision::Bf16);
    let whole = run_in(bf16, &network, (2, 3, 0), None).unwrap();
    let done = 2 * ITERATIONS_PER_EPOCH;
    for before in [bf16, f32] {
        for after in [bf16, f32] {
            let folder = TempDir::new().unwrap();
            let checkpoint = Some((folder.path(), true));
            let first = run_in(before, &network, (2, 2, 0), checkpoint).unwrap();
            let second = run_in(after, &network, (2, 3, 0), checkpoint).unwrap();
            assert_eq!((first.losses.len(), second.first_iteration), (done, done as u64));
            if (before, after) == (bf16, bf16) {
                assert_eq!([&first.losses[..], &second.losses].concat(), whole.losses);
            }
            for (a, b) in second.losses.iter().zip(&whole.losses[done..]) {
                assert!((a - b).abs() <= 2e-2 * whole.losses[0], "{before:?}, {after:?}: {a} and {b}");
            }
        }
    }
}

#[test]
fn checkpoints_of_other_runs_are_rejected_and_not_overwritten() {
    let network = zoo::model("digits-cnn").unwrap();
    let folder = TempDir::new().unwrap();
    run(&network, 1, 1, 0, Some((folder.path(), false))).unwrap();
    let refused = |seed, resume, expected: &str| {
        let error = run(&network, 1, 2, seed, Some((folder.path(), resume))).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(0, false, "resume");
    refused(1, true, "seed `0`");
}

/// The folder has one run at a time in a process, too, and is free after a run that has failed.
#[test]
fn a_folder_of_checkpoints_has_one_run_at_a_time() {
    let network = zoo::model("digits-cnn").unwrap();
    let folder = TempDir::new().unwrap();
    let second = || run(&network, 1, 1, 0, Some((folder.path(), true)));
    let dataset = Dataset::digits().unwrap();
    let placement = Placement::single(&network).unwrap();
    let training = LoweredTraining::new(&network, placement, BATCH, LowerOptions::default());
    let config = |checkpoint| {
        TrainConfig::new(&dataset, &training).with_length(Length::Epochs(1)).with_checkpoint(Some(checkpoint))
    };
    let refused = Mutex::new(Vec::new());
    let first = CheckpointConfig::new(folder.path());
    first.check().unwrap();
    let report = train(&config(first.clone()), &|at| {
        if matches!(at, Progress::Started) {
            let errors = [second().map(|_| ()), first.clone().with_resume(true).check()];
            refused.lock().unwrap().extend(errors.map(|result| result.unwrap_err().to_string()));
        }
    });
    assert_eq!(report.unwrap().losses.len(), ITERATIONS_PER_EPOCH);
    let refused = refused.into_inner().unwrap();
    let owner = format!("process {} on host", std::process::id());
    assert!(refused.len() == 2 && refused.iter().all(|error| error.contains(&owner)), "{refused:?}");
    assert!(first.check().unwrap_err().to_string().contains("the folder has checkpoints"));

    let failed = config(first.with_resume(true)).with_seed(1);
    assert!(train(&failed, &|_| {}).unwrap_err().to_string().contains("seed `0`"));
    assert_eq!(second().unwrap().first_iteration, ITERATIONS_PER_EPOCH as u64);
    let new = CheckpointConfig::new(folder.path().join("new/run"));
    new.check().unwrap();
    assert!(!folder.path().join("new").exists(), "the check has created the folder");
}

/// Truncates each file, or changes one byte: the previous checkpoint is used, with the same
/// results.
#[test]
fn damaged_checkpoints_are_rejected() {
    let cases = std::env::var("DEEPPOOL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(12);
    let network = zoo::model("digits-cnn").unwrap();
    let folder = TempDir::new().unwrap();
    let whole = run(&network, 2, 1, 0, Some((folder.path(), false))).unwrap();
    let newest = folder.path().join(format!("iteration-{ITERATIONS_PER_EPOCH:010}"));
    let before = folder.path().join("iteration-0000000007");
    let names = ["rank-0.safetensors", "rank-1.safetensors", "checkpoint.json"];
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for case in 0..cases {
        let name = names[case % names.len()];
        // The previous run has written it again.
        let mut damaged = std::fs::read(newest.join(name)).unwrap();
        let place = random.next_u32() as usize % damaged.len();
        if case / names.len() % 2 == 0 {
            damaged.truncate(place);
        } else {
            damaged[place] ^= 1 << (random.next_u32() % 8);
        }
        std::fs::write(newest.join(name), damaged).unwrap();
        let resumed = run(&network, 2, 1, 0, Some((folder.path(), true))).unwrap();
        // A manifest with the same content in other bytes is valid.
        if resumed.first_iteration != ITERATIONS_PER_EPOCH as u64 {
            assert_eq!(resumed.first_iteration, 7, "{name} at {place}");
            assert_eq!(resumed.losses, whole.losses[7..]);
        }
        assert!(before.is_dir(), "the valid checkpoint was removed instead of the damaged one");
    }
    std::fs::remove_file(newest.join("rank-1.safetensors")).unwrap();
    std::fs::write(before.join("checkpoint.json"), "{}").unwrap();
    let error = run(&network, 2, 1, 0, Some((folder.path(), true))).unwrap_err().to_string();
    assert!(error.contains("rank-1.safetensors"), "{error}");
}
