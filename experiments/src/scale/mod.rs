//! The experiment `scale`: burst parallelism against data parallelism and every static partition,
//! from one GPU to clusters of several hosts.

mod case;
mod figure;
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
use crate::report::ReportHeader;
use crate::style::Style;
use crate::workload::{BACKGROUND_BATCH, WORKLOADS, Workload};
use case::{FIXED_BATCH, ScaleCase, ScaleRow, Series, cases};

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "scale";

/// Options of the experiment `scale`.
#[derive(Args)]
#[command(after_help = "\
Two series of global batches: one that does not grow with the GPUs, and one of 2 samples a GPU up to
1,024. For the paper's networks also 1 to 4 samples a GPU, and fewer samples than GPUs.
Examples:
  experiments scale
  experiments scale --gpus 64
  experiments scale --link a100-100gbe --out results
  experiments scale --model gpt2 --device h100 --link dgx-h100-pod --batch 128")]
pub(crate) struct ScaleOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    network: NetworkOptions,
    /// Samples of the global batch in the series with a fixed batch
    #[arg(long, value_name = "N", default_value_t = FIXED_BATCH, value_parser = batch)]
    batch: usize,
    /// Samples of each background job's batch; it trains the foreground's network
    #[arg(long, value_name = "N", default_value_t = BACKGROUND_BATCH, value_parser = batch)]
    background_batch: usize,
    #[command(flatten)]
    device: DeviceOptions,
    /// Link model of the GPUs: the name of one, or its FILE.json
    #[arg(long, value_name = "NAME|FILE", default_value = "dgx-a100-pod")]
    link: String,
    /// Maximum number of GPUs
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
            bail!("--batch 1 cannot be split: give at least 2");
        }
        let workloads = match &own {
            Some(network) => vec![Workload::new(network.clone(), self.batch, self.background_batch)],
            None => WORKLOADS
                .iter()
                .map(|built_in| Ok(Workload { background_batch: self.background_batch, ..built_in.load()? }))
                .collect::<anyhow::Result<_>>()?,
        };
        let cases = cases(&workloads, self.gpus, self.batch, own.is_none());
        for ScaleCase { workload, gpus } in &cases {
            times.check(&workload.network, &workload.batches(*gpus))?;
        }
        let (limit, fixed_batch) = (self.limit.amplification, self.batch);
        Ok(prepared(move |journal| Scale::run(&cases, (&times, &link), limit, fixed_batch, journal)))
    }
}

/// Results. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Scale {
    #[serde(flatten)]
    header: ReportHeader,
    amplification_limit: f64,
    background_batch: usize,
    /// Samples of the global batch in the series with a fixed batch.
    fixed_batch: usize,
    rows: Vec<ScaleRow>,
    /// Descriptions of the cases whose plans do not fit in memory.
    without_room: Vec<String>,
    /// Models and their display names.
    #[serde(skip)]
    titles: Vec<(String, String)>,
}

impl Scale {
    /// Compares all ways to share the GPUs for every case, in parallel.
    fn run(
        cases: &[ScaleCase],
        (times, link): (&LayerTimes, &LinkModel),
        limit: f64,
        fixed_batch: usize,
        journal: &Journal,
    ) -> anyhow::Result<Self> {
        let rows: Vec<Option<ScaleRow>> = journal.results("comparisons", cases, |case| {
            let row = case.compare(times, link, limit);
            row.with_context(|| format!("{} on {} GPUs", case.workload.title, case.gpus))
        })?;
        let without_room = cases.iter().zip(&rows).filter(|(_, row)| row.is_none());
        let without_room = without_room.map(|(ScaleCase { workload, gpus }, _)| {
            format!("{} with batch {} on {gpus}", workload.title, workload.batch)
        });
        let without_room = without_room.collect();
        let title = |ScaleCase { workload, .. }: &ScaleCase| {
            (workload.network.name().to_owned(), workload.title.clone())
        };
        let mut titles: Vec<(String, String)> = cases.iter().map(title).collect();
        titles.dedup();
        Ok(Self {
            header: ReportHeader::new(NAME, times, link),
            amplification_limit: limit,
            background_batch: cases.first().map_or(BACKGROUND_BATCH, |case| case.workload.background_batch),
            fixed_batch,
            rows: rows.into_iter().flatten().collect(),
            without_room,
            titles,
        })
    }

    /// Returns the display name and the rows of each network.
    fn networks(&self) -> impl Iterator<Item = (&str, &[ScaleRow])> {
        let title = |model: &str| {
            let found = self.titles.iter().find(|(of, _)| of == model);
            found.map_or("", |(_, title)| title.as_str())
        };
        self.rows.chunk_by(|a, b| a.model == b.model).map(move |rows| (title(&rows[0].model), rows))
    }

    /// Returns the rows of a network that belong to a series, by increasing GPU count.
    fn series<'a>(&self, rows: &'a [ScaleRow], series: Series) -> Vec<&'a ScaleRow> {
        rows.iter().filter(|row| row.batch == series.batch(row.gpus, self.fixed_batch)).collect()
    }

    /// Returns the origin of the numbers.
    fn provenance(&self) -> Vec<String> {
        vec![
            format!("simulated: {}, link model {}", self.header.layer_times, self.header.link),
            format!(
                "speeds of the foreground are compared within 1%; the background trains the same network \
                 on batches of {}; a partition is DP on some GPUs and background on the others; \
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
