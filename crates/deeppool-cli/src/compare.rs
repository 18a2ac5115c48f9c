//! `deeppool plan --compare`: comparison of ways to share GPUs between a foreground job and
//! background jobs.

use std::path::Path;

use deeppool::compare::{Comparison, DistributedGain, Point, SharingMode};
use deeppool::costs::Costs;
use deeppool::job::Job;
use deeppool::plan::PlanRequest;
use deeppool::planning::find_plan;
use deeppool::simulate::{BackgroundCosts, SimulateOptions};
use layer_graph::LayerGraph;
use layer_profile::ProfileTable;
use serde_json::{Value, json};

use super::background_spec::{BackgroundGpus, BackgroundSpec};
use super::compare_figure::svg;
use super::left_out::warn_of_comparison;
use super::output::{gpus, print_json, print_message, table};
use super::progress::fraction_progress;

/// Foreground speeds in the table, as fractions of the maximum.
const SPEEDS: [f64; 7] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0];

/// Background job with its costs.
pub(crate) struct CostedBackground {
    /// Network and batch, as given on the command line or by default.
    pub(crate) spec: BackgroundSpec,
    /// Times of the kernels of a job on one GPU for the simulator.
    pub(crate) costs: BackgroundCosts,
    /// Network of the job.
    pub(crate) network: LayerGraph,
    /// Layer times of the network.
    pub(crate) profile: ProfileTable,
}

impl CostedBackground {
    /// Compares jobs on several GPUs each with jobs on one GPU each, beside the fastest burst plan;
    /// `None` if the job is not for several GPUs.
    ///
    /// # Errors
    /// If a job has more GPUs or fewer samples than possible, or layer times are missing.
    fn distributed_gain(
        &self,
        job: &Job<'_>,
        request: &PlanRequest,
        comparison: &Comparison,
    ) -> anyhow::Result<Option<DistributedGain>> {
        let BackgroundGpus::Count(gpus) = self.spec.gpus else { return Ok(None) };
        let plan = find_plan(job, request)?;
        let costs = Costs::new(&self.network, &self.profile, job.costs().link());
        let background = (&costs, self.spec.batch, gpus);
        let options = SimulateOptions::default();
        Ok(Some(DistributedGain::new((job, &plan), background, comparison, &options)?))
    }
}

/// Describes the gain of background jobs on several GPUs each.
fn gain_text(spec: &BackgroundSpec, gain: &DistributedGain) -> String {
    let partition = gain.partition_samples_per_s.map_or_else(
        || "no partition has as fast a foreground".into(),
        |partition| format!("a partition with as fast a foreground leaves {partition:.0} to background jobs"),
    );
    format!(
        "{spec}, {} of {} jobs with windows: {:.0} background samples/s beside {:.0} of the fastest burst \
         plan;\nthe same work on one GPU each: {:.0} beside {:.0}; {partition}",
        gain.jobs_with_windows,
        gain.jobs,
        gain.distributed_samples_per_s,
        gain.foreground_samples_per_s,
        gain.single_samples_per_s,
        gain.single_foreground_samples_per_s,
    )
}

/// Simulates all ways to share GPUs, and prints a table and advice, or one JSON object if
/// `as_json` is set. Writes an SVG image to the path `figure`, if it is given.
///
/// # Errors
/// If no plan can be made, layer times are missing, or the image cannot be written.
pub(crate) fn run(
    job: &Job<'_>,
    request: &PlanRequest,
    background: &CostedBackground,
    figure: Option<&Path>,
    as_json: bool,
) -> anyhow::Result<()> {
    let comparison = Comparison::new(
        job,
        request,
        &background.costs,
        &SimulateOptions::default(),
        fraction_progress("simulating ways to share"),
    )?;
    warn_of_comparison(&comparison);
    let gain = background.distributed_gain(job, request, &comparison)?;
    let origin = origin(job, request, background);
    if let Some(path) = figure {
        // The description of the device model does not fit into the figure. Its error is drawn.
        let header = [&origin[..2], &[error_summary(&comparison)]].concat();
        command_line::files::write(path, svg(&comparison, &header)?)?;
    }
    if as_json {
        let mut report = report(job, request, background, &comparison);
        if let Some(gain) = &gain {
            report["distributed"] = serde_json::to_value(gain)?;
        }
        print_json(&report);
        return Ok(());
    }
    for line in &origin {
        print_message!("{line}");
    }
    print_message!(
        "\nForeground and background samples/s together, with at least so fast a foreground, to 1% \
         (simulated; partitions may take\nturns with each other, and BP+Col with everything but them):"
    );
    print_message!("{}", totals(&comparison));
    print_message!("\n{} (ranges by this are in --json and --svg)", error_summary(&comparison));
    print_message!("{}", comparison.advice());
    if let Some(gain) = &gain {
        print_message!("{}", gain_text(&background.spec, gain));
    }
    Ok(())
}

fn origin(job: &Job<'_>, request: &PlanRequest, background: &CostedBackground) -> Vec<String> {
    let (profile, spec) = (job.costs().profile(), &background.spec);
    let mut lines = vec![
        format!(
            "{}, global batch {}, and {} of batch {} in the background of {}",
            profile.model(),
            job.batch(),
            spec.model,
            background.costs.batch(),
            gpus(request.gpus)
        ),
        format!(
            "layer times: {}, {}; links: {}, modelled",
            profile.device(),
            profile.origin(),
            job.costs().link().name()
        ),
    ];
    if let Some(accuracy) = profile.accuracy() {
        lines.push(format!("model of {}: {accuracy}", profile.device()));
    }
    lines
}

/// Returns a table of the total throughput of each mode at several foreground speeds.
fn totals(comparison: &Comparison) -> comfy_table::Table {
    let mut shown =
        table(&["foreground", "samples/s", "partition", "DP", "DP+Col", "BP", "BP+Col", "over partition"]);
    let fastest = comparison.fastest_foreground();
    let sharing = comparison.sharing();
    let partition = comparison.envelope(&[SharingMode::Partition]);
    for part in SPEEDS {
        let foreground = comparison.comparable_speed(part);
        let cell = |total: Option<f64>| total.map_or_else(|| "-".into(), |total| format!("{total:.0}"));
        let of = |mode: SharingMode| cell(best_of(comparison, mode, foreground));
        let (shared, parted) = (sharing.total_at(foreground), partition.total_at(foreground));
        let over = shared.zip(parted).map(|(shared, parted)| format!("{:.2}", shared / parted));
        shown.add_row([
            format!("{part:.2}"),
            format!("{:.0}", fastest * part),
            cell(parted),
            of(SharingMode::DataParallel),
            of(SharingMode::DataParallelCollocated),
            of(SharingMode::Burst),
            cell(shared),
            over.unwrap_or_else(|| "-".into()),
        ]);
    }
    shown
}

/// Returns the maximum total throughput of a mode with at least the given foreground throughput,
/// both in samples per second.
fn best_of(comparison: &Comparison, mode: SharingMode, foreground: f64) -> Option<f64> {
    let is_as_fast = |point: &&Point| point.mode == mode && point.foreground_samples_per_s >= foreground;
    comparison.points.iter().filter(is_as_fast).map(Point::total_samples_per_s).reduce(f64::max)
}

/// Describes the relative errors of the layer times and links.
fn error_summary(comparison: &Comparison) -> String {
    let percent = |error: Option<f64>| match error {
        Some(error) => format!("up to {:.0}%", 100.0 * error),
        None => "unknown".into(),
    };
    format!(
        "how far off layer times may be: {}; links: {}",
        percent(comparison.layers_error),
        percent(comparison.links_error)
    )
}

fn report(
    job: &Job<'_>,
    request: &PlanRequest,
    background: &CostedBackground,
    comparison: &Comparison,
) -> Value {
    let (profile, spec) = (job.costs().profile(), &background.spec);
    json!({
        "schema": "deeppool/report/v1", "experiment": "compare", "simulated": true,
        "model": profile.model(), "batch": job.batch(), "gpus": request.gpus,
        "background": {
            "model": spec.model, "batch": background.costs.batch(),
            "samples_per_s_of_a_gpu": comparison.background_samples_per_s,
        },
        "device": profile.device(), "origin": profile.origin(), "accuracy": profile.accuracy(),
        "link": job.costs().link().name(),
        "layers_off": comparison.layers_error, "links_off": comparison.links_error,
        "points": comparison.points,
        "advice": comparison.advice(),
    })
}
