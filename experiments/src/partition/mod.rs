//! Sharing every GPU against giving some to the foreground and the rest to background jobs, at any speed of the foreground.

mod figure;
mod text;
mod totals;

use anyhow::Context;
use clap::Args;
use deeppool::compare::{Comparison, Point, SharingMode};
use serde::{Deserialize, Serialize};

use crate::canvas::Figure;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::job::ForegroundJob;
use crate::journal::Journal;
use crate::options::{PolicyOptions, RunOptions, TestbedOptions};
use crate::outcome::{self, Outcome};
use crate::report::Header;
use crate::style::Style;
use crate::testbed::Testbed;
use crate::workload::Workload;
use totals::{Totals, totals};

pub(crate) const NAME: &str = "partition";
/// Plans are compared over all limits; that of the usual one, which `throughput` shows, is one of them.
const LIMIT: f64 = 2.0;

#[derive(Args)]
#[command(
    after_help = "A partition is DP on some GPUs with a background job on each of the others. BP+Col is compared with the best
partitions at equal speeds of the foreground, over all limits; both may take turns.

Examples:
  experiments partition
  experiments partition --gpus 64 --link dgx-a100-pod --batch 64
  experiments partition --onnx net.onnx --batch 64 --device h100 --gpus 16
  experiments partition --policy deeppool --json"
)]
pub(crate) struct PartitionOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    testbed: TestbedOptions,
    #[command(flatten)]
    sharing: PolicyOptions,
}

impl Experiment for PartitionOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let testbed = self.testbed.testbed(LIMIT, &self.sharing.policy)?;
        Ok(prepared(move |journal| Partition::run(&testbed, journal)))
    }
}

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Partition {
    #[serde(flatten)]
    header: Header,
    gpus: usize,
    policy: String,
    background_batch: usize,
    networks: Vec<OfNetwork>,
    #[serde(skip)]
    provenance: Vec<String>,
}

/// What was found for a network.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct OfNetwork {
    title: String,
    model: String,
    batch: usize,
    rows: Vec<Row>,
    /// At some speeds of the foreground.
    totals: Vec<Totals>,
    /// Which way to use, in words.
    advice: String,
}

/// A way to share the GPUs and what it gives: a point of the figure. Throughputs are in samples by second; `None` is what has no meaning
/// in a mode, or is not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Row {
    mode: String,
    /// GPUs on which the foreground has a part.
    foreground_gpus: usize,
    /// GPUs that each run a background job.
    background_gpus: usize,
    /// Active time of all GPUs over the iteration time on one GPU.
    amplification: Option<f64>,
    iteration_us: Option<f64>,
    foreground_samples_per_s: f64,
    background_samples_per_s: f64,
    /// Both together.
    total_samples_per_s: f64,
    /// What they may be, by how far the models are known to be off.
    foreground_least_samples_per_s: Option<f64>,
    foreground_most_samples_per_s: Option<f64>,
    total_least_samples_per_s: Option<f64>,
    total_most_samples_per_s: Option<f64>,
}

/// What a comparison leaves, as it is kept.
#[derive(Serialize, Deserialize)]
struct Compared {
    rows: Vec<Row>,
    advice: String,
}

impl Row {
    fn new(point: &Point, gpus: usize) -> Self {
        let background_gpus = match point.mode {
            SharingMode::DataParallel | SharingMode::Burst => 0,
            SharingMode::Partition => gpus - point.gpus,
            _ => gpus,
        };
        let ends = |range: Option<[f64; 2]>| (range.map(|range| range[0]), range.map(|range| range[1]));
        let (foreground_least_samples_per_s, foreground_most_samples_per_s) = ends(point.foreground_range);
        let (total_least_samples_per_s, total_most_samples_per_s) = ends(point.total_range);
        Self {
            mode: point.mode.name().into(),
            foreground_gpus: point.gpus,
            background_gpus,
            amplification: point.amplification,
            iteration_us: point.iteration.map(|time| time.as_nanos() as f64 / 1e3),
            foreground_samples_per_s: point.foreground_samples_per_s,
            background_samples_per_s: point.background_samples_per_s,
            total_samples_per_s: point.total_samples_per_s(),
            foreground_least_samples_per_s,
            foreground_most_samples_per_s,
            total_least_samples_per_s,
            total_most_samples_per_s,
        }
    }

    fn is(&self, way: SharingMode) -> bool {
        self.mode == way.name()
    }
}

impl Compared {
    fn new(compared: &Comparison) -> Self {
        let rows = compared.points.iter().map(|point| Row::new(point, compared.gpus)).collect();
        Self { rows, advice: compared.advice() }
    }
}

impl Partition {
    fn run(testbed: &Testbed, journal: &Journal) -> anyhow::Result<Self> {
        let compared: Vec<Compared> = journal.answers("networks", &testbed.workloads, |workload| {
            let compared = ForegroundJob::new(workload.clone(), testbed).and_then(|job| Ok(job.compared()?));
            Ok(Compared::new(&compared.with_context(|| workload.title.clone())?))
        })?;
        let networks = testbed.workloads.iter().zip(compared).map(|(workload, compared)| {
            let Workload { title, batch, network, .. } = workload;
            let Compared { rows, advice } = compared;
            let totals = totals(&rows);
            OfNetwork {
                title: title.clone(),
                model: network.name().into(),
                batch: *batch,
                rows,
                totals,
                advice,
            }
        });
        let jobs = format!(
            "background: the same network, batch {} on each GPU; policy: {}; BP+Col over all limits of amplification",
            testbed.background_batch, testbed.policy_name
        );
        Ok(Self {
            header: Header::new(NAME, &testbed.times, &testbed.link),
            gpus: testbed.gpus,
            policy: testbed.policy_name.clone(),
            background_batch: testbed.background_batch,
            networks: networks.collect(),
            provenance: vec![testbed.origin(), jobs],
        })
    }
}

/// What a row is about.
#[derive(Clone, Copy, Serialize)]
struct About<'a> {
    model: &'a str,
    batch: usize,
    gpus: usize,
    background_batch: usize,
}

impl Outcome for Partition {
    fn title(&self) -> String {
        format!("Sharing all of {} GPUs against static partitions (simulated)", self.gpus)
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn findings(&self) -> String {
        self.summary().join("\n")
    }

    fn provenance(&self) -> Vec<String> {
        self.provenance.clone()
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        let provenance = self.header.provenance();
        let records = self.networks.iter().flat_map(|OfNetwork { model, batch, rows, .. }| {
            let (batch, gpus, background_batch) = (*batch, self.gpus, self.background_batch);
            rows.iter().map(move |row| (About { model, batch, gpus, background_batch }, row, provenance))
        });
        outcome::csv(records)
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        self.networks.iter().map(|network| figure::draw(self, network, style)).collect()
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
