use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use deeppool::Error;

use super::networks::{BuiltIn, WORKLOADS, Workload};
use super::{Question, Validate, earlier};
use crate::experiment::{Experiment, Prepared, prepared};
use crate::options::{NetworkOptions, RunOptions, batch, within};

#[derive(Args)]
#[command(
    after_help = "Measures layer times on one thread, as `deeppool profile --engine cpu` does, plans data parallelism (DP) and a burst plan (BP)
with a tenth of DP's additional GPU time, simulates both, alone and with a background job on each rank (+Col), and trains by them in
turns, ranks being threads. It takes some minutes, and figures of a machine that does something else meanwhile say little.

Examples:
  experiments validate --quick
  experiments validate --runs 9 --out results
  experiments validate --model digits-cnn --batch 32
  experiments validate --onnx net.onnx --batch 8 --ranks 2
  experiments validate --with benchmarks/2026-11-22-validate/validate.csv"
)]
pub(crate) struct ValidateOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    network: NetworkOptions,
    /// Samples of that network's global batch
    #[arg(long, value_name = "N", value_parser = batch)]
    batch: Option<usize>,
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
    /// Only one of the built-in networks, and two runs unless --runs says otherwise
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
    fn question(&self) -> anyhow::Result<Question> {
        let &Self { ranks, iterations, quick, .. } = self;
        let workloads = self.workloads()?;
        if let Some(workload) = workloads.iter().find(|workload| workload.batch < ranks) {
            bail!(Error::MoreRanksThanSamples { ranks, batch: workload.batch });
        }
        let runs = self.runs.unwrap_or(if quick { 2 } else { 5 });
        Ok(Question { workloads, ranks, runs, iterations })
    }

    fn workloads(&self) -> anyhow::Result<Vec<Workload>> {
        let built_in = if self.quick { &WORKLOADS[..1] } else { &WORKLOADS };
        match (self.network.asked()?, self.batch) {
            (None, None) => Ok(built_in.iter().map(BuiltIn::load).collect::<Result<_, _>>()?),
            (None, Some(_)) => bail!("--batch is of a network: give one with --model or --onnx"),
            (Some(_), None) => bail!("give the network's global batch, too: --batch N"),
            (Some(network), Some(batch)) => {
                let workload = Workload { network: Arc::new(network), batch };
                // Data that do not fit are found before anything is measured.
                workload.dataset(1)?;
                Ok(vec![workload])
            }
        }
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
