//! The experiment `search-time`: run time of the planner.

mod case;
mod options;
mod original;
mod text;

use anyhow::Context;
use serde::Serialize;

use crate::journal::Journal;
use crate::machine::Machine;
use crate::outcome::{self, Outcome};
use crate::progress::progress_bar;
use crate::report::SCHEMA;
use case::{DEVICE, SearchCase, SearchTimeRow, cases};
pub(crate) use options::SearchTimeOptions;

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "search-time";

/// Results. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct SearchTime {
    schema: &'static str,
    experiment: &'static str,
    /// Device model of the layer times. The search times are measured.
    device: &'static str,
    rows: Vec<SearchTimeRow>,
    #[serde(skip)]
    machine: String,
}

impl SearchTime {
    /// Searches `runs` times for every plan, one after another: the planner uses one core, and
    /// other work would disturb the measurement. Shows a progress bar on a terminal.
    fn run(runs: usize, quick: bool, journal: &Journal) -> anyhow::Result<Self> {
        let (cases, machine) = (cases(quick), Machine::here());
        let bar = progress_bar(cases.len() * runs, "searches");
        let measure = |case: &SearchCase| {
            let on = format!("{} on {} GPUs", case.model, case.gpus);
            journal.result(&on, || case.measure(runs, &machine, &|| bar.inc(1))).with_context(|| on.clone())
        };
        let rows: anyhow::Result<Vec<SearchTimeRow>> = cases.iter().map(measure).collect();
        bar.finish_and_clear();
        Ok(Self {
            schema: SCHEMA,
            experiment: NAME,
            device: DEVICE,
            rows: rows?,
            machine: machine.to_string(),
        })
    }
}

impl Outcome for SearchTime {
    fn title(&self) -> String {
        "Run time of the planner".into()
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn findings(&self) -> String {
        self.printed()
    }

    fn provenance(&self) -> Vec<String> {
        self.provenance()
    }

    fn is_measured(&self) -> bool {
        true
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(&self.rows)
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
