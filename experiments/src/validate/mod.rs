//! What is planned and simulated, beside what this machine's processor measures.

mod comparison;
mod earlier;
mod figure;
mod networks;
mod options;
mod ranking;
mod row;
mod text;

use collectives::LinkModel;
use serde::Serialize;

use crate::canvas::Figure;
use crate::journal::Journal;
use crate::machine::Machine;
use crate::outcome::{self, Outcome};
use crate::progress::progress_bar;
use crate::report::SCHEMA;
use crate::style::Style;
use comparison::{Comparison, Subject};
use networks::{BACKGROUND, Workload};
pub(crate) use options::ValidateOptions;
use ranking::{Finding, findings};
use row::{Mode, Row};

pub(crate) const NAME: &str = "validate";

/// What is asked.
#[derive(Debug, Clone)]
struct Question {
    workloads: Vec<Workload>,
    /// Each a thread, at least two and no more than any of the batches has samples.
    ranks: usize,
    /// How often each plan is run, at least once.
    runs: usize,
    /// Iterations of a run, at least two.
    iterations: usize,
}

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Validate {
    schema: &'static str,
    experiment: &'static str,
    link: String,
    /// The background job, `MODEL:BATCH`.
    background: String,
    rows: Vec<Row>,
    findings: Vec<Finding>,
}

impl Validate {
    /// Measures the layers of every network, plans, simulates and trains it, and puts rows of earlier runs beside that. On a terminal a
    /// bar shows how far it is.
    fn run(question: &Question, earlier: Vec<Row>, journal: &Journal) -> anyhow::Result<Self> {
        let Question { workloads, ranks, runs, iterations } = question;
        let (machine, link) = (Machine::here(), LinkModel::threads_of_one_host());
        // A network's layer times, and its runs.
        let bar = progress_bar(workloads.len() * (1 + runs * Mode::ALL.len()), "measurements");
        bar.tick();
        let background = &Subject::measure(&BACKGROUND.load()?, 1, *iterations)?;
        let comparison = Comparison { question, machine: &machine, link: &link, background };
        let mut rows = Vec::new();
        for (index, workload) in workloads.iter().enumerate() {
            // What was measured before the command was stopped stays: its runs were in turns.
            rows.extend(journal.answer::<Vec<Row>>(&format!("network {index}"), || {
                let subject = Subject::measure(workload, *ranks, *iterations)?;
                bar.inc(1);
                comparison.rows(&subject, &|| bar.inc(1))
            })?);
        }
        bar.finish_and_clear();
        rows.extend(earlier);
        Ok(Self {
            schema: SCHEMA,
            experiment: NAME,
            link: link.name().into(),
            background: background.label(),
            findings: findings(&rows),
            rows,
        })
    }
}

impl Outcome for Validate {
    fn title(&self) -> String {
        "Planned and simulated against measured, on a processor".into()
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn findings(&self) -> String {
        self.summary().join("\n")
    }

    fn provenance(&self) -> Vec<String> {
        let mut machines: Vec<String> = self.rows.iter().map(|row| row.place().1).collect();
        machines.dedup();
        vec![format!("measured on {}", machines.join("; "))]
    }

    fn is_measured(&self) -> bool {
        true
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
