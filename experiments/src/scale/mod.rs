//! Burst parallelism against every static partition on clusters of several hosts.

mod question;
mod text;

use anyhow::Context;
use clap::Args;
use collectives::LinkModel;
use serde::Serialize;

use crate::canvas::Figure;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::journal::Journal;
use crate::options::{RunOptions, limit};
use crate::outcome::{self, Outcome};
use crate::report::SCHEMA;
use crate::style::Style;
use question::{DEVICE, Question, Row, questions};

pub(crate) const NAME: &str = "scale";

#[derive(Args)]
#[command(
    after_help = "VGG-16, WRN-101-2 and Inception-V3, batches of 1 to 4 samples a GPU, and of fewer samples than GPUs.

Examples:
  experiments scale
  experiments scale --link a100-100gbe --out results
  experiments scale --link cluster.json --amplification 1.5 --json"
)]
pub(crate) struct ScaleOptions {
    #[command(flatten)]
    run: RunOptions,
    /// How the GPUs are linked: the name of a link model, or its FILE.json
    #[arg(long, value_name = "NAME|FILE", default_value = "dgx-a100-pod")]
    link: String,
    /// The limit of the burst plans that are shown beside those without: GPU time over the iteration time on one GPU
    #[arg(long, value_name = "LIMIT", default_value = "2.0", value_parser = limit)]
    amplification: f64,
    /// Only on 16 GPUs, in seconds
    #[arg(long)]
    quick: bool,
}

impl Experiment for ScaleOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let link = LinkModel::named_or_loaded(&self.link)?;
        let (questions, limit) = (questions(self.quick), self.amplification);
        for question in &questions {
            link.check_ranks(question.gpus)?;
        }
        Ok(prepared(move |journal| Scale::run(&questions, &link, limit, journal)))
    }
}

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Scale {
    schema: &'static str,
    experiment: &'static str,
    simulated: bool,
    device: &'static str,
    link: String,
    amplification_limit: f64,
    rows: Vec<Row>,
}

impl Scale {
    /// Compares all ways to share GPUs for every question, side by side.
    fn run(questions: &[Question], link: &LinkModel, limit: f64, journal: &Journal) -> anyhow::Result<Self> {
        let rows = journal.answers("comparisons", questions, |question| {
            let row = question.answer(link, limit);
            row.with_context(|| format!("{} on {} GPUs", question.model, question.gpus))
        })?;
        Ok(Self {
            schema: SCHEMA,
            experiment: NAME,
            simulated: true,
            device: DEVICE,
            link: link.name().into(),
            amplification_limit: limit,
            rows,
        })
    }
}

impl Outcome for Scale {
    fn title(&self) -> String {
        "Burst parallelism against static partitions on clusters (simulated)".into()
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn findings(&self) -> String {
        self.printed()
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(&self.rows)
    }

    fn figures(&self, _: Style) -> anyhow::Result<Vec<Figure>> {
        Ok(Vec::new())
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
