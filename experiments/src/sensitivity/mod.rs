//! How conclusions move when figures that are not known well are off by half.

mod figure;
mod headline;
mod text;
mod variation;

use anyhow::Context;
use layer_profile::{ModelAccuracy, Origin};
use rayon::prelude::*;
use serde::Serialize;

use crate::job::Workload;
use crate::outcome::{self, Outcome};
use crate::page::{Marks, Section};
use crate::progress::progress_bar;
use crate::report::SCHEMA;
use crate::style::hex;
use crate::testbed::Testbed;
use headline::{HEADLINES, Headline, Numbers};
use variation::{FIGURES, Figure, Setup};

pub(crate) const NAME: &str = "sensitivity";
/// Ratios that differ by less are the same.
const ROUNDING: f64 = 1e-3;

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Sensitivity {
    schema: &'static str,
    experiment: &'static str,
    simulated: bool,
    device: String,
    origin: Origin,
    accuracy: ModelAccuracy,
    link: String,
    gpus: usize,
    amplification_limit: f64,
    policy: String,
    rows: Vec<Row>,
    #[serde(skip)]
    provenance: String,
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
    figure: Option<&'static str>,
    change: Option<String>,
    value: f64,
    /// Without the variation.
    base: f64,
    /// Whether one of the two is above 1, and the other is not.
    flips: bool,
}

impl Sensitivity {
    /// Varies each figure for each workload, side by side. On a terminal a bar shows how far it is.
    pub(crate) fn run(testbed: &Testbed) -> anyhow::Result<Self> {
        type Change = Option<(Figure, f64)>;
        let changes =
            FIGURES.iter().flat_map(|&figure| figure.factors().iter().map(move |&by| Some((figure, by))));
        let changes: Vec<Change> = std::iter::once(None).chain(changes).collect();
        let questions: Vec<(&Workload, Change)> = testbed
            .workloads
            .iter()
            .flat_map(|workload| changes.iter().map(move |&change| (workload, change)))
            .collect();
        let bar = progress_bar(questions.len(), "variations");
        let answer = |&(workload, change): &(&Workload, Change)| {
            let setup = Setup::new(testbed, workload);
            let setup = match change {
                Some((figure, factor)) => setup.with(figure, factor)?,
                None => setup,
            };
            let numbers = setup.numbers().with_context(|| workload.title.clone());
            bar.inc(1);
            numbers
        };
        let answers: anyhow::Result<Vec<Numbers>> = questions.par_iter().map(answer).collect();
        bar.finish_and_clear();
        let mut rows = Vec::new();
        for (workload, answers) in testbed.workloads.iter().zip(answers?.chunks(changes.len())) {
            for (index, headline) in HEADLINES.into_iter().enumerate() {
                for (change, numbers) in changes.iter().zip(answers) {
                    rows.push(row(workload, headline, *change, (numbers[index], answers[0][index])));
                }
            }
        }
        Ok(Self {
            schema: SCHEMA,
            experiment: NAME,
            simulated: true,
            device: testbed.device.name().into(),
            origin: Origin::Modelled,
            accuracy: testbed.device.accuracy().clone(),
            link: testbed.link.name().into(),
            gpus: testbed.gpus,
            amplification_limit: testbed.amplification_limit,
            policy: testbed.policy_name.clone(),
            rows,
            provenance: testbed.origin(),
        })
    }

    /// The rows of each workload and headline; the first of each varies nothing.
    fn groups(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|a, b| (&a.model, a.headline) == (&b.model, b.headline))
    }

    /// The variations on a page of several.
    pub(crate) fn section(&self) -> anyhow::Result<Section> {
        let title = "What conclusions owe to figures that may be off by half (simulated)".to_owned();
        let text = (self.text(), self.summary().join("\n"));
        let marks = |color, is_down: bool| {
            let drawn = self.rows.iter().filter_map(|row| Some((row, row.change.as_deref()?)));
            let drawn = drawn.filter(|(_, change)| (*change == "x 0.5") == is_down);
            let value = |(row, change): (&Row, &str)| {
                let (figure, Row { title, headline, value, base, .. }) =
                    (row.figure.unwrap_or_default(), row);
                format!("{title}: {headline}: {base:.2} to {value:.2} with {figure} {change}")
            };
            Marks { tag: "<rect", contains: hex(color), legend: 1, values: drawn.map(value).collect() }
        };
        let marks = [marks(figure::DOWN, true), marks(figure::UP, false)];
        Section::new(NAME, title, text, (figure::svg(self)?, &marks[..]), self.csv()?)
    }
}

impl Outcome for Sensitivity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(&self.rows)
    }

    fn svg(&self) -> anyhow::Result<Option<String>> {
        figure::svg(self).map(Some)
    }
}

/// By more than rounding.
fn is_above_one(ratio: f64) -> bool {
    ratio > 1.0 + ROUNDING
}

fn row(
    workload: &Workload,
    headline: Headline,
    change: Option<(Figure, f64)>,
    (value, base): (f64, f64),
) -> Row {
    Row {
        model: workload.network.name().into(),
        title: workload.title.clone(),
        batch: workload.batch,
        headline: headline.label(),
        figure: change.map(|(figure, _)| figure.label()),
        change: change.map(|(figure, factor)| figure.change(factor)),
        value,
        base,
        flips: is_above_one(value) != is_above_one(base),
    }
}
