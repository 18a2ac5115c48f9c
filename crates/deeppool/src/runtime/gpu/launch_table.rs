//! The launch units of a program as functions. A *launch unit* is a group of operations that are
//! launched together as one tasklet. A *staging buffer* is host memory for copies to or from the
//! device.

use std::collections::HashMap;
use std::time::Duration;

use collectives::NcclCommunicator;
use gpu_mux::cuda::Work;

use super::Gpu;
use super::addresses::Addresses;
use super::calls::{CollectiveCall, CommunicationLane, KernelCall, KernelQueue, SharedHostBuffer};
use super::failure::Failure;
use super::units::{Unit, UnitWork, units};
use crate::Error;
use crate::program::{BufferId, CollectiveOp, Op, StepId};
use crate::runtime::loaded::LoadedIteration;
use crate::runtime::{LoadedProgram, RankState};
use layer_engine::{DeviceSlice, LaunchContext};

/// Maximum number of iterations of a job that are launched and not finished: the next one is
/// launched while the current one runs.
pub(super) const MAX_RUNNING_ITERATIONS: u64 = 2;

/// Functions that enqueue the launch units of one program of a rank, with the addresses of their
/// memory. The table is created once, when the program is loaded.
#[derive(Debug)]
pub(super) struct LaunchTable {
    /// The stream of the compute lane.
    pub(super) queue: KernelQueue,
    /// The stream of the communication lane; `None` for a program without collectives.
    pub(super) communication: Option<CommunicationLane>,
    /// The first error of a launch since it was last removed.
    pub(super) failure: Failure,
    addresses: Addresses,
    state_buffers: usize,
    kernels: HashMap<StepId, KernelCall>,
    collectives: HashMap<StepId, Work>,
    /// Staging buffers for copies to or from the device, which iterations use alternately.
    staged: HashMap<BufferId, [SharedHostBuffer; MAX_RUNNING_ITERATIONS as usize]>,
    metrics: Option<BufferId>,
}

impl LaunchTable {
    /// Creates the table of one program of a rotation, `iteration`, on streams of the device.
    /// `state` are its parameters, velocities and running statistics. `communication` is `None` for
    /// a program without collectives.
    ///
    /// # Errors
    /// [`Error::Engine`] if CUDA fails or lacks memory.
    pub(super) fn new(
        loaded: &LoadedProgram<Gpu>,
        iteration: &LoadedIteration<Gpu>,
        state: &RankState<Gpu>,
        queue: KernelQueue,
        communication: Option<CommunicationLane>,
    ) -> Result<Self, Error> {
        let addresses = Addresses::new(loaded, state);
        let failure = Failure::default();
        let steps = || iteration.program.steps.iter().enumerate();
        let call = |(index, step): (usize, &crate::program::Step)| {
            let kernel = loaded.kernels[iteration.kernels[index]?].clone();
            let (reads, writes) = (addresses.of_all(&step.reads), addresses.of_all(&step.writes));
            Some((StepId(index), KernelCall { kernel, reads, writes, duration: iteration.step_time(index) }))
        };
        let kernels = steps().filter_map(call).collect();
        let mut collectives = HashMap::new();
        let mut staged = HashMap::new();
        let mut stage = |buffer: BufferId| -> Result<(), Error> {
            let elements = addresses.of(buffer).elements;
            staged.insert(buffer, [queue.host_buffer(elements)?, queue.host_buffer(elements)?]);
            Ok(())
        };
        for (index, step) in steps() {
            match step.op {
                Op::LoadBatch { .. } => stage(step.writes[0])?,
                Op::Collective(_) => {
                    // Hazard: without a lane or a group, the collective has no entry and is left
                    // out.
                    if let (Some(lane), Some(group)) = (&communication, &iteration.communicators[index]) {
                        let work = collective(iteration, index, &addresses, group, lane, &failure);
                        collectives.insert(StepId(index), work);
                    }
                }
                _ => {}
            }
        }
        if let Some(metrics) = iteration.metrics {
            stage(metrics)?;
        }
        let (state_buffers, metrics) = (iteration.program.state_buffers, iteration.metrics);
        Ok(Self {
            queue,
            communication,
            failure,
            addresses,
            state_buffers,
            kernels,
            collectives,
            staged,
            metrics,
        })
    }

    /// Returns whether the table was created for this program and state, by comparing the addresses
    /// of all buffers.
    ///
    /// Hazard: another program of the same layout at recycled addresses compares equal, and the
    /// graphs captured for this one would run in its place. An identity of the loaded program would
    /// distinguish them.
    pub(super) fn belongs_to(&self, loaded: &LoadedProgram<Gpu>, state: &RankState<Gpu>) -> bool {
        self.addresses == Addresses::new(loaded, state)
    }

    /// Returns the launch units of the program, in launch order.
    pub(super) fn units(&self, iteration: &LoadedIteration<Gpu>) -> Vec<Unit> {
        units(&iteration.program, self.metrics, |step| self.kernels.contains_key(&step))
    }

    /// Returns the addresses of the state: parameters, velocities and running statistics.
    pub(super) fn state(&self) -> &[DeviceSlice] {
        self.addresses.state(self.state_buffers)
    }

    /// Returns the kernel calls of some steps, in the given order. Steps without a kernel are
    /// omitted.
    pub(super) fn calls(&self, steps: &[StepId]) -> Vec<KernelCall> {
        steps.iter().filter_map(|step| self.kernels.get(step)).cloned().collect()
    }

    /// Returns the operations of a unit for the iteration of `context`. Nothing is enqueued until
    /// they are launched. An error of the launch is then stored in `failure`.
    pub(super) fn of_unit(&self, unit: &Unit, context: LaunchContext) -> Work {
        let (queue, failure) = (self.queue.clone(), self.failure.clone());
        match &unit.work {
            UnitWork::Begin => Work::enqueue(move |_| failure.keep(queue.begin(&context))),
            UnitWork::Load(..) | UnitWork::Metrics(_) => self.copy(unit, context.iteration),
            UnitWork::Compute(steps) => {
                let calls = self.calls(steps);
                Work::enqueue(move |_| failure.keep(queue.launch(&calls)))
            }
            UnitWork::Collective(step) => match self.collectives.get(step) {
                Some(work) => work.clone(),
                // Hazard: a collective without an entry is left out without an error, and ranks
                // continue with values that were never reduced or moved.
                None => Work::enqueue(|_| Ok(())),
            },
        }
    }

    fn copy(&self, unit: &Unit, iteration: u64) -> Work {
        let (queue, failure) = (self.queue.clone(), self.failure.clone());
        let is_download = matches!(unit.work, UnitWork::Metrics(_));
        let staged = self.staged_buffer(unit, iteration);
        // Hazard: a copy without a staging buffer is left out without an error.
        let Some((buffer, host)) = staged else { return Work::enqueue(|_| Ok(())) };
        let slice = self.addresses.of(buffer);
        Work::enqueue(move |_| {
            failure.keep(if is_download { queue.download(slice, &host) } else { queue.upload(&host, slice) })
        })
    }

    /// Returns the device buffer that a unit copies to or from the host, with the staging buffer
    /// that the given iteration uses; `None` for units that do not copy.
    pub(super) fn staged_buffer(&self, unit: &Unit, iteration: u64) -> Option<(BufferId, SharedHostBuffer)> {
        let (UnitWork::Load(_, buffer) | UnitWork::Metrics(buffer)) = unit.work else { return None };
        let places = self.staged.get(&buffer)?;
        Some((buffer, places[(iteration % MAX_RUNNING_ITERATIONS) as usize].clone()))
    }
}

/// Returns the work of a collective. Several buffers are packed into one on the communication lane.
fn collective(
    iteration: &LoadedIteration<Gpu>,
    index: usize,
    addresses: &Addresses,
    group: &NcclCommunicator,
    lane: &CommunicationLane,
    failure: &Failure,
) -> Work {
    let step = &iteration.program.steps[index];
    let nothing = DeviceSlice { pointer: 0, elements: 0 };
    let first = |buffers: &[BufferId]| buffers.first().map_or(nothing, |&id| addresses.of(id));
    let packing = iteration.packings[index].as_ref();
    let whole = packing.map(|packing| addresses.of(packing.packed));
    let own = whole.unwrap_or_else(|| first(&step.writes));
    let parts = addresses.of_all(&step.writes);
    let kernels = packing.zip(whole).map(|(packing, whole)| {
        let duration = Duration::ZERO;
        let pack =
            KernelCall { kernel: packing.pack.clone(), reads: parts.clone(), writes: vec![whole], duration };
        let unpack =
            KernelCall { kernel: packing.unpack.clone(), reads: vec![whole], writes: parts, duration };
        ([pack], [unpack])
    });
    // Hazard: a step that is no collective becomes empty work instead of an error.
    let Op::Collective(id) = step.op else { return Work::enqueue(|_| Ok(())) };
    let call = match &iteration.collectives[id.0].op {
        CollectiveOp::AllReduce { .. } => CollectiveCall::AllReduce(own),
        CollectiveOp::Broadcast { .. } => CollectiveCall::Broadcast(own),
        CollectiveOp::Redistribute { redistribution, sample_elements } => CollectiveCall::Redistribute {
            redistribution: redistribution.clone(),
            from: first(&step.reads),
            to: first(&step.writes),
            sample_elements: *sample_elements,
        },
    };
    let (group, lane, failure) = (group.clone(), lane.clone(), failure.clone());
    let duration = iteration.step_time(index);
    Work::enqueue(move |_| {
        let (pack, unpack): (&[_], &[_]) =
            kernels.as_ref().map_or((&[], &[]), |(pack, unpack)| (pack, unpack));
        failure.keep(lane.start(&group, (&call, duration), pack, unpack))
    })
}
