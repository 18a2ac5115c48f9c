//! How long the planner takes.

mod options;
mod original;
mod question;
mod text;

use anyhow::Context;
use serde::Serialize;

use crate::machine::Machine;
use crate::outcome::{self, Outcome};
use crate::progress::progress_bar;
use crate::report::SCHEMA;
pub(crate) use options::SearchTimeOptions;
use question::{DEVICE, Question, Row, questions};

pub(crate) const NAME: &str = "search-time";
/// What is compared.
pub(crate) const ABOUT: &str =
    "how long the planner takes on 8 to 1,024 GPUs, beside the original's: measured";

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SearchTime {
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
    fn run(runs: usize, quick: bool) -> anyhow::Result<Self> {
        let (questions, machine) = (questions(quick), Machine::here());
        let bar = progress_bar(questions.len() * runs, "searches");
        let answer = |question: &Question| {
            let row = question.answer(runs, &machine, &|| bar.inc(1));
            row.with_context(|| format!("{} on {} GPUs", question.model, question.gpus))
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
    fn name(&self) -> &'static str {
        NAME
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(&self.rows)
    }
}
