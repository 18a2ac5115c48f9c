//! Range of loads in which a scheduling policy of the cluster is better than another by a
//! criterion.
//!
//! The *load* is the GPU time that the jobs need alone with data parallelism, divided by the GPU
//! time of the cluster until the last arrival. A *seed* selects a draw of jobs.

use std::collections::HashMap;

use cluster_scheduler::Policy;
use serde::{Deserialize, Serialize};

use super::band::{Band, ROUNDING};
use super::input::JigsawInput;
use super::runs::{self, PolicyRun};
use super::tables::Tables;
use super::traces::JobSource;
use crate::journal::Journal;

/// Pairs of policies that are compared, by their titles: the first may be better than the second.
pub(super) const COMPARISONS: [(&str, &str); 9] = [
    ("jigsaw, K = 2", "iteration-level"),
    ("jigsaw, K = 4", "iteration-level"),
    ("jigsaw, K = 8", "iteration-level"),
    ("burst", "iteration-level"),
    ("burst", "jigsaw, K = 4"),
    ("burst", "partition"),
    ("burst-fixed", "iteration-level"),
    ("burst-fixed", "jigsaw, K = 4"),
    // If jobs have all the GPUs that they want, `las` is a static partition.
    ("burst-fixed", "las"),
];

/// Loads that are simulated before bisection. At the largest, all jobs arrive almost at once.
const LOADS: [f64; 10] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 128.0, 1024.0];
/// Ratio of loads at which bisection ends.
const PRECISION: f64 = 1.02;

/// Criterion by which a policy is better than another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Gain {
    /// The jobs' mean time from arrival to completion is shorter.
    MeanCompletion,
    /// The efficiency is higher: the GPU time that the finished jobs need alone with data
    /// parallelism, divided by the GPU time for which all jobs held GPUs.
    Efficiency,
}

impl Gain {
    const ALL: [Self; 2] = [Self::MeanCompletion, Self::Efficiency];

    fn name(self) -> &'static str {
        match self {
            Self::MeanCompletion => "mean completion time",
            Self::Efficiency => "efficiency",
        }
    }
}

/// Range of loads in which a policy is better than another, for one draw of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Crossover {
    /// Name of the source of the jobs.
    trace: String,
    /// Title of the policy that may be better.
    policy: String,
    /// Title of the policy that it is compared with.
    against: String,
    /// Criterion of the comparison.
    gain: Gain,
    /// Seed of the draw of jobs.
    seed: usize,
    /// Smallest load at which the policy is better. `None` if it is better at none. If it is the
    /// smallest simulated load, the range may extend below it.
    #[serde(rename = "pays_from")]
    better_from: Option<f64>,
    /// Largest load at which the policy is better. `None` if it is better at none. If it is the
    /// largest simulated load, the range may extend above it.
    #[serde(rename = "pays_to")]
    better_to: Option<f64>,
}

/// Figures of a draw of jobs by policy and load, simulated on demand.
struct Draw<'a> {
    input: &'a JigsawInput,
    tables: &'a Tables,
    source: JobSource,
    seed: usize,
    policies: Vec<(String, Policy)>,
    known: HashMap<(String, u64), [f64; 2]>,
}

/// Finds the ranges for every trace, seed, pair of policies and criterion, by bisection over the
/// load.
///
/// # Errors
/// If a simulation fails.
pub(super) fn crossovers(
    input: &JigsawInput,
    tables: &Tables,
    journal: &Journal,
) -> anyhow::Result<Vec<Crossover>> {
    let draws: Vec<(JobSource, usize)> = JobSource::available(input)
        .into_iter()
        .flat_map(|source| (0..input.seeds).map(move |seed| (source, seed)))
        .collect();
    let found: Vec<Vec<Crossover>> = journal.results("crossovers", &draws, |&(source, seed)| {
        let policies =
            runs::policies(source).into_iter().map(|policy| (runs::title(&policy), policy)).collect();
        Draw { input, tables, source, seed, policies, known: HashMap::new() }.crossovers()
    })?;
    Ok(found.into_iter().flatten().collect())
}

impl Draw<'_> {
    fn crossovers(&mut self) -> anyhow::Result<Vec<Crossover>> {
        let mut found = Vec::new();
        for (policy, against) in COMPARISONS {
            let is_known = |name: &str| self.policies.iter().any(|(other, _)| other == name);
            if !is_known(policy) || !is_known(against) {
                continue;
            }
            for gain in Gain::ALL {
                let span = self.span(policy, against, gain)?;
                found.push(Crossover {
                    trace: self.source.name().into(),
                    policy: policy.into(),
                    against: against.into(),
                    gain,
                    seed: self.seed,
                    better_from: span.map(|(from, _)| from),
                    better_to: span.map(|(_, to)| to),
                });
            }
        }
        Ok(found)
    }

    /// Returns the smallest and the largest load at which a policy is better.
    fn span(&mut self, policy: &str, against: &str, gain: Gain) -> anyhow::Result<Option<(f64, f64)>> {
        let is_better: Vec<bool> = LOADS
            .iter()
            .map(|&load| self.is_better(policy, against, gain, load))
            .collect::<anyhow::Result<_>>()?;
        let (Some(first), Some(last)) =
            (is_better.iter().position(|&better| better), is_better.iter().rposition(|&better| better))
        else {
            return Ok(None);
        };
        let mut edge = |mut inside: f64, outside: Option<&f64>| {
            let Some(&(mut outside)) = outside else { return Ok(inside) };
            while (inside / outside).max(outside / inside) > PRECISION {
                let middle = (inside * outside).sqrt();
                if self.is_better(policy, against, gain, middle)? {
                    inside = middle;
                } else {
                    outside = middle;
                }
            }
            anyhow::Ok(inside)
        };
        let from = edge(LOADS[first], first.checked_sub(1).and_then(|before| LOADS.get(before)))?;
        let to = edge(LOADS[last], LOADS.get(last + 1))?;
        Ok(Some((from, to)))
    }

    fn is_better(&mut self, policy: &str, against: &str, gain: Gain, load: f64) -> anyhow::Result<bool> {
        let ([one, other], at) = ([self.figures(policy, load)?, self.figures(against, load)?], gain as usize);
        Ok(one[at] > other[at] * (1.0 + ROUNDING))
    }

    /// Returns the inverse of the mean completion time, and the efficiency. Larger is better for
    /// both.
    fn figures(&mut self, policy: &str, load: f64) -> anyhow::Result<[f64; 2]> {
        let key = (policy.to_owned(), load.to_bits());
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let named = self.policies.iter().find(|(name, _)| name == policy);
        let policy = named.map_or_else(Policy::fifo, |(_, policy)| policy.clone());
        let run = PolicyRun { source: self.source, policy, load, seed: self.seed };
        let report = runs::simulated(self.input, self.tables, &run)?;
        let figures = [1.0 / report.mean_completion(), report.efficiency()];
        self.known.insert(key, figures);
        Ok(figures)
    }
}

/// Describes the range of loads in which a policy is better than another on a trace, by each
/// criterion: the median of its ends over the seeds, with minimum and maximum.
pub(super) fn description(all: &[Crossover], trace: &str, policy: &str, against: &str) -> String {
    let of = |gain: Gain| {
        let is_of = move |found: &&Crossover| {
            (found.trace.as_str(), found.policy.as_str(), found.against.as_str(), found.gain)
                == (trace, policy, against, gain)
        };
        all.iter().filter(is_of)
    };
    let words = |gain: Gain| {
        let seeds = of(gain).count();
        let from = Band::of(of(gain).filter_map(|found| found.better_from).collect());
        let to = Band::of(of(gain).filter_map(|found| found.better_to).collect());
        let (Some(from), Some(to)) = (from, to) else { return format!("by {} at no load", gain.name()) };
        let seeds_better = of(gain).filter(|found| found.better_to.is_some()).count();
        let some = if seeds_better < seeds {
            format!(", for {seeds_better} of {seeds} seeds")
        } else {
            String::new()
        };
        format!("by {} from load {} to {}{some}", gain.name(), band(from), band(to))
    };
    format!("it pays {}, and {}", words(Gain::MeanCompletion), words(Gain::Efficiency))
}

fn band(Band { min, median, max }: Band) -> String {
    if (max - min).abs() < 1e-9 {
        shown(median)
    } else {
        format!("{} ({} to {})", shown(median), shown(min), shown(max))
    }
}

fn shown(load: f64) -> String {
    if load <= LOADS[0] {
        format!("{load} or less")
    } else if load >= LOADS[LOADS.len() - 1] {
        format!("{load} or more")
    } else if load < 10.0 {
        format!("{load:.2}")
    } else {
        format!("{load:.1}")
    }
}
