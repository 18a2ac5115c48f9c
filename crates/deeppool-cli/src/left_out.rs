//! Warnings of samples, GPUs and options that a command leaves out or changes. Each is one line on
//! standard error with the number and the way out.

use std::collections::HashSet;
use std::fmt::Display;

use deeppool::compare::{Comparison, SharingMode};
use deeppool::data::Dataset;
use deeppool::plan::{ExecutionPlan, PlanMode};
use deeppool::train::TrainConfig;

use super::launched::is_first;
use super::ranks::RankEngine;

/// Prints a warning on rank 0.
pub(crate) fn warn(warning: impl Display) {
    if is_first() {
        eprintln!("warning: {warning}");
    }
}

/// Prints a warning if a plan leaves out GPUs, and the batch has fewer samples than there are GPUs.
pub(crate) fn warn_of_unused_gpus(plan: &ExecutionPlan) {
    let used: HashSet<usize> = plan.layers.iter().flat_map(|layer| &layer.ranks).copied().collect();
    if used.len() < plan.gpus && plan.batch < plan.gpus {
        let (left_out, gpus, batch) = (plan.gpus - used.len(), plan.gpus, plan.batch);
        if plan.layers.iter().any(|layer| layer.division.is_some()) {
            warn(format_args!(
                "left out {left_out} of {gpus} GPUs, with which no faster plan was found: give a larger \
                 --batch or fewer --gpus"
            ));
            return;
        }
        let or = if plan.mode == PlanMode::Burst { ", or --splits all" } else { "" };
        warn(format_args!(
            "left out {left_out} of {gpus} GPUs: a layer runs on at most as many as the batch has samples, \
             {batch}; give a larger --batch or fewer --gpus{or}"
        ));
    }
}

/// Prints a warning if a run leaves out samples in each epoch, and has at least one epoch.
pub(crate) fn warn_of_samples(config: &TrainConfig<'_>) {
    let (left_out, samples, batch) =
        (config.left_out_of_epoch(), config.dataset.train().len(), config.batch());
    if left_out > 0 && config.iterations() >= config.iterations_per_epoch() {
        warn(format_args!(
            "each epoch leaves out {left_out} of {samples} training samples, which do not fill a batch of \
             {batch}: a --batch that divides {samples} leaves out none"
        ));
    }
}

/// Prints a warning for options of training that are changed or have no effect. `is_process` says
/// whether the rank is a process, and `has_policy` whether a policy is given without background
/// jobs, and `timeout` is that of the command line.
pub(crate) fn warn_of_options(
    config: &TrainConfig<'_>,
    engine: RankEngine,
    is_process: bool,
    has_policy: bool,
    timeout: Option<usize>,
) {
    if let Some(seconds) = timeout.filter(|_| engine == RankEngine::Cpu && !is_process) {
        warn(format_args!("left out --timeout {seconds}, which is for ranks that are processes or GPUs"));
    }
    let threads = config.threads_per_rank;
    let all = threads.saturating_mul(config.placement().world());
    let cores = std::thread::available_parallelism().map_or(all, usize::from);
    match engine {
        RankEngine::Cuda if threads > 1 => {
            warn(format_args!("left out --threads-per-rank {threads}, which is for --engine cpu"));
        }
        RankEngine::Cpu if threads > 1 && !is_process && all > cores => warn(format_args!(
            "the ranks share {cores} threads, one for each core, instead of --threads-per-rank {threads}, \
             which makes {all}"
        )),
        _ => {}
    }
    if engine == RankEngine::Cpu && has_policy {
        warn("left out --policy, which is for background jobs and GPUs: give --background or --engine cuda");
    }
}

/// Prints a warning if batches do not divide the training samples, with the samples of an epoch
/// that each of them leaves out.
pub(crate) fn warn_of_batches(dataset: &Dataset, batches: &[usize]) {
    let samples = dataset.train().len();
    let counts = batches.iter().map(|&batch| (samples % batch, batch));
    let counts: Vec<String> = counts
        .filter(|&(count, _)| count > 0)
        .map(|(count, batch)| format!("{count} with batch {batch}"))
        .collect();
    if !counts.is_empty() {
        warn(format_args!(
            "each round leaves out those of {samples} training samples that do not fill a batch: {}; epochs \
             count the samples trained with",
            counts.join(", ")
        ));
    }
}

/// Prints a warning if plans of a comparison are not simulated, or only without background jobs,
/// because they do not fit into memory.
pub(crate) fn warn_of_comparison(comparison: &Comparison) {
    if comparison.counts_without_memory > 0 {
        warn(format_args!(
            "left out data parallelism on {} of the GPU counts, where it does not fit into memory: give more \
             --memory or a smaller --batch",
            comparison.counts_without_memory
        ));
    }
    let count =
        |modes: &[SharingMode]| comparison.points.iter().filter(|point| modes.contains(&point.mode)).count();
    let plans = count(&[SharingMode::Partition, SharingMode::Burst]);
    let left_out = plans - count(&[SharingMode::BurstCollocated]).min(plans);
    if left_out > 0 {
        warn(format_args!(
            "left out {left_out} of {plans} plans with background jobs on the same GPUs, which have no room \
             for them: give more --memory or a --background with a smaller batch"
        ));
    }
}
