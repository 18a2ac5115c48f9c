//! Planned times against simulated ones, and against the plans of the planner's older models, over many networks, links,
//! limits and GPU counts.

mod findings;
mod grid;
mod older;
mod pair;
mod text;

use anyhow::Context;
use rayon::prelude::*;
use serde::Serialize;

use crate::outcome::{self, Outcome};
use crate::progress::progress_bar;
use crate::report::SCHEMA;
use findings::Findings;
use pair::Pair;

pub(crate) use grid::Grid;
pub(crate) use older::gpu_counts;

pub(crate) const NAME: &str = "sweep";

/// What a sweep found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Sweep {
    schema: &'static str,
    experiment: &'static str,
    simulated: bool,
    device: &'static str,
    findings: Findings,
    rows: Vec<Pair>,
}

impl Sweep {
    /// Searches for all plans, side by side, and simulates them. On a terminal a bar shows how far it is.
    pub(crate) fn run(grid: &Grid) -> anyhow::Result<Self> {
        let questions = grid.workloads.iter().flat_map(|workload| {
            let links = grid.links.iter();
            links.flat_map(move |link| grid.gpus.iter().map(move |&gpus| (workload, link, gpus)))
        });
        let questions: Vec<_> = questions.collect();
        let bar = progress_bar(grid.searches(), "searches");
        let answer = |&(workload, link, gpus): &(&grid::Workload, &grid::Link, usize)| {
            let pairs = pair::pairs(grid, workload, link, gpus);
            bar.inc(1);
            pairs.with_context(|| format!("{} on {gpus} GPUs, {}", workload.model, link.name))
        };
        let answers: anyhow::Result<Vec<(Vec<Pair>, usize)>> = questions.par_iter().map(answer).collect();
        bar.finish_and_clear();
        let answers = answers?;
        let gave_up = answers.iter().map(|(_, gave_up)| gave_up).sum();
        let rows: Vec<Pair> = answers.into_iter().flat_map(|(pairs, _)| pairs).collect();
        debug_assert_eq!(rows.len(), grid.pairs(), "a pair for every limit");
        Ok(Self {
            schema: SCHEMA,
            experiment: NAME,
            simulated: true,
            device: "a100",
            findings: Findings::of(&rows, gave_up),
            rows,
        })
    }
}

impl Outcome for Sweep {
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
