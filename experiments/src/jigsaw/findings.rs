//! Findings of the runs: selections of their rows, and sentences on them. A *run* simulates a
//! scheduling policy of the cluster on one draw of jobs; a *trace* is a source of
//! jobs.

use super::band::Band;
use super::crossover::{self, COMPARISONS};
use super::row::PolicyRow;
use super::runs::max_load;
use super::{Jigsaw, measured};

/// Gain in efficiency that the paper claims.
const CLAIM: f64 = 1.28;

/// Function that returns a value of a row, such as its efficiency.
type RowValue = fn(&PolicyRow) -> f64;

const EFFICIENCY: RowValue = |row| row.efficiency;
const SPEED: RowValue = |row| 1.0 / row.mean_jct_s;

impl Jigsaw {
    /// Returns whether the row has the cost of GPU sharing that is assumed for its policy. Rows of
    /// the sensitivity analysis have other costs.
    pub(super) fn is_as_assumed(&self, row: &PolicyRow) -> bool {
        let same = |other: &&PolicyRow| (&other.trace, other.title()) == (&row.trace, row.title());
        // The first runs of a policy have the assumed cost.
        let first = self.rows.iter().find(same);
        first.is_some_and(|first| (first.overlap - row.overlap).abs() < 1e-12)
    }

    /// Returns the names of the traces, in the order of the rows.
    pub(super) fn traces(&self) -> Vec<&str> {
        let mut traces: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !traces.contains(&row.trace.as_str()) {
                traces.push(&row.trace);
            }
        }
        traces
    }

    /// Returns the titles of the policies of a trace, in the order of the rows.
    pub(super) fn policies(&self, trace: &str) -> Vec<String> {
        let mut policies: Vec<String> = Vec::new();
        for row in self.rows.iter().filter(|row| row.trace == trace) {
            if !policies.contains(&row.title()) {
                policies.push(row.title());
            }
        }
        policies
    }

    /// Returns the loads of all rows in increasing order, without duplicates.
    pub(super) fn loads(&self) -> Vec<f64> {
        let mut loads: Vec<f64> = self.rows.iter().map(|row| row.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        loads
    }

    /// Returns the rows of a policy on a trace at a load, one for each seed, with the assumed cost
    /// of GPU sharing.
    pub(super) fn runs(&self, trace: &str, policy: &str, load: f64) -> impl Iterator<Item = &PolicyRow> {
        let is_of = move |row: &&PolicyRow| {
            row.trace == trace
                && row.title() == policy
                && (row.load - load).abs() < 1e-12
                && self.is_as_assumed(row)
        };
        self.rows.iter().filter(is_of)
    }

    /// Returns minimum, median and maximum over the seeds of `value` for a policy on a trace at a
    /// load. `None` if no row has a finite value.
    pub(super) fn band(&self, trace: &str, policy: &str, load: f64, value: RowValue) -> Option<Band> {
        Band::of(self.runs(trace, policy, load).map(value).collect())
    }

    /// Returns the ratio of one policy's value to another's, over the seeds.
    fn ratio(&self, trace: &str, (one, other): (&str, &str), load: f64, value: RowValue) -> Option<Band> {
        let ratio = |row: &PolicyRow| {
            let against = self.runs(trace, other, load).find(|against| against.seed == row.seed);
            against.map_or(f64::NAN, |against| value(row) / value(against))
        };
        Band::of(self.runs(trace, one, load).map(ratio).collect())
    }

    /// Returns the findings, one line each.
    pub(super) fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for trace in self.traces() {
            lines.extend(
                COMPARISONS.into_iter().filter_map(|(one, other)| self.comparison(trace, one, other)),
            );
        }
        lines.extend(self.claim());
        lines.extend(self.sensitivity());
        lines.extend(measured::findings(&self.measured));
        lines.extend(self.rounds_cost());
        lines
    }

    /// Compares one policy with another by load, and describes the range of loads in which it is
    /// better.
    fn comparison(&self, trace: &str, one: &str, other: &str) -> Option<String> {
        let mut shown = Vec::new();
        for load in self.loads() {
            let efficiency = self.ratio(trace, (one, other), load, EFFICIENCY)?;
            let speed = self.ratio(trace, (one, other), load, SPEED)?;
            shown.push(format!("load {load}: {}, {}", efficiency.format(), speed.format()));
        }
        Some(format!(
            "{trace}: {one} over {other}, efficiency and 1 / mean completion time: {}. By bisection over \
             load {}.",
            shown.join("; "),
            crossover::description(&self.crossovers, trace, one, other)
        ))
    }

    /// Compares the paper's 28% with the results.
    fn claim(&self) -> Option<String> {
        let ratios = self.rows.iter().filter(|row| row.policy == "jigsaw" && self.is_as_assumed(row));
        let ratio = |row: &PolicyRow| {
            let mut against = self.runs(&row.trace, "iteration-level", row.load);
            Some(row.efficiency / against.find(|against| against.seed == row.seed)?.efficiency)
        };
        let all: Vec<f64> = ratios.filter_map(ratio).collect();
        let (count, reached) = (all.len(), all.iter().filter(|&&ratio| ratio >= CLAIM).count());
        let Band { min, median, max } = Band::of(all)?;
        Some(format!(
            "JigSaw's abstract says that large clusters become up to 28% more efficient. Here the \
             efficiency relative to iteration-level scheduling without SPB is \
             {median:.3} at the median ({min:.3} to {max:.3}) in {count} runs (all traces, loads, K and \
             seeds); {reached} \
             of them reach {CLAIM}."
        ))
    }

    /// Returns the efficiency by cost of sharing.
    fn sensitivity(&self) -> Vec<String> {
        let load = max_load(&self.loads());
        let mut lines = Vec::new();
        for (policy, against) in [
            ("jigsaw, K = 4", "las"),
            ("iteration-level", "las"),
            ("burst-fixed", "las"),
            ("burst", "partition"),
        ] {
            let of_policy = |row: &&PolicyRow| {
                row.trace == "synthetic" && row.title() == policy && (row.load - load).abs() < 1e-12
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
                .filter_map(|overlap| Some(format!("{:.0}%: {}", overlap * 100.0, ratio(overlap)?.format())))
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
                "Increase of the mean completion time of Gavel's 500 jobs on 32 V100 by its rounds, and by \
                 shares that hold 1,920 s: {}.",
                costs.join(", ")
            )
        })
    }
}
