//! A card: the workload's kernels are played by kernels that take as long and ask for as much of the device.

mod card;
mod chains;
mod compile;
mod hosts;
mod kernels;
mod play;
mod rounds;
mod sharing;
mod spans;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use gpu_mux::cuda::{Capabilities, Context, CudaLibrary, Priority, Stream};
use gpu_mux::{Jobs, MuxReport, Policy, Workload};

use crate::bench::{CardOptions, Task};
use crate::row::{Alone, Collocated, Times, row};
use card::Card;
use kernels::{Kernels, MEMORY_BYTES};
use play::Played;
use rounds::Rounds;

/// Measures the workload on the first card.
pub(crate) fn measure(workload: &Workload, options: CardOptions, task: &Task<'_>) -> Result<MuxReport> {
    measure_on(&CudaLibrary::open()?, compile::compile, MEMORY_BYTES, workload, options, task)
}

/// The same with a driver and kernels of the caller's.
fn measure_on(
    library: &CudaLibrary,
    ptx: impl FnOnce(&Capabilities) -> Result<String>,
    memory_bytes: usize,
    workload: &Workload,
    options: CardOptions,
    task: &Task<'_>,
) -> Result<MuxReport> {
    let context = Context::open(library, 0)?;
    let measured = measure_in(&context, ptx, memory_bytes, workload, options, task);
    let closed = context.close();
    let report = measured?;
    closed?;
    Ok(report)
}

fn measure_in(
    context: &Context,
    ptx: impl FnOnce(&Capabilities) -> Result<String>,
    memory_bytes: usize,
    workload: &Workload,
    options: CardOptions,
    task: &Task<'_>,
) -> Result<MuxReport> {
    let capabilities = context.capabilities()?;
    let ptx = ptx(&capabilities)?;
    let kernels = Arc::new(Kernels::load(context, &ptx, capabilities.multiprocessors, memory_bytes)?);
    let stream = Stream::new(context, Priority::Background)?;
    let mut rounds = Rounds::measure(&kernels, &stream)?;
    let mut calibration = chains::calibrate(&kernels, &rounds, &stream)?;
    calibration.sharing = Some(sharing::measure(context, &kernels, &mut rounds)?);
    let mut card = Card { context, kernels: &kernels, stream: &stream, workload, rounds, options };
    let (default, uncut) = (Policy::default(), Policy { captured_graphs: true, ..Policy::naive() });
    let alone = Alone {
        foreground: times(&card.play(default, Jobs::Foreground, task.iterations)?)?,
        background_samples_per_s: {
            let alone = card.play(uncut, Jobs::Background, task.iterations)?;
            samples_per_s(workload, &alone)
        },
    };
    let rows = task.policies.iter().map(|(name, policy)| {
        let both = card.play(*policy, Jobs::Both, task.iterations).with_context(|| name.clone())?;
        Ok(row(name, false, &alone, &collocated(workload, &both)?))
    });
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let version = capabilities.driver_version;
    let (name, major, minor) = (context.device_name()?, version / 1000, version % 1000 / 10);
    let mut report =
        MuxReport::new(format!("{name}, CUDA {major}.{minor}"), false, workload.name.clone(), rows);
    report.calibration = Some(calibration);
    Ok(report)
}

fn times(played: &Played) -> Result<Times> {
    let times = played.iterations.iter().map(|time| time.as_secs_f64() * 1e6);
    Times::new(times.collect()).context("no iteration was measured")
}

fn samples_per_s(workload: &Workload, played: &Played) -> f64 {
    played.background_rounds * workload.background.samples as f64 / played.elapsed().as_secs_f64()
}

fn collocated(workload: &Workload, both: &Played) -> Result<Collocated> {
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    Ok(Collocated {
        foreground: times(both)?,
        iterations: both.iterations.len(),
        idle_us: micros(both.gaps.idle),
        background_in_idle_us: micros(both.gaps.background_in_idle),
        waiting_us: Some(micros(both.gaps.waiting)),
        transfer_us: Some((micros(both.gaps.transfer), micros(both.gaps.background_in_transfer))),
        background_samples_per_s: samples_per_s(workload, both),
        background_pieces: both.background_pieces,
        over_long_pieces: both.over_long,
    })
}
