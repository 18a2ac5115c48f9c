//! Burst parallelism against every static partition on clusters of several hosts.

mod question;
mod text;

use anyhow::Context;
use collectives::LinkModel;
use rayon::prelude::*;
use serde::Serialize;

use crate::outcome::{self, Outcome};
use crate::progress::progress_bar;
use crate::report::SCHEMA;
use question::{Question, Row, questions};

pub(crate) const NAME: &str = "scale";

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Scale {
    schema: &'static str,
    experiment: &'static str,
    simulated: bool,
    device: &'static str,
    link: String,
    amplification_limit: f64,
    rows: Vec<Row>,
}

impl Scale {
    /// Compares all ways to share GPUs for every question, side by side. On a terminal a bar shows how far it is.
    pub(crate) fn run(link: &str, limit: f64, quick: bool) -> anyhow::Result<Self> {
        let link = LinkModel::named_or_loaded(link)?;
        let questions = questions(quick);
        let bar = progress_bar(questions.len(), "comparisons");
        let answer = |question: &Question| {
            let row = question.answer(&link, limit);
            bar.inc(1);
            row.with_context(|| format!("{} on {} GPUs", question.model, question.gpus))
        };
        let rows: anyhow::Result<Vec<Row>> = questions.par_iter().map(answer).collect();
        bar.finish_and_clear();
        Ok(Self {
            schema: SCHEMA,
            experiment: NAME,
            simulated: true,
            device: "a100",
            link: link.name().into(),
            amplification_limit: limit,
            rows: rows?,
        })
    }
}

impl Outcome for Scale {
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
