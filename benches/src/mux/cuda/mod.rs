//! Measurement on a GPU. The workload's kernels are replaced by kernels of the same duration and
//! resource demand.

mod chain_calibration;
mod compile;
mod execution;
mod gpu_runner;
mod kernels;
mod launch_calibration;
mod sharing;
mod spans;
mod steps;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ::cuda::{Capabilities, Context, Priority, Stream};
use anyhow::{Context as _, Result};
use gpu_mux::{Jobs, Policy, Workload};

use crate::mux::row::{Alone, Collocated, row, times};
use crate::mux::task::{BenchTask, GpuOptions};
use crate::mux::{MuxReport, MuxRow};
use crate::progress;
use crate::report_file::micros;
use execution::Execution;
use gpu_runner::GpuRunner;
use kernels::{Kernels, MEMORY_BYTES};
use launch_calibration::LaunchCalibration;

/// Memory size and warm-up time of a measurement.
struct Extent {
    /// Size of the kernels' memory, a power of two.
    memory_bytes: usize,
    /// Time for which the GPU computes before the measurement, so that its clocks rise.
    load: Duration,
}

const WHOLE: Extent = Extent { memory_bytes: MEMORY_BYTES, load: Duration::from_millis(1500) };

/// Measures the workload under each policy on the first GPU.
///
/// # Errors
/// If there is no GPU or no NVRTC, or if a CUDA call fails.
pub(crate) fn measure(workload: &Workload, options: GpuOptions, task: &BenchTask<'_>) -> Result<MuxReport> {
    measure_on(Context::open(0)?, compile::compile, &WHOLE, workload, options, task)
}

/// Like [`measure`], on a given GPU and with given kernels.
fn measure_on(
    context: Context,
    ptx: impl FnOnce(&Capabilities) -> ::cuda::Result<String>,
    extent: &Extent,
    workload: &Workload,
    options: GpuOptions,
    task: &BenchTask<'_>,
) -> Result<MuxReport> {
    let measured = measure_in(&context, ptx, extent, workload, options, task);
    let closed = context.close();
    let report = measured?;
    closed?;
    Ok(report)
}

fn measure_in(
    context: &Context,
    ptx: impl FnOnce(&Capabilities) -> ::cuda::Result<String>,
    extent: &Extent,
    workload: &Workload,
    options: GpuOptions,
    task: &BenchTask<'_>,
) -> Result<MuxReport> {
    let capabilities = context.capabilities()?;
    let ptx = ptx(&capabilities)?;
    let kernels = Arc::new(Kernels::load(context, &ptx, capabilities.multiprocessors, extent.memory_bytes)?);
    let stream = Stream::new(context, Priority::Background)?;
    kernels.warm_up(&stream, extent.load)?;
    let mut launch_calibration = LaunchCalibration::measure(&kernels, &stream)?;
    let mut calibration = chain_calibration::calibrate(&kernels, &launch_calibration, &stream)?;
    calibration.sharing = Some(sharing::measure(context, &kernels, &mut launch_calibration)?);
    let mut runner =
        GpuRunner { context, kernels: &kernels, stream: &stream, workload, launch_calibration, options };
    let rows = measure_policies(&mut runner, task)?;
    calibration.kernel_time_errors = runner.launch_calibration.time_errors();
    let version = capabilities.driver_version;
    let (name, major, minor) = (context.device_name()?, version / 1000, version % 1000 / 10);
    let mut report =
        MuxReport::new(format!("{name}, CUDA {major}.{minor}"), false, workload.name.clone(), rows);
    report.calibration = Some(calibration);
    Ok(report)
}

/// Measures each policy between two measurements of the foreground alone, because clocks and
/// temperature change.
fn measure_policies(runner: &mut GpuRunner<'_>, task: &BenchTask<'_>) -> Result<Vec<MuxRow>> {
    let (default, uncut) = (Policy::default(), Policy { captured_graphs: true, ..Policy::naive() });
    let background = runner.execute(uncut, Jobs::Background, task.iterations)?;
    let background_samples_per_s = samples_per_s(runner.workload, &background);
    let mut before = times(&runner.execute(default, Jobs::Foreground, task.iterations)?.iterations)?;
    let mut rows = Vec::with_capacity(task.policies.len());
    let progress = progress::bar(task.policies.len());
    for (name, policy) in task.policies {
        progress.set_message(name.clone());
        let both = runner.execute(*policy, Jobs::Both, task.iterations).with_context(|| name.clone())?;
        let after = times(&runner.execute(default, Jobs::Foreground, task.iterations)?.iterations)?;
        let drift = Some(after.median() / before.median() - 1.0);
        let alone = Alone { foreground: before.merged(&after), drift, background_samples_per_s };
        let measured = row(name, false, &alone, &collocated(runner.workload, &both)?);
        // Each row is printed at once, in case the command is interrupted.
        progress.suspend(|| eprintln!("{}", summary(&measured)));
        rows.push(measured);
        before = after;
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(rows)
}

/// Returns a line on a policy.
fn summary(row: &MuxRow) -> String {
    let MuxRow { foreground_slowdown: median, foreground_slowdown_p99: p99, .. } = row;
    let idle = row.background_share_of_idle * 100.0;
    format!(
        "{}: foreground {median:.3} times as long, 99th percentile {p99:.3}; background in {idle:.1}% \
         of its idle time",
        row.policy
    )
}

fn samples_per_s(workload: &Workload, execution: &Execution) -> f64 {
    execution.background_rounds * workload.background.samples as f64 / execution.elapsed().as_secs_f64()
}

fn collocated(workload: &Workload, both: &Execution) -> Result<Collocated> {
    Ok(Collocated {
        foreground: times(&both.iterations)?,
        iterations: both.iterations.len(),
        idle_us: micros(both.activity_times.idle),
        background_in_idle_us: micros(both.activity_times.background_in_idle),
        waiting_us: Some(micros(both.activity_times.waiting)),
        transfer_us: Some((
            micros(both.activity_times.transfer),
            micros(both.activity_times.background_in_transfer),
        )),
        background_samples_per_s: samples_per_s(workload, both),
        background_pieces: both.background_pieces,
        over_long_pieces: both.over_long_pieces,
    })
}
