//! What sharing GPUs costs the foreground and gives to background jobs: every preset, and each technique where it matters
//! and where it does not.

mod settings;
mod techniques;

use clap::Args;
use deeppool::gpu_mux::Policy;
use deeppool::simulate::contended;
use rayon::prelude::*;

use crate::experiment::{Experiment, Prepared, prepared};
use crate::job::ForegroundJob;
use crate::options::{LimitOptions, RunOptions, TestbedOptions};
use crate::report::Report;
use crate::row::Row;
use crate::testbed::{DEFAULT_POLICY, Testbed};
use settings::Setting;
use techniques::{TECHNIQUES, Technique};

pub(crate) const NAME: &str = "qos";
const TITLE: &str = "What background jobs cost the foreground, and what they get, by policy";

#[derive(Args)]
#[command(
    after_help = "Presets of policies on settings of their own, and each technique added to those before it. With a network, batch or
profile of yours: the presets beside its burst plan, with a launch queue for each stream and with one for all.

Examples:
  experiments qos
  experiments qos --device h100 --gpus 4 --out results
  experiments qos --model resnet-50 --batch 64 --background-batch 16"
)]
pub(crate) struct QosOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    testbed: TestbedOptions,
    #[command(flatten)]
    limit: LimitOptions,
}

impl Experiment for QosOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let testbed = self.testbed.testbed(self.limit.amplification, DEFAULT_POLICY)?;
        let (settings, techniques) = if self.testbed.is_of_the_paper() {
            (settings::of_the_paper()?, &TECHNIQUES[..])
        } else {
            (testbed.workloads.iter().flat_map(settings::of_workload).collect(), &[][..])
        };
        Ok(prepared(move |journal| {
            let rows: Vec<Vec<Row>> =
                journal.answers("settings", &settings, |setting| rows(setting, techniques, &testbed))?;
            let rows: Vec<Row> = rows.into_iter().flatten().collect();
            let summary = summary(&settings, techniques, &rows);
            Ok(Report::new(NAME, TITLE, &testbed, &contended(), rows, summary))
        }))
    }
}

/// What is asked about a setting: by every preset where those are compared, and by what its techniques are judged by.
fn rows(setting: &Setting, techniques: &[Technique], testbed: &Testbed) -> anyhow::Result<Vec<Row>> {
    let job = ForegroundJob::new(setting.workload.clone(), testbed)?;
    let foreground = job.foreground(testbed.gpus, setting.plan(testbed), true)?;
    let device = setting.device();
    let alone = job.alone_on(&foreground, device, setting.iterations)?;
    let presets = Policy::presets();
    let is_asked = |name: &str| {
        setting.compares_presets && presets.iter().any(|(preset, _)| *preset == name)
            || techniques.iter().any(|technique| technique.asks(&setting.name, name))
    };
    let asked: Vec<_> = Policy::all().into_iter().filter(|(name, _)| is_asked(name)).collect();
    let row = |(name, policy): (&'static str, Policy)| {
        let shared = job.collocated_on(&foreground, policy, device, setting.iterations)?;
        Ok(Row {
            setting: Some(setting.name.clone()),
            policy: Some(name.into()),
            ..Row::collocated(NAME, &job, setting.mode, &foreground, &alone, &shared)
        })
    };
    asked.into_par_iter().map(row).collect()
}

fn summary(settings: &[Setting], techniques: &[Technique], rows: &[Row]) -> Vec<String> {
    let mut lines: Vec<String> =
        settings.iter().map(|setting| format!("{:27} {}", setting.name, setting.about)).collect();
    lines.push("BG on the GPU while FG: the parts of the time in which the foreground computes, only communicates, and is idle".into());
    lines.push("(waits for other GPUs or has nothing to do) in which a background job is on the GPU.".into());
    if !techniques.is_empty() {
        lines.push(
            "\nTechniques, each added to those before it, where it matters and where it does not:".into(),
        );
        lines.extend(techniques.iter().flat_map(|technique| technique.findings(rows)));
    }
    lines
}
