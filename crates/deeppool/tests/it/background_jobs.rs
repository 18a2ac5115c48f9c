//! Background jobs that some of the ranks train together.

use std::path::Path;

use deeppool::data::{Dataset, Samples};
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use deeppool::train::{
    BackgroundConfig, BackgroundReport, CheckpointConfig, CheckpointEvery, JobRanks, Length, TrainConfig,
    TrainReport, train,
};
use layer_graph::{LayerGraph, zoo};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tempfile::TempDir;

use crate::random_splits::{random_placement, tied_transformer};

const RANKS: usize = 4;
/// Maximum number of iterations that are compared: rounding grows in later ones.
const COMPARED: usize = 100;

/// Number of iterations of the foreground.
fn iterations() -> u64 {
    std::env::var("DEEPPOOL_ITERATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(60)
}

fn digits() -> (LayerGraph, Dataset) {
    (zoo::model("digits-cnn").unwrap(), Dataset::digits().unwrap())
}

fn transformer() -> (LayerGraph, Dataset) {
    let network = tied_transformer();
    let data = Dataset::synthetic_for(&network, 96, 1).unwrap();
    (network, data)
}

/// Returns a training of which each layer is on another rank than the one before, so that all ranks
/// wait most of the time.
fn foreground(network: &LayerGraph) -> LoweredTraining<'_> {
    let ranks = (0..network.computing_layers().len()).map(|layer| vec![layer % RANKS]);
    let placement = Placement::new(network, RANKS, ranks.collect()).unwrap();
    LoweredTraining::new(network, placement, 32, LowerOptions::default())
}

/// Trains the foreground beside background jobs, with checkpoints in a folder.
fn beside(jobs: &[BackgroundConfig<'_>], end: u64, folder: Option<&Path>) -> TrainReport {
    let (network, data) = digits();
    let training = foreground(&network);
    let checkpoint = folder.map(|folder| {
        CheckpointConfig::new(folder).with_every(CheckpointEvery::Iterations(7)).with_resume(true)
    });
    let config = TrainConfig::new(&data, &training)
        .with_length(Length::Iterations(end))
        .with_background(jobs.iter().cloned())
        .with_checkpoint(checkpoint);
    train(&config, &|_| {}).unwrap()
}

/// Returns the losses of a job that is the only one, on one rank or on its own placement.
fn alone(job: &BackgroundConfig<'_>, placement: Placement, seed: u64, iterations: usize) -> Vec<f64> {
    let lowering = LowerOptions::default().with_micro_batches(job.micro_batches);
    let training = LoweredTraining::new(job.network, placement, job.batch, lowering);
    let config = TrainConfig::new(job.dataset, &training)
        .with_length(Length::Iterations(iterations as u64))
        .with_seed(seed);
    train(&config, &|_| {}).unwrap().losses
}

/// Checks that a job has learned what it learns alone on its own placement and on one rank. `first`
/// is the number of iterations before the run.
fn check(job: &BackgroundConfig<'_>, report: &BackgroundReport, seed: u64, first: usize) {
    assert!(report.errors.is_empty(), "{report:?}");
    let done = report.history.len();
    assert_eq!(report.iterations, [(first + done) as u64], "{}", report.label);
    assert_eq!(report.losses, [report.history.last().copied()]);
    let ranks = job.ranks.as_ref().unwrap();
    assert_eq!(report.ranks, ranks.ranks());
    for placement in [ranks.placement().clone(), Placement::single(job.network).unwrap()] {
        let losses = alone(job, placement, seed, first + done);
        let differences =
            losses[first..].iter().zip(&report.history).take(COMPARED).map(|(a, b)| (a - b).abs());
        let largest = differences.fold(0.0, f64::max);
        println!("{} on {:?}: {done} iterations, {largest:.1e}", report.label, report.ranks);
        assert!(largest <= 1e-4, "{}: {largest:.1e}", report.label);
    }
}

#[test]
fn jobs_of_several_ranks_learn_what_they_learn_alone() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let without = beside(&[], iterations(), None);
    for (network, data) in [digits(), transformer()] {
        let job = |batch: usize, micro_batches: usize, ranks: JobRanks| {
            BackgroundConfig::new(&network, &data, batch)
                .with_micro_batches(micro_batches)
                .with_ranks(Some(ranks))
        };
        let parallel = |ranks: &[usize]| JobRanks::data_parallel(&network, ranks.to_vec()).unwrap();
        let random = random_placement(&network, 3, &mut random);
        let sets = [
            vec![job(16, 1, parallel(&[0, 1, 2, 3]))],
            vec![job(8, 2, parallel(&[2, 3])), job(12, 1, JobRanks::new(random, vec![0, 1, 3]))],
            vec![
                job(8, 1, parallel(&[3])),
                job(9, 2, parallel(&[1, 2])).with_seed(Some(77)),
                job(16, 1, parallel(&[0, 1, 2, 3])),
            ],
        ];
        for jobs in sets {
            let report = beside(&jobs, iterations(), None);
            assert_eq!(report.losses, without.losses, "the foreground does not depend on the background");
            for (index, (job, of_job)) in jobs.iter().zip(&report.background).enumerate() {
                assert!(!of_job.history.is_empty(), "{of_job:?}");
                check(job, of_job, job.seed.unwrap_or(1 + index as u64), 0);
            }
        }
    }
}

#[test]
fn a_job_of_several_ranks_resumes_on_other_ranks() {
    let (network, data) = digits();
    let folder = TempDir::new().unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let on = |ranks: JobRanks| BackgroundConfig::new(&network, &data, 12).with_ranks(Some(ranks));
    let parallel = |ranks: &[usize]| JobRanks::data_parallel(&network, ranks.to_vec()).unwrap();
    let places = [
        parallel(&[1, 3]),
        JobRanks::new(random_placement(&network, 4, &mut random), vec![3, 1, 0, 2]),
        parallel(&[2]),
        parallel(&[0, 1, 2]),
    ];
    let (mut done, mut first) = (0, 0);
    for ranks in places {
        let job = on(ranks);
        done += 14;
        let report = beside(std::slice::from_ref(&job), done, Some(folder.path()));
        let of_job = &report.background[0];
        let mut sorted = job.ranks.as_ref().unwrap().ranks().to_vec();
        sorted.sort_unstable();
        assert_eq!(of_job.ranks, sorted);
        let losses = alone(&job, Placement::single(&network).unwrap(), 1, first + of_job.history.len());
        for (alone, beside) in losses[first..].iter().zip(&of_job.history) {
            assert!((alone - beside).abs() <= 1e-4, "{alone} {beside}");
        }
        first += of_job.history.len();
        assert_eq!(of_job.iterations, [first as u64]);
    }
    assert!(first > 0);
}

/// The loss of a batch with the sample of huge values is not finite, which the rank that records
/// the losses finds.
#[test]
fn a_job_that_fails_on_one_rank_ends_on_all_and_is_named() {
    let (network, data) = digits();
    let train = data.train();
    let samples = 48;
    let features = (0..samples).flat_map(|sample| {
        let is_wrong = sample == 17;
        train.features(sample).iter().map(move |&value| if is_wrong { 3e38 } else { value })
    });
    let labels = (0..samples).flat_map(|sample| train.labels_of(sample).to_vec());
    let wrong = Samples::new(train.sample_elements(), features.collect(), labels.collect()).unwrap();
    let wrong =
        Dataset::new("wrong", data.shape().clone(), data.classes(), wrong, data.test().clone()).unwrap();
    let parallel = |ranks: &[usize]| Some(JobRanks::data_parallel(&network, ranks.to_vec()).unwrap());
    let jobs = [
        BackgroundConfig::new(&network, &wrong, 12).with_ranks(parallel(&[1, 2, 3])),
        BackgroundConfig::new(&network, &data, 8).with_ranks(parallel(&[0, 2, 3])),
        BackgroundConfig::new(&network, &data, 4),
    ];
    let without = beside(&[], iterations(), None);
    let folder = TempDir::new().unwrap();
    for folder in [None, Some(folder.path())] {
        let report = beside(&jobs, iterations(), folder);
        assert_eq!(report.losses, without.losses);
        let [failed, other, copies] = &report.background[..] else { panic!("{report:?}") };
        let [(1, problem)] = &failed.errors[..] else { panic!("{failed:?}") };
        assert!(problem.contains("loss"), "{problem}");
        assert!(failed.history.len() < 4, "{failed:?}");
        check(&jobs[1], other, 2, 0);
        assert!(copies.errors.is_empty() && copies.ranks == [0, 1, 2, 3] && copies.losses.len() == RANKS);
    }
}

#[test]
fn ranks_that_a_job_cannot_have_are_refused() {
    let (network, data) = digits();
    let training = foreground(&network);
    let refused = |ranks: &[usize], batch: usize| {
        let ranks = JobRanks::data_parallel(&network, ranks.to_vec()).unwrap();
        let job = BackgroundConfig::new(&network, &data, batch).with_ranks(Some(ranks));
        let config = TrainConfig::new(&data, &training).with_background([job]);
        train(&config, &|_| {}).unwrap_err().to_string()
    };
    for ranks in [&[0, 4][..], &[1, 1]] {
        assert!(refused(ranks, 8).contains("the ranks of a background job"), "{ranks:?}");
    }
    assert!(refused(&[0, 1, 2], 2).contains("3 ranks are more than the 2 samples"));
}
