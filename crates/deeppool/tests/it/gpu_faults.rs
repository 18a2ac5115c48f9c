//! Faults of every function of the driver and NCCL in a training run: an error names the function
//! and the rank, nothing hangs, and nothing leaks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use cuda_emulator::{Emulator, Setting};
use deeppool::Error;
use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use deeppool::train::{
    BackgroundConfig, CheckpointConfig, CheckpointEvery, Length, TrainConfig, TrainReport, train_on_gpus,
};
use layer_graph::{LayerGraph, LayerKind, Linear, Shape};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use tempfile::TempDir;

use crate::emulated::on_emulated_gpus;

const RANKS: usize = 2;

/// `CUDA_ERROR_OPERATING_SYSTEM`, which no code handles specially.
const ERROR_CODE: u32 = 304;

/// Number of calls that fail at random, besides the first, a middle and the last of each function.
fn random_calls() -> usize {
    std::env::var("DEEPPOOL_GPU_FAULTS").ok().and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn network(name: &str, activation: LayerKind) -> LayerGraph {
    let mut net = LayerGraph::new(name, Shape::features(4)).unwrap();
    let mut last = net.input();
    for (name, kind) in [("a", Linear::new(6).into()), ("b", activation), ("c", Linear::new(3).into())] {
        last = net.add(name, kind, [last]).unwrap();
    }
    net.add("loss", LayerKind::CROSS_ENTROPY, [last]).unwrap();
    net
}

/// Trains with the first layers on both ranks and the last ones on one, so that gradients are
/// reduced and samples move, and with a background job.
fn run(net: &LayerGraph, data: &Dataset, placement: &Placement) -> Result<TrainReport, Error> {
    let training = LoweredTraining::new(net, placement.clone(), 4, LowerOptions::default());
    let config = TrainConfig::new(data, &training)
        .with_length(Length::Iterations(5))
        .with_background(Some(BackgroundConfig::new(net, data, 2)));
    train_on_gpus(&config, Duration::from_secs(1), &|_| {})
}

/// Resets the emulator.
fn reset(emulator: &Emulator) {
    emulator.reset();
    emulator.set(Setting::Devices, 2);
    emulator.set(Setting::RankTimeoutMs, 5000);
}

/// CUDA loses the rank's context, and the run ends with an error that names the job. The
/// foreground's checkpoint is valid, and the run resumes from it.
#[test]
fn error_of_an_illegal_access_names_the_background_job() {
    let name = "gpu_faults::error_of_an_illegal_access_names_the_background_job";
    on_emulated_gpus(name, RANKS, |emulator| {
        let net = network("net", LayerKind::GeluTanh);
        // Only this job uses its kernels.
        let beside = network("beside", LayerKind::Relu);
        let data = Dataset::synthetic_for(&net, 64, 0).unwrap();
        let placement = Placement::first_ranks(&net, RANKS, &[RANKS; 4]).unwrap();
        let training = LoweredTraining::new(&net, placement, 4, LowerOptions::default());
        let folder = TempDir::new().unwrap();
        let run = |resume| {
            let kept = CheckpointConfig::new(folder.path()).with_every(CheckpointEvery::Iterations(1));
            let config = TrainConfig::new(&data, &training)
                .with_length(Length::Iterations(8))
                .with_checkpoint(Some(kept.with_resume(resume)))
                .with_background([BackgroundConfig::new(&beside, &data, 2)]);
            train_on_gpus(&config, Duration::from_secs(1), &|_| {})
        };
        reset(emulator);
        let undisturbed = run(false).unwrap();
        std::fs::remove_dir_all(folder.path()).unwrap();
        for number in [1, 6] {
            reset(emulator);
            emulator.fail_kernel("relu_forward", number);
            let error = run(number > 1).unwrap_err().to_string();
            println!("relu_forward {number}: {error}");
            assert!(error.contains("`beside`") && error.contains("ILLEGAL_ADDRESS"), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(emulator.faults()[0].contains("relu_forward"), "{:?}", emulator.faults());
        }
        reset(emulator);
        let rest = run(true).unwrap();
        let first = rest.first_iteration as usize;
        assert!((1..8).contains(&first), "{first} iterations were kept");
        for (own, other) in undisturbed.losses[first..].iter().zip(&rest.losses) {
            assert!((own - other).abs() <= 1e-5 * own.abs(), "{own} {other}");
        }
        assert!(emulator.leaks().is_empty(), "{:?}", emulator.leaks());
    });
}

#[test]
fn every_driver_call_may_fail_without_leaks() {
    on_emulated_gpus("gpu_faults::every_driver_call_may_fail_without_leaks", RANKS, |emulator| {
        let (net, random) = (network("net", LayerKind::GeluTanh), random_calls());
        let data = Dataset::synthetic_for(&net, 64, 0).unwrap();
        let ranks = net.computing_layers().map(|(_, layer)| {
            if layer.name() == "c" || layer.name() == "loss" { vec![1] } else { vec![0, 1] }
        });
        let placement = Placement::new(&net, RANKS, ranks.collect()).unwrap();
        reset(emulator);
        run(&net, &data, &placement).unwrap();
        assert!(emulator.misuse().is_empty(), "{:?}", emulator.misuse());
        assert!(emulator.leaks().is_empty(), "{:?}", emulator.leaks());

        let mut by_function: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for line in emulator.log() {
            let mut words = line.split_whitespace();
            let (Some(number), Some(function)) =
                (words.next().and_then(|word| word.parse().ok()), words.next())
            else {
                continue;
            };
            by_function.entry(function.to_owned()).or_default().push(number);
        }
        let all: u64 = by_function.values().map(|calls| calls.len() as u64).sum();
        let mut tried: BTreeSet<u64> = BTreeSet::new();
        if random > 0 {
            for calls in by_function.values() {
                tried.extend([calls[0], calls[calls.len() / 2], calls[calls.len() - 1]]);
            }
        }
        let mut below = ChaCha8Rng::seed_from_u64(1);
        tried.extend((0..random.max(6)).map(|_| 1 + below.next_u64() % all));
        let (mut errors, mut slowest) = (0, Duration::ZERO);
        for &call in &tried {
            reset(emulator);
            emulator.fail_call(call, ERROR_CODE);
            let began = Instant::now();
            let result = run(&net, &data, &placement);
            slowest = slowest.max(began.elapsed());
            let failed = emulator.log().get(call as usize - 1).cloned().unwrap_or_default();
            if let Err(error) = &result {
                errors += 1;
                let message = error.to_string();
                assert_eq!(message.lines().count(), 1, "{failed}: {message}");
                println!("{failed}: {message}");
            }
            assert!(
                emulator.leaks().is_empty(),
                "{failed}: {:?}: {:?}",
                result.map(|_| ()),
                emulator.leaks()
            );
        }
        println!(
            "{} of {} functions' {all} calls failed, {errors} of which matter; the slowest \
             run took {slowest:?}",
            tried.len(),
            by_function.len()
        );
    });
}
