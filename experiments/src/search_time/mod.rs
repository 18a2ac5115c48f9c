//! How long the planner takes.

mod options;
mod original;
mod question;
mod text;

use anyhow::Context;
use serde::Serialize;

use crate::journal::Journal;
use crate::machine::Machine;
use crate::outcome::{self, Outcome};
use crate::progress::progress_bar;
use crate::report::SCHEMA;
pub(crate) use options::SearchTimeOptions;
use question::{DEVICE, Question, Row, questions};

pub(crate) const NAME: &str = "search-time";

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct SearchTime {
    schema: &'static str,
    experiment: &'static str,
    /// Where the layer times of the plans are from; the times of the searches are measured.
    device: &'static str,
    rows: Vec<Row>,
    #[serde(skip)]
    machine: String,
}

impl SearchTime {
    /// Searches so many times for every plan, one after another: the planner works on one core, and nothing else of this process does.
    /// On a terminal a bar shows how far it is.
    fn run(runs: usize, quick: bool, journal: &Journal) -> anyhow::Result<Self> {
        let (questions, machine) = (questions(quick), Machine::here());
        let bar = progress_bar(questions.len() * runs, "searches");
        let answer = |question: &Question| {
            let on = format!("{} on {} GPUs", question.model, question.gpus);
            journal
                .answer(&on, || question.answer(runs, &machine, &|| bar.inc(1)))
                .with_context(|| on.clone())
        };
        let rows: anyhow::Result<Vec<Row>> = questions.iter().map(answer).collect();
        bar.finish_and_clear();
        Ok(Self {
            schema: SCHEMA,
            experiment: NAME,
            device: DEVICE,
            rows: rows?,
            machine: machine.to_string(),
        })
    }
}

impl Outcome for SearchTime {
    fn title(&self) -> String {
        "How long the planner takes".into()
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn findings(&self) -> String {
        self.printed()
    }

    fn provenance(&self) -> Vec<String> {
        self.provenance()
    }

    fn is_measured(&self) -> bool {
        true
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(&self.rows)
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
