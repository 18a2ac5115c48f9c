//! Burst parallelism against data parallelism and every static partition, from one GPU to clusters of several hosts.

mod figure;
mod question;
mod text;

use anyhow::{Context, bail};
use clap::Args;
use collectives::LinkModel;
use serde::Serialize;

use crate::canvas::Figure;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::journal::Journal;
use crate::layer_times::LayerTimes;
use crate::options::{DeviceOptions, LimitOptions, NetworkOptions, RunOptions, batch, gpus, inputs};
use crate::outcome::{self, Outcome};
use crate::report::Header;
use crate::style::Style;
use crate::workload::{BACKGROUND_BATCH, WORKLOADS, Workload};
use question::{FIXED_BATCH, Question, Row, Series, questions};

pub(crate) const NAME: &str = "scale";

#[derive(Args)]
#[command(
    after_help = "Two series of global batches: one that does not grow with the GPUs, and one of 2 samples a GPU up to 1,024. For
the paper's networks also 1 to 4 samples a GPU, and fewer samples than GPUs.

Examples:
  experiments scale
  experiments scale --gpus 64
  experiments scale --link a100-100gbe --out results
  experiments scale --model gpt2 --device h100 --link dgx-h100-pod --batch 128"
)]
pub(crate) struct ScaleOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    network: NetworkOptions,
    /// Samples of the global batch that does not grow
    #[arg(long, value_name = "N", default_value_t = FIXED_BATCH, value_parser = batch)]
    batch: usize,
    /// Samples of each background job's batch: it trains the same network
    #[arg(long, value_name = "N", default_value_t = BACKGROUND_BATCH, value_parser = batch)]
    background_batch: usize,
    #[command(flatten)]
    device: DeviceOptions,
    /// How the GPUs are linked: the name of a link model, or its FILE.json
    #[arg(long, value_name = "NAME|FILE", default_value = "dgx-a100-pod")]
    link: String,
    /// Up to how many GPUs
    #[arg(long, value_name = "N", default_value = "1024", value_parser = gpus)]
    gpus: usize,
    #[command(flatten)]
    limit: LimitOptions,
}

impl Experiment for ScaleOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let times = self.device.load()?;
        let link = inputs::link(&self.link)?;
        link.check_ranks(self.gpus)?;
        let own = self.network.load(&times)?;
        if self.batch < 2 && self.gpus > 1 {
            bail!("--batch 1 leaves nothing to split: give at least 2");
        }
        let workloads = match &own {
            Some(network) => vec![Workload::new(network.clone(), self.batch, self.background_batch)],
            None => WORKLOADS
                .iter()
                .map(|built_in| Ok(Workload { background_batch: self.background_batch, ..built_in.load()? }))
                .collect::<anyhow::Result<_>>()?,
        };
        let questions = questions(&workloads, self.gpus, self.batch, own.is_none());
        for Question { workload, gpus } in &questions {
            times.check(&workload.network, &workload.batches(*gpus))?;
        }
        let (limit, fixed_batch) = (self.limit.amplification, self.batch);
        Ok(prepared(move |journal| Scale::run(&questions, (&times, &link), limit, fixed_batch, journal)))
    }
}

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Scale {
    #[serde(flatten)]
    header: Header,
    amplification_limit: f64,
    background_batch: usize,
    /// Samples of the global batch that does not grow.
    fixed_batch: usize,
    rows: Vec<Row>,
    /// Questions whose plans have no room on the GPUs, in words.
    without_room: Vec<String>,
    /// Models, and their names as people write them.
    #[serde(skip)]
    titles: Vec<(String, String)>,
}

impl Scale {
    /// Compares all ways to share GPUs for every question, side by side.
    fn run(
        questions: &[Question],
        (times, link): (&LayerTimes, &LinkModel),
        limit: f64,
        fixed_batch: usize,
        journal: &Journal,
    ) -> anyhow::Result<Self> {
        let rows: Vec<Option<Row>> = journal.answers("comparisons", questions, |question| {
            let row = question.answer(times, link, limit);
            row.with_context(|| format!("{} on {} GPUs", question.workload.title, question.gpus))
        })?;
        let without_room = questions.iter().zip(&rows).filter(|(_, row)| row.is_none());
        let without_room = without_room.map(|(Question { workload, gpus }, _)| {
            format!("{} with batch {} on {gpus}", workload.title, workload.batch)
        });
        let without_room = without_room.collect();
        let title = |Question { workload, .. }: &Question| {
            (workload.network.name().to_owned(), workload.title.clone())
        };
        let mut titles: Vec<(String, String)> = questions.iter().map(title).collect();
        titles.dedup();
        Ok(Self {
            header: Header::new(NAME, times, link),
            amplification_limit: limit,
            background_batch: questions
                .first()
                .map_or(BACKGROUND_BATCH, |question| question.workload.background_batch),
            fixed_batch,
            rows: rows.into_iter().flatten().collect(),
            without_room,
            titles,
        })
    }

    /// The rows of each network with its name.
    fn networks(&self) -> impl Iterator<Item = (&str, &[Row])> {
        let title = |model: &str| {
            let found = self.titles.iter().find(|(of, _)| of == model);
            found.map_or("", |(_, title)| title.as_str())
        };
        self.rows.chunk_by(|a, b| a.model == b.model).map(move |rows| (title(&rows[0].model), rows))
    }

    /// The rows of a network that belong to a series, by rising GPU count.
    fn series<'a>(&self, rows: &'a [Row], series: Series) -> Vec<&'a Row> {
        rows.iter().filter(|row| row.batch == series.batch(row.gpus, self.fixed_batch)).collect()
    }

    /// What the numbers are from.
    fn provenance(&self) -> Vec<String> {
        vec![
            format!("simulated: {}, link model {}", self.header.layer_times, self.header.link),
            format!(
                "speeds of the foreground are compared within 1%; the background trains the same network on batches of {}; a partition is DP on some GPUs and background on the others; \
                 plans keep the memory of the GPUs, with the background's where it shares them",
                self.background_batch
            ),
        ]
    }
}

impl Outcome for Scale {
    fn title(&self) -> String {
        format!(
            "Burst parallelism against static partitions by the number of GPUs, {} (simulated)",
            self.header.link
        )
    }

    fn text(&self) -> String {
        self.printed()
    }

    fn findings(&self) -> String {
        self.summary().join("\n")
    }

    fn provenance(&self) -> Vec<String> {
        self.provenance()
    }

    fn csv(&self) -> anyhow::Result<Vec<u8>> {
        outcome::csv(&self.rows)
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        self.networks().map(|(title, rows)| figure::draw(self, title, rows, style)).collect()
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
