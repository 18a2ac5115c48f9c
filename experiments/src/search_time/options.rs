//! Options of the experiment `search-time`.

use clap::Args;

use super::SearchTime;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::options::RunOptions;

/// Options of the experiment `search-time`.
#[derive(Args)]
#[command(after_help = "\
Burst plans of VGG-16, WRN-101-2, Inception-V3 and ResNet-50 within amplification 2, with layer
times of device model a100. Times are those of the search on one core, without those of the device
model.
Examples:
  experiments search-time --quick
  experiments search-time --runs 9 --out results")]
pub(crate) struct SearchTimeOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Number of searches for each plan
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    runs: u16,
    /// Run on 8 GPUs only
    #[arg(long)]
    quick: bool,
}

impl Experiment for SearchTimeOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn is_measured(&self) -> bool {
        true
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let (runs, quick) = (self.runs.into(), self.quick);
        Ok(prepared(move |journal| SearchTime::run(runs, quick, journal)))
    }
}
