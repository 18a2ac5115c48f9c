//! Structured partial backpropagation: what it costs in accuracy, and what others can run in the time that it leaves.

mod figure;
mod learning;
mod sharing;
mod text;
mod way;

use anyhow::Context;
use clap::Args;
use collectives::LinkModel;
use deeppool::data::DataSource;
use serde::Serialize;

use crate::canvas::Figure;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::journal::Journal;
use crate::layer_times::LayerTimes;
use crate::options::{DeviceOptions, RunOptions, inputs, within};
use crate::outcome::{self, Outcome};
use crate::report::Header;
use crate::style::Style;
use crate::workload::{BuiltIn, WORKLOADS, Workload};
use learning::{Learned, LearningRow, Learns};
use sharing::{Shared, SharingRow};
use way::Way;

pub(crate) const NAME: &str = "spb";
/// GPUs of the simulated host.
const GPUS: usize = 8;
/// The test accuracy that epochs are counted to.
const TARGET: f64 = 0.97;

#[derive(Args)]
#[command(after_help = "Learning is real, on one thread; throughputs are simulated, on 8 GPUs of one host.

Examples:
  experiments spb
  experiments spb --seeds 2 --epochs 5
  experiments spb --model vgg16
  experiments spb --data mnist:FOLDER --seeds 5 --epochs 8
  experiments spb --device h100 --link dgx-h100 --out results")]
pub(crate) struct SpbOptions {
    #[command(flatten)]
    run: RunOptions,
    /// How many seeds each way to train is tried with
    #[arg(long, value_name = "N", default_value = "10", value_parser = seeds)]
    seeds: usize,
    /// How many epochs each run has
    #[arg(long, value_name = "N", default_value = "12", value_parser = epochs)]
    epochs: usize,
    #[command(flatten)]
    device: DeviceOptions,
    /// What is learned: digits, mnist:DIR or cifar10:DIR. On others than digits it is a residual network for their shape only
    #[arg(long, value_name = "NAME", default_value = "digits")]
    data: DataSource,
    /// How the GPUs are linked: the name of a link model, or its FILE.json
    #[arg(long, value_name = "NAME|FILE", default_value = "dgx-a100")]
    link: String,
    /// One of the networks whose throughputs are simulated, instead of all
    #[arg(long, value_name = "NAME", value_parser = WORKLOADS.map(|workload| workload.model))]
    model: Option<String>,
}

fn seeds(text: &str) -> Result<usize, String> {
    within(text, 1, 100)
}

fn epochs(text: &str) -> Result<usize, String> {
    within(text, 1, 1000)
}

impl Experiment for SpbOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let times = self.device.load()?;
        let link = inputs::link(&self.link)?;
        link.check_ranks(GPUS)?;
        let is_asked = |workload: &&BuiltIn| self.model.as_ref().is_none_or(|model| model == workload.model);
        let workloads: Vec<Workload> =
            WORKLOADS.iter().filter(is_asked).map(BuiltIn::load).collect::<anyhow::Result<_>>()?;
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

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, Serialize)]
struct Spb {
    #[serde(flatten)]
    header: Header,
    data: String,
    seeds: u64,
    epochs: u64,
    rows: Vec<Row>,
}

/// A line of the CSV: an epoch of a run, or a way to share GPUs.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
enum Row {
    Learning(LearningRow),
    Sharing(SharingRow),
}

impl Spb {
    fn run(
        (networks, seeds, epochs): (&[Learns], u64, u64),
        workloads: &[Workload],
        (times, link): (&LayerTimes, &LinkModel),
        journal: &Journal,
    ) -> anyhow::Result<Self> {
        let mut questions = Vec::new();
        for network in networks {
            for way in network.ways()? {
                questions.extend((0..seeds).map(|seed| (network, way.clone(), seed)));
            }
        }
        let learned: Vec<Learned> = journal.answers("runs", &questions, |(network, way, seed)| {
            network.learn(way, *seed, epochs).with_context(|| format!("{}, {}", network.title, way.label()))
        })?;
        let mut rows = Vec::new();
        for ((network, way, seed), learned) in questions.iter().zip(&learned) {
            let share = network.compute_share(way)?;
            rows.extend(learned.rows(network, way, *seed, share).into_iter().map(Row::Learning));
        }
        let shared: Vec<Vec<Shared>> = journal.answers("networks", workloads, |workload| {
            sharing::compare(workload, times, link).with_context(|| workload.title.clone())
        })?;
        for (workload, shared) in workloads.iter().zip(shared) {
            rows.extend(shared.into_iter().map(|shared| Row::Sharing(shared.row(workload))));
        }
        let data = networks.first().map(Learns::data).unwrap_or_default();
        Ok(Self { header: Header::new(NAME, times, link), data, seeds, epochs, rows })
    }

    /// The epochs of all runs, network by network.
    fn learning(&self) -> Vec<&LearningRow> {
        self.rows.iter().filter_map(Row::learning).collect()
    }

    fn sharing(&self) -> Vec<&SharingRow> {
        self.rows.iter().filter_map(Row::sharing).collect()
    }
}

impl Outcome for Spb {
    fn title(&self) -> String {
        "Structured partial backpropagation: accuracy, and what is left to others".into()
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
                "compute is forward, backward and update steps by the model of {} on {GPUS} GPUs, over those of whole backpropagation",
                learning::DEVICE
            ),
            format!(
                "throughputs simulated: {GPUS} GPUs, {}, link model {}; the background trains the same network on batches of {}",
                self.header.layer_times,
                self.header.link,
                crate::workload::BACKGROUND_BATCH
            ),
            "the rule of partial backpropagation is ours: of the paper only the abstract was at hand".into(),
        ]
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(self.rows.iter().map(Row::record))
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        let rows = self.learning();
        rows.chunk_by(|a, b| a.model == b.model).map(|rows| figure::draw(self, rows, style)).collect()
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}

/// A record of the CSV: what has no meaning in a row is empty.
#[derive(Debug, Clone, Default, Serialize)]
struct Record<'r> {
    experiment: &'static str,
    model: &'r str,
    way: String,
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

impl Row {
    fn learning(&self) -> Option<&LearningRow> {
        if let Self::Learning(row) = self { Some(row) } else { None }
    }

    fn sharing(&self) -> Option<&SharingRow> {
        if let Self::Sharing(row) = self { Some(row) } else { None }
    }

    fn record(&self) -> Record<'_> {
        match self {
            Self::Learning(row) => Record {
                experiment: NAME,
                model: &row.model,
                way: row.way.clone(),
                seed: Some(row.seed),
                epoch: Some(row.epoch),
                iterations: Some(row.iterations),
                compute: Some(row.compute),
                train_loss: Some(row.train_loss),
                test_accuracy: Some(row.test_accuracy),
                ..Record::default()
            },
            Self::Sharing(row) => Record {
                experiment: NAME,
                model: &row.model,
                way: row.way.clone(),
                mode: Some(row.mode),
                batch: Some(row.batch),
                iteration_us: Some(row.iteration_us),
                amplification: Some(row.amplification),
                computing_share: Some(row.computing_share),
                foreground_samples_per_s: Some(row.foreground_samples_per_s),
                background_samples_per_s: Some(row.background_samples_per_s),
                foreground_slowdown: Some(row.foreground_slowdown),
                ..Record::default()
            },
        }
    }
}
