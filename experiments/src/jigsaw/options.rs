//! What is asked.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use cluster_scheduler::trace::{
    GavelJob, GavelPair, GavelSpeed, PolluxStep, TraceJob, gavel_jobs, gavel_pairs, gavel_speeds, philly,
    pollux_steps,
};
use collectives::LinkModel;
use flate2::read::GzDecoder;

use super::Jigsaw;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::layer_times::LayerTimes;
use crate::options::{MachineOptions, RunOptions, gpus};

#[derive(Args)]
#[command(
    after_help = "Every policy on jobs of Philly's, of Gavel's and synthetic ones, at several loads: 1 is as much work as the GPUs can do until the
last job arrives, and since a few jobs of Philly's are most of its work, queues are long only far above it. Without the traces' files, on synthetic jobs only.

Examples:
  experiments jigsaw
  experiments jigsaw --gpus 256 --jobs 2000 --seeds 5
  experiments jigsaw --traces ../shared/data/traces --out results"
)]
pub(crate) struct JigsawOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    machine: MachineOptions,
    /// How many GPUs the cluster has, in hosts of 8
    #[arg(long, value_name = "N", default_value = "64", value_parser = gpus)]
    gpus: usize,
    /// How many jobs of each trace
    #[arg(long, value_name = "N", default_value = "1000")]
    jobs: usize,
    /// How many draws of jobs, or stretches of a trace
    #[arg(long, value_name = "N", default_value = "3")]
    seeds: usize,
    /// Offered work by what the GPUs can do
    #[arg(long, value_name = "LOAD,...", value_delimiter = ',', default_values_t = [0.7, 1.5, 4.0, 10.0])]
    loads: Vec<f64>,
    /// Where published traces are: `philly_jobs.csv.gz`, `gavel_msr_seed0.csv.gz`, `gavel_alone.csv`, `gavel_v100_pairs.csv`, `gavel_reference_jobs.csv.gz`
    /// and `pollux_step_times.csv.gz`
    #[arg(long, value_name = "DIR", default_value = "../shared/data/traces")]
    traces: PathBuf,
}

/// What is asked, with all input.
pub(super) struct Question {
    pub(super) times: LayerTimes,
    pub(super) link: LinkModel,
    pub(super) gpus: usize,
    pub(super) jobs: usize,
    pub(super) seeds: usize,
    pub(super) loads: Vec<f64>,
    pub(super) philly: Vec<TraceJob>,
    pub(super) gavel: Vec<GavelJob>,
    pub(super) gavel_reference: Vec<GavelJob>,
    pub(super) gavel_speeds: Vec<GavelSpeed>,
    pub(super) gavel_pairs: Vec<GavelPair>,
    pub(super) pollux: Vec<PolluxStep>,
    /// Files that are not there.
    pub(super) missing: Vec<String>,
}

impl Experiment for JigsawOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let most = super::tables::COUNTS.into_iter().max().unwrap_or(1);
        if self.gpus < 8 || self.gpus % 8 != 0 {
            bail!("--gpus {}: the cluster has hosts of 8 GPUs, so 8, 16, 24, ...", self.gpus);
        }
        if self.jobs < 10 || self.seeds == 0 {
            bail!("--jobs {} --seeds {}: at least 10 jobs, and 1 draw of them", self.jobs, self.seeds);
        }
        if let Some(load) = self.loads.iter().find(|&&load| !(load > 0.0 && load <= 1000.0)) {
            bail!("--loads {load}: expected more than 0, up to 1000");
        }
        let (times, link) = self.machine.load(most.min(self.gpus))?;
        let mut missing = Vec::new();
        let mut open = |name: &str| open(&self.traces, name, &mut missing);
        let (philly_file, gavel_file) = (open("philly_jobs.csv.gz")?, open("gavel_msr_seed0.csv.gz")?);
        let (speeds_file, reference_file) = (open("gavel_alone.csv")?, open("gavel_reference_jobs.csv.gz")?);
        let (pairs_file, pollux_file) = (open("gavel_v100_pairs.csv")?, open("pollux_step_times.csv.gz")?);
        let question = Question {
            times,
            link,
            gpus: self.gpus,
            jobs: self.jobs,
            seeds: self.seeds,
            loads: self.loads.clone(),
            philly: read(philly_file, philly)?,
            gavel: read(gavel_file, gavel_jobs)?,
            gavel_reference: read(reference_file, gavel_jobs)?,
            gavel_speeds: read(speeds_file, gavel_speeds)?,
            gavel_pairs: read(pairs_file, gavel_pairs)?,
            pollux: read(pollux_file, pollux_steps)?,
            missing,
        };
        Ok(prepared(move |journal| Jigsaw::run(&question, journal)))
    }
}

type Input = Option<(String, Box<dyn Read>)>;

/// A file's text, decompressed; `None`, and a line that says so, if it is not there.
fn open(folder: &Path, name: &str, missing: &mut Vec<String>) -> anyhow::Result<Input> {
    let path = folder.join(name);
    let shown = path.display().to_string();
    match File::open(&path) {
        Ok(file) if path.extension().is_some_and(|extension| extension == "gz") => {
            Ok(Some((shown, Box::new(GzDecoder::new(file)))))
        }
        Ok(file) => Ok(Some((shown, Box::new(file)))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            missing.push(format!("not shown, since {shown} is not there: what needs it"));
            Ok(None)
        }
        Err(error) => Err(error).context(shown),
    }
}

fn read<T>(
    input: Input,
    reader: impl FnOnce(&str, Box<dyn Read>) -> Result<Vec<T>, cluster_scheduler::Error>,
) -> anyhow::Result<Vec<T>> {
    Ok(input.map(|(file, input)| reader(&file, input)).transpose()?.unwrap_or_default())
}
