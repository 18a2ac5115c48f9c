//! Layers split by features, channels, heads and inputs: the same training on any ranks.

use std::path::Path;

use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use deeppool::train::{
    BackgroundConfig, CheckpointConfig, CheckpointEvery, Length, TrainConfig, TrainReport, train,
};
use layer_engine::{Precision, Sgd};
use layer_graph::{LayerGraph, zoo};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tempfile::TempDir;

use crate::random_splits::{
    below, cases, difference, losses, random_options, random_placement, small_resnet, split_digits_placement,
    tied_transformer,
};

/// Maximum number of ranks.
const RANKS: usize = 8;

/// Compares the losses of random placements and options with those of one rank. The length is that
/// of [`losses`]; `DEEPPOOL_ITERATIONS` is another number of iterations.
fn check_losses(network: &LayerGraph, data: &Dataset, length: (usize, u64, f64), default_cases: usize) {
    let iterations = std::env::var("DEEPPOOL_ITERATIONS").ok().and_then(|count| count.parse().ok());
    let length = (length.0, iterations.unwrap_or(length.1), length.2);
    for case in 0..cases(default_cases) {
        let mut random = ChaCha8Rng::seed_from_u64(case as u64);
        let world = 1 + below(&mut random, RANKS);
        let placement = random_placement(network, world, &mut random);
        let options = random_options(network, &mut random);
        let single = Placement::single(network).unwrap();
        let on_one = losses(network, &single, &options, data, length);
        let split = losses(network, &placement, &options, data, length);
        let found = difference(&on_one, &split);
        println!("{} case {case}, {world} ranks: {found:.1e}", network.name());
        assert!(found <= 1e-4, "case {case}: {placement:?} {options:?} {on_one:?} {split:?}");
        assert!(on_one.last() != on_one.first(), "the network learns");
    }
}

#[test]
fn losses_of_a_split_digits_cnn_are_those_of_one_rank() {
    let network = zoo::model("digits-cnn").unwrap();
    check_losses(&network, &Dataset::digits().unwrap(), (13, 12, 0.03), 6);
}

#[test]
fn losses_of_a_split_residual_network_are_those_of_one_rank() {
    let network = small_resnet();
    let data = Dataset::synthetic_for(&network, 64, 0).unwrap();
    check_losses(&network, &data, (12, 6, 1e-3), 4);
}

#[test]
fn losses_of_a_split_transformer_are_those_of_one_rank() {
    let network = tied_transformer();
    let data = Dataset::synthetic_for(&network, 64, 0).unwrap();
    check_losses(&network, &data, (9, 12, 0.03), 6);
}

/// Sums of addends are rounded to 16 bits once more.
#[test]
fn bf16_losses_of_a_split_digits_cnn_are_near_those_of_one_rank() {
    let network = zoo::model("digits-cnn").unwrap();
    let data = Dataset::digits().unwrap();
    let options = LowerOptions::default().with_precision(Precision::Bf16);
    let length = (16, 12, 0.03);
    let on_one = losses(&network, &Placement::single(&network).unwrap(), &options, &data, length);
    for world in [2, 4] {
        let placement = split_digits_placement(&network, world);
        let split = losses(&network, &placement, &options, &data, length);
        let found = difference(&on_one, &split);
        println!("bf16, {world} ranks: {found:.1e}");
        assert!(found <= 1e-2, "{on_one:?} {split:?}");
    }
}

const BATCH: usize = 20;

/// Trains a digits-cnn to the given iteration, with checkpoints in a folder and a background job.
fn run(network: &LayerGraph, placement: Placement, end: u64, folder: Option<&Path>) -> TrainReport {
    let data = Dataset::digits().unwrap();
    let optimizer = Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: Some(1.0) };
    let options = LowerOptions::default().with_optimizer(optimizer);
    let training = LoweredTraining::new(network, placement, BATCH, options);
    let checkpoint = folder.map(|folder| {
        CheckpointConfig::new(folder).with_every(CheckpointEvery::Iterations(6)).with_resume(true)
    });
    let config = TrainConfig::new(&data, &training)
        .with_length(Length::Iterations(end))
        .with_background([BackgroundConfig::new(network, &data, 4)])
        .with_checkpoint(checkpoint);
    train(&config, &|_| {}).unwrap()
}

/// A run with split layers resumes without splits and with other ones, and the reverse.
#[test]
fn checkpoints_resume_with_other_splits() {
    let network = zoo::model("digits-cnn").unwrap();
    let placements = || {
        let random = random_placement(&network, 5, &mut ChaCha8Rng::seed_from_u64(3));
        [Placement::single(&network).unwrap(), split_digits_placement(&network, 4), random]
    };
    let whole = run(&network, split_digits_placement(&network, 4), 12, None);
    for first in placements() {
        let folder = TempDir::new().unwrap();
        let begun = run(&network, first, 6, Some(folder.path()));
        assert!(difference(&begun.losses, &whole.losses[..6]) <= 1e-4);
        for (index, second) in placements().into_iter().enumerate() {
            let copy = TempDir::new().unwrap();
            copy_folder(folder.path(), copy.path());
            let resumed = run(&network, second, 12, Some(copy.path()));
            assert_eq!(resumed.first_iteration, 6);
            let found = difference(&resumed.losses, &whole.losses[6..]);
            println!("resumed with placement {index}: {found:.1e}");
            assert!(found <= 1e-4, "{found:.1e}");
        }
    }
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
