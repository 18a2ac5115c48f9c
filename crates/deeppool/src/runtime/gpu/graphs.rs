//! Capture of kernels into CUDA graphs. A *launch unit* is a group of operations that are launched
//! together. A *piece* is a part of a background job's kernels that takes at most the time that the
//! policy sets.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use cuda::{Buffer, CapturedGraph, MergeLimits, MergedGraph, Priority, TimingRuns};
use gpu_mux::cuda::{CudaDevice, Work};
use gpu_mux::{JobId, Lane, Policy};

use super::launch_table::LaunchTable;
use super::units::{ComputeStep, Unit, UnitWork, divide};
use crate::Error;
use crate::program::StepId;

/// Number of timed executions of each piece of a divided step.
const TIMING_RUNS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// Captures the kernels of the units of an iteration into graphs. Returns the units that replace
/// them. The graphs of consecutive steps of a foreground are merged up to [`MergeLimits`]. Those of
/// a background job are merged up to the policy's [duration of a piece](Policy::background_piece),
/// and longer steps are divided into pieces. For that they are executed, and the state is restored
/// afterwards.
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
    took: impl Fn(StepId) -> Duration,
) -> Result<Vec<Unit>, Error> {
    let stream = device.stream(job, Lane::Compute)?;
    let priority = if job.is_foreground() { Priority::Foreground } else { Priority::Background };
    let capture = |step: &ComputeStep| -> Result<CapturedGraph, Error> {
        let graph = stream.capture(|_| table.queue.launch([&*step.call]))?;
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
    let state: Vec<&Buffer<f32>> = table.state.iter().filter(|buffer| !buffer.is_empty()).collect();
    divide(&table.units, |steps| -> Result<_, Error> {
        let graphs = steps.iter().map(|step| Ok((capture(step)?, took(step.first))));
        let graphs = graphs.collect::<Result<Vec<_>, Error>>()?;
        let mut parts = Vec::new();
        for merged in MergedGraph::merge_consecutive(&graphs, limits)? {
            let own: Vec<StepId> = steps[merged.graphs.clone()].iter().flat_map(ComputeStep::steps).collect();
            match (budget, &graphs[merged.graphs.clone()]) {
                (Some(budget), [(graph, took)]) if *took > budget && graph.node_count()? > 1 => {
                    let cut = graph.cut(stream, budget, TimingRuns::restoring(TIMING_RUNS, &state))?;
                    parts.extend(cut.pieces.into_iter().map(|piece| UnitWork::Graph {
                        steps: own.clone(),
                        work: Work::graph(piece.executable),
                        estimate: piece.took,
                    }));
                }
                _ => parts.push(UnitWork::Graph {
                    steps: own,
                    work: Work::graph(Arc::clone(&merged.executable)),
                    estimate: merged.estimate,
                }),
            }
        }
        Ok(parts)
    })
}

/// Returns the units of an iteration without graphs, each with at most one compute step.
pub(super) fn uncaptured(units: &[Unit]) -> Vec<Unit> {
    let alone = |steps: &[ComputeStep]| {
        let each = steps.iter().map(|step| UnitWork::Compute(vec![step.clone()]));
        Ok::<_, std::convert::Infallible>(each.collect())
    };
    let Ok(divided) = divide(units, alone);
    divided
}
