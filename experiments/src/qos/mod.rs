//! What sharing GPUs costs the foreground and gives to background jobs: every preset, and each technique where it matters
//! and where it does not.

mod settings;
mod techniques;

use clap::Args;
use deeppool::gpu_mux::Policy;
use deeppool::simulate::contended;
use rayon::prelude::*;

use crate::experiment::{Experiment, Prepared, prepared};
use crate::job::Job;
use crate::options::{LimitOptions, MachineOptions, RunOptions, gpus};
use crate::report::Report;
use crate::row::Row;
use crate::testbed::Testbed;
use settings::{SETTINGS, Setting};
use techniques::TECHNIQUES;

pub(crate) const NAME: &str = "qos";
const TITLE: &str = "What background jobs cost the foreground, and what they get, by policy";

#[derive(Args)]
#[command(
    after_help = "Presets of policies on settings of their own, and each technique added to those before it.

Examples:
  experiments qos
  experiments qos --device h100 --gpus 4 --out results"
)]
pub(crate) struct QosOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    machine: MachineOptions,
    /// How many GPUs there are
    #[arg(long, value_name = "N", default_value = "8", value_parser = gpus)]
    gpus: usize,
    #[command(flatten)]
    limit: LimitOptions,
}

impl Experiment for QosOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let (device, link) = self.machine.load(self.gpus)?;
        let testbed = Testbed::without_workloads(device, link, self.gpus, self.limit.amplification);
        Ok(prepared(move |journal| {
            let rows: Vec<Vec<Row>> =
                journal.answers("settings", &SETTINGS, |setting| rows(setting, &testbed))?;
            let rows: Vec<Row> = rows.into_iter().flatten().collect();
            let summary = summary(&rows);
            Ok(Report::new(NAME, TITLE, &testbed, &contended(), rows, summary))
        }))
    }
}

/// What is asked about a setting: by every preset where those are compared, and by what its techniques are judged by.
fn rows(setting: &Setting, testbed: &Testbed) -> anyhow::Result<Vec<Row>> {
    let job = Job::new(setting.workload.load()?, testbed)?;
    let foreground = job.foreground(testbed.gpus, setting.plan(testbed), true)?;
    let device = setting.device();
    let alone = job.alone_on(&foreground, device, setting.iterations)?;
    let presets = Policy::presets();
    let is_asked = |name: &str| {
        setting.compares_presets && presets.iter().any(|(preset, _)| *preset == name)
            || TECHNIQUES.iter().any(|technique| technique.asks(setting.name, name))
    };
    let asked: Vec<_> = Policy::all().into_iter().filter(|(name, _)| is_asked(name)).collect();
    let row = |(name, policy): (&'static str, Policy)| {
        let shared = job.collocated_on(&foreground, policy, device, setting.iterations)?;
        Ok(Row {
            setting: Some(setting.name.into()),
            policy: Some(name.into()),
            ..Row::collocated(NAME, &job, setting.mode, &foreground, &alone, &shared)
        })
    };
    asked.into_par_iter().map(row).collect()
}

fn summary(rows: &[Row]) -> Vec<String> {
    let mut lines: Vec<String> =
        SETTINGS.iter().map(|setting| format!("{:27} {}", setting.name, setting.about)).collect();
    lines.push("BG on the GPU while FG: the parts of the time in which the foreground computes, only communicates, and is idle".into());
    lines.push("(waits for other GPUs or has nothing to do) in which a background job is on the GPU.".into());
    lines.push("\nTechniques, each added to those before it, where it matters and where it does not:".into());
    lines.extend(TECHNIQUES.iter().flat_map(|technique| technique.findings(rows)));
    lines
}
