//! Records of the traces and measurements that no run uses.

use anyhow::{Context, bail};
use cluster_scheduler::GpuType;
use cluster_scheduler::trace::{add_pairs, pollux_table};

use super::input::JigsawInput;
use super::rounds;
use super::tables::{self, COUNTS};
use super::traces::JobSource;
use crate::left_out::LeftOut;

/// Returns a line for each source that has records of which no run makes use, with their number and
/// the reasons.
///
/// # Errors
/// If a source has no usable record, or if a measurement is invalid.
pub(super) fn lines(input: &JigsawInput) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    if !input.missing.is_empty() {
        lines.push(format!(
            "left out the results that need {} files, which do not exist: {}",
            input.missing.len(),
            input.missing.join(", ")
        ));
    }
    let skipped = input.skip.min(input.philly.len());
    if skipped > 0 {
        lines.push(format!("Philly: left out {skipped} of {} jobs: --skip-philly", input.philly.len()));
    }
    for (trace, jobs) in [("Philly", input.philly.len() - skipped), ("Gavel", input.gavel.len())] {
        if (1..input.jobs).contains(&jobs) {
            lines.push(format!(
                "{trace}: only {jobs} jobs for --jobs {}: each draw has all of them",
                input.jobs
            ));
        }
    }
    let mut speeds = LeftOut::default();
    for speed in &input.gavel_speeds {
        if tables::is_of_v100(speed) {
            speeds.used();
        } else if speed.steps_per_s > 0.0 {
            speeds.add("of other GPUs than V100", format!("`{}`", speed.gpu_type));
        } else {
            speeds.add("of 0 steps a second", format!("`{}` on {} GPUs", speed.kind, speed.gpus));
        }
    }
    if speeds.is_everything() {
        bail!("{}: no throughput is left", speeds.description("Gavel", "throughputs").unwrap_or_default());
    }
    lines.extend(speeds.description("Gavel", "throughputs"));
    let mut table = tables::gavel(&input.gavel_speeds).context("Gavel's throughputs")?;
    for source in JobSource::available(input) {
        lines.extend(source.left_out(input, &table)?);
    }
    let pairs = input.gavel_pairs.len();
    let added = add_pairs(&mut table, GpuType(0), &input.gavel_pairs);
    if added < pairs {
        lines.push(format!(
            "Gavel: left out {} of {pairs} pairs: on several GPUs, of kinds without a throughput on V100, or \
             which do not run together",
            pairs - added
        ));
    }
    let mut models: Vec<&str> = input.pollux.iter().map(|step| step.model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    let table = pollux_table(&input.pollux, &COUNTS, GpuType(0)).context("Pollux' step times")?;
    let used = table.kinds().count();
    if used < models.len() {
        let reason = format!("not measured with the same batch on each of {COUNTS:?} GPUs");
        let described =
            format!("Pollux: left out {} of {} models: {reason}", models.len() - used, models.len());
        if used == 0 {
            bail!("{described}: no model is left");
        }
        lines.push(described);
    }
    rounds::check(input)?;
    Ok(lines)
}
