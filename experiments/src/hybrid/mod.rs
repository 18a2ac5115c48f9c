//! Workers of several GPUs against data parallelism, by the time to an accuracy.

mod case;
mod efficiency;
mod figure;
mod question;
mod sweep;
mod text;

use anyhow::Context;
use clap::Args;
use collectives::LinkModel;
use serde::Serialize;

use crate::canvas::Figure;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::journal::Journal;
use crate::layer_times::LayerTimes;
use crate::options::{DeviceOptions, RunOptions, gpus, inputs};
use crate::outcome::{self, Outcome};
use crate::report::Header;
use crate::style::Style;
use case::{CASES, Case, Loaded};
use question::{Question, Row, Worker, questions};
use sweep::Sweep;

pub(crate) const NAME: &str = "hybrid";

#[derive(Args)]
#[command(
    after_help = "Workers of 2 and 4 GPUs, each with as many samples as a data-parallel worker of one GPU; iterations are modelled, epochs
to the target published where a curve is public. Where none is, and for other curves, gains by the curve's slope and by scaling efficiency.

Examples:
  experiments hybrid
  experiments hybrid --gpus 64
  experiments hybrid --model gnmt
  experiments hybrid --device v100 --link a100-100gbe --out results"
)]
pub(crate) struct HybridOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    device: DeviceOptions,
    /// How the GPUs are linked: the name of a link model, or its FILE.json
    #[arg(long, value_name = "NAME|FILE", default_value = "dgx-a100-pod")]
    link: String,
    /// Up to how many GPUs
    #[arg(long, value_name = "N", default_value = "1024", value_parser = gpus)]
    gpus: usize,
    /// One of the networks, instead of all
    #[arg(long, value_name = "NAME", value_parser = CASES.map(|case| case.model))]
    model: Option<String>,
}

impl Experiment for HybridOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let times = self.device.load()?;
        let link = inputs::link(&self.link)?;
        link.check_ranks(self.gpus)?;
        let is_asked = |case: &&Case| self.model.as_ref().is_none_or(|model| model == case.model);
        let cases: Vec<Loaded> =
            CASES.iter().filter(is_asked).map(Case::load).collect::<anyhow::Result<_>>()?;
        for case in &cases {
            times.check(&case.network, &case.batches(self.gpus))?;
        }
        let gpus = self.gpus;
        Ok(prepared(move |journal| Hybrid::run(&cases, (&times, &link), gpus, journal)))
    }
}

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Hybrid {
    #[serde(flatten)]
    header: Header,
    /// How much faster one worker is than one GPU, with as many samples.
    workers: Vec<Worker>,
    /// By network and number of GPUs.
    rows: Vec<Row>,
    /// Gains of workers of two GPUs for assumed curves and efficiencies.
    sweeps: Vec<Sweep>,
    #[serde(skip)]
    cases: Vec<Case>,
}

impl Hybrid {
    fn run(
        cases: &[Loaded],
        (times, link): (&LayerTimes, &LinkModel),
        gpus: usize,
        journal: &Journal,
    ) -> anyhow::Result<Self> {
        let of_workers: Vec<(&Loaded, usize)> =
            cases.iter().flat_map(|case| question::WORKER_GPUS.map(|gpus| (case, gpus))).collect();
        let workers: Vec<Worker> = journal.answers("workers", &of_workers, |&(case, gpus)| {
            Worker::new(case, gpus, times, link).with_context(|| case.title.clone())
        })?;
        let questions: Vec<Question<'_>> = cases.iter().flat_map(|case| questions(case, gpus)).collect();
        let rows: Vec<Row> = journal.answers("times to accuracy", &questions, |question| {
            let row = question.answer(&workers, times, link);
            row.with_context(|| format!("{} on {} GPUs", question.case.title, question.gpus))
        })?;
        let sweeps = cases.iter().flat_map(|case| sweep::all(case, &workers)).collect();
        let cases = cases.iter().map(|case| case.case).collect();
        Ok(Self { header: Header::new(NAME, times, link), workers, rows, sweeps, cases })
    }

    /// What the numbers are from.
    fn provenance(&self) -> Vec<String> {
        vec![
            format!(
                "iterations are modelled: {}, link model {}; a plan's time is that of its program",
                self.header.layer_times, self.header.link
            ),
            "epochs to the target are published (MLPerf) where there is a curve; that of ResNet-50 stands in for Inception-V3's, which is not public, \
             and BigLSTM has none: only assumed ones"
                .into(),
            "the paper's gains (Pal et al., IEEE Micro 39(5), 2019) are projections from its abstract; its inputs are not public".into(),
        ]
    }
}

impl Outcome for Hybrid {
    fn title(&self) -> String {
        "Workers of several GPUs against data parallelism, by the time to an accuracy (modelled)".into()
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
        Ok(vec![figure::by_gpus(self, style)?, figure::by_slope(self, style)?])
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
