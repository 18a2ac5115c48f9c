//! Options of the experiment `validate`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use command_line::numbers::within;
use deeppool::Error;

use super::networks::{BuiltInJob, TrainingJob, WORKLOADS};
use super::{Validate, ValidateSetup, earlier};
use crate::experiment::{Experiment, Prepared, prepared};
use crate::options::{NetworkOptions, RunOptions, batch};

/// Options of the experiment `validate`.
#[derive(Args)]
#[command(after_help = "\
Measures layer times on one thread, as `deeppool profile --engine cpu` does. Plans data parallelism
(DP) and a burst plan (BP) with a tenth of DP's additional GPU time. Simulates both, alone and with
a background job on each rank (+Col), and trains with each in turns, where ranks are threads. This
takes some minutes. The machine must be idle otherwise.
Examples:
  experiments validate --quick
  experiments validate --runs 9 --out results
  experiments validate --model digits-cnn --batch 32
  experiments validate --onnx net.onnx --batch 8 --ranks 2
  experiments validate --with benchmarks/2026-11-22-validate/validate.csv")]
pub(crate) struct ValidateOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    network: NetworkOptions,
    /// Samples of the global batch
    #[arg(long, value_name = "N", value_parser = batch)]
    batch: Option<usize>,
    /// Number of ranks, each a thread; more ranks than cores share the cores, which the predictions
    /// do not model
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = within(2..=64))]
    ranks: usize,
    /// Number of runs of each plan [default: 5]
    #[arg(long, value_name = "N", value_parser = within(2..=1000))]
    runs: Option<usize>,
    /// Iterations of a run, whose time is their median
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = within(ITERATIONS))]
    iterations: usize,
    /// CSV of an earlier run, here or on another machine, to show in the same table; may be given
    /// several times
    #[arg(long = "with", value_name = "FILE")]
    earlier: Vec<PathBuf>,
    /// Run only one of the built-in networks, and twice unless --runs is given
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
        let setup = self.setup()?;
        let earlier = earlier::rows(&self.earlier)?;
        Ok(prepared(move |journal| Validate::run(&setup, earlier, journal)))
    }
}

impl ValidateOptions {
    fn setup(&self) -> anyhow::Result<ValidateSetup> {
        let &Self { ranks, iterations, quick, .. } = self;
        let workloads = self.workloads()?;
        if let Some(workload) = workloads.iter().find(|workload| workload.batch < ranks) {
            bail!(Error::MoreRanksThanSamples { ranks, batch: workload.batch });
        }
        let runs = self.runs.unwrap_or(if quick { 2 } else { 5 });
        Ok(ValidateSetup { workloads, ranks, runs, iterations })
    }

    fn workloads(&self) -> anyhow::Result<Vec<TrainingJob>> {
        let built_in = if self.quick { &WORKLOADS[..1] } else { &WORKLOADS };
        match (self.network.named()?, self.batch) {
            (None, None) => Ok(built_in.iter().map(BuiltInJob::load).collect::<Result<_, _>>()?),
            (None, Some(_)) => bail!("--batch needs a network: give one with --model or --onnx"),
            (Some(_), None) => {
                bail!("the network has no default batch: give its global batch with --batch N")
            }
            (Some(network), Some(batch)) => {
                let workload = TrainingJob { network: Arc::new(network), batch };
                // Finds unsuitable data before anything is measured.
                workload.dataset(1)?;
                Ok(vec![workload])
            }
        }
    }
}

/// Valid numbers of iterations of a run, all of whose samples are kept in memory.
const ITERATIONS: RangeInclusive<usize> = 2..=500;
