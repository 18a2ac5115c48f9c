//! Options of the experiment `jigsaw`, and its input files.

use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use cluster_scheduler::trace::{gavel_jobs, gavel_pairs, gavel_speeds, philly, pollux_steps};
use command_line::numbers::within;
use flate2::read::GzDecoder;

use super::Jigsaw;
use super::input::JigsawInput;
use super::left_out;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::options::{MachineOptions, RunOptions, gpus};

/// Options of the experiment `jigsaw`.
#[derive(Args)]
#[command(after_help = "\
Runs every policy on Philly's, Gavel's and synthetic jobs at several loads. At load 1 the work
equals the capacity of the GPUs until the last job arrives. A few of Philly's jobs are most of its
work, so that its queues are long only at much larger loads. Without the traces' files there are
only synthetic jobs. Jobs without an execution time are left out, and counted on stderr.
Examples:
  experiments jigsaw
  experiments jigsaw --gpus 256 --jobs 2000 --seeds 5
  experiments jigsaw --traces ../shared/data/traces --skip-philly 13127 --out results")]
pub(crate) struct JigsawOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    machine: MachineOptions,
    /// Number of GPUs of the cluster, in hosts of 8
    #[arg(long, value_name = "N", default_value = "64", value_parser = gpus)]
    gpus: usize,
    /// Number of jobs of each trace
    #[arg(long, value_name = "N", default_value = "1000", value_parser = within(JOBS))]
    jobs: usize,
    /// Number of draws of jobs, or of stretches of a trace
    #[arg(long, value_name = "N", default_value = "3", value_parser = within(1..=1000))]
    seeds: usize,
    /// Offered loads: work divided by the GPUs' capacity
    #[arg(long, value_name = "LOAD,...", value_delimiter = ',', default_values_t = [0.7, 1.5, 4.0, 10.0])]
    loads: Vec<f64>,
    /// Number of first jobs of Philly's trace that are not drawn. The published trace is of a
    /// cluster in full use from job 13127 on
    #[arg(long, value_name = "N", default_value = "0")]
    skip_philly: usize,
    /// Folder of the published traces: `philly_jobs.csv.gz`, `gavel_msr_seed0.csv.gz`,
    /// `gavel_alone.csv`, `gavel_v100_pairs.csv`, `gavel_reference_jobs.csv.gz` and
    /// `pollux_step_times.csv.gz`
    #[arg(long, value_name = "DIR", default_value = "../shared/data/traces")]
    traces: PathBuf,
}

/// Valid numbers of jobs. All of them are kept in memory.
const JOBS: RangeInclusive<usize> = 10..=1_000_000;

impl Experiment for JigsawOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let max_gpus = super::tables::COUNTS.into_iter().max().unwrap_or(1);
        if self.gpus < 8 || self.gpus % 8 != 0 {
            bail!("--gpus {}: the cluster has hosts of 8 GPUs: give 8, 16, 24, ...", self.gpus);
        }
        if let Some(load) = self.loads.iter().find(|&&load| !(load > 0.0 && load <= 1000.0)) {
            bail!("--loads {load}: expected a number above 0 and at most 1000");
        }
        let (times, link) = self.machine.load(max_gpus.min(self.gpus))?;
        let mut missing = Vec::new();
        let mut open = |name: &str| open(&self.traces, name, &mut missing);
        let (philly_file, gavel_file) = (open("philly_jobs.csv.gz")?, open("gavel_msr_seed0.csv.gz")?);
        let (speeds_file, reference_file) = (open("gavel_alone.csv")?, open("gavel_reference_jobs.csv.gz")?);
        let (pairs_file, pollux_file) = (open("gavel_v100_pairs.csv")?, open("pollux_step_times.csv.gz")?);
        let input = JigsawInput {
            times,
            link,
            gpus: self.gpus,
            jobs: self.jobs,
            seeds: self.seeds,
            loads: self.loads.clone(),
            skip: self.skip_philly,
            philly: read(philly_file, philly)?,
            gavel: read(gavel_file, gavel_jobs)?,
            gavel_reference: read(reference_file, gavel_jobs)?,
            gavel_speeds: read(speeds_file, gavel_speeds)?,
            gavel_pairs: read(pairs_file, gavel_pairs)?,
            pollux: read(pollux_file, pollux_steps)?,
            missing,
        };
        if self.skip_philly > 0 && self.skip_philly >= input.philly.len() {
            bail!("--skip-philly {}: Philly's trace has {} jobs", self.skip_philly, input.philly.len());
        }
        for line in left_out::lines(&input)? {
            eprintln!("warning: {line}");
        }
        Ok(prepared(move |journal| Jigsaw::run(&input, journal)))
    }
}

type OpenFile = Option<(String, Box<dyn Read>)>;

/// Opens a file and decompresses `.gz`. If it does not exist, returns `None` and adds its path to
/// `missing`.
fn open(folder: &Path, name: &str, missing: &mut Vec<String>) -> anyhow::Result<OpenFile> {
    let path = folder.join(name);
    let shown = path.display().to_string();
    match File::open(&path) {
        Ok(file) if path.extension().is_some_and(|extension| extension == "gz") => {
            Ok(Some((shown, Box::new(GzDecoder::new(file)))))
        }
        Ok(file) => Ok(Some((shown, Box::new(file)))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            missing.push(shown);
            Ok(None)
        }
        Err(error) => Err(error).context(shown),
    }
}

/// Reads the rows of a file, or returns none if it does not exist.
///
/// # Errors
/// If the file is invalid or has no rows.
fn read<T>(
    input: OpenFile,
    reader: impl FnOnce(&str, Box<dyn Read>) -> Result<Vec<T>, cluster_scheduler::Error>,
) -> anyhow::Result<Vec<T>> {
    let Some((file, input)) = input else { return Ok(Vec::new()) };
    let rows = reader(&file, input)?;
    if rows.is_empty() {
        bail!("{file}: it has no rows after the header");
    }
    Ok(rows)
}
