//! The experiment `plans`: burst plans as pictures.

mod figure;

use anyhow::Context;
use clap::Args;
use deeppool::plan::ExecutionPlan;
use serde::{Deserialize, Serialize};

use crate::canvas::Figure;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::job::ForegroundJob;
use crate::journal::Journal;
use crate::options::{LimitOptions, RunOptions, TestbedOptions};
use crate::outcome::{self, Outcome};
use crate::report::ReportHeader;
use crate::style::Style;
use crate::testbed::{DEFAULT_POLICY, Testbed};
use crate::text_table::{printed, text_table};

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "plans";

/// Options of the experiment `plans`.
#[derive(Args)]
#[command(after_help = "\
Shows the plans of `throughput`: the fastest under an amplification limit, with layers divided by
samples and, if it splits any, with all splits.

Examples:
  experiments plans
  experiments plans --amplification 1.2
  experiments plans --onnx net.onnx --batch 64 --gpus 16")]
pub(crate) struct PlansOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    testbed: TestbedOptions,
    #[command(flatten)]
    limit: LimitOptions,
}

impl Experiment for PlansOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let testbed = self.testbed.testbed(self.limit.amplification, DEFAULT_POLICY)?;
        Ok(prepared(move |journal| Plans::run(&testbed, journal)))
    }
}

/// The plans. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Plans {
    #[serde(flatten)]
    header: ReportHeader,
    /// Number of GPUs.
    gpus: usize,
    /// Amplification limit of the plans.
    amplification_limit: f64,
    /// Two plans for each network: with layers divided by samples, and with all splits.
    networks: Vec<NetworkPlan>,
    /// Origin of the plans, one line each.
    #[serde(skip)]
    provenance: Vec<String>,
}

/// Plan of a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct NetworkPlan {
    /// Display name of the network.
    title: String,
    /// Name of the network.
    model: String,
    /// Samples of the global batch.
    batch: usize,
    /// Whether layers may be split in all ways, instead of by samples only.
    all_splits: bool,
    /// Predicted iteration time in microseconds.
    iteration_us: f64,
    /// Predicted iteration time of data parallelism in microseconds.
    dp_iteration_us: f64,
    /// Amplification of the plan.
    amplification: f64,
    /// Layers in topological order, without the input.
    rows: Vec<PlannedLayer>,
}

/// A layer of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PlannedLayer {
    /// Name of the layer.
    layer: String,
    /// Label of the kind of layer.
    kind: String,
    /// Number of GPUs of the layer.
    layer_gpus: usize,
    /// Ranks of the layer in increasing order, such as `0-3 6`.
    ranks: String,
    /// Split of the layer, such as `8 by features`. `None` if the GPUs divide the samples only.
    split: Option<String>,
    /// Maximum number of samples of a GPU.
    samples: usize,
}

impl NetworkPlan {
    fn new(job: &ForegroundJob<'_>, plan: &ExecutionPlan, all_splits: bool) -> Self {
        let network = &job.workload.network;
        let row = |(_, layer): (_, &layer_graph::Layer)| {
            let planned = plan.layers.iter().find(|planned| planned.name == layer.name())?;
            let mut ranks = planned.ranks.clone();
            ranks.sort_unstable();
            let parts = planned.division.unwrap_or_default().parts;
            Some(PlannedLayer {
                layer: layer.name().into(),
                kind: layer.kind().label().into(),
                layer_gpus: ranks.len(),
                ranks: as_ranges(&ranks),
                split: planned.split(),
                samples: plan.batch.div_ceil((ranks.len() / parts).max(1)),
            })
        };
        Self {
            title: job.workload.title.clone(),
            model: network.name().into(),
            batch: plan.batch,
            all_splits,
            iteration_us: plan.iteration_us,
            dp_iteration_us: plan.dp.iteration_us,
            amplification: plan.amplification,
            rows: network.computing_layers().filter_map(row).collect(),
        }
    }

    /// Returns the network's display name and the ways in which layers may be divided.
    fn heading(&self) -> String {
        format!("{}{}", self.title, if self.all_splits { ", all splits" } else { "" })
    }

    /// Returns the number of split layers.
    fn split_layers(&self) -> usize {
        self.rows.iter().filter(|row| row.split.is_some()).count()
    }

    /// Returns the stretches of consecutive layers with the same GPUs and the same split.
    fn stretches(&self) -> impl Iterator<Item = &[PlannedLayer]> {
        self.rows.chunk_by(|a, b| (&a.ranks, a.samples, &a.split) == (&b.ranks, b.samples, &b.split))
    }
}

/// Formats increasing numbers, with consecutive ones as `first-last`.
fn as_ranges(ranks: &[usize]) -> String {
    let run = |run: &[usize]| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    ranks.chunk_by(|a, b| a + 1 == *b).map(run).collect::<Vec<_>>().join(" ")
}

impl PlannedLayer {
    /// Returns the first and the last rank of each run of consecutive ranks.
    fn runs(&self) -> impl Iterator<Item = (usize, usize)> {
        self.ranks.split(' ').filter_map(|run| {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            Some((first.parse().ok()?, last.parse().ok()?))
        })
    }
}

impl Plans {
    fn run(testbed: &Testbed, journal: &Journal) -> anyhow::Result<Self> {
        let networks: Vec<[NetworkPlan; 2]> = journal.results("plans", &testbed.workloads, |workload| {
            let plans = || {
                let job = ForegroundJob::new(workload.clone(), testbed)?;
                let by_samples = job.foreground(testbed.gpus, testbed.burst(), true)?;
                let split = job.split_burst_plan()?;
                anyhow::Ok(
                    [(by_samples, false), (split, true)]
                        .map(|(foreground, all_splits)| NetworkPlan::new(&job, &foreground.plan, all_splits)),
                )
            };
            plans().with_context(|| workload.title.clone())
        })?;
        let limit = testbed.amplification_limit;
        Ok(Self {
            header: ReportHeader::new(NAME, &testbed.times, &testbed.link),
            gpus: testbed.gpus,
            amplification_limit: limit,
            networks: networks.into_iter().flatten().collect(),
            provenance: vec![
                testbed.origin(),
                format!("the fastest plans with an amplification of at most {limit}"),
            ],
        })
    }
}

impl Plans {
    /// Returns the plans that the table and the figures show. A plan with all splits that splits no
    /// layer is one with layers divided by samples.
    fn shown(&self) -> impl Iterator<Item = &NetworkPlan> {
        self.networks.iter().filter(|plan| !plan.all_splits || plan.split_layers() > 0)
    }
}

/// Columns that all rows of a plan repeat.
#[derive(Clone, Copy, Serialize)]
struct PlanColumns<'a> {
    model: &'a str,
    batch: usize,
    all_splits: bool,
    gpus: usize,
    amplification_limit: f64,
}

impl Outcome for Plans {
    fn title(&self) -> String {
        format!(
            "GPUs of each layer on a machine of {}, amplification limit {}",
            self.gpus, self.amplification_limit
        )
    }

    fn text(&self) -> String {
        let header = ["model", "layers", "GPUs of each layer", "split", "samples of a GPU"];
        let mut table = text_table(header, 4..);
        for plan in self.shown() {
            for (index, rows) in plan.stretches().enumerate() {
                let title = if index == 0 { plan.heading() } else { String::new() };
                let (first, last) = (&rows[0], &rows[rows.len() - 1]);
                let layers = match rows.len() {
                    1 => first.layer.clone(),
                    count => format!("{} to {} ({count})", first.layer, last.layer),
                };
                let split = first.split.clone().unwrap_or_default();
                table.add_row([title, layers, first.ranks.clone(), split, first.samples.to_string()]);
            }
        }
        let table = printed(&table);
        let provenance = self.provenance.join("\n");
        format!("{} ({NAME})\n{provenance}\n\n{}\n\n{}\n", self.title(), table, self.findings())
    }

    fn findings(&self) -> String {
        let of_plan = |plan: &NetworkPlan| {
            let NetworkPlan { iteration_us, dp_iteration_us, amplification, .. } = plan;
            let counts = plan.rows.iter().map(|row| row.layer_gpus);
            let all = counts.clone().filter(|&gpus| gpus == self.gpus).count();
            format!(
                "{}: {:.2} ms an iteration (DP {:.2}), amplification {amplification:.2}; {all} of {} \
                 layers on all GPUs, {} split",
                plan.heading(),
                iteration_us / 1e3,
                dp_iteration_us / 1e3,
                counts.count(),
                plan.split_layers(),
            )
        };
        self.networks.iter().map(of_plan).collect::<Vec<_>>().join("\n")
    }

    fn provenance(&self) -> Vec<String> {
        self.provenance.clone()
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        let (gpus, amplification_limit) = (self.gpus, self.amplification_limit);
        let provenance = self.header.provenance();
        let records =
            self.networks.iter().flat_map(|NetworkPlan { model, batch, all_splits, rows, .. }| {
                let (batch, all_splits) = (*batch, *all_splits);
                let about = PlanColumns { model, batch, all_splits, gpus, amplification_limit };
                rows.iter().map(move |row| (about, row, provenance))
            });
        outcome::csv(records)
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        self.shown().map(|plan| figure::draw(self, plan, style)).collect()
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
