//! The experiment `jigsaw`: scheduling policies of a cluster on jobs of real clusters, among them
//! JigSaw, burst parallelism and Gavel's policies.
//!
//! A *trace* is a source of jobs with arrival times. The *work* of a job is the GPU time that it
//! takes alone with data parallelism. The *load* is the work of all jobs divided by the GPU time of
//! the cluster until the last arrival. A *seed* selects a draw of jobs or a part of a trace. The
//! *completion time* of a job (JCT) is from its arrival to its end. *SPB* is JigSaw's structured
//! partial backpropagation, in K parts.

mod band;
mod crossover;
mod figure;
mod findings;
mod input;
mod left_out;
mod measured;
mod options;
mod rounds;
mod row;
mod runs;
mod schedule;
mod tables;
mod text;
mod traces;

use cluster_scheduler::Segment;
use serde::Serialize;

use crate::canvas::Figure;
use crate::journal::Journal;
use crate::outcome::{self, Outcome};
use crate::report::ReportHeader;
use crate::style::Style;
use crossover::Crossover;
use input::JigsawInput;
use measured::MeasuredRow;
pub(crate) use options::JigsawOptions;
use rounds::RoundsRow;
use row::PolicyRow;

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "jigsaw";
const TITLE: &str = "Policies for a cluster: JigSaw, burst parallelism, Gavel's, and common ones (simulated)";

/// Results. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, Serialize)]
struct Jigsaw {
    #[serde(flatten)]
    header: ReportHeader,
    /// Number of GPUs of the cluster.
    gpus: usize,
    /// Maximum number of jobs of a run.
    jobs: usize,
    /// One row for each run.
    rows: Vec<PolicyRow>,
    /// Gavel's jobs with its rounds and without.
    rounds: Vec<RoundsRow>,
    /// Ranges of loads in which policies pay against others, by draw of jobs.
    crossovers: Vec<Crossover>,
    /// Results with measured sharing and placement.
    measured: Vec<MeasuredRow>,
    #[serde(skip)]
    provenance: Vec<String>,
    /// A small schedule by each of some policies.
    #[serde(skip)]
    schedules: Vec<(String, Vec<Segment>)>,
    /// Completion times in seconds of all seeds at one load, by trace and policy.
    #[serde(skip)]
    completions: Vec<(String, String, Vec<f64>)>,
}

impl Jigsaw {
    fn run(input: &JigsawInput, journal: &Journal) -> anyhow::Result<Self> {
        let tables = tables::tables(input, journal)?;
        let (rows, completions) = runs::rows(input, &tables, journal)?;
        Ok(Self {
            header: ReportHeader::new(NAME, &input.times, &input.link),
            gpus: input.gpus,
            jobs: input.jobs,
            rows,
            rounds: rounds::rows(input, journal)?,
            crossovers: crossover::crossovers(input, &tables, journal)?,
            measured: measured::rows(input, &tables, journal)?,
            provenance: provenance(input),
            schedules: schedule::small(&tables)?,
            completions,
        })
    }
}

/// Returns the published, modelled and assumed input.
fn provenance(input: &JigsawInput) -> Vec<String> {
    let mut lines = vec![
        format!(
            "simulated on {} GPUs in hosts of 8: {}, link model {}",
            input.gpus,
            input.times.about(),
            input.link.name()
        ),
        "published: Philly's arrivals, GPUs and durations (Jeon et al., ATC 2019, CC BY 4.0); Gavel's jobs \
         and throughputs on V100 (Narayanan et \
         al., OSDI 2020, MIT); JigSaw's claim that large clusters become up to 28% more efficient \
         (abstract of \
         arXiv 2111.10672)"
            .into(),
        "modelled: iteration times by data parallelism and burst plans, and background rates in their gaps \
         (deeppool simulate); SPB's slots from layer \
         times: part i of K backpropagates the last ceil(i L / K) of L layers; synthetic jobs from \
         Philly's quantiles"
            .into(),
        "assumed: Philly's and the synthetic jobs train networks drawn at random, on the next power of two \
         of their GPUs; for Gavel's throughputs, 16 equal \
         layers whose backward pass takes twice the forward pass; SPB needs no more iterations; preempting \
         and moving a job takes no time; two jobs fit \
         into a GPU's memory; sharing slows work down by 2% (JigSaw, iteration-level) or 1% (burst), \
         unless stated otherwise"
            .into(),
    ];
    lines.extend(measured::descriptions(input));
    let missing = |path| format!("left out because {path} does not exist: results that need it");
    lines.extend(input.missing.iter().map(missing));
    lines
}

impl Outcome for Jigsaw {
    fn title(&self) -> String {
        TITLE.into()
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
        outcome::csv(&self.rows)
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        Ok(vec![
            figure::by_load(self, style)?,
            schedule::draw(&self.schedules, &self.provenance, style)?.with_suffix("schedule"),
            figure::cumulative(self, style)?.with_suffix("completions"),
        ])
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
