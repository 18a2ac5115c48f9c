use std::path::PathBuf;

use clap::Args;

use super::SearchTime;
use crate::cli::make_folder;
use crate::outcome::Outcome;

#[derive(Args)]
#[command(
    after_help = "VGG-16, WRN-101-2, Inception-V3 and ResNet-50, burst plans within amplification 2, layer times of device model a100. Times are
those of the search alone, on one core: layer times are there before.

Examples:
  experiments search-time --quick
  experiments search-time --runs 9 --out results"
)]
pub(crate) struct SearchTimeOptions {
    /// How often each plan is searched for
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// The folder that CSV and JSON go to; it is made when it does not exist
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Only on 8 GPUs
    #[arg(long)]
    quick: bool,
}

impl SearchTimeOptions {
    /// Measures, writes the files, and gives what is to be printed.
    pub(crate) fn run(&self) -> anyhow::Result<String> {
        make_folder(&self.out)?;
        SearchTime::run(self.runs.into(), self.quick)?.saved(&self.out, self.json)
    }
}
