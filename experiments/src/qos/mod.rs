//! The experiment `qos`: foreground slow-down and background throughput under GPU-sharing policies.
//!
//! A *preset* is a named policy. A *technique* is one rule of a policy; it is compared with and
//! without in a setting where it matters and in one where it does not. A *setting* is a foreground
//! and background jobs on one kind of GPU.

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
use crate::row::ReportRow;
use crate::testbed::{DEFAULT_POLICY, Testbed};
use settings::Setting;
use techniques::{TECHNIQUES, Technique};

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "qos";
const TITLE: &str = "Foreground slow-down and background throughput by policy";

/// Options of the experiment `qos`.
#[derive(Args)]
#[command(after_help = "\
Compares the presets on two settings, and each technique with those before it on others. With a
given network, batch or profile: the presets beside its burst plan, with a launch queue for each
stream and with one for all.
Examples:
  experiments qos
  experiments qos --device h100 --gpus 4 --out results
  experiments qos --model resnet-50 --batch 64 --background-batch 16")]
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
            let rows: Vec<Vec<ReportRow>> =
                journal.results("settings", &settings, |setting| rows(setting, techniques, &testbed))?;
            let rows: Vec<ReportRow> = rows.into_iter().flatten().collect();
            let summary = summary(&settings, techniques, &rows);
            Ok(Report::new(NAME, TITLE, &testbed, &contended(), rows, summary))
        }))
    }
}

/// Simulates a setting under every preset, if it compares them, and under the policies with and
/// without its techniques.
fn rows(setting: &Setting, techniques: &[Technique], testbed: &Testbed) -> anyhow::Result<Vec<ReportRow>> {
    let job = ForegroundJob::new(setting.workload.clone(), testbed)?;
    let foreground = job.bounded_foreground(testbed.gpus, setting.plan(testbed))?;
    let device = setting.device();
    let alone = job.alone_on(&foreground, device, setting.iterations)?;
    let presets = Policy::presets();
    let is_selected = |name: &str| {
        setting.compares_presets && presets.iter().any(|(preset, _)| *preset == name)
            || techniques.iter().any(|technique| technique.uses(&setting.name, name))
    };
    let policies: Vec<_> = Policy::all().into_iter().filter(|(name, _)| is_selected(name)).collect();
    let row = |(name, policy): (&'static str, Policy)| {
        let shared = job.collocated_on(&foreground, policy, device, setting.iterations)?;
        Ok(ReportRow {
            setting: Some(setting.name.clone()),
            policy: Some(name.into()),
            ..ReportRow::collocated(NAME, &job, setting.mode, &foreground, &alone, &shared)
        })
    };
    policies.into_par_iter().map(row).collect()
}

fn summary(settings: &[Setting], techniques: &[Technique], rows: &[ReportRow]) -> Vec<String> {
    let mut lines: Vec<String> =
        settings.iter().map(|setting| format!("{:27} {}", setting.name, setting.about)).collect();
    lines.push(
        "BG on the GPU while FG: the fractions of the time in which the foreground computes, only \
         communicates, and is idle"
            .into(),
    );
    lines.push("(waits for other GPUs or has no work) in which a background job is on the GPU.".into());
    if !techniques.is_empty() {
        lines.push(
            "\nTechniques, each added to those before it, where it matters and where it does not:".into(),
        );
        lines.extend(techniques.iter().flat_map(|technique| technique.findings(rows)));
    }
    lines
}
