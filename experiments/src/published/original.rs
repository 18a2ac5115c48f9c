//! Numbers published with the original system, DeepPool (Park et al., MLSys 2022), beside simulated
//! ones.

use collectives::LinkModel;
use deeppool::gpu_mux::Policy;
use deeppool::plan::Mode as PlanMode;
use deeppool::simulate::{policy_named, undisturbed};
use layer_profile::DeviceModel;
use serde::{Deserialize, Serialize};

use crate::job::ForegroundJob;
use crate::journal::Journal;
use crate::layer_times::LayerTimes;
use crate::testbed::Testbed;
use crate::text_table::{printed, text_table};
use crate::workload::{BuiltIn, WORKLOADS};

/// GPUs of the original's machine, a DGX A100.
const GPUS: usize = 8;
const LIMIT: f64 = 2.0;
const README: &str = "the original's README, measured on a DGX A100";
const RESULTS: &str = "the original's results of October 2021, measured on a DGX A100; its background's \
                       network and batch are not known";
const CLAIM: &str = "the paper's abstract (v3), at large scale";

/// One number. `published` is `None` if it was not published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OriginalRow {
    quantity: String,
    unit: String,
    ours: f64,
    published: Option<f64>,
    /// Upper end, if a range was published.
    #[serde(rename = "published_most")]
    published_max: Option<f64>,
    /// Our number divided by the published one.
    ratio: Option<f64>,
    source: Option<String>,
}

impl OriginalRow {
    fn new(quantity: String, unit: &str, ours: f64, published: Option<(f64, &str)>) -> Self {
        Self {
            quantity,
            unit: unit.into(),
            ours,
            published: published.map(|(value, _)| value),
            published_max: None,
            ratio: published.map(|(value, _)| ours / value),
            source: published.map(|(_, source)| source.into()),
        }
    }

    /// Returns the published number as a table cell.
    fn published(&self) -> String {
        match (self.published, self.published_max) {
            (Some(min), Some(max)) => format!("{min} to {max}"),
            (Some(value), None) => value.to_string(),
            (None, _) => "not published".into(),
        }
    }
}

/// Returns the testbed that the numbers are simulated on.
///
/// # Errors
/// If the device model is not built in.
pub(super) fn testbed() -> anyhow::Result<Testbed> {
    let times = LayerTimes::Model(DeviceModel::named("a100")?);
    Ok(Testbed::without_workloads(times, LinkModel::dgx_a100(), GPUS, LIMIT))
}

/// Returns all numbers.
///
/// # Errors
/// If planning or simulation fails.
pub(super) fn rows(testbed: &Testbed, journal: &Journal) -> anyhow::Result<Vec<OriginalRow>> {
    let mut rows: Vec<OriginalRow> = journal
        .results("networks", &WORKLOADS, |built_in| of_network(testbed, built_in))?
        .into_iter()
        .flatten()
        .collect();
    rows.extend(journal.result("beside background", || beside_background(testbed))?);
    Ok(rows)
}

/// Returns the numbers of a network of the paper: data parallelism, and the gain of BP+Col over it.
fn of_network(testbed: &Testbed, built_in: &BuiltIn) -> anyhow::Result<Vec<OriginalRow>> {
    let job = ForegroundJob::new(built_in.load()?, testbed)?;
    let dp = job.alone(&job.foreground(GPUS, PlanMode::DataParallel, true)?)?;
    let burst = job.foreground(GPUS, testbed.burst(), true)?;
    let shared = job.collocated(&burst)?;
    let total = shared.foreground_samples_per_s + shared.background_samples_per_s;
    let BuiltIn { title, batch, .. } = *built_in;
    let on = format!("{title}, batch {batch}, {GPUS} GPUs");
    let over = total / dp.foreground_samples_per_s;
    let is_measured = title == "VGG-16";
    Ok(vec![
        OriginalRow::new(
            format!("{on}: DP, an iteration"),
            "ms",
            1e3 * dp.iteration.as_secs_f64(),
            is_measured.then_some((13.57, README)),
        ),
        OriginalRow {
            published: Some(1.2),
            published_max: Some(2.3),
            source: Some(CLAIM.into()),
            ..OriginalRow::new(format!("{on}: total of BP+Col (limit {LIMIT}) over DP"), "times", over, None)
        },
        OriginalRow::new(
            format!("{on}: BP (limit {LIMIT}), an iteration"),
            "ms",
            burst.plan.iteration_us / 1e3,
            None,
        ),
    ])
}

/// Returns the numbers of data parallelism beside background jobs under the policy `ungated`.
fn beside_background(testbed: &Testbed) -> anyhow::Result<Vec<OriginalRow>> {
    let policy: Policy = policy_named("ungated")?;
    let workload = BuiltIn { batch: 16, ..WORKLOADS[0] };
    let job = ForegroundJob::new(workload.load()?, testbed)?;
    let dp = job.foreground(GPUS, PlanMode::DataParallel, true)?;
    let shared = job.collocated_on(&dp, policy, undisturbed(), 40)?;
    let on = format!("VGG-16, batch 16, {GPUS} GPUs, DP beside background (ungated)");
    let of_one = shared.background_samples_per_s / GPUS as f64;
    Ok(vec![
        OriginalRow::new(
            format!("{on}: an iteration"),
            "ms",
            1e3 * shared.iteration.as_secs_f64(),
            Some((11.23, RESULTS)),
        ),
        OriginalRow::new(
            format!("{on}: background of one GPU"),
            "samples/s",
            of_one,
            Some((763.52, RESULTS)),
        ),
    ])
}

/// Formats the numbers as a table.
pub(super) fn table(rows: &[OriginalRow]) -> String {
    let header = ["quantity", "unit", "ours (simulated)", "published", "ours / published", "source"];
    let mut table = text_table(header, 2..5);
    for row in rows {
        table.add_row([
            row.quantity.clone(),
            row.unit.clone(),
            format!("{:.2}", row.ours),
            row.published(),
            row.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
            row.source.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    printed(&table)
}

/// Returns a line for each number that was published, and a line on their origin.
pub(super) fn findings(rows: &[OriginalRow]) -> Vec<String> {
    let line = |row: &OriginalRow| {
        let beside = row.ratio.map_or_else(String::new, |ratio| format!(" ({ratio:.2} of it)"));
        let OriginalRow { quantity, unit, ours, .. } = row;
        format!("{quantity}: {ours:.2} {unit}, published: {}{beside}", row.published())
    };
    let lines = rows.iter().filter(|row| row.published.is_some()).map(line);
    let last = "The original's numbers are measured. Ours are simulated without launch costs and \
                without contention between communication and computation.";
    lines.chain([last.to_owned()]).collect()
}
