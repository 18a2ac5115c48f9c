//! Sharing and placement as others measured them, in place of what is assumed.

use cluster_scheduler::{Cluster, Policy, Sharing, SimulationOptions, simulate};
use serde::{Deserialize, Serialize};

use super::findings::Band;
use super::options::Question;
use super::runs::shown_load;
use super::tables::Tables;
use super::traces::Source;
use crate::journal::Journal;
use crate::statistics::median;

/// GPUs of Pollux' nodes.
const NODE: usize = 4;
/// Part of two jobs' speeds above which pairs are tried: no better than taking turns, and Gavel's threshold.
const LEAST: [f64; 2] = [1.0, 1.5];

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Measured {
    /// Gavel's jobs, two on a GPU where their speeds together add up to a part at least, against one.
    Pairs,
    /// Synthetic jobs of Pollux' models: of other speeds where GPUs are spread over nodes, against the same speed everywhere.
    Placement,
}

/// A policy with what was measured, by the same without.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct MeasuredRow {
    measured: Measured,
    policy: String,
    load: f64,
    seed: usize,
    /// Of pairs, what their speeds add up to at least.
    least: Option<f64>,
    efficiency_ratio: f64,
    mean_jct_ratio: f64,
}

pub(super) fn rows(
    question: &Question,
    tables: &Tables,
    journal: &Journal,
) -> anyhow::Result<Vec<MeasuredRow>> {
    let sources = Source::all(question);
    let mut asked: Vec<(Measured, Policy, usize)> = Vec::new();
    for seed in 0..question.seeds {
        if sources.contains(&Source::Gavel) && !question.gavel_pairs.is_empty() {
            let packed = |min_speed_sum| Policy {
                sharing: Sharing::Pairs { min_speed_sum },
                ..Policy::measured_pairs()
            };
            asked.extend(LEAST.map(|least| (Measured::Pairs, packed(least), seed)));
        }
        if !question.pollux.is_empty() {
            let policies = [Policy::least_attained_service(), Policy::iteration_level()];
            asked.extend(policies.map(|policy| (Measured::Placement, policy, seed)));
        }
    }
    journal.answers("measured sharing and placement", &asked, |(measured, policy, seed)| {
        row(question, tables, *measured, policy, *seed)
    })
}

fn row(
    question: &Question,
    tables: &Tables,
    measured: Measured,
    policy: &Policy,
    seed: usize,
) -> anyhow::Result<MeasuredRow> {
    let load = shown_load(&question.loads);
    let (source, with, without, other, gpus) = match measured {
        Measured::Pairs => (Source::Gavel, &tables.gavel, &tables.gavel, Policy::least_attained_service(), 8),
        Measured::Placement => {
            (Source::Synthetic, &tables.pollux, &tables.pollux_packed, policy.clone(), NODE)
        }
    };
    let cluster = Cluster::uniform("gpu", question.gpus / gpus, gpus)?;
    // Of the table where placement makes no difference, so that both have the same jobs.
    let arrivals = source.arrivals(question, without, load, seed)?;
    let run = |table, policy| simulate(&cluster, table, policy, &arrivals, &SimulationOptions::default());
    let (one, other) = (run(with, policy)?, run(without, &other)?);
    Ok(MeasuredRow {
        measured,
        policy: policy.name.clone(),
        load,
        seed,
        least: match policy.sharing {
            Sharing::Pairs { min_speed_sum } => Some(min_speed_sum),
            _ => None,
        },
        efficiency_ratio: one.efficiency() / other.efficiency(),
        mean_jct_ratio: one.mean_completion() / other.mean_completion(),
    })
}

/// What was measured, in words.
pub(super) fn in_words(question: &Question) -> Vec<String> {
    let mut lines = Vec::new();
    let sums: Vec<f64> =
        question.gavel_pairs.iter().map(|pair| pair.parts().iter().map(|part| part.min(1.0)).sum()).collect();
    if !sums.is_empty() {
        let clipped = question.gavel_pairs.iter().filter(|pair| pair.looks_clipped()).count();
        let costly = sums.iter().filter(|&&sum| sum < 1.0 / 1.02).count();
        let least = sums.iter().copied().fold(f64::INFINITY, f64::min);
        lines.push(format!(
            "published: Gavel's pairs (MIT), on V100 and of jobs on one GPU each only: two jobs on a GPU have {:.2} of their speeds alone together in the middle of {} \
             pairs, {least:.2} at least. Taking turns without a cost would give 1: sharing costs more than the 2% that are assumed in {costly} pairs, up to {:.0}%. In {clipped} \
             pairs one of the two is as fast as alone, which looks clipped, so that these may share worse than it says",
            median(sums.iter().copied()),
            sums.len(),
            (1.0 / least - 1.0) * 100.0
        ));
    }
    if !question.pollux.is_empty() {
        lines.push(
            "published: Pollux' step times by placement on nodes of 4 T4 (Qiao et al., OSDI 2021; Apache-2.0), each model at the largest batch that was measured on 1 to 16 \
             GPUs; spread over more nodes than needed, the mean of all placements"
                .into(),
        );
    }
    lines
}

/// What it comes to, beside the sensitivity to what is assumed.
pub(super) fn findings(rows: &[MeasuredRow]) -> Vec<String> {
    let mut kinds: Vec<(Measured, &str, Option<f64>)> = Vec::new();
    for row in rows {
        let kind = (row.measured, row.policy.as_str(), row.least);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let of = |kind: (Measured, &str, Option<f64>), figure: fn(&MeasuredRow) -> f64| {
        let same = rows.iter().filter(|row| (row.measured, row.policy.as_str(), row.least) == kind);
        Band::of(same.map(figure).collect()).map_or_else(String::new, |band| band.shown())
    };
    let line = |kind: (Measured, &str, Option<f64>)| {
        let (efficiency, jct) = (of(kind, |row| row.efficiency_ratio), of(kind, |row| row.mean_jct_ratio));
        let load = rows.first().map_or(f64::NAN, |row| row.load);
        let (measured, policy, least) = kind;
        match measured {
            Measured::Pairs => format!(
                "Gavel, load {load}: las with pairs as measured (V100, one GPU each, some clipped at 1) that add up to {} at least, over las: efficiency {efficiency}, mean \
                 completion time {jct}.",
                least.unwrap_or(f64::NAN)
            ),
            Measured::Placement => format!(
                "Synthetic jobs of Pollux' models, load {load}: {policy} where jobs that are spread over nodes take as long as measured (T4; on several nodes, fewer GPUs a node are often \
                 faster), over {policy} where placement makes no difference: efficiency {efficiency}, mean completion time {jct}."
            ),
        }
    };
    kinds.into_iter().map(line).collect()
}
