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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cluster_scheduler::trace::{GavelJob, GavelSpeed, TraceJob};
    use collectives::LinkModel;
    use layer_profile::DeviceModel;

    use super::*;
    use crate::layer_times::LayerTimes;

    /// Returns the input of `n` jobs of each trace on 8 GPUs, of which the first `k` cannot be
    /// simulated.
    fn input(n: usize, k: usize) -> JigsawInput {
        let is_bad = |job: usize| job < k;
        let at = |job: usize| Duration::from_secs(60 * job as u64);
        let philly = |job: usize| {
            let gpus = if is_bad(job) { [9, 65, 128][job % 3] } else { [1, 3, 8][job % 3] };
            TraceJob { arrival: at(job), duration: Duration::from_secs(600), gpus }
        };
        let gavel = |job: usize| {
            let (kind, gpus) =
                if is_bad(job) { [("GPT", 1), ("LM", 2), ("LM", 16)][job % 3] } else { ("LM", 1) };
            GavelJob { arrival: at(job).as_secs_f64(), kind: kind.into(), gpus, steps: 100 }
        };
        let speed = |gpu_type: &str, gpus: usize| GavelSpeed {
            gpu_type: gpu_type.into(),
            kind: "LM".into(),
            gpus,
            steps_per_s: 2.0,
        };
        JigsawInput {
            times: LayerTimes::Model(DeviceModel::named("a100").unwrap()),
            link: LinkModel::dgx_a100(),
            gpus: 8,
            jobs: n,
            seeds: 1,
            loads: vec![1.0],
            skip: 0,
            philly: (0..n).map(philly).collect(),
            gavel: (0..n).map(gavel).collect(),
            gavel_reference: Vec::new(),
            gavel_speeds: vec![speed("v100", 1), speed("v100", 16)],
            gavel_pairs: Vec::new(),
            pollux: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Of n jobs, those that are drawn and those that are reported add up to n, and the line of
    /// stderr has the number of those that cannot be simulated. The match lists every source.
    #[test]
    fn drawn_and_reported_jobs_add_up() {
        for (n, k) in [(10, 0), (10, 1), (37, 12), (200, 199), (50, 50)] {
            let input = input(n, k);
            let gavel = tables::gavel(&input.gavel_speeds).unwrap();
            for source in JobSource::available(&input) {
                let drawn = match source {
                    // Drawn from quantiles: the number on many GPUs depends on the seed.
                    JobSource::Synthetic => continue,
                    JobSource::Philly => source.trace_jobs(&input, 0).0.len(),
                    JobSource::Gavel => source.arrivals(&input, &gavel, 1.0, 0).unwrap().len(),
                };
                assert_eq!(drawn, n - k, "{}", source.name());
                let described = source.left_out(&input, &gavel);
                if k == n {
                    let error = described.unwrap_err().to_string();
                    assert!(error.contains(&format!("left out {k} of {n} jobs")), "{error}");
                    continue;
                }
                let line = described.unwrap();
                let expected = format!("{}: left out {k} of {n} drawn jobs", source.name());
                assert_eq!(line.as_ref().is_some_and(|line| line.starts_with(&expected)), k > 0, "{line:?}");
                assert_eq!(line.is_some(), k > 0);
                let on_stderr = lines(&input).unwrap();
                assert_eq!(
                    on_stderr.iter().filter(|line| line.starts_with(&expected)).count(),
                    usize::from(k > 0)
                );
            }
        }
    }
}
