//! Execution times of the jobs: of networks by simulation, and of Gavel's jobs and Pollux' models
//! by their publications.

use std::time::Duration;

use anyhow::Context;
use cluster_scheduler::trace::{GavelSpeed, add_pairs, pollux_table};
use cluster_scheduler::{Execution, GpuType, Mode, Table};
use deeppool::plan::Mode as PlanMode;
use serde::{Deserialize, Serialize};

use super::input::JigsawInput;
use crate::job::ForegroundJob;
use crate::journal::Journal;
use crate::testbed::Testbed;
use crate::workload::WORKLOADS;

/// Numbers of GPUs for which networks are simulated, in increasing order. Jobs have one of them.
pub(super) const COUNTS: [usize; 5] = [1, 2, 4, 8, 16];
/// Numbers of parts into which structured partial backpropagation (SPB) splits a batch.
pub(super) const PARTS: [u16; 3] = [2, 4, 8];
/// Maximum number of simulated plans of a frontier.
const FRONTIER: usize = 8;
/// Assumed number of layers of Gavel's models.
const LAYERS: u32 = 16;

/// Tables of execution times by kind of job, number of GPUs and mode of execution, such as data
/// parallelism. All GPUs of a table are of one type.
pub(super) struct Tables {
    /// Simulated times of the DeepPool paper's networks.
    pub(super) networks: Table,
    /// Times of Gavel's jobs on V100, with the speeds of pairs.
    pub(super) gavel: Table,
    /// Times of Pollux' models on T4, which depend on the placement.
    pub(super) pollux: Table,
    /// Times of Pollux' models where the placement makes no difference.
    pub(super) pollux_packed: Table,
}

/// Simulated costs of a network on a number of GPUs.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct NetworkCosts {
    gpus: usize,
    /// Iteration time by data parallelism, and a GPU's computing time in it.
    iteration: Duration,
    computing: Duration,
    /// Forward and backward times of the layers for a GPU's samples.
    layers: Vec<(Duration, Duration)>,
    /// For each plan of the burst frontier: iteration time beside background jobs, and the
    /// throughput of these relative to running alone.
    bursts: Vec<(Duration, f64)>,
}

/// Simulates the networks and computes all tables. Those of missing files are empty.
///
/// # Errors
/// If planning or simulation fails, or if a published time is invalid.
pub(super) fn tables(input: &JigsawInput, journal: &Journal) -> anyhow::Result<Tables> {
    let points: Vec<(usize, usize)> = (0..WORKLOADS.len())
        .flat_map(|network| COUNTS.into_iter().map(move |gpus| (network, gpus)))
        .filter(|&(_, gpus)| gpus <= input.gpus)
        .collect();
    let results: Vec<NetworkCosts> =
        journal.results("costs of networks", &points, |&(network, gpus)| costs(input, network, gpus))?;
    let mut networks = Table::new();
    for ((network, _), costs) in points.into_iter().zip(results) {
        add(&mut networks, WORKLOADS[network].title, &costs)?;
    }
    let mut gavel = gavel(&input.gavel_speeds)?;
    add_pairs(&mut gavel, GpuType(0), &input.gavel_pairs);
    let packed: Vec<_> = input.pollux.iter().filter(|step| !step.is_spread()).cloned().collect();
    let pollux = pollux_table(&input.pollux, &COUNTS, GpuType(0))?;
    let pollux_packed = pollux_table(&packed, &COUNTS, GpuType(0))?;
    Ok(Tables { networks, gavel, pollux, pollux_packed })
}

fn costs(input: &JigsawInput, network: usize, gpus: usize) -> anyhow::Result<NetworkCosts> {
    let (times, link) = (input.times.clone(), input.link.clone());
    let testbed = Testbed::without_workloads(times, link, gpus, f64::INFINITY);
    let job = ForegroundJob::new(WORKLOADS[network].load()?, &testbed)?;
    let dp = job.foreground(gpus, PlanMode::DataParallel, true)?;
    let alone = job.alone(&dp)?;
    let activity = alone.activity;
    let all = activity.active() + activity.idle;
    let samples = job.workload.batch.div_ceil(gpus);
    let mut layers = Vec::new();
    for layer in job.profile.layers() {
        let time = job.profile.time(&layer.name, samples)?;
        layers.push((time.forward, time.backward));
    }
    let mut bursts = Vec::new();
    for burst in if gpus == 1 { Vec::new() } else { job.frontier(FRONTIER)? } {
        let together = job.collocated(&burst)?;
        let share = together.background_samples_per_s / job.background_samples_per_s(gpus)?;
        bursts.push((together.iteration, share.clamp(0.0, 1.0)));
    }
    Ok(NetworkCosts {
        gpus,
        iteration: alone.iteration,
        computing: alone.iteration.mul_f64(activity.computing.as_secs_f64() / all.as_secs_f64()),
        layers,
        bursts,
    })
}

fn add(table: &mut Table, name: &str, costs: &NetworkCosts) -> anyhow::Result<()> {
    let &NetworkCosts { gpus, iteration, computing, ref layers, ref bursts } = costs;
    let kind = table.kind(name);
    let mut set = |mode, execution| table.set(kind, GpuType(0), mode, execution);
    set(Mode::DataParallel, Execution::parts(iteration, &vec![computing.min(iteration); gpus])?);
    if gpus > 1 {
        let layers = with_rest(layers, computing);
        for parts in PARTS {
            let synchronization = iteration.saturating_sub(computing);
            set(Mode::Spb(parts), Execution::spb(gpus, &layers, synchronization, usize::from(parts))?);
        }
    }
    for (point, &(iteration, share)) in (0..).zip(bursts) {
        let busy = vec![iteration.mul_f64(1.0 - share); gpus];
        set(Mode::Burst(point), Execution::parts(iteration, &busy)?);
    }
    Ok(())
}

/// Adds a GPU's other computation, such as parameter updates, to the layers. Every part of SPB does
/// it, and the longest part takes as long as data parallelism.
fn with_rest(layers: &[(Duration, Duration)], computing: Duration) -> Vec<(Duration, Duration)> {
    let passes: Duration = layers.iter().map(|&(forward, backward)| forward + backward).sum();
    let mut all = layers.to_vec();
    if let Some(rest) = computing.checked_sub(passes) {
        all.push((rest, Duration::ZERO));
    } else {
        let factor = computing.as_secs_f64() / passes.as_secs_f64();
        for (forward, backward) in &mut all {
            (*forward, *backward) = (forward.mul_f64(factor), backward.mul_f64(factor));
        }
    }
    all
}

/// Returns whether the table of Gavel's jobs has a throughput.
pub(super) fn is_of_v100(speed: &GavelSpeed) -> bool {
    speed.gpu_type == "v100" && speed.steps_per_s > 0.0
}

/// Returns the table of Gavel's jobs on V100. The excess of an iteration on several GPUs over one
/// on one GPU counts as synchronization.
///
/// # Errors
/// If an iteration takes longer than any execution can.
pub(super) fn gavel(speeds: &[GavelSpeed]) -> anyhow::Result<Table> {
    let mut table = Table::new();
    let of_v100 = || speeds.iter().filter(|speed| is_of_v100(speed));
    for speed in of_v100() {
        let kind = table.kind(&speed.kind);
        // A step is one worker's batch.
        let iteration = |speed: &GavelSpeed| {
            Duration::try_from_secs_f64(speed.gpus as f64 / speed.steps_per_s).with_context(|| {
                let GavelSpeed { kind, gpus, steps_per_s, .. } = speed;
                format!("`{kind}` on {gpus} V100: {steps_per_s} steps a second is too little")
            })
        };
        let single = of_v100().find(|other| other.kind == speed.kind && other.gpus == 1);
        let (iteration, single) = (iteration(speed)?, iteration(single.unwrap_or(speed))?);
        let computing = single.min(iteration);
        let mut set = |mode, execution| table.set(kind, GpuType(0), mode, execution);
        set(Mode::DataParallel, Execution::parts(iteration, &vec![computing; speed.gpus])?);
        let layers = vec![(computing / (3 * LAYERS), computing * 2 / (3 * LAYERS)); LAYERS as usize];
        for parts in PARTS.into_iter().filter(|_| speed.gpus > 1) {
            let spb =
                Execution::spb(speed.gpus, &layers, iteration.saturating_sub(computing), usize::from(parts))?;
            set(Mode::Spb(parts), spb);
        }
    }
    Ok(table)
}
