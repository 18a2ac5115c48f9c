//! What each technique of sharing is worth: a burst plan of VGG-16 with background jobs, by one policy after another.

use deeppool::gpu_mux::Policy;
use deeppool::simulate::contended;

use crate::job::{Job, WORKLOADS};
use crate::report::Report;
use crate::row::{Mode, Row};
use crate::testbed::Testbed;

pub(crate) const NAME: &str = "qos";
const TITLE: &str = "What background jobs cost the foreground, and what they get, by policy";

pub(crate) fn run(testbed: &Testbed) -> anyhow::Result<Report> {
    let job = Job::new(WORKLOADS[0], testbed)?;
    let bp = job.foreground(testbed.gpus, testbed.burst(), true)?;
    let device = contended();
    let alone = job.alone_on(&bp, device)?;
    let shared = |(name, policy): (&'static str, Policy)| {
        let shared = job.collocated_on(&bp, policy, device)?;
        Ok(Row {
            policy: Some(name),
            ..Row::collocated(NAME, &job, Mode::BurstCollocated, &bp, &alone, &shared)
        })
    };
    let rows = Policy::all().into_iter().map(shared).collect::<anyhow::Result<Vec<Row>>>()?;
    Ok(Report::new(NAME, TITLE, testbed, &device, rows, summary()))
}

fn summary() -> Vec<String> {
    vec![
        "Names that begin with + are techniques, each added to those above it, from naive to the default."
            .into(),
        "BG share of idle: of the time in which the foreground waits for other GPUs or has nothing to do."
            .into(),
    ]
}
