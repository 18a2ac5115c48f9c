//! The experiment `sweep`: planned against simulated times over many networks, links, amplification
//! limits and GPU counts.

mod findings;
mod grid;
mod pair;
mod text;

use anyhow::Context;
use clap::Args;
use deeppool::burst_planner::ProofBudget;
use serde::Serialize;

use crate::experiment::{Experiment, Prepared, prepared};
use crate::journal::Journal;
use crate::options::RunOptions;
use crate::outcome::{self, Outcome};
use crate::report::SCHEMA;
use findings::Findings;
use pair::SweepPair;
use text::ORIGIN;

#[cfg(feature = "measure")]
pub(crate) use pair::gpu_counts;

use grid::Grid;

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "sweep";

/// Options of the experiment `sweep`.
#[derive(Args)]
#[command(after_help = "8 networks and batches x 4 links x 8 amplification limits x 3 GPU counts.

Examples:
  experiments sweep --quick
  experiments sweep --model resnet-50
  experiments sweep --sample --prove 30s
  experiments sweep --out results --json")]
pub(crate) struct SweepOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Run only a small part, in seconds: 2 networks, 2 links, 3 limits, 4 and 8 GPUs
    #[arg(long)]
    quick: bool,
    /// Run only this network, with all its batches
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Take one amplification limit for each network, batch, link and number of GPUs instead of all
    #[arg(long)]
    sample: bool,
    /// Effort of the searches as a multiple of the default
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    effort: f64,
    /// Effort of the lower bounds: `off`, `default`, or a duration such as `30s`, which depends on
    /// the machine
    #[arg(long, value_name = "EFFORT", default_value = "default")]
    prove: ProofBudget,
}

impl Experiment for SweepOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let is_effort = self.effort > 0.0 && self.effort <= 1e6;
        anyhow::ensure!(is_effort, "--effort {}: expected a number above 0, at most 1e6", self.effort);
        let mut grid = Grid::new(self.quick, self.model.as_deref())?;
        (grid.is_sample, grid.effort, grid.proof) = (self.sample, self.effort, self.prove);
        Ok(prepared(move |journal| Sweep::run(&grid, journal)))
    }
}

/// Results. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Sweep {
    schema: &'static str,
    experiment: &'static str,
    simulated: bool,
    device: &'static str,
    /// Whether the lower bounds are the same on every machine.
    is_reproducible: bool,
    findings: Findings,
    rows: Vec<SweepPair>,
}

impl Sweep {
    /// Searches for all plans in parallel and simulates them.
    fn run(grid: &Grid, journal: &Journal) -> anyhow::Result<Self> {
        let points = (0..grid.workloads.len()).flat_map(|workload| {
            let links = 0..grid.links.len();
            links.flat_map(move |link| (0..grid.gpus.len()).map(move |gpus| [workload, link, gpus]))
        });
        let points: Vec<[usize; 3]> = points.collect();
        let results: Vec<Vec<SweepPair>> = journal.results("searches", &points, |&point| {
            let [workload, link, gpus] = point;
            let (model, link, gpus) = (grid.workloads[workload].model, &grid.links[link], grid.gpus[gpus]);
            pair::pairs(grid, point).with_context(|| format!("{model} on {gpus} GPUs, {}", link.name))
        })?;
        let rows: Vec<SweepPair> = results.into_iter().flatten().collect();
        debug_assert_eq!(rows.len(), grid.pairs(), "a pair for every limit");
        Ok(Self {
            schema: SCHEMA,
            experiment: NAME,
            simulated: true,
            device: "a100",
            is_reproducible: grid.proof.is_reproducible(),
            findings: Findings::of(&rows),
            rows,
        })
    }
}

impl Outcome for Sweep {
    fn title(&self) -> String {
        "Planned against simulated".into()
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn findings(&self) -> String {
        self.printed()
    }

    fn provenance(&self) -> Vec<String> {
        vec![ORIGIN.into()]
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(&self.rows)
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
