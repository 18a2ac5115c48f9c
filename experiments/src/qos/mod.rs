//! What sharing GPUs costs the foreground and gives to background jobs: every preset, and each technique where it matters
//! and where it does not.

mod settings;
mod techniques;

use deeppool::gpu_mux::Policy;
use deeppool::simulate::contended;
use rayon::prelude::*;

use crate::job::Job;
use crate::report::Report;
use crate::row::Row;
use crate::testbed::Testbed;
use settings::{SETTINGS, Setting};
use techniques::TECHNIQUES;

pub(crate) const NAME: &str = "qos";
const TITLE: &str = "What background jobs cost the foreground, and what they get, by policy";

pub(crate) fn run(testbed: &Testbed) -> anyhow::Result<Report> {
    let rows: anyhow::Result<Vec<Vec<Row>>> =
        SETTINGS.par_iter().map(|setting| rows(setting, testbed)).collect();
    let rows: Vec<Row> = rows?.into_iter().flatten().collect();
    let summary = summary(&rows);
    Ok(Report::new(NAME, TITLE, testbed, &contended(), rows, summary))
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
            setting: Some(setting.name),
            policy: Some(name),
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
