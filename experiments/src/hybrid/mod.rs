//! The experiment `hybrid`: workers of several GPUs against data parallelism, by time to a target
//! accuracy.

mod assumed;
mod case;
mod configuration;
mod efficiency;
mod figure;
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
use crate::report::ReportHeader;
use crate::style::Style;
use assumed::AssumedGain;
use case::{CASES, Case, LoadedCase};
use configuration::{Configuration, HybridRow, Worker, configurations};

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "hybrid";

/// Options of the experiment `hybrid`.
#[derive(Args)]
#[command(after_help = "\
Workers of 2 and 4 GPUs, each with the samples of a data-parallel worker of one GPU. Iterations are
modelled; epochs to the target are published where a curve is public. For other curves, gains are
shown by slope and efficiency.
Examples:
  experiments hybrid
  experiments hybrid --gpus 64
  experiments hybrid --model gnmt
  experiments hybrid --device v100 --link a100-100gbe --out results")]
pub(crate) struct HybridOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    device: DeviceOptions,
    /// Link model of the GPUs: the name of one, or its FILE.json
    #[arg(long, value_name = "NAME|FILE", default_value = "dgx-a100-pod")]
    link: String,
    /// Maximum number of GPUs
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
        let is_selected = |case: &&Case| self.model.as_ref().is_none_or(|model| model == case.model);
        let cases: Vec<LoadedCase> =
            CASES.iter().filter(is_selected).map(Case::load).collect::<anyhow::Result<_>>()?;
        for case in &cases {
            times.check(&case.network, &case.batches(self.gpus))?;
        }
        let gpus = self.gpus;
        Ok(prepared(move |journal| Hybrid::run(&cases, (&times, &link), gpus, journal)))
    }
}

/// Results. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Hybrid {
    #[serde(flatten)]
    header: ReportHeader,
    /// Speed-up of one worker over one GPU with the same samples.
    workers: Vec<Worker>,
    /// Rows by network and number of GPUs.
    rows: Vec<HybridRow>,
    /// Gains of workers of two GPUs for assumed curves and efficiencies.
    sweeps: Vec<AssumedGain>,
    #[serde(skip)]
    cases: Vec<Case>,
}

impl Hybrid {
    fn run(
        cases: &[LoadedCase],
        (times, link): (&LayerTimes, &LinkModel),
        gpus: usize,
        journal: &Journal,
    ) -> anyhow::Result<Self> {
        let of_workers: Vec<(&LoadedCase, usize)> =
            cases.iter().flat_map(|case| case::WORKER_GPUS.map(|gpus| (case, gpus))).collect();
        let workers: Vec<Worker> = journal.results("workers", &of_workers, |&(case, gpus)| {
            Worker::new(case, gpus, times, link).with_context(|| case.title.clone())
        })?;
        let configurations: Vec<Configuration<'_>> =
            cases.iter().flat_map(|case| configurations(case, gpus)).collect();
        let rows: Vec<HybridRow> =
            journal.results("times to accuracy", &configurations, |configuration| {
                let row = configuration.evaluate(&workers, times, link);
                row.with_context(|| format!("{} on {} GPUs", configuration.case.title, configuration.gpus))
            })?;
        let sweeps = cases.iter().flat_map(|case| assumed::gains(case, &workers)).collect();
        let cases = cases.iter().map(|case| case.case).collect();
        Ok(Self { header: ReportHeader::new(NAME, times, link), workers, rows, sweeps, cases })
    }

    /// Returns the origin of the numbers.
    fn provenance(&self) -> Vec<String> {
        vec![
            format!(
                "iterations are modelled: {}, link model {}; a plan's time is that of its program",
                self.header.layer_times, self.header.link
            ),
            "epochs to the target are published (MLPerf) where there is a curve; that of ResNet-50 stands \
             in for Inception-V3's, which is not public, \
             and BigLSTM has none: only assumed ones"
                .into(),
            "the paper's gains (Pal et al., IEEE Micro 39(5), 2019) are projections from its abstract; its \
             inputs are not public"
                .into(),
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
