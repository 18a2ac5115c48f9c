//! Launch units: the groups of operations of a program that are launched together, each with its
//! work.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cuda::Buffer;
use gpu_mux::cuda::Work;
use gpu_mux::{Communication, Lane};
use layer_engine::Storage;
use layer_graph::LayerId;

use super::calls::{CollectiveCall, KernelCall, StagingBuffer};
use crate::program::{BatchPart, StepId};

/// Maximum number of iterations of a job that are launched and not finished: the next one is
/// launched while the current one runs.
pub(super) const MAX_RUNNING_ITERATIONS: u64 = 2;

/// A launch unit: operations of a program that are launched together as one tasklet in every
/// iteration. A unit is identified by its index in the launch order of the iteration.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    /// The operations that the unit launches.
    pub(super) work: UnitWork,
    /// Index of the unit on the other lane that must end before this one starts; `None` if there is
    /// none. Units of the same lane run in launch order.
    pub(super) after: Option<usize>,
}

/// The operations of a launch unit. Clones share the work.
#[derive(Debug, Clone)]
pub(super) enum UnitWork {
    /// Sets the launch context of the iteration: seed, iteration and learning rate.
    Begin,
    /// Copies samples to the device.
    Load(LoadedSamples),
    /// Launches the kernels of these steps, in this order. Only the first may depend on a unit of
    /// the communication lane.
    Compute(Vec<ComputeStep>),
    /// Launches a graph of captured kernels.
    Graph {
        /// Steps that the graph computes, at least in part.
        steps: Vec<StepId>,
        /// The graph.
        work: Work,
        /// Expected duration of the graph.
        estimate: Duration,
    },
    /// Starts the collective of this step.
    Collective(StepId, Arc<CollectiveCall>, Communication),
    /// Copies the loss and the number of correctly classified samples of a loss layer to the host
    /// at the end of the iteration.
    Metrics(LayerId, Staged),
}

/// Consecutive steps of the compute lane that one kernel computes.
#[derive(Debug, Clone)]
pub(super) struct ComputeStep {
    /// The first of the steps, by which their duration is known.
    pub(super) first: StepId,
    /// The number of steps.
    pub(super) count: usize,
    /// Their kernel with the operands.
    pub(super) call: Arc<KernelCall>,
}

impl ComputeStep {
    /// Returns the steps.
    pub(super) fn steps(&self) -> impl Iterator<Item = StepId> + use<> {
        (self.first.0..self.first.0 + self.count).map(StepId)
    }
}

/// A device buffer with the host buffers from or to which it is copied.
#[derive(Debug, Clone)]
pub(super) struct Staged {
    /// The buffer on the device.
    pub(super) buffer: Arc<Buffer<f32>>,
    /// The host buffers, which iterations use alternately.
    pub(super) host: [StagingBuffer; MAX_RUNNING_ITERATIONS as usize],
}

impl Staged {
    /// Returns the host buffer that the given iteration uses.
    pub(super) fn host_of(&self, iteration: u64) -> &StagingBuffer {
        &self.host[(iteration % MAX_RUNNING_ITERATIONS) as usize]
    }
}

/// Samples that a step loads.
#[derive(Debug, Clone)]
pub(super) struct LoadedSamples {
    /// The step.
    pub(super) step: StepId,
    /// Inputs or targets.
    pub(super) part: BatchPart,
    /// Samples of the global batch.
    pub(super) samples: Range<usize>,
    /// The elements of each sample.
    pub(super) elements: Range<usize>,
    /// Number format of their buffers.
    pub(super) storage: Storage,
    /// Their buffers.
    pub(super) staged: Staged,
}

impl Unit {
    /// Returns the lane of the unit: communication for a collective, compute for everything else.
    pub(super) fn lane(&self) -> Lane {
        match self.work {
            UnitWork::Collective(..) => Lane::Communication,
            _ => Lane::Compute,
        }
    }

    /// Returns the steps of the program that the unit launches; none for `Begin` and `Metrics`.
    pub(super) fn steps(&self) -> Vec<StepId> {
        match &self.work {
            UnitWork::Compute(steps) => steps.iter().flat_map(ComputeStep::steps).collect(),
            UnitWork::Graph { steps, .. } => steps.clone(),
            UnitWork::Load(LoadedSamples { step, .. }) | UnitWork::Collective(step, ..) => vec![*step],
            UnitWork::Begin | UnitWork::Metrics(..) => Vec::new(),
        }
    }

    /// Returns the first of the steps; `None` if there are none.
    pub(super) fn first_step(&self) -> Option<StepId> {
        match &self.work {
            UnitWork::Compute(steps) => steps.first().map(|step| step.first),
            UnitWork::Graph { steps, .. } => steps.first().copied(),
            UnitWork::Load(LoadedSamples { step, .. }) | UnitWork::Collective(step, ..) => Some(*step),
            UnitWork::Begin | UnitWork::Metrics(..) => None,
        }
    }
}

/// Divides each `Compute` unit into units that are launched one after another. `parts` receives the
/// steps of a unit and returns the work of at least one unit. Other units are returned unchanged. A
/// unit that waited for a divided one waits for its last part.
pub(super) fn divide<E>(
    units: &[Unit],
    mut parts: impl FnMut(&[ComputeStep]) -> Result<Vec<UnitWork>, E>,
) -> Result<Vec<Unit>, E> {
    let mut divided: Vec<Unit> = Vec::with_capacity(units.len());
    // Last part of each unit.
    let mut ends_at = Vec::with_capacity(units.len());
    for unit in units {
        let mut after = unit.after.map(|other: usize| ends_at[other]);
        if let UnitWork::Compute(steps) = &unit.work {
            divided.extend(parts(steps)?.into_iter().map(|work| Unit { work, after: after.take() }));
        } else {
            divided.push(Unit { work: unit.work.clone(), after });
        }
        ends_at.push(divided.len() - 1);
    }
    Ok(divided)
}
