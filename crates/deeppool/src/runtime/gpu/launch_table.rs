//! The launch units of a program with their work. A *launch unit* is a group of operations that are
//! launched together as one tasklet.

use std::sync::Arc;

use cuda::Buffer;
use gpu_mux::Communication;
use gpu_mux::cuda::Work;
use layer_engine::{Engine, KernelSpec, LaunchContext};

use super::calls::{CollectiveCall, CollectiveOperation, CommunicationLane, KernelCall, KernelQueue, alias};
use super::chains::Chain;
use super::failure::Failure;
use super::units::{ComputeStep, LoadedSamples, Staged, Unit, UnitWork};
use super::{Gpu, GpuEngine};
use crate::Error;
use crate::program::{BufferId, CollectiveId, CollectiveOp, Launch, Op, RedistributionWrites, Step, StepId};
use crate::runtime::kernels::precision_without_layer;
use crate::runtime::loaded::LoadedIteration;
use crate::runtime::{LoadedProgram, RankState};

/// The launch units of one program of a rank. Each unit owns its work: the table is created once,
/// when the program is loaded, and a part that the program lacks is an error then.
#[derive(Debug)]
pub(super) struct LaunchTable {
    /// The stream of the compute lane.
    pub(super) queue: KernelQueue,
    /// The stream of the communication lane; `None` for a background job.
    pub(super) communication: Option<CommunicationLane>,
    /// The first error of a launch since it was last removed.
    pub(super) failure: Failure,
    /// Parameters, velocities and running statistics.
    pub(super) state: Vec<Buffer<f32>>,
    /// The launch units of the program, in launch order.
    pub(super) units: Vec<Unit>,
}

impl LaunchTable {
    /// Creates the table of one program of a rotation, `iteration`, on streams of the device.
    /// `state` are its parameters, velocities and running statistics. `communication` is `None` for
    /// a background job, whose program has no collectives.
    ///
    /// [Chains](Chain) of elementwise steps become one kernel, and so do consecutive optimiser
    /// steps of a foreground. Those of a background job are separate kernels, so that the
    /// foreground waits for one at most.
    ///
    /// # Errors
    /// [`Error::Program`] if a step lacks its kernel, communicator, bucket or lane.
    /// [`Error::Engine`] or [`Error::Gpu`] if CUDA fails or lacks memory.
    pub(super) fn new(
        engine: &GpuEngine,
        loaded: &LoadedProgram<Gpu>,
        iteration: &LoadedIteration<Gpu>,
        state: &RankState<Gpu>,
        (queue, communication): (KernelQueue, Option<CommunicationLane>),
    ) -> Result<Self, Error> {
        queue.prepare_for(&loaded.kernels)?;
        let communication_lane = communication.as_ref();
        let parts =
            Parts { engine, loaded, iteration, state, queue: &queue, communication: communication_lane };
        let units = parts.units()?;
        let state = state.buffers.iter().map(alias).collect::<Result<_, _>>()?;
        Ok(Self { failure: Failure::default(), state, units, queue, communication })
    }

    /// Returns the operations of a unit for the iteration of `context`. Nothing is enqueued until
    /// they are launched. An error of the launch is then stored in `failure`.
    pub(super) fn work_of(&self, unit: &Unit, context: LaunchContext) -> Work {
        let (queue, failure) = (self.queue.clone(), self.failure.clone());
        match &unit.work {
            UnitWork::Begin => Work::enqueue(move |_| failure.keep(queue.begin(&context))),
            UnitWork::Load(LoadedSamples { staged, .. }) => {
                let (buffer, host) = (Arc::clone(&staged.buffer), staged.host_of(context.iteration).clone());
                Work::enqueue(move |_| failure.keep(queue.upload(&host, &buffer)))
            }
            UnitWork::Metrics(_, staged) => {
                let (buffer, host) = (Arc::clone(&staged.buffer), staged.host_of(context.iteration).clone());
                Work::enqueue(move |_| failure.keep(queue.download(&buffer, &host)))
            }
            UnitWork::Compute(steps) => {
                let calls: Vec<_> = steps.iter().map(|step| Arc::clone(&step.call)).collect();
                Work::enqueue(move |_| failure.keep(queue.launch(calls.iter().map(|call| &**call))))
            }
            UnitWork::Graph { work, .. } => work.clone(),
            UnitWork::Collective(_, call, _) => {
                let call = Arc::clone(call);
                Work::enqueue(move |_| failure.keep(call.start()))
            }
        }
    }
}

/// Consecutive steps that one kernel computes.
enum Group<'n> {
    /// A chain of elementwise steps.
    Chain(Chain<'n>),
    /// The given number of optimiser steps from this one on, or one step of any kind.
    Steps(StepId, usize),
}

impl Group<'_> {
    fn first(&self) -> StepId {
        match self {
            Self::Chain(chain) => chain.first,
            Self::Steps(first, _) => *first,
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Chain(chain) => chain.count,
            Self::Steps(_, count) => *count,
        }
    }
}

/// The loaded parts of a program from which the units are made.
struct Parts<'l> {
    engine: &'l GpuEngine,
    loaded: &'l LoadedProgram<Gpu>,
    iteration: &'l LoadedIteration<Gpu>,
    state: &'l RankState<Gpu>,
    queue: &'l KernelQueue,
    communication: Option<&'l CommunicationLane>,
}

impl Parts<'_> {
    /// Returns the launch units, in launch order.
    ///
    /// The first and the last unit are on the compute lane. Communication without a dependency in
    /// its own iteration waits for the first unit, which has to wait for the communication of the
    /// previous iteration: so iterations do not overlap on one rank.
    fn units(&self) -> Result<Vec<Unit>, Error> {
        let mut units = vec![Unit { work: UnitWork::Begin, after: None }];
        // Unit of each launch.
        let mut unit_of = Vec::new();
        // The unit that can take further steps: no communication waits for a part of it.
        let mut open: Option<usize> = None;
        let launches = self.iteration.program.launches(|_| true);
        let mut next = 0;
        while let Some(launch) = launches.get(next) {
            let after = launch.after.map(|other: usize| unit_of[other]);
            let step = launch.step;
            let group = self.group(&launches[next..], step);
            let merged = group.count();
            next += merged;
            let unit = match &self.step(step).op {
                &Op::Collective(id) => {
                    open = open.filter(|open| after != Some(*open));
                    let (call, communication) = self.collective(step, id)?;
                    let work = UnitWork::Collective(step, Arc::new(call), communication);
                    Unit { work, after: after.or(Some(0)) }
                }
                Op::LoadBatch { part, shard, elements } => {
                    open = None;
                    let written = self.first_written(step)?;
                    let samples = shard.first..shard.first + shard.samples;
                    let storage = self.iteration.program.buffers[written.0].storage;
                    let staged = self.staged(written)?;
                    let (part, elements) = (*part, elements.clone());
                    let loaded = LoadedSamples { step, part, samples, elements, storage, staged };
                    Unit { work: UnitWork::Load(loaded), after }
                }
                _ => {
                    let compute = self.compute(&group)?;
                    if let (Some(place), None) = (open, after) {
                        if let UnitWork::Compute(steps) = &mut units[place].work {
                            steps.push(compute);
                        }
                        unit_of.extend(vec![place; merged]);
                        continue;
                    }
                    open = Some(units.len());
                    Unit { work: UnitWork::Compute(vec![compute]), after }
                }
            };
            unit_of.extend(vec![units.len(); merged]);
            units.push(unit);
        }
        for &(loss, buffer) in &self.iteration.metrics {
            let writes = |step: &StepId| self.step(*step).writes.contains(&buffer);
            let writer = units.iter().rposition(|unit| unit.steps().iter().any(writes));
            let after = writer.filter(|&writer| units[writer].lane() == gpu_mux::Lane::Communication);
            units.push(Unit { work: UnitWork::Metrics(loss, self.staged(buffer)?), after });
        }
        Ok(units)
    }

    /// Returns the steps, from `step` on, that one kernel computes. `launches` begins with `step`.
    fn group(&self, launches: &[Launch], step: StepId) -> Group<'_> {
        let chain = Chain::at_start_of(&self.loaded.network, &self.iteration.program, launches);
        chain.map_or_else(|| Group::Steps(step, 1 + self.updates_after(step, &launches[1..])), Group::Chain)
    }

    /// Returns the number of launches after `step` that are optimiser steps like it and wait for
    /// nothing else. Zero if `step` is none, or in a background job.
    fn updates_after(&self, step: StepId, launches: &[Launch]) -> usize {
        let rule_of = |step| match &self.step(step).op {
            // With the buffer of the squared norm of all gradients, if they are clipped.
            Op::OptimizerStep { rule, .. } => Some((rule, self.step(step).reads.get(1))),
            _ => None,
        };
        let Some(rule) = rule_of(step).filter(|_| self.communication.is_some()) else { return 0 };
        let is_like = |launch: &&Launch| launch.after.is_none() && rule_of(launch.step) == Some(rule);
        launches.iter().take_while(is_like).count()
    }

    /// Returns the steps of a group with their kernel.
    fn compute(&self, group: &Group<'_>) -> Result<ComputeStep, Error> {
        let (first, count) = (group.first(), group.count());
        let ids = || (first.0..first.0 + count).map(StepId);
        let mut kernels = Vec::new();
        for step in ids() {
            kernels.push(self.iteration.kernels[step.0].ok_or_else(|| self.missing(step, "kernel"))?);
        }
        let (kernel, reads) = match (group, &self.step(first).op) {
            (Group::Chain(chain), _) => {
                (Arc::new(self.engine.cuda().prepare_chain(&chain.operations)?), self.buffers(chain.reads())?)
            }
            (Group::Steps(..), Op::OptimizerStep { rule, .. }) if count > 1 => {
                let gradients = ids().filter_map(|step| self.step(step).reads.first());
                let norm = self.step(first).reads.get(1);
                let reads = self.buffers(gradients.chain(norm))?;
                let elements = reads[..count].iter().map(Buffer::len).collect();
                let spec = KernelSpec::Sgd { elements, rule: *rule };
                (
                    self.engine
                        .prepare(&spec, precision_without_layer(&self.iteration.program, self.step(first)))?,
                    reads,
                )
            }
            _ => (self.loaded.kernels[kernels[0]].clone(), self.buffers(&self.step(first).reads)?),
        };
        let writes = match group {
            Group::Chain(chain) => self.buffers(chain.writes())?,
            Group::Steps(..) => self.buffers(ids().flat_map(|step| &self.step(step).writes))?,
        };
        let duration = ids().map(|step| self.iteration.step_time(step.0)).sum();
        let call = KernelCall { kernel, reads, writes, duration };
        Ok(ComputeStep { first, count, call: Arc::new(call) })
    }

    /// Returns a collective, and its effect on this rank: whether it sends, receives or reduces.
    fn collective(&self, step: StepId, id: CollectiveId) -> Result<(CollectiveCall, Communication), Error> {
        let lane = self.communication.ok_or_else(|| self.missing(step, "communication lane"))?;
        let group = self.iteration.communicators[step.0]
            .as_ref()
            .ok_or_else(|| self.missing(step, "communicator"))?;
        let Step { reads, writes, .. } = self.step(step);
        let bucket = &self.iteration.buckets[step.0];
        // A rank may hold nothing before or after a redistribution.
        let buffer_if_any = |id: Option<BufferId>| id.map_or(Ok(Buffer::default()), |id| self.buffer(id));
        let own = || match (bucket, writes.as_slice()) {
            (Some(bucket), _) => alias(&bucket.whole),
            (None, [id]) => self.buffer(*id),
            (None, []) => Err(self.missing(step, "single buffer")),
            (None, _) => Err(self.missing(step, "memory of its bucket")),
        };
        let collective = &self.iteration.collectives[id.0];
        let rank = self.iteration.program.rank;
        let received = |receives| if receives { Communication::Receive } else { Communication::Send };
        let (operation, communication) = match &collective.op {
            CollectiveOp::AllReduce { .. } => {
                (CollectiveOperation::AllReduce(own()?), Communication::AllReduce)
            }
            CollectiveOp::Broadcast { .. } => (
                CollectiveOperation::Broadcast(own()?),
                received(collective.group_of(rank).first() != Some(&rank)),
            ),
            CollectiveOp::Redistribute { redistribution, item_elements, storage } => {
                let RedistributionWrites { target, packed: [sent, received_items] } =
                    self.iteration.redistributed[step.0];
                let operation = CollectiveOperation::Redistribute {
                    redistribution: redistribution.clone(),
                    from: buffer_if_any(reads.first().copied())?,
                    to: buffer_if_any(target)?,
                    packed: [buffer_if_any(sent)?, buffer_if_any(received_items)?],
                    item_scalars: storage.scalars(*item_elements),
                };
                (operation, received(redistribution.moves().iter().any(|moved| moved.to_rank == rank)))
            }
        };
        let gaps = bucket.iter().flat_map(|bucket| &bucket.gaps).map(|(gap, _)| alias(gap));
        let gaps = gaps.collect::<Result<_, _>>()?;
        let duration = self.iteration.step_time(step.0);
        let (lane, group) = (lane.clone(), group.clone());
        Ok((CollectiveCall { lane, group, operation, gaps, duration }, communication))
    }

    fn staged(&self, buffer: BufferId) -> Result<Staged, Error> {
        let buffer = self.buffer(buffer)?;
        let host = || self.queue.staging_buffer(buffer.len());
        Ok(Staged { host: [host()?, host()?], buffer: Arc::new(buffer) })
    }

    fn first_written(&self, step: StepId) -> Result<BufferId, Error> {
        self.step(step).writes.first().copied().ok_or_else(|| self.missing(step, "buffer for its samples"))
    }

    fn buffers<'b>(&self, ids: impl IntoIterator<Item = &'b BufferId>) -> Result<Vec<Buffer<f32>>, Error> {
        ids.into_iter().map(|&id| self.buffer(id)).collect()
    }

    fn buffer(&self, id: BufferId) -> Result<Buffer<f32>, Error> {
        let (state, scratch) = (&self.state.buffers, &self.loaded.scratch);
        let buffer = state.get(id.0).or_else(|| scratch.get(id.0.checked_sub(state.len())?));
        let buffer = buffer.ok_or_else(|| Error::Program(format!("it has no buffer {}", id.0)))?;
        alias(buffer)
    }

    fn step(&self, step: StepId) -> &Step {
        &self.iteration.program.steps[step.0]
    }

    fn missing(&self, step: StepId, part: &str) -> Error {
        Error::Program(format!("its step `{}` has no {part}", self.step(step).label))
    }
}
