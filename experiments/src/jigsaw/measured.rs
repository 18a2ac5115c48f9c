//! Effects of GPU sharing and placement by published measurements, in place of assumptions. A
//! *policy* is a scheduling policy of the cluster.

use cluster_scheduler::{Cluster, Policy, Sharing, SimulationOptions, simulate};
use serde::{Deserialize, Serialize};

use super::band::Band;
use super::input::JigsawInput;
use super::runs::max_load;
use super::tables::Tables;
use super::traces::JobSource;
use crate::journal::Journal;
use crate::statistics::median;

/// GPUs of a node in Pollux' measurements.
const NODE: usize = 4;
/// Minimum sums of two jobs' relative speeds at which they share a GPU: that of taking turns, and
/// Gavel's threshold.
const MIN_SPEED_SUMS: [f64; 2] = [1.0, 1.5];

/// A measured effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MeasuredEffect {
    /// Gavel's jobs, two on a GPU if their relative speeds add up to a minimum, against one on a
    /// GPU.
    Pairs,
    /// Synthetic jobs of Pollux' models, with speeds that depend on their placement, against the
    /// same speeds everywhere.
    Placement,
}

/// A run of a policy with a measured effect, relative to a run without it on the same jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct MeasuredRow {
    /// The effect.
    measured: MeasuredEffect,
    /// Name of the policy.
    policy: String,
    /// GPU time that the jobs need alone with data parallelism, divided by the GPU time of the
    /// cluster until the last arrival.
    load: f64,
    /// Seed of the draw of jobs.
    seed: usize,
    /// Minimum sum of the relative speeds of two jobs at which they share a GPU. `None` for
    /// placement.
    #[serde(rename = "least")]
    min_speed_sum: Option<f64>,
    /// Efficiency with the effect divided by that without. The efficiency is the GPU time that the
    /// finished jobs need alone with data parallelism, divided by the GPU time for which all jobs
    /// held GPUs.
    efficiency_ratio: f64,
    /// Mean time from arrival to completion with the effect, divided by that without.
    mean_jct_ratio: f64,
}

/// Simulates the policies with and without the effects for all seeds, at the largest load. Empty if
/// the files of the measurements are missing.
///
/// # Errors
/// If a simulation fails.
pub(super) fn rows(
    input: &JigsawInput,
    tables: &Tables,
    journal: &Journal,
) -> anyhow::Result<Vec<MeasuredRow>> {
    let sources = JobSource::available(input);
    let mut asked: Vec<(MeasuredEffect, Policy, usize)> = Vec::new();
    for seed in 0..input.seeds {
        if sources.contains(&JobSource::Gavel) && !input.gavel_pairs.is_empty() {
            let packed = |min_speed_sum| Policy {
                sharing: Sharing::Pairs { min_speed_sum },
                ..Policy::measured_pairs()
            };
            asked.extend(MIN_SPEED_SUMS.map(|sum| (MeasuredEffect::Pairs, packed(sum), seed)));
        }
        if !input.pollux.is_empty() {
            let policies = [Policy::least_attained_service(), Policy::iteration_level()];
            asked.extend(policies.map(|policy| (MeasuredEffect::Placement, policy, seed)));
        }
    }
    journal.results("measured sharing and placement", &asked, |(measured, policy, seed)| {
        row(input, tables, *measured, policy, *seed)
    })
}

fn row(
    input: &JigsawInput,
    tables: &Tables,
    measured: MeasuredEffect,
    policy: &Policy,
    seed: usize,
) -> anyhow::Result<MeasuredRow> {
    let load = max_load(&input.loads);
    let (source, with, without, other, gpus) = match measured {
        MeasuredEffect::Pairs => {
            (JobSource::Gavel, &tables.gavel, &tables.gavel, Policy::least_attained_service(), 8)
        }
        MeasuredEffect::Placement => {
            (JobSource::Synthetic, &tables.pollux, &tables.pollux_packed, policy.clone(), NODE)
        }
    };
    let cluster = Cluster::uniform("gpu", input.gpus / gpus, gpus)?;
    // Arrivals are drawn from the table without the effect, so that both have the same jobs.
    let arrivals = source.arrivals(input, without, load, seed)?;
    let run = |table, policy| simulate(&cluster, table, policy, &arrivals, &SimulationOptions::default());
    let (one, other) = (run(with, policy)?, run(without, &other)?);
    Ok(MeasuredRow {
        measured,
        policy: policy.name.clone(),
        load,
        seed,
        min_speed_sum: match policy.sharing {
            Sharing::Pairs { min_speed_sum } => Some(min_speed_sum),
            _ => None,
        },
        efficiency_ratio: one.efficiency() / other.efficiency(),
        mean_jct_ratio: one.mean_completion() / other.mean_completion(),
    })
}

/// Describes the published measurements, one line each.
pub(super) fn descriptions(input: &JigsawInput) -> Vec<String> {
    let mut lines = Vec::new();
    let sums: Vec<f64> = input
        .gavel_pairs
        .iter()
        .map(|pair| pair.relative_speeds().iter().map(|part| part.min(1.0)).sum())
        .collect();
    if !sums.is_empty() {
        let clipped = input.gavel_pairs.iter().filter(|pair| pair.looks_clipped()).count();
        let costly = sums.iter().filter(|&&sum| sum < 1.0 / 1.02).count();
        let min = sums.iter().copied().fold(f64::INFINITY, f64::min);
        lines.push(format!(
            "published: Gavel's pairs (MIT), on V100 and of jobs on one GPU each only: the speeds of two \
             jobs on a GPU, relative to running alone, add up to {:.2} at the median of {} pairs, and to \
             at least {min:.2}. Taking turns without a cost would give 1. Sharing costs more than the \
             assumed 2% in {costly} pairs, up to {:.0}%. In {clipped} pairs one of the two is as fast as \
             alone, which looks clipped: these may share worse than stated",
            median(sums.iter().copied()),
            sums.len(),
            (1.0 / min - 1.0) * 100.0
        ));
    }
    if !input.pollux.is_empty() {
        lines.push(
            "published: Pollux' step times by placement on nodes of 4 T4 (Qiao et al., OSDI 2021; \
             Apache-2.0), each model at the largest batch that was measured on 1 to 16 \
             GPUs; spread over more nodes than needed, the mean of all placements"
                .into(),
        );
    }
    lines
}

/// Returns a line on each effect and policy, with the median and the range over the seeds.
pub(super) fn findings(rows: &[MeasuredRow]) -> Vec<String> {
    let mut kinds: Vec<(MeasuredEffect, &str, Option<f64>)> = Vec::new();
    for row in rows {
        let kind = (row.measured, row.policy.as_str(), row.min_speed_sum);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let of = |kind: (MeasuredEffect, &str, Option<f64>), figure: fn(&MeasuredRow) -> f64| {
        let same = rows.iter().filter(|row| (row.measured, row.policy.as_str(), row.min_speed_sum) == kind);
        Band::of(same.map(figure).collect()).map_or_else(String::new, |band| band.format())
    };
    let line = |kind: (MeasuredEffect, &str, Option<f64>)| {
        let (efficiency, jct) = (of(kind, |row| row.efficiency_ratio), of(kind, |row| row.mean_jct_ratio));
        let load = rows.first().map_or(f64::NAN, |row| row.load);
        let (measured, policy, min_speed_sum) = kind;
        match measured {
            MeasuredEffect::Pairs => format!(
                "Gavel, load {load}: las with measured pairs (V100, one GPU each, some clipped at 1) whose \
                 relative speeds add up to at least {}, over las: efficiency {efficiency}, mean \
                 completion time {jct}.",
                min_speed_sum.unwrap_or(f64::NAN)
            ),
            MeasuredEffect::Placement => format!(
                "Synthetic jobs of Pollux' models, load {load}: {policy} with measured times of jobs \
                 spread over nodes (T4; on several nodes, fewer GPUs a node are often faster), over \
                 {policy} without an effect of placement: efficiency {efficiency}, mean \
                 completion time {jct}."
            ),
        }
    };
    kinds.into_iter().map(line).collect()
}
