//! `deeppool plan --to-accuracy`: plans by the time to a target accuracy.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use command_line::files::read_text_as;
use command_line::numbers::within;
use deeppool::accuracy::{LayerTimes, PlannedIterationTimes};
use deeppool::plan::{Mode, PlanRequest};
use deeppool::program::LowerOptions;
use deeppool::time_to_accuracy::{
    Batches, Candidates, Configuration, EpochCurve, Estimate, StepTimes, estimate, format_hours,
};
use layer_graph::LayerGraph;
use layer_profile::{DeviceModel, ProfileTable};
use serde_json::{Value, json};

use super::costs::{CostArgs, ModeArgs, ModeName, device_in_precision};
use super::counts::BATCH;
use super::inputs;
use super::left_out::warn;
use super::output::{gpus as gpu_count, print_json, print_message, table};
use super::progress::progress_bar_of;

/// Options of plans by time to accuracy.
#[derive(Args)]
pub(crate) struct AccuracyArgs {
    /// Select the number of GPUs, the global batch and the plan by the time to a target accuracy
    /// instead of the iteration time: a file of epochs by global batch (see `deeppool epochs`), or
    /// a published curve: gnmt, resnet-50
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = [
        "batch", "problem", "compare", "objective", "deadline", "knee", "pareto", "explain", "dot", "trace",
        "spb"])]
    pub(crate) to_accuracy: Option<String>,
    /// With --to-accuracy: candidate global batches [default: those of the curve]
    #[arg(long, value_name = "SAMPLES,...", value_delimiter = ',', value_parser = within(BATCH))]
    batches: Vec<usize>,
    /// With --to-accuracy: minimize GPU hours subject to this time, in hours, instead of the time
    #[arg(long, value_name = "HOURS", value_parser = hours)]
    within: Option<Duration>,
}

fn hours(text: &str) -> Result<Duration, String> {
    let hours = text.parse::<f64>().ok().filter(|hours| *hours > 0.0);
    let time = hours.and_then(|hours| Duration::try_from_secs_f64(hours * 3600.0).ok());
    time.ok_or_else(|| "expected a number of hours above 0".into())
}

/// Options of `deeppool plan` that a plan by time to accuracy also uses.
pub(crate) struct PlanOptions<'a> {
    /// Options for layer times and links.
    pub(crate) costs: &'a CostArgs,
    /// Options for the kind of plan.
    pub(crate) mode: &'a ModeArgs,
    /// Maximum number of GPUs.
    pub(crate) gpus: usize,
    /// Path of the file to which the selected plan is written; `None` if it is only printed.
    pub(crate) output: Option<&'a PathBuf>,
    /// Whether the answer is printed as JSON, and otherwise as text.
    pub(crate) json: bool,
}

impl AccuracyArgs {
    /// Checks that no options for a curve are given, for a command without a curve. clap does not
    /// detect this beside `--batch`.
    ///
    /// # Errors
    /// If `--batches` or `--within` is given.
    pub(crate) fn check_without_curve(&self) -> anyhow::Result<()> {
        if self.batches.is_empty() && self.within.is_none() {
            return Ok(());
        }
        bail!("--batches and --within are for --to-accuracy: give a curve, or leave them out")
    }

    /// Returns the candidate configurations.
    fn candidates(&self, curve: &EpochCurve, mode: &ModeArgs, gpus: usize) -> Candidates {
        let batches = match &self.batches[..] {
            [] => curve.points().iter().map(|point| point.batch).collect(),
            given => given.to_vec(),
        };
        let limits = match mode.mode {
            ModeName::Dp => vec![None],
            ModeName::Burst => vec![None, Some(mode.amplification())],
        };
        let of_workers = match mode.worker_gpus {
            Some(gpus) => vec![1, gpus],
            None if mode.mode == ModeName::Dp => vec![1],
            None => WORKER_GPUS.into_iter().filter(|&of_worker| of_worker <= gpus).collect(),
        };
        Candidates::new(gpu_counts(gpus), Batches::Global(batches))
            .with_gpus_per_worker(of_workers)
            .with_max_gpus(gpus)
            .with_limits(limits)
    }

    /// Selects the number of GPUs, the global batch and the plan by the time to the target accuracy
    /// of `curve` (a file, or the name of a published curve), and writes and prints them.
    ///
    /// # Errors
    /// If an input cannot be read, or no candidate has a plan or meets the deadline.
    pub(crate) fn answer(
        &self,
        curve: &str,
        network: &LayerGraph,
        options: &PlanOptions<'_>,
    ) -> anyhow::Result<()> {
        let PlanOptions { costs, mode, gpus, output, json } = *options;
        PlanRequest::new(gpus, Mode::Knee).check()?;
        mode.check((gpus, usize::MAX))?;
        let is_named = EpochCurve::names().any(|name| name == curve);
        let curve =
            if is_named { EpochCurve::named(curve)? } else { read_text_as(curve, EpochCurve::from_json)? };
        if curve.document().network != network.name() {
            warn(format_args!(
                "the epochs are those of `{}`, which stands in for `{}`",
                curve.document().network,
                network.name()
            ));
        }
        let profile = costs.profile.as_deref().map(|path| costs.profile(path, network)).transpose()?;
        let device = costs.device.as_deref().map(|device| {
            let device = device_in_precision(device, costs.precision, false)?;
            anyhow::Ok(inputs::device(&device)?)
        });
        let device = device.transpose()?;
        let times = match (&profile, &device) {
            (Some(profile), _) => LayerTimes::Profile(profile),
            (None, Some(device)) => LayerTimes::Device(device),
            (None, None) => bail!("give --device NAME or --profile FILE"),
        };
        let name = profile.as_ref().map(ProfileTable::device).or(device.as_ref().map(DeviceModel::name));
        let link = costs.link.as_deref().map(inputs::link).transpose()?;
        let memory = mode.capacity(name.unwrap_or_default()).limit_bytes()?;
        let lowering = LowerOptions::default()
            .with_overlap_all_reduce(!mode.no_overlap)
            .with_sync_batch_norm(mode.sync_batch_norm);
        let steps = PlannedIterationTimes::new(network, times)
            .with_link(link.as_ref())
            .with_lowering(lowering)
            .with_request(mode.request(gpus).with_memory_limit(memory));

        let candidates = self.candidates(&curve, mode, gpus);
        let bar = progress_bar_of(candidates.configurations()?.len() as u64, "plans");
        let counted = |configuration: &Configuration| {
            bar.set_message(configuration.to_string());
            let step = steps.step(configuration);
            bar.inc(1);
            step
        };
        let estimates = estimate(&curve, &counted, &candidates);
        bar.finish_and_clear();
        let estimates = estimates?;
        let chosen = match self.within {
            Some(deadline) => estimates.cheapest_by(deadline)?,
            None => estimates.soonest(),
        };
        if let Some(path) = output {
            let plan = steps.plan(&chosen.configuration)?;
            command_line::files::write(path, plan.to_json()? + "\n")?;
        }
        let problems = steps.into_problems();
        let reason =
            |of: &Configuration| problems.iter().find(|(other, _)| other == of).map(|(_, error)| error);
        if let Some(first) = estimates.skipped().first() {
            let reason = reason(&first.configuration).map_or(first.reason.to_string(), ToString::to_string);
            warn(format_args!(
                "left out {} of {} candidates, which have no plan, such as {}: {reason}",
                estimates.skipped().len(),
                estimates.skipped().len() + estimates.all().len(),
                first.configuration
            ));
        }
        if json {
            let left_out = estimates.skipped().iter().map(|of| {
                let reason = reason(&of.configuration).map_or(of.reason.to_string(), ToString::to_string);
                json!({ "configuration": configuration_json(&of.configuration), "reason": reason })
            });
            let frontier = estimates.frontier().into_iter().map(estimate_json);
            let curve: Value = serde_json::from_str(&curve.to_json())?;
            print_json(&json!({
                "curve": curve, "chosen": estimate_json(chosen), "frontier": frontier.collect::<Value>(),
                "estimates": estimates.all().iter().map(estimate_json).collect::<Value>(),
                "left_out": left_out.collect::<Value>(),
            }));
            return Ok(());
        }
        let document = curve.document();
        print_message!(
            "{} on {} to {}; epochs {}: {}\n",
            document.network,
            document.dataset,
            document.target,
            document.origin,
            document.source
        );
        let mut rows = table(&["plan", "batch", "iteration", "epochs", "time", "GPU time", "active"]);
        for one in estimates.frontier() {
            rows.add_row(row(one));
        }
        print_message!("{rows}");
        let what = if self.within.is_some() { "fewest GPU hours in time" } else { "soonest" };
        print_message!("\n{what}: {chosen}");
        Ok(())
    }
}

/// Default numbers of GPUs per worker.
const WORKER_GPUS: [usize; 3] = [1, 2, 4];

/// Returns the powers of two below the number of GPUs, and that number.
fn gpu_counts(gpus: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1_usize), |count| count.checked_mul(2));
    powers.take_while(|&count| count < gpus).chain([gpus]).collect()
}

fn row(one: &Estimate) -> Vec<String> {
    let Configuration { limit, batch, .. } = one.configuration;
    let workers = match one.configuration.gpus_per_worker {
        1 => String::new(),
        gpus => format!("workers of {gpus}, "),
    };
    let kind = match limit {
        Some(limit) => format!("burst, {limit} at most"),
        None if workers.is_empty() => "data parallel".into(),
        None => "burst".into(),
    };
    vec![
        format!("{}, {workers}{kind}", gpu_count(one.configuration.gpus())),
        batch.to_string(),
        super::output::time(one.step.iteration),
        format!("{:.1}", one.epochs.mean),
        format_hours(one.hours()),
        format_hours(one.gpu_hours),
        one.active_gpu_hours.map_or_else(String::new, format_hours),
    ]
}

fn configuration_json(of: &Configuration) -> Value {
    json!({
        "workers": of.workers, "gpus_per_worker": of.gpus_per_worker, "batch": of.batch, "limit": of.limit,
    })
}

fn estimate_json(of: &Estimate) -> Value {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    json!({
        "configuration": configuration_json(&of.configuration),
        "iteration_us": us(of.step.iteration), "amplification": of.step.amplification,
        "iterations_per_epoch": of.iterations_per_epoch,
        "epochs": of.epochs.mean, "epochs_min": of.epochs.range.map(|range| range.0),
        "epochs_max": of.epochs.range.map(|range| range.1), "missed": of.epochs.missed,
        "time_us": us(of.time), "time_min_us": of.time_range.map(|range| us(range.0)),
        "time_max_us": of.time_range.map(|range| us(range.1)),
        "gpu_hours": of.gpu_hours, "active_gpu_hours": of.active_gpu_hours,
    })
}
