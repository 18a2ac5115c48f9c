//! The experiment `splits`: iteration times of burst plans whose layers are divided by samples
//! only, by each other way, and by all ways.

mod case;
mod figure;
mod text;

use anyhow::{Context, bail};
use clap::Args;
use collectives::LinkModel;
use layer_graph::zoo;
use serde::Serialize;

use crate::canvas::Figure;
use crate::experiment::{Experiment, Prepared, prepared};
use crate::journal::Journal;
use crate::layer_times::LayerTimes;
use crate::options::{DeviceOptions, LimitOptions, NetworkOptions, RunOptions, batch, gpus, inputs};
use crate::outcome::{self, Outcome};
use crate::report::ReportHeader;
use crate::style::Style;
use case::{SplitsCase, SplitsRow, Ways, cases, rows};

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "splits";
/// Default global batch in samples.
const BATCH: &str = "64";

/// Options of the experiment `splits`.
#[derive(Args)]
#[command(after_help = "\
The global batch is the same on all numbers of GPUs. The networks are those of `deeppool models`, unless
one is given; all of them take four minutes on two cores. Plans use any GPU time; the fastest within the
amplification limit is reported, too.
Examples:
  experiments splits
  experiments splits --model vgg16 --gpus 8 --batch 32
  experiments splits --model gpt2 --gpus 64,128,256 --device h100 --link dgx-h100-pod")]
pub(crate) struct SplitsOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    network: NetworkOptions,
    /// Samples of the global batch
    #[arg(long, value_name = "N", default_value = BATCH, value_parser = batch)]
    batch: usize,
    #[command(flatten)]
    device: DeviceOptions,
    /// Link model of the GPUs: the name of one, or its FILE.json
    #[arg(long, value_name = "NAME|FILE", default_value = "dgx-a100-pod")]
    link: String,
    /// Numbers of GPUs
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = gpus,
          default_values_t = [8, 64, 256, 1024])]
    gpus: Vec<usize>,
    #[command(flatten)]
    limit: LimitOptions,
}

impl Experiment for SplitsOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let times = self.device.load()?;
        let link = inputs::link(&self.link)?;
        let mut gpus = self.gpus.clone();
        gpus.sort_unstable();
        gpus.dedup();
        if gpus.len() > figure::MAX_PANELS {
            bail!("--gpus has {} numbers: give at most {}", gpus.len(), figure::MAX_PANELS);
        }
        link.check_ranks(gpus.last().copied().unwrap_or(1))?;
        let networks = match self.network.load(&times)? {
            Some(network) => vec![network],
            None => zoo::names().into_iter().map(zoo::model).collect::<Result<_, _>>()?,
        };
        let cases = cases(networks, &gpus, self.batch);
        for SplitsCase { network, batch, gpus, .. } in &cases {
            times.check(network, &deeppool::costs::shard_sizes(*batch, *gpus))?;
        }
        let limit = self.limit.amplification;
        Ok(prepared(move |journal| Splits::run(&cases, (&times, &link), limit, journal)))
    }
}

/// Results. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Splits {
    #[serde(flatten)]
    header: ReportHeader,
    /// Samples of the global batch.
    batch: usize,
    /// Amplification limit of the limited plans.
    amplification_limit: f64,
    /// Names of the sets of ways in which layers may be divided.
    ways: Vec<String>,
    rows: Vec<SplitsRow>,
    /// Descriptions of the cases without a plan that fits in memory.
    without_room: Vec<String>,
}

impl Splits {
    /// Searches for the plans of every case, in parallel.
    fn run(
        cases: &[SplitsCase],
        (times, link): (&LayerTimes, &LinkModel),
        limit: f64,
        journal: &Journal,
    ) -> anyhow::Result<Self> {
        let found = journal.results("searches", cases, |case| {
            let on = || format!("{} on {} GPUs", case.network.name(), case.gpus);
            case.plans(times, link, limit).with_context(on)
        })?;
        let is_left_out = |case: &SplitsCase| case.ways.splits.is_empty();
        let without_room =
            cases.iter().zip(&found).filter(|(case, found)| found.is_none() && is_left_out(case));
        let without_room = without_room.map(|(case, _)| format!("{} on {}", case.network.name(), case.gpus));
        Ok(Self {
            header: ReportHeader::new(NAME, times, link),
            batch: cases.first().map_or(0, |case| case.batch),
            amplification_limit: limit,
            ways: Ways::all().into_iter().map(|ways| ways.name).collect(),
            without_room: without_room.collect(),
            rows: rows(cases, &found),
        })
    }

    /// Returns the rows of each network on each number of GPUs.
    fn by_case(&self) -> impl Iterator<Item = &[SplitsRow]> {
        self.rows.chunk_by(|a, b| (&a.model, a.gpus) == (&b.model, b.gpus))
    }

    /// Returns the origin of the numbers.
    fn provenance(&self) -> Vec<String> {
        vec![
            format!("simulated: {}, link model {}", self.header.layer_times, self.header.link),
            format!(
                "planned iteration times with global batch {}; plans keep the memory of the GPUs, without \
                 background jobs",
                self.batch
            ),
        ]
    }
}

impl Outcome for Splits {
    fn title(&self) -> String {
        format!("Burst plans with split layers, {} (simulated)", self.header.link)
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
        let provenance = self.header.provenance();
        outcome::csv(self.rows.iter().map(|row| (row, provenance)))
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        Ok(vec![figure::draw(self, style)?])
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
