//! The experiment `spb`: structured partial backpropagation (SPB), its effect on accuracy, and the
//! throughput of background jobs beside it.

mod figure;
mod learning;
mod method;
mod sharing;
mod text;

use anyhow::Context;
use clap::Args;
use collectives::LinkModel;
use command_line::numbers::within;
use deeppool::data::DataSource;
use serde::Serialize;

use crate::canvas::Figure;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::journal::Journal;
use crate::layer_times::LayerTimes;
use crate::options::{DeviceOptions, RunOptions, inputs};
use crate::outcome::{self, Outcome};
use crate::report::ReportHeader;
use crate::style::Style;
use crate::workload::{BuiltIn, WORKLOADS, Workload};
use learning::{LearningCurve, LearningRow, TrainedNetwork};
use method::Method;
use sharing::{SharingResult, SharingRow};

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "spb";
/// GPUs of the simulated host.
const GPUS: usize = 8;
/// Target of the count of epochs: a test accuracy.
const TARGET: f64 = 0.97;

/// Options of the experiment `spb`.
#[derive(Args)]
#[command(after_help = "Networks are trained on one thread; throughputs are simulated on 8 GPUs of one host.

Examples:
  experiments spb
  experiments spb --seeds 2 --epochs 5
  experiments spb --model vgg16
  experiments spb --data mnist:FOLDER --seeds 5 --epochs 8
  experiments spb --device h100 --link dgx-h100 --out results")]
pub(crate) struct SpbOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Number of seeds of each method
    #[arg(long, value_name = "N", default_value = "10", value_parser = within(1..=100))]
    seeds: usize,
    /// Number of epochs of each run
    #[arg(long, value_name = "N", default_value = "12", value_parser = within(1..=1000))]
    epochs: usize,
    #[command(flatten)]
    device: DeviceOptions,
    /// Data to train on: digits, mnist:DIR or cifar10:DIR. On data other than digits, only a
    /// residual network of the data's shape is trained
    #[arg(long, value_name = "NAME", default_value = "digits")]
    data: DataSource,
    /// Link model of the GPUs: the name of one, or its FILE.json
    #[arg(long, value_name = "NAME|FILE", default_value = "dgx-a100")]
    link: String,
    /// One of the networks whose throughputs are simulated, instead of all
    #[arg(long, value_name = "NAME", value_parser = WORKLOADS.map(|workload| workload.model))]
    model: Option<String>,
}

impl Experiment for SpbOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let times = self.device.load()?;
        let link = inputs::link(&self.link)?;
        link.check_ranks(GPUS)?;
        let is_selected =
            |workload: &&BuiltIn| self.model.as_ref().is_none_or(|model| model == workload.model);
        let workloads: Vec<Workload> =
            WORKLOADS.iter().filter(is_selected).map(BuiltIn::load).collect::<anyhow::Result<_>>()?;
        for workload in &workloads {
            times.check(&workload.network, &workload.batches(GPUS))?;
        }
        let networks = learning::networks(&self.data)?;
        let (seeds, epochs) = (self.seeds as u64, self.epochs as u64);
        Ok(prepared(move |journal| {
            Spb::run((&networks, seeds, epochs), &workloads, (&times, &link), journal)
        }))
    }
}

/// Results. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, Serialize)]
struct Spb {
    #[serde(flatten)]
    header: ReportHeader,
    data: String,
    seeds: u64,
    epochs: u64,
    rows: Vec<SpbRow>,
}

/// A record of the CSV file: an epoch of a run, or a method to share GPUs.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
enum SpbRow {
    Learning(LearningRow),
    Sharing(SharingRow),
}

impl Spb {
    fn run(
        (networks, seeds, epochs): (&[TrainedNetwork], u64, u64),
        workloads: &[Workload],
        (times, link): (&LayerTimes, &LinkModel),
        journal: &Journal,
    ) -> anyhow::Result<Self> {
        let mut runs = Vec::new();
        for network in networks {
            for method in network.methods()? {
                runs.extend((0..seeds).map(|seed| (network, method.clone(), seed)));
            }
        }
        let learned: Vec<LearningCurve> = journal.results("runs", &runs, |(network, method, seed)| {
            network
                .learn(method, *seed, epochs)
                .with_context(|| format!("{}, {}", network.title, method.label()))
        })?;
        let mut rows = Vec::new();
        for ((network, method, seed), learned) in runs.iter().zip(&learned) {
            let share = network.compute_share(method)?;
            rows.extend(learned.rows(network, method, *seed, share).into_iter().map(SpbRow::Learning));
        }
        let shared: Vec<Vec<SharingResult>> = journal.results("networks", workloads, |workload| {
            sharing::compare(workload, times, link).with_context(|| workload.title.clone())
        })?;
        for (workload, shared) in workloads.iter().zip(shared) {
            rows.extend(shared.into_iter().map(|shared| SpbRow::Sharing(shared.row(workload))));
        }
        let data = networks.first().map(TrainedNetwork::data_description).unwrap_or_default();
        Ok(Self { header: ReportHeader::new(NAME, times, link), data, seeds, epochs, rows })
    }

    /// Returns the epochs of all runs, grouped by network.
    fn learning(&self) -> Vec<&LearningRow> {
        self.rows.iter().filter_map(SpbRow::learning).collect()
    }

    fn sharing(&self) -> Vec<&SharingRow> {
        self.rows.iter().filter_map(SpbRow::sharing).collect()
    }
}

impl Outcome for Spb {
    fn title(&self) -> String {
        "Structured partial backpropagation: accuracy and background throughput".into()
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn findings(&self) -> String {
        self.summary().join("\n")
    }

    fn provenance(&self) -> Vec<String> {
        vec![
            format!(
                "trained: {}, batches of {}, {} seeds, {} epochs, on one thread",
                self.data,
                learning::BATCH,
                self.seeds,
                self.epochs
            ),
            format!(
                "compute is forward, backward and update steps by the model of {} on {GPUS} GPUs, over \
                 those of whole backpropagation",
                learning::DEVICE
            ),
            format!(
                "throughputs simulated: {GPUS} GPUs, {}, link model {}; the background trains the same \
                 network on batches of {}",
                self.header.layer_times,
                self.header.link,
                crate::workload::BACKGROUND_BATCH
            ),
            "the rule of partial backpropagation is ours: of the paper only the abstract was at hand".into(),
        ]
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(self.rows.iter().map(SpbRow::record))
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        let rows = self.learning();
        rows.chunk_by(|a, b| a.model == b.model).map(|rows| figure::draw(self, rows, style)).collect()
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}

/// A record of the CSV file. Fields that do not apply to a row are empty.
#[derive(Debug, Clone, Default, Serialize)]
struct SpbRecord<'r> {
    experiment: &'static str,
    model: &'r str,
    #[serde(rename = "way")]
    method: String,
    mode: Option<&'static str>,
    seed: Option<u64>,
    epoch: Option<u64>,
    iterations: Option<u64>,
    compute: Option<f64>,
    train_loss: Option<f64>,
    test_accuracy: Option<f64>,
    batch: Option<usize>,
    iteration_us: Option<f64>,
    amplification: Option<f64>,
    computing_share: Option<f64>,
    foreground_samples_per_s: Option<f64>,
    background_samples_per_s: Option<f64>,
    foreground_slowdown: Option<f64>,
}

impl SpbRow {
    fn learning(&self) -> Option<&LearningRow> {
        if let Self::Learning(row) = self { Some(row) } else { None }
    }

    fn sharing(&self) -> Option<&SharingRow> {
        if let Self::Sharing(row) = self { Some(row) } else { None }
    }

    fn record(&self) -> SpbRecord<'_> {
        match self {
            Self::Learning(row) => SpbRecord {
                experiment: NAME,
                model: &row.model,
                method: row.method.clone(),
                seed: Some(row.seed),
                epoch: Some(row.epoch),
                iterations: Some(row.iterations),
                compute: Some(row.compute),
                train_loss: Some(row.train_loss),
                test_accuracy: Some(row.test_accuracy),
                ..SpbRecord::default()
            },
            Self::Sharing(row) => SpbRecord {
                experiment: NAME,
                model: &row.model,
                method: row.method.clone(),
                mode: Some(row.mode),
                batch: Some(row.batch),
                iteration_us: Some(row.iteration_us),
                amplification: Some(row.amplification),
                computing_share: Some(row.computing_share),
                foreground_samples_per_s: Some(row.foreground_samples_per_s),
                background_samples_per_s: Some(row.background_samples_per_s),
                foreground_slowdown: Some(row.foreground_slowdown),
                ..SpbRecord::default()
            },
        }
    }
}
