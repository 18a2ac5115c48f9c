//! What the runs come to.

use super::crossover::{self, COMPARISONS};
use super::row::Row;
use super::runs::shown_load;
use super::{Jigsaw, measured};

/// The claim of the paper.
const CLAIM: f64 = 1.28;
/// Ratios that are closer to 1 are the same.
pub(super) const ROUNDING: f64 = 1e-3;

/// The middle of some figures, with the least and the most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Band {
    pub(super) least: f64,
    pub(super) middle: f64,
    pub(super) most: f64,
}

impl Band {
    /// Of no figures there is none.
    pub(super) fn of(mut all: Vec<f64>) -> Option<Self> {
        all.retain(|value| value.is_finite());
        all.sort_by(f64::total_cmp);
        let (&least, &most) = (all.first()?, all.last()?);
        Some(Self { least, middle: all[all.len() / 2], most })
    }

    pub(super) fn shown(&self) -> String {
        format!("{:.3} ({:.3} to {:.3})", self.middle, self.least, self.most)
    }
}

/// A figure of a row.
type Figure = fn(&Row) -> f64;

const EFFICIENCY: Figure = |row| row.efficiency;
const SPEED: Figure = |row| 1.0 / row.mean_jct_s;

impl Jigsaw {
    /// Rows where sharing costs what is assumed, and the rest.
    pub(super) fn is_as_assumed(&self, row: &Row) -> bool {
        let same = |other: &&Row| (&other.trace, other.name()) == (&row.trace, row.name());
        // The first runs of a policy are those as assumed.
        let first = self.rows.iter().find(same);
        first.is_some_and(|first| (first.overlap - row.overlap).abs() < 1e-12)
    }

    pub(super) fn traces(&self) -> Vec<&str> {
        let mut traces: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !traces.contains(&row.trace.as_str()) {
                traces.push(&row.trace);
            }
        }
        traces
    }

    pub(super) fn policies(&self, trace: &str) -> Vec<String> {
        let mut policies: Vec<String> = Vec::new();
        for row in self.rows.iter().filter(|row| row.trace == trace) {
            if !policies.contains(&row.name()) {
                policies.push(row.name());
            }
        }
        policies
    }

    pub(super) fn loads(&self) -> Vec<f64> {
        let mut loads: Vec<f64> = self.rows.iter().map(|row| row.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        loads
    }

    /// The seeds' rows of a policy at a load.
    pub(super) fn runs(&self, trace: &str, policy: &str, load: f64) -> impl Iterator<Item = &Row> {
        let is_of = move |row: &&Row| {
            row.trace == trace
                && row.name() == policy
                && (row.load - load).abs() < 1e-12
                && self.is_as_assumed(row)
        };
        self.rows.iter().filter(is_of)
    }

    pub(super) fn band(&self, trace: &str, policy: &str, load: f64, figure: Figure) -> Option<Band> {
        Band::of(self.runs(trace, policy, load).map(figure).collect())
    }

    /// A policy's figure over that of another, seed by seed.
    fn ratio(&self, trace: &str, (one, other): (&str, &str), load: f64, figure: Figure) -> Option<Band> {
        let ratio = |row: &Row| {
            let against = self.runs(trace, other, load).find(|against| against.seed == row.seed);
            against.map_or(f64::NAN, |against| figure(row) / figure(against))
        };
        Band::of(self.runs(trace, one, load).map(ratio).collect())
    }

    pub(super) fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for trace in self.traces() {
            lines.extend(COMPARISONS.into_iter().filter_map(|(one, other)| self.pays(trace, one, other)));
        }
        lines.extend(self.claim());
        lines.extend(self.sensitivity());
        lines.extend(measured::findings(&self.measured));
        lines.extend(self.rounds_cost());
        lines
    }

    /// How a policy compares with another by load, and from which load to which it pays.
    fn pays(&self, trace: &str, one: &str, other: &str) -> Option<String> {
        let mut shown = Vec::new();
        for load in self.loads() {
            let efficiency = self.ratio(trace, (one, other), load, EFFICIENCY)?;
            let speed = self.ratio(trace, (one, other), load, SPEED)?;
            shown.push(format!("load {load}: {}, {}", efficiency.shown(), speed.shown()));
        }
        Some(format!(
            "{trace}: {one} over {other}, efficiency and 1 / mean completion time: {}. By bisection over load {}.",
            shown.join("; "),
            crossover::in_words(&self.crossovers, trace, one, other)
        ))
    }

    /// The paper's 28% beside what there is here.
    fn claim(&self) -> Option<String> {
        let ratios = self.rows.iter().filter(|row| row.policy == "jigsaw" && self.is_as_assumed(row));
        let ratio = |row: &Row| {
            let mut against = self.runs(&row.trace, "iteration-level", row.load);
            Some(row.efficiency / against.find(|against| against.seed == row.seed)?.efficiency)
        };
        let all: Vec<f64> = ratios.filter_map(ratio).collect();
        let (count, reached) = (all.len(), all.iter().filter(|&&ratio| ratio >= CLAIM).count());
        let Band { least, middle, most } = Band::of(all)?;
        Some(format!(
            "JigSaw's abstract says that large clusters become up to 28% more efficient. Here efficiency over iteration-level scheduling without SPB is \
             {middle:.3} in the middle, {least:.3} at least and {most:.3} at most, in {count} runs (all traces, loads, K and seeds); {reached} of \
             them reach {CLAIM}."
        ))
    }

    /// At which cost of sharing a policy stops paying.
    fn sensitivity(&self) -> Vec<String> {
        let load = shown_load(&self.loads());
        let mut lines = Vec::new();
        for (policy, against) in [
            ("jigsaw, K = 4", "las"),
            ("iteration-level", "las"),
            ("burst-fixed", "las"),
            ("burst", "partition"),
        ] {
            let of_policy = |row: &&Row| {
                row.trace == "synthetic" && row.name() == policy && (row.load - load).abs() < 1e-12
            };
            let mut overlaps: Vec<f64> = self.rows.iter().filter(of_policy).map(|row| row.overlap).collect();
            overlaps.sort_by(f64::total_cmp);
            overlaps.dedup();
            let ratio = |overlap: f64| {
                let rows =
                    self.rows.iter().filter(of_policy).filter(|row| (row.overlap - overlap).abs() < 1e-12);
                let ratios = rows.filter_map(|row| {
                    let mut all = self.runs("synthetic", against, load);
                    Some(row.efficiency / all.find(|other| other.seed == row.seed)?.efficiency)
                });
                Band::of(ratios.collect())
            };
            let shown: Vec<String> = overlaps
                .into_iter()
                .filter_map(|overlap| Some(format!("{:.0}%: {}", overlap * 100.0, ratio(overlap)?.shown())))
                .collect();
            if !shown.is_empty() {
                lines.push(format!(
                    "synthetic, load {load}: efficiency of {policy} over {against} where sharing costs {}.",
                    shown.join(", ")
                ));
            }
        }
        lines
    }

    fn rounds_cost(&self) -> Option<String> {
        let find = |policy: &str, rounds: bool| {
            let is_of =
                |row: &&super::RoundsRow| row.policy == policy && row.pace.starts_with("rounds") == rounds;
            self.rounds.iter().find(is_of).map(|row| row.mean_jct_s)
        };
        let cost = |policy: &str| {
            let (with, without) = (find(policy, true)?, find(policy, false)?);
            Some(format!("{policy} {:+.1}%", (with / without - 1.0) * 100.0))
        };
        let costs: Vec<String> =
            ["fifo, strict", "max-min", "finish-time"].into_iter().filter_map(cost).collect();
        (!costs.is_empty()).then(|| {
            format!(
                "What Gavel's rounds, and shares that hold 1,920 s, add to the mean completion time of its 500 jobs on 32 V100: {}.",
                costs.join(", ")
            )
        })
    }
}
