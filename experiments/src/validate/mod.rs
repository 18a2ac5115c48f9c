//! The experiment `validate`: planned and simulated times against times measured on this machine's
//! processor. Ranks are threads.

mod comparison;
mod earlier;
mod figure;
mod networks;
mod options;
mod ranking;
mod row;
mod text;

use collectives::LinkModel;
use serde::Serialize;

use crate::canvas::Figure;
use crate::journal::Journal;
use crate::machine::Machine;
use crate::outcome::{self, Outcome};
use crate::progress::progress_bar;
use crate::report::SCHEMA;
use crate::style::Style;
use comparison::{NetworkComparison, ProfiledJob};
use networks::{BACKGROUND, TrainingJob};
pub(crate) use options::ValidateOptions;
use ranking::{PlanPairFinding, findings};
use row::{TrainingMode, ValidateRow};

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "validate";

/// Networks to measure, and numbers of ranks, runs and iterations.
#[derive(Debug, Clone)]
struct ValidateSetup {
    workloads: Vec<TrainingJob>,
    /// Number of ranks, each a thread: at least 2 and at most the smallest batch.
    ranks: usize,
    /// Number of runs of each plan, at least 1.
    runs: usize,
    /// Number of iterations of a run, at least 2.
    iterations: usize,
}

/// Results. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Validate {
    schema: &'static str,
    experiment: &'static str,
    link: String,
    /// The background job as `MODEL:BATCH`.
    background: String,
    rows: Vec<ValidateRow>,
    findings: Vec<PlanPairFinding>,
}

impl Validate {
    /// Measures the layers of every network, plans, simulates and trains it, and adds rows of
    /// earlier runs. Shows a progress bar on a terminal.
    fn run(setup: &ValidateSetup, earlier: Vec<ValidateRow>, journal: &Journal) -> anyhow::Result<Self> {
        let ValidateSetup { workloads, ranks, runs, iterations } = setup;
        let (machine, link) = (Machine::here(), LinkModel::threads_of_one_host());
        // One step for a network's layer times, and one for each of its runs.
        let bar = progress_bar(workloads.len() * (1 + runs * TrainingMode::ALL.len()), "measurements");
        bar.tick();
        let background = &ProfiledJob::measure(&BACKGROUND.load()?, 1, *iterations)?;
        let comparison = NetworkComparison { setup, machine: &machine, link: &link, background };
        let mut rows = Vec::new();
        for (index, workload) in workloads.iter().enumerate() {
            // The journal has whole networks only, since the runs of a network take turns.
            rows.extend(journal.result::<Vec<ValidateRow>>(&format!("network {index}"), || {
                let profiled_job = ProfiledJob::measure(workload, *ranks, *iterations)?;
                bar.inc(1);
                comparison.rows(&profiled_job, &|| bar.inc(1))
            })?);
        }
        bar.finish_and_clear();
        rows.extend(earlier);
        Ok(Self {
            schema: SCHEMA,
            experiment: NAME,
            link: link.name().into(),
            background: background.label(),
            findings: findings(&rows),
            rows,
        })
    }
}

impl Outcome for Validate {
    fn title(&self) -> String {
        "Planned and simulated against measured, on a processor".into()
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn findings(&self) -> String {
        self.summary().join("\n")
    }

    fn provenance(&self) -> Vec<String> {
        let mut machines: Vec<String> = self.rows.iter().map(|row| row.run_and_machine().1).collect();
        machines.dedup();
        vec![format!("measured on {}", machines.join("; "))]
    }

    fn is_measured(&self) -> bool {
        true
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(&self.rows)
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        Ok(vec![figure::draw(self, style)?])
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
