//! A cluster scheduled by the iteration: JigSaw, bursts, Gavel's policies, and what is common, on jobs of real clusters.

mod crossover;
mod figure;
mod findings;
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
use crate::report::Header;
use crate::style::Style;
use crossover::Crossover;
use measured::MeasuredRow;
pub(crate) use options::JigsawOptions;
use options::Question;
use rounds::RoundsRow;
use row::Row;

pub(crate) const NAME: &str = "jigsaw";
const TITLE: &str = "Policies for a cluster: JigSaw, burst parallelism, Gavel's, and common ones (simulated)";

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, Serialize)]
struct Jigsaw {
    #[serde(flatten)]
    header: Header,
    gpus: usize,
    jobs: usize,
    rows: Vec<Row>,
    /// Gavel's jobs by its rounds and without.
    rounds: Vec<RoundsRow>,
    /// Loads at which policies begin and stop to pay against others, by draw of jobs.
    crossovers: Vec<Crossover>,
    /// By sharing and placement that were measured.
    measured: Vec<MeasuredRow>,
    #[serde(skip)]
    provenance: Vec<String>,
    /// A small schedule by each of some policies.
    #[serde(skip)]
    schedules: Vec<(String, Vec<Segment>)>,
    /// Completion times in seconds by trace and policy, at one load, of all seeds.
    #[serde(skip)]
    completions: Vec<(String, String, Vec<f64>)>,
}

impl Jigsaw {
    fn run(question: &Question, journal: &Journal) -> anyhow::Result<Self> {
        let tables = tables::tables(question, journal)?;
        let (rows, completions) = runs::rows(question, &tables, journal)?;
        Ok(Self {
            header: Header::new(NAME, &question.times, &question.link),
            gpus: question.gpus,
            jobs: question.jobs,
            rows,
            rounds: rounds::rows(question, journal)?,
            crossovers: crossover::crossovers(question, &tables, journal)?,
            measured: measured::rows(question, &tables, journal)?,
            provenance: provenance(question),
            schedules: schedule::small(&tables)?,
            completions,
        })
    }
}

/// What is published, modelled and assumed.
fn provenance(question: &Question) -> Vec<String> {
    let mut lines = vec![
        format!(
            "simulated on {} GPUs in hosts of 8: {}, link model {}",
            question.gpus,
            question.times.about(),
            question.link.name()
        ),
        "published: Philly's arrivals, GPUs and durations (Jeon et al., ATC 2019, CC BY 4.0); Gavel's jobs and throughputs on V100 (Narayanan et \
         al., OSDI 2020, MIT); that JigSaw makes large clusters up to 28% more efficient (abstract of arXiv 2111.10672)"
            .into(),
        "modelled: iteration times by data parallelism and burst plans, and background rates in their gaps (deeppool simulate); SPB's slots from layer \
         times: part i of K backpropagates the last ceil(i L / K) of L layers; synthetic jobs from Philly's quantiles"
            .into(),
        "assumed: each of Philly's and the synthetic jobs is of a network drawn at random, on the next power of two of its GPUs; for Gavel's throughputs, 16 equal \
         layers whose backward pass takes twice the forward pass; SPB needs no more iterations; preempting and moving a job takes no time; two jobs fit \
         into a GPU's memory; sharing slows work down by 2% (JigSaw, iteration-level) or 1% (burst), unless said otherwise"
            .into(),
    ];
    lines.extend(measured::in_words(question));
    lines.extend(question.missing.iter().cloned());
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
            schedule::draw(&self.schedules, &self.provenance, style)?.one_of_several("schedule"),
            figure::cumulative(self, style)?.one_of_several("completions"),
        ])
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
