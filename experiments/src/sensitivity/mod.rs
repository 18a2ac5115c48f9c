//! The experiment `sensitivity`: sensitivity of the conclusions to errors, by half, of the models'
//! uncertain parameters.
//!
//! A *variation* is one parameter changed by one factor, or launches without captured graphs.

mod figure;
mod headline;
mod text;
mod variation;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::canvas::Figure;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::journal::Journal;
use crate::options::{LimitOptions, PolicyOptions, RunOptions, TestbedOptions};
use crate::outcome::{self, Outcome};
use crate::report::ReportHeader;
use crate::style::Style;
use crate::testbed::Testbed;
use crate::workload::Workload;
use headline::{HEADLINES, Headline, HeadlineValues};
use variation::{PARAMETERS, Parameter, Setup};

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "sensitivity";
const TITLE: &str = "Sensitivity of the conclusions to errors of the models' parameters by half (simulated)";
/// Difference to 1 below which a ratio counts as 1.
const ROUNDING: f64 = 1e-3;

/// Options of the experiment `sensitivity`.
#[derive(Args)]
#[command(after_help = "\
Varies link bandwidth, layer times of small batches, launch times, contention and the background's
batch, each by half down and up, and launches kernel by kernel. Searches for new plans for each
variation.
Examples:
  experiments sensitivity
  experiments sensitivity --gpus 64 --link dgx-a100-pod --batch 64
  experiments sensitivity --model resnet-50 --batch 64 --out results")]
pub(crate) struct SensitivityOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    testbed: TestbedOptions,
    #[command(flatten)]
    sharing: PolicyOptions,
    #[command(flatten)]
    limit: LimitOptions,
}

impl Experiment for SensitivityOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let testbed = self.testbed.testbed(self.limit.amplification, &self.sharing.policy)?;
        Ok(prepared(move |journal| Sensitivity::run(&testbed, journal)))
    }
}

/// Results. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Sensitivity {
    #[serde(flatten)]
    header: ReportHeader,
    gpus: usize,
    amplification_limit: f64,
    policy: String,
    rows: Vec<SensitivityRow>,
    #[serde(skip)]
    /// Description of the testbed.
    testbed: String,
}

/// A headline ratio under one variation.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct SensitivityRow {
    /// Name of the network.
    model: String,
    #[serde(skip)]
    title: String,
    /// Samples of the foreground's global batch.
    batch: usize,
    /// Label of the headline ratio.
    headline: &'static str,
    /// Label of the varied parameter. `None` in the rows without a variation.
    parameter: Option<String>,
    /// Label of the change. `None` in the rows without a variation.
    change: Option<String>,
    /// Ratio with the variation.
    value: f64,
    /// Ratio without the variation.
    base: f64,
    /// Whether exactly one of the two values is above 1 by more than rounding.
    flips: bool,
}

impl Sensitivity {
    /// Varies each parameter for each workload, in parallel.
    fn run(testbed: &Testbed, journal: &Journal) -> anyhow::Result<Self> {
        type Change = Option<(Parameter, f64)>;
        let changes = PARAMETERS
            .iter()
            .flat_map(|&parameter| parameter.factors().iter().map(move |&by| Some((parameter, by))));
        let changes: Vec<Change> = std::iter::once(None).chain(changes).collect();
        let points: Vec<(&Workload, Change)> = testbed
            .workloads
            .iter()
            .flat_map(|workload| changes.iter().map(move |&change| (workload, change)))
            .collect();
        let results: Vec<HeadlineValues> =
            journal.results("variations", &points, |&(workload, change)| {
                let setup = Setup::new(testbed, workload);
                let setup = match change {
                    Some((parameter, factor)) => setup.with(parameter, factor)?,
                    None => setup,
                };
                setup.headline_values().with_context(|| workload.title.clone())
            })?;
        let mut rows = Vec::new();
        for (workload, results) in testbed.workloads.iter().zip(results.chunks(changes.len())) {
            for (index, headline) in HEADLINES.into_iter().enumerate() {
                for (change, numbers) in changes.iter().zip(results) {
                    rows.push(row(workload, headline, *change, (numbers[index], results[0][index])));
                }
            }
        }
        Ok(Self {
            header: ReportHeader::new(NAME, &testbed.times, &testbed.link),
            gpus: testbed.gpus,
            amplification_limit: testbed.amplification_limit,
            policy: testbed.policy_name.clone(),
            rows,
            testbed: testbed.origin(),
        })
    }

    /// Returns the origin of the numbers.
    fn provenance(&self) -> Vec<String> {
        let of_plans = format!(
            "burst plans: amplification limit {}; policy {}; launches and communication kernels have the \
             costs of an A100 unless varied; every variation has its own plans",
            self.amplification_limit, self.policy
        );
        vec![self.testbed.clone(), of_plans]
    }

    /// Returns the rows of each workload and headline. The first row of a group has no variation.
    fn groups(&self) -> impl Iterator<Item = &[SensitivityRow]> {
        self.rows.chunk_by(|a, b| (&a.model, a.headline) == (&b.model, b.headline))
    }
}

impl Outcome for Sensitivity {
    fn title(&self) -> String {
        TITLE.into()
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn findings(&self) -> String {
        self.summary().join("\n")
    }

    fn provenance(&self) -> Vec<String> {
        self.provenance()
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(&self.rows)
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        Ok(vec![figure::draw(self, style)?])
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}

/// Returns whether a ratio is above 1 by more than rounding.
fn is_above_one(ratio: f64) -> bool {
    ratio > 1.0 + ROUNDING
}

fn row(
    workload: &Workload,
    headline: Headline,
    change: Option<(Parameter, f64)>,
    (value, base): (f64, f64),
) -> SensitivityRow {
    SensitivityRow {
        model: workload.network.name().into(),
        title: workload.title.clone(),
        batch: workload.batch,
        headline: headline.label(),
        parameter: change.map(|(parameter, _)| parameter.label().into()),
        change: change.map(|(parameter, factor)| parameter.change(factor)),
        value,
        base,
        flips: is_above_one(value) != is_above_one(base),
    }
}
