//! The experiment `partition`: burst parallelism on all GPUs with background jobs against static
//! partitions, at equal foreground speeds.

mod figure;
mod text;
mod totals;

use std::fmt;

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
use crate::report::ReportHeader;
use crate::style::Style;
use crate::testbed::Testbed;
use crate::workload::Workload;
use totals::{Totals, totals};

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "partition";
/// Default amplification limit, which `throughput` shows. Plans are compared over all limits, of
/// which this is one.
const LIMIT: f64 = 2.0;

/// Options of the experiment `partition`.
#[derive(Args)]
#[command(after_help = "\
A partition is DP on some GPUs with a background job on each of the others. BP+Col is compared with
the best partitions at equal foreground speeds, over all limits; both may take turns. Plans divide
layers by samples, as in the original, or with all splits also by features, inputs and more.
Examples:
  experiments partition
  experiments partition --gpus 64 --link dgx-a100-pod --batch 64
  experiments partition --onnx net.onnx --batch 64 --device h100 --gpus 16
  experiments partition --policy deeppool --json")]
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

/// Results. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Partition {
    #[serde(flatten)]
    header: ReportHeader,
    /// Number of GPUs.
    gpus: usize,
    /// Name of the GPU-sharing policy.
    policy: String,
    /// Samples of each background job's batch.
    background_batch: usize,
    /// Results of each network.
    networks: Vec<NetworkPartition>,
    /// Origin of the numbers, one line each.
    #[serde(skip)]
    provenance: Vec<String>,
}

/// Results of one network.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct NetworkPartition {
    /// Display name of the network.
    title: String,
    /// Name of the network.
    model: String,
    /// Samples of the foreground's global batch.
    batch: usize,
    /// All simulated ways to share the GPUs.
    rows: Vec<PartitionRow>,
    /// Totals at some foreground speeds.
    totals: Vec<Totals>,
    /// Advice in one sentence.
    advice: String,
}

/// One way to share the GPUs: a point of the figure. Throughputs are in samples/s. Fields that do
/// not apply to a mode or are not known are `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PartitionRow {
    /// Name of the way to share the GPUs, such as `bp+col`.
    mode: String,
    /// Whether layers of the plan may be split in all ways, instead of by samples only.
    all_splits: bool,
    /// Number of GPUs with a share of the foreground.
    foreground_gpus: usize,
    /// Number of GPUs that run a background job.
    background_gpus: usize,
    /// Active time of all GPUs divided by the iteration time on one GPU.
    amplification: Option<f64>,
    /// Simulated iteration time of the foreground in microseconds.
    iteration_us: Option<f64>,
    /// Throughput of the foreground.
    foreground_samples_per_s: f64,
    /// Throughput of all background jobs together.
    background_samples_per_s: f64,
    /// Sum of both.
    total_samples_per_s: f64,
    /// Minimum of `foreground_samples_per_s` within the known error of the models.
    #[serde(rename = "foreground_least_samples_per_s")]
    foreground_min_samples_per_s: Option<f64>,
    /// Maximum of `foreground_samples_per_s` within the known error of the models.
    #[serde(rename = "foreground_most_samples_per_s")]
    foreground_max_samples_per_s: Option<f64>,
    /// Minimum of `total_samples_per_s` within the known error of the models.
    #[serde(rename = "total_least_samples_per_s")]
    total_min_samples_per_s: Option<f64>,
    /// Maximum of `total_samples_per_s` within the known error of the models.
    #[serde(rename = "total_most_samples_per_s")]
    total_max_samples_per_s: Option<f64>,
}

/// Stored result of one comparison.
#[derive(Serialize, Deserialize)]
struct StoredComparison {
    rows: Vec<PartitionRow>,
    advice: String,
}

/// Way to share the GPUs, a series of the figure: the mode, and whether layers of plans may be
/// split in all ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way(SharingMode, bool);

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0, if self.1 { ", all splits" } else { "" })
    }
}

impl PartitionRow {
    fn new(point: &Point, gpus: usize, all_splits: bool) -> Self {
        let background_gpus = match point.mode {
            SharingMode::DataParallel | SharingMode::Burst => 0,
            SharingMode::Partition => gpus - point.gpus,
            _ => gpus,
        };
        let ends = |range: Option<[f64; 2]>| (range.map(|range| range[0]), range.map(|range| range[1]));
        let (foreground_min_samples_per_s, foreground_max_samples_per_s) = ends(point.foreground_range);
        let (total_min_samples_per_s, total_max_samples_per_s) = ends(point.total_range);
        Self {
            mode: point.mode.name().into(),
            all_splits,
            foreground_gpus: point.gpus,
            background_gpus,
            amplification: point.amplification,
            iteration_us: point.iteration.map(|time| time.as_nanos() as f64 / 1e3),
            foreground_samples_per_s: point.foreground_samples_per_s,
            background_samples_per_s: point.background_samples_per_s,
            total_samples_per_s: point.total_samples_per_s(),
            foreground_min_samples_per_s,
            foreground_max_samples_per_s,
            total_min_samples_per_s,
            total_max_samples_per_s,
        }
    }

    fn is(&self, Way(mode, all_splits): Way) -> bool {
        self.mode == mode.name() && self.all_splits == all_splits
    }
}

impl StoredComparison {
    fn new(compared: &Comparison, split: &[Point]) -> Self {
        let row = |all_splits| move |point| PartitionRow::new(point, compared.gpus, all_splits);
        let rows = compared.points.iter().map(row(false)).chain(split.iter().map(row(true))).collect();
        Self { rows, advice: compared.advice() }
    }
}

impl Partition {
    fn run(testbed: &Testbed, journal: &Journal) -> anyhow::Result<Self> {
        let compared: Vec<StoredComparison> =
            journal.results("networks", &testbed.workloads, |workload| {
                let compare = || {
                    let job = ForegroundJob::new(workload.clone(), testbed)?;
                    anyhow::Ok(StoredComparison::new(&job.compared()?, &job.split_points()?))
                };
                compare().with_context(|| workload.title.clone())
            })?;
        let networks = testbed.workloads.iter().zip(compared).map(|(workload, compared)| {
            let Workload { title, batch, network, .. } = workload;
            let StoredComparison { rows, advice } = compared;
            let totals = totals(&rows);
            NetworkPartition {
                title: title.clone(),
                model: network.name().into(),
                batch: *batch,
                rows,
                totals,
                advice,
            }
        });
        let jobs = format!(
            "background: the same network, batch {} on each GPU; policy: {}; BP+Col over all limits of \
             amplification",
            testbed.background_batch, testbed.policy_name
        );
        Ok(Self {
            header: ReportHeader::new(NAME, &testbed.times, &testbed.link),
            gpus: testbed.gpus,
            policy: testbed.policy_name.clone(),
            background_batch: testbed.background_batch,
            networks: networks.collect(),
            provenance: vec![testbed.origin(), jobs],
        })
    }
}

/// Columns that all rows of a network repeat.
#[derive(Clone, Copy, Serialize)]
struct PartitionColumns<'a> {
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
        let records = self.networks.iter().flat_map(|NetworkPartition { model, batch, rows, .. }| {
            let (batch, gpus, background_batch) = (*batch, self.gpus, self.background_batch);
            rows.iter()
                .map(move |row| (PartitionColumns { model, batch, gpus, background_batch }, row, provenance))
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
