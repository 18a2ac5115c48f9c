//! The loads from which and up to which a policy pays against another, by bisection.

use std::collections::HashMap;

use cluster_scheduler::Policy;
use serde::{Deserialize, Serialize};

use super::findings::{Band, ROUNDING};
use super::options::Question;
use super::runs::{self, Run};
use super::tables::Tables;
use super::traces::Source;
use crate::journal::Journal;

/// What is compared with what.
pub(super) const COMPARISONS: [(&str, &str); 9] = [
    ("jigsaw, K = 2", "iteration-level"),
    ("jigsaw, K = 4", "iteration-level"),
    ("jigsaw, K = 8", "iteration-level"),
    ("burst", "iteration-level"),
    ("burst", "jigsaw, K = 4"),
    ("burst", "partition"),
    ("burst-fixed", "iteration-level"),
    ("burst-fixed", "jigsaw, K = 4"),
    // Where jobs have all the GPUs that they want, this is what a partition is.
    ("burst-fixed", "las"),
];

/// Loads between which the last one that pays is looked for, and the first one. At the largest, all jobs come almost at once.
const LOADS: [f64; 10] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 128.0, 1024.0];
/// Loads closer than this are not told apart.
const PRECISION: f64 = 1.02;

/// By what a policy pays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Gain {
    MeanCompletion,
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

/// Where a policy pays against another, for a draw of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Crossover {
    trace: String,
    policy: String,
    against: String,
    gain: Gain,
    seed: usize,
    /// `null` where it pays at no load that was looked at. At the least and the largest of these it may pay beyond, too.
    pays_from: Option<f64>,
    pays_to: Option<f64>,
}

/// The figures of a draw of jobs by policy and load, which are simulated as they are asked for.
struct Draw<'a> {
    question: &'a Question,
    tables: &'a Tables,
    source: Source,
    seed: usize,
    policies: Vec<(String, Policy)>,
    known: HashMap<(String, u64), [f64; 2]>,
}

pub(super) fn crossovers(
    question: &Question,
    tables: &Tables,
    journal: &Journal,
) -> anyhow::Result<Vec<Crossover>> {
    let draws: Vec<(Source, usize)> = Source::all(question)
        .into_iter()
        .flat_map(|source| (0..question.seeds).map(move |seed| (source, seed)))
        .collect();
    let found: Vec<Vec<Crossover>> = journal.answers("crossovers", &draws, |&(source, seed)| {
        let policies =
            runs::policies(source).into_iter().map(|policy| (runs::title(&policy), policy)).collect();
        Draw { question, tables, source, seed, policies, known: HashMap::new() }.crossovers()
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
                    pays_from: span.map(|(from, _)| from),
                    pays_to: span.map(|(_, to)| to),
                });
            }
        }
        Ok(found)
    }

    /// The first and the last load at which a policy pays.
    fn span(&mut self, policy: &str, against: &str, gain: Gain) -> anyhow::Result<Option<(f64, f64)>> {
        let pays: Vec<bool> = LOADS
            .iter()
            .map(|&load| self.pays(policy, against, gain, load))
            .collect::<anyhow::Result<_>>()?;
        let (Some(first), Some(last)) =
            (pays.iter().position(|&pays| pays), pays.iter().rposition(|&pays| pays))
        else {
            return Ok(None);
        };
        let mut edge = |mut inside: f64, outside: Option<&f64>| {
            let Some(&(mut outside)) = outside else { return Ok(inside) };
            while (inside / outside).max(outside / inside) > PRECISION {
                let middle = (inside * outside).sqrt();
                if self.pays(policy, against, gain, middle)? {
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

    fn pays(&mut self, policy: &str, against: &str, gain: Gain, load: f64) -> anyhow::Result<bool> {
        let ([one, other], at) = ([self.figures(policy, load)?, self.figures(against, load)?], gain as usize);
        Ok(one[at] > other[at] * (1.0 + ROUNDING))
    }

    /// The more the better: the inverse of the mean completion time, and efficiency.
    fn figures(&mut self, policy: &str, load: f64) -> anyhow::Result<[f64; 2]> {
        let key = (policy.to_owned(), load.to_bits());
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let named = self.policies.iter().find(|(name, _)| name == policy);
        let policy = named.map_or_else(Policy::fifo, |(_, policy)| policy.clone());
        let run = Run { source: self.source, policy, load, seed: self.seed };
        let report = runs::simulated(self.question, self.tables, &run)?;
        let figures = [1.0 / report.mean_completion(), report.efficiency()];
        self.known.insert(key, figures);
        Ok(figures)
    }
}

/// Where a policy pays on a trace, in words: the middle of the seeds, with the least and the most.
pub(super) fn in_words(all: &[Crossover], trace: &str, policy: &str, against: &str) -> String {
    let of = |gain: Gain| {
        let is_of = move |found: &&Crossover| {
            (found.trace.as_str(), found.policy.as_str(), found.against.as_str(), found.gain)
                == (trace, policy, against, gain)
        };
        all.iter().filter(is_of)
    };
    let words = |gain: Gain| {
        let seeds = of(gain).count();
        let from = Band::of(of(gain).filter_map(|found| found.pays_from).collect());
        let to = Band::of(of(gain).filter_map(|found| found.pays_to).collect());
        let (Some(from), Some(to)) = (from, to) else { return format!("by {} at no load", gain.name()) };
        let paying = of(gain).filter(|found| found.pays_to.is_some()).count();
        let some = if paying < seeds { format!(", for {paying} of {seeds} seeds") } else { String::new() };
        format!("by {} from load {} to {}{some}", gain.name(), band(from), band(to))
    };
    format!("it pays {}, and {}", words(Gain::MeanCompletion), words(Gain::Efficiency))
}

fn band(Band { least, middle, most }: Band) -> String {
    if (most - least).abs() < 1e-9 {
        shown(middle)
    } else {
        format!("{} ({} to {})", shown(middle), shown(least), shown(most))
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
