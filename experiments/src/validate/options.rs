use std::path::PathBuf;

use clap::Args;
use deeppool::Error;

use super::networks::WORKLOADS;
use super::{Question, Validate, earlier};
use crate::experiment::{Experiment, Prepared, prepared};
use crate::options::RunOptions;

#[derive(Args)]
#[command(
    after_help = "Measures layer times on one thread, as `deeppool profile --engine cpu` does, plans data parallelism (DP) and a burst plan (BP)
with a tenth of DP's additional GPU time, simulates both, alone and with a background job on each rank (+Col), and trains by them in
turns, ranks being threads. It takes some minutes, and figures of a machine that does something else meanwhile say little.

Examples:
  experiments validate --quick
  experiments validate --runs 9 --out results
  experiments validate --with benchmarks/2026-11-22-validate/validate.csv"
)]
pub(crate) struct ValidateOptions {
    #[command(flatten)]
    run: RunOptions,
    /// How many ranks, each a thread; with more than there are cores, they share these, which no prediction knows of
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = ranks)]
    ranks: usize,
    /// How often each plan is run
    /// [default: 5]
    #[arg(long, value_name = "N", value_parser = runs)]
    runs: Option<usize>,
    /// Iterations of a run, whose time is their median
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = iterations)]
    iterations: usize,
    /// The CSV of an earlier run, here or on another machine, to show in the same table; may be given several times
    #[arg(long = "with", value_name = "FILE")]
    earlier: Vec<PathBuf>,
    /// Only one network, and two runs unless --runs says otherwise
    #[arg(long)]
    quick: bool,
}

impl Experiment for ValidateOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn is_measured(&self) -> bool {
        true
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let question = self.question()?;
        let earlier = earlier::rows(&self.earlier)?;
        Ok(prepared(move |journal| Validate::run(&question, earlier, journal)))
    }
}

impl ValidateOptions {
    fn question(&self) -> Result<Question, Error> {
        let &Self { ranks, iterations, quick, .. } = self;
        let workloads = if quick { WORKLOADS[..1].to_vec() } else { WORKLOADS.to_vec() };
        if let Some(workload) = workloads.iter().find(|workload| workload.batch < ranks) {
            return Err(Error::MoreRanksThanSamples { ranks, batch: workload.batch });
        }
        let runs = self.runs.unwrap_or(if quick { 2 } else { 5 });
        Ok(Question { workloads, ranks, runs, iterations })
    }
}

fn ranks(text: &str) -> Result<usize, String> {
    within(text, 2, 64)
}

fn runs(text: &str) -> Result<usize, String> {
    within(text, 2, 1000)
}

/// Samples of all iterations of a run are kept in memory.
fn iterations(text: &str) -> Result<usize, String> {
    within(text, 2, 500)
}

fn within(text: &str, least: usize, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (least..=most).contains(&count) => Ok(count),
        _ => Err(format!("expected a whole number from {least} to {most}")),
    }
}
