//! How conclusions move when parameters of the models that are not known well are off by half.

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
use crate::report::Header;
use crate::style::Style;
use crate::testbed::Testbed;
use crate::workload::Workload;
use headline::{HEADLINES, Headline, Numbers};
use variation::{PARAMETERS, Parameter, Setup};

pub(crate) const NAME: &str = "sensitivity";
const TITLE: &str = "How conclusions depend on parameters of the models that may be off by half (simulated)";
/// Ratios that differ by less are the same.
const ROUNDING: f64 = 1e-3;

#[derive(Args)]
#[command(
    after_help = "Link bandwidth, layer times of small batches, launch times, contention and the background's batch, each by half
down and up, and launches kernel by kernel. Plans are made anew for each.

Examples:
  experiments sensitivity
  experiments sensitivity --gpus 64 --link dgx-a100-pod --batch 64
  experiments sensitivity --model resnet-50 --batch 64 --out results"
)]
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

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Sensitivity {
    #[serde(flatten)]
    header: Header,
    gpus: usize,
    amplification_limit: f64,
    policy: String,
    rows: Vec<Row>,
    #[serde(skip)]
    /// What the testbed is, in a line.
    testbed: String,
}

/// One number under one variation.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    model: String,
    #[serde(skip)]
    title: String,
    batch: usize,
    headline: &'static str,
    /// What is varied, and by what; empty in the rows of what nothing is varied in.
    parameter: Option<String>,
    change: Option<String>,
    value: f64,
    /// Without the variation.
    base: f64,
    /// Whether one of the two is above 1, and the other is not.
    flips: bool,
}

impl Sensitivity {
    /// Varies each parameter for each workload, side by side.
    fn run(testbed: &Testbed, journal: &Journal) -> anyhow::Result<Self> {
        type Change = Option<(Parameter, f64)>;
        let changes = PARAMETERS
            .iter()
            .flat_map(|&parameter| parameter.factors().iter().map(move |&by| Some((parameter, by))));
        let changes: Vec<Change> = std::iter::once(None).chain(changes).collect();
        let questions: Vec<(&Workload, Change)> = testbed
            .workloads
            .iter()
            .flat_map(|workload| changes.iter().map(move |&change| (workload, change)))
            .collect();
        let answers: Vec<Numbers> = journal.answers("variations", &questions, |&(workload, change)| {
            let setup = Setup::new(testbed, workload);
            let setup = match change {
                Some((parameter, factor)) => setup.with(parameter, factor)?,
                None => setup,
            };
            setup.numbers().with_context(|| workload.title.clone())
        })?;
        let mut rows = Vec::new();
        for (workload, answers) in testbed.workloads.iter().zip(answers.chunks(changes.len())) {
            for (index, headline) in HEADLINES.into_iter().enumerate() {
                for (change, numbers) in changes.iter().zip(answers) {
                    rows.push(row(workload, headline, *change, (numbers[index], answers[0][index])));
                }
            }
        }
        Ok(Self {
            header: Header::new(NAME, &testbed.times, &testbed.link),
            gpus: testbed.gpus,
            amplification_limit: testbed.amplification_limit,
            policy: testbed.policy_name.clone(),
            rows,
            testbed: testbed.origin(),
        })
    }

    /// What the numbers are from.
    fn provenance(&self) -> Vec<String> {
        let of_plans = format!(
            "burst plans: amplification limit {}; policy {}; launching and communication kernels cost what they cost on \
             an A100, unless varied; plans are made anew for every variation",
            self.amplification_limit, self.policy
        );
        vec![self.testbed.clone(), of_plans]
    }

    /// The rows of each workload and headline; the first of each varies nothing.
    fn groups(&self) -> impl Iterator<Item = &[Row]> {
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

/// By more than rounding.
fn is_above_one(ratio: f64) -> bool {
    ratio > 1.0 + ROUNDING
}

fn row(
    workload: &Workload,
    headline: Headline,
    change: Option<(Parameter, f64)>,
    (value, base): (f64, f64),
) -> Row {
    Row {
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
