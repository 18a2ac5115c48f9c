//! The experiment `sharing`: background jobs of several GPUs beside a burst plan, and several jobs
//! on one network by placement.
//!
//! A *window* is an interval in which the foreground is idle on all GPUs of a background job.

mod figure;
mod placements;
mod text;
mod windows;

use anyhow::{Context, bail};
use clap::Args;
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
use deeppool::costs::default_link;
use placements::{PlacementCase, PlacementRow};
use windows::{WindowCase, WindowRow};

/// Name of the experiment on the command line, and stem of its files.
pub(crate) const NAME: &str = "sharing";
/// Default number of foreground samples for each GPU.
const SAMPLES_PER_GPU: &str = "4";
/// Maximum number of samples of a global batch.
const MAX_BATCH: usize = 1 << 20;

/// Options of the experiment `sharing`.
#[derive(Args)]
#[command(after_help = "\
Background jobs train the foreground's network, data parallel; together they have all GPUs. The jobs
that share a network are data parallel and equal, on 12 GPUs each of 64.
Examples:
  experiments sharing
  experiments sharing --gpus 64 --samples-per-gpu 1
  experiments sharing --model vgg16 --job-gpus 2,4 --links a100-100gbe")]
pub(crate) struct SharingOptions {
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    network: NetworkOptions,
    /// Samples of the foreground's global batch for each GPU
    #[arg(long, value_name = "N", default_value = SAMPLES_PER_GPU, value_parser = batch)]
    samples_per_gpu: usize,
    /// Samples of a background job's global batch for each of its GPUs
    #[arg(long, value_name = "N", default_value_t = BACKGROUND_BATCH, value_parser = batch)]
    background_batch: usize,
    #[command(flatten)]
    device: DeviceOptions,
    /// Numbers of GPUs that the foreground shares with background jobs
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = gpus, default_values_t = [8, 64])]
    gpus: Vec<usize>,
    /// Numbers of GPUs of a background job. Larger ones than `--gpus` are left out
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = gpus,
          default_values_t = [1, 2, 4, 8])]
    job_gpus: Vec<usize>,
    /// Link models of the network that several jobs share: names, or a FILE.json each
    #[arg(long, value_name = "NAME|FILE,...", value_delimiter = ',',
          default_values_t = ["a100-100gbe".to_owned(), "dgx-a100-pod".to_owned()])]
    links: Vec<String>,
    #[command(flatten)]
    limit: LimitOptions,
}

impl Experiment for SharingOptions {
    fn run_options(&self) -> &RunOptions {
        &self.run
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let times = self.device.load()?;
        let (gpus, sizes) = (sorted(&self.gpus), sorted(&self.job_gpus));
        if let (Some(gpus), Some(size)) = (gpus.first(), sizes.first()) {
            if size > gpus {
                bail!("--job-gpus {size} exceeds --gpus {gpus}: a background job has at most all GPUs");
            }
        }
        let max_batch = self.samples_per_gpu.max(self.background_batch) * gpus.last().copied().unwrap_or(1);
        if max_batch > MAX_BATCH {
            bail!(
                "a global batch of {max_batch} samples exceeds {MAX_BATCH}: give fewer samples for each GPU"
            );
        }
        let workloads = match self.network.load(&times)? {
            Some(network) => vec![Workload::new(network, 1, self.background_batch)],
            None => WORKLOADS
                .iter()
                .map(|built_in| Ok(Workload { background_batch: self.background_batch, ..built_in.load()? }))
                .collect::<anyhow::Result<Vec<_>>>()?,
        };
        let mut windows = Vec::new();
        for workload in &workloads {
            for &gpus in &gpus {
                let workload = Workload { batch: self.samples_per_gpu * gpus, ..workload.clone() };
                times.check(&workload.network, &workload.batches(gpus))?;
                let link = default_link(times.device(), gpus)?;
                link.check_ranks(gpus)?;
                let job_gpus = sizes.iter().copied().filter(|&size| size <= gpus).collect();
                windows.push(WindowCase { workload, gpus, link, job_gpus });
            }
        }
        let links = self.links.iter().map(|link| inputs::link(link)).collect::<Result<Vec<_>, _>>()?;
        let placements = PlacementCase::all(&workloads, &links)?;
        for case in &placements {
            times.check(&case.workload.network, &case.workload.batches(placements::JOB_GPUS))?;
        }
        let limit = self.limit.amplification;
        Ok(prepared(move |journal| Sharing::run((&windows, &placements), &times, limit, journal)))
    }
}

/// Returns the numbers in ascending order, without duplicates.
fn sorted(numbers: &[usize]) -> Vec<usize> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Results. As JSON, a document of the format `deeppool/report/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Sharing {
    #[serde(flatten)]
    header: ReportHeader,
    amplification_limit: f64,
    /// Samples of a background job's global batch for each of its GPUs.
    background_batch: usize,
    /// Background jobs beside a burst plan.
    rows: Vec<WindowRow>,
    /// Several jobs on one network.
    placements: Vec<PlacementRow>,
}

/// Fields on the origin of the numbers that each CSV record repeats. Rows name their links.
#[derive(Clone, Copy, Serialize)]
struct RowOrigin<'a> {
    simulated: bool,
    device: &'a str,
}

impl Sharing {
    /// Simulates all cases, in parallel.
    fn run(
        (windows, placements): (&[WindowCase], &[PlacementCase]),
        times: &LayerTimes,
        limit: f64,
        journal: &Journal,
    ) -> anyhow::Result<Self> {
        let rows: Vec<Vec<WindowRow>> = journal.results("windows", windows, |case| {
            let on = || format!("{} on {} GPUs", case.workload.title, case.gpus);
            case.rows(times, limit).with_context(on)
        })?;
        let shared: Vec<PlacementRow> = journal.results("placements", placements, |case| {
            let on = || format!("{} on {}", case.workload.title, case.link.name());
            case.row(times).with_context(on)
        })?;
        let link = windows.first().map(|case| &case.link).context("there is no number of GPUs")?;
        let mut header = ReportHeader::new(NAME, times, link);
        "as in each row".clone_into(&mut header.link);
        Ok(Self {
            header,
            amplification_limit: limit,
            background_batch: windows.first().map_or(0, |case| case.workload.background_batch),
            rows: rows.into_iter().flatten().collect(),
            placements: shared,
        })
    }

    /// Returns the origin of the numbers.
    fn provenance(&self) -> Vec<String> {
        vec![
            format!("simulated: {}, link models as in each row", self.header.layer_times),
            format!(
                "foreground: a burst plan with amplification limit {}; background: the same network, data \
                 parallel, batch {} on each GPU of a job, together on all GPUs; not modelled: launch costs, \
                 and contention between communication and computation",
                self.amplification_limit, self.background_batch
            ),
            format!(
                "jobs on one network: equal, data parallel, batch {} on each of {} GPUs, on a cluster of {} \
                 GPUs, all started at the same time",
                placements::SAMPLES_PER_GPU,
                placements::JOB_GPUS,
                placements::CLUSTER_GPUS
            ),
        ]
    }

    fn origin(&self) -> RowOrigin<'_> {
        RowOrigin { simulated: true, device: &self.header.device }
    }
}

impl Outcome for Sharing {
    fn title(&self) -> String {
        "Background jobs on several GPUs, and several jobs on one network (simulated)".into()
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
        outcome::csv(self.rows.iter().map(|row| (row, self.origin())))
    }

    fn more_csv(&self) -> anyhow::Result<Vec<(&'static str, Vec<u8>)>> {
        let placements = outcome::csv(self.placements.iter().map(|row| (row, self.origin())))?;
        Ok(vec![("placements", placements)])
    }

    fn figures(&self, style: Style) -> anyhow::Result<Vec<Figure>> {
        Ok(vec![figure::draw(self, style)?])
    }

    fn to_json(&self) -> anyhow::Result<String> {
        outcome::json(self)
    }
}
