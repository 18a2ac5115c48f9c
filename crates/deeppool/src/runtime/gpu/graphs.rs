//! Capture of kernels into CUDA graphs. A *launch unit* is a group of operations that are launched
//! together. A *piece* is a part of a background job's kernels that takes at most the time that the
//! policy sets.
#![allow(unsafe_code)]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use gpu_mux::cuda::{
    CapturedGraph, CudaDevice, DeviceBuffer, MergeLimits, MergedGraph, Priority, Stream, TimingRuns, Work,
};
use gpu_mux::{JobId, Lane, Policy};

use super::launch_table::LaunchTable;
use super::units::{Unit, divide};
use crate::Error;
use crate::program::StepId;

/// Number of timed executions of each piece of a divided step.
const TIMING_RUNS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// A launch unit, with its graph if its steps were captured. Without a graph, its operations are
/// enqueued separately in every iteration.
#[derive(Debug)]
pub(super) struct Launch {
    /// The launch unit.
    pub(super) unit: Unit,
    /// The captured kernels; `None` for copies, collectives and steps that are not captured.
    pub(super) graph: Option<Work>,
    /// Expected duration of the graph; `None` without a graph.
    pub(super) estimate: Option<Duration>,
}

/// A part of a unit's steps, with its graph and duration.
type Part = (Vec<StepId>, (Work, Duration));

/// Captures the kernels of the units of an iteration into graphs. Returns the launches that replace
/// the units. The graphs of consecutive steps of a foreground are merged up to [`MergeLimits`].
/// Those of a background job are merged up to the policy's [duration of a
/// piece](Policy::background_piece), and longer steps are divided into pieces. For that they are
/// executed, and the state is restored afterwards.
///
/// `took` returns the measured duration of a step. No other work of the job may be running.
///
/// # Errors
/// The error of a launch, or [`Error::Gpu`] if CUDA fails.
pub(super) fn capture(
    device: &mut CudaDevice,
    job: JobId,
    policy: &Policy,
    table: &LaunchTable,
    units: &[Unit],
    took: impl Fn(StepId) -> Duration,
) -> Result<Vec<Launch>, Error> {
    let context = device.context().clone();
    let stream = device.stream(job, Lane::Compute)?;
    let priority = if job.is_foreground() { Priority::Foreground } else { Priority::Background };
    let capture = |step: StepId| -> Result<CapturedGraph, Error> {
        let calls = table.calls(&[step]);
        let graph = stream.capture(|_| table.failure.keep(table.queue.launch(&calls)));
        let graph = graph.map_err(|error| table.failure.take().unwrap_or(error.into()))?;
        if policy.stream_priority {
            graph.set_priority(priority)?;
        }
        Ok(graph)
    };
    let budget = policy.background_piece.filter(|_| !job.is_foreground());
    let limits = budget.map_or_else(MergeLimits::default, |budget| MergeLimits {
        soft_limit: budget,
        hard_limit: budget,
        max_graphs: NonZeroUsize::MAX,
    });
    // SAFETY: it is the memory of a program that stays loaded.
    let borrow = |slice: &layer_engine::DeviceSlice| unsafe {
        DeviceBuffer::borrow(&context, slice.pointer, slice.elements * size_of::<f32>())
    };
    let state: Vec<DeviceBuffer> = table.state().iter().map(borrow).collect();
    let divided = divide(units, |steps| -> Result<_, Error> {
        let graphs = steps.iter().map(|&step| Ok((capture(step)?, took(step))));
        let graphs = graphs.collect::<Result<Vec<_>, Error>>()?;
        let mut parts = Vec::new();
        for merged in MergedGraph::merge_consecutive(&graphs, limits)? {
            let own = steps[merged.graphs.clone()].to_vec();
            match (budget, &graphs[merged.graphs.clone()]) {
                (Some(budget), [(graph, took)]) if *took > budget && graph.node_count()? > 1 => {
                    parts.extend(pieces(graph, stream, budget, &state, &own)?);
                }
                _ => parts.push((own, (Work::graph(Arc::clone(&merged.executable)), merged.estimate))),
            }
        }
        Ok(parts)
    })?;
    let launch = |(unit, graph): (Unit, Option<(Work, Duration)>)| {
        let (graph, estimate) = graph.unzip();
        Launch { unit, graph, estimate }
    };
    Ok(divided.into_iter().map(launch).collect())
}

/// Divides a step into pieces. It is executed to be timed, and state is restored afterwards.
fn pieces(
    graph: &CapturedGraph,
    stream: &Stream,
    budget: Duration,
    state: &[DeviceBuffer],
    steps: &[StepId],
) -> Result<Vec<Part>, Error> {
    let state: Vec<&DeviceBuffer> = state.iter().filter(|buffer| buffer.size_bytes() > 0).collect();
    let cut = graph.cut(stream, budget, TimingRuns::restoring(TIMING_RUNS, &state))?;
    Ok(cut
        .pieces
        .into_iter()
        .map(|piece| (steps.to_vec(), (Work::graph(piece.executable), piece.took)))
        .collect())
}

/// Returns the launches of an iteration without graphs, each with at most one compute step.
pub(super) fn uncaptured(units: &[Unit]) -> Vec<Launch> {
    let alone = |steps: &[StepId]| {
        Ok::<_, std::convert::Infallible>(steps.iter().map(|&step| (vec![step], ())).collect())
    };
    let Ok(divided) = divide(units, alone);
    divided.into_iter().map(|(unit, _)| Launch { unit, graph: None, estimate: None }).collect()
}
