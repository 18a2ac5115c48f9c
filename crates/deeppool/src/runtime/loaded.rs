//! A program with its resources on a device. A *rotation* is the iterations after which the roles
//! of partial backpropagation repeat, each with its own program; without it, one. *State* is the
//! buffers that outlive an iteration: parameters, velocities and running statistics.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use collectives::Group;
use layer_engine::{Engine, Role};
use layer_graph::{LayerGraph, LayerId};

use super::buckets::Bucket;
use super::kernels::{Kernel, Kernels};
use super::loss_metrics::LossMetrics;
use super::memory::{Memory, allocate_arena, scratch_buffers, sent_buffer};
use super::{Backend, RankDevice};
use crate::Error;
use crate::program::{
    BufferId, Collective, CollectiveId, Contents, IterationSchedule, Lane, Op, Program, RankMemory,
    RankProgram, RedistributionWrites, Step,
};

/// The program of a rank, or its programs of a rotation, with all resources for execution: kernels,
/// buffers and communicators. They are created once.
pub struct LoadedProgram<B: Backend> {
    /// The network of the program.
    pub(super) network: LayerGraph,
    /// Number of samples of the global batch.
    pub(super) batch: usize,
    /// Identity of this value.
    #[cfg(feature = "cuda")]
    pub(super) identity: super::identity::Identity,
    /// The programs of the rotation. All have the same buffers.
    pub(super) programs: Vec<LoadedIteration<B>>,
    /// The order in which iterations execute these programs.
    pub(super) schedule: IterationSchedule,
    /// Kernels of all programs of the rotation: see `LoadedIteration::kernels`.
    pub(super) kernels: Vec<Kernel<B>>,
    /// The buffers that are not state, by buffer id minus the number of state buffers: parts of one
    /// arena.
    pub(super) scratch: Vec<B::Buffer>,
    /// See [`first_not_finite`](Self::first_not_finite).
    pub(super) first_not_finite: Option<LayerId>,
    /// Whether a collective has started and is not complete: other ranks may access its buffers.
    pub(super) is_transferring: bool,
}

/// The program of a rank in one iteration of a rotation, with its resources.
pub(super) struct LoadedIteration<B: Backend> {
    /// Number of steps of the previous iterations of the rotation.
    steps_before: usize,
    /// The program of the rank.
    pub(super) program: RankProgram,
    /// All collectives of the program, by collective id.
    pub(super) collectives: Vec<Collective>,
    /// Index of each step's kernel in `LoadedProgram::kernels`, by step; `None` for steps without
    /// one.
    pub(super) kernels: Vec<Option<usize>>,
    /// Memory of each bucket, by step; `None` for steps without one.
    pub(super) buckets: Vec<Option<Bucket<B>>>,
    /// The buffers that each redistribution writes, by step; none for other steps.
    pub(super) redistributed: Vec<RedistributionWrites>,
    /// Another handle of the buffer that each collective reads, by step; `None` for steps without
    /// one.
    pub(super) sent: Vec<Option<B::Buffer>>,
    /// Communicator between the ranks of each collective step, by step; `None` for other steps.
    pub(super) communicators: Vec<Option<B::Communicator>>,
    /// Indices of the steps of the compute lane, in order.
    pub(super) compute: Vec<usize>,
    /// Indices of the steps of the communication lane, in order.
    pub(super) communication: Vec<usize>,
    /// The loss layers that the rank runs, each with the buffer of its metrics of the global batch
    /// at the end of the iteration: summed loss and number of correct samples.
    pub(super) metrics: Vec<(LayerId, BufferId)>,
    /// Modelled duration of each step on emulated GPUs, by step; `None` for the settings of the
    /// emulated driver. Real GPUs ignore it.
    pub(super) step_times: Option<Vec<Duration>>,
}

impl<B: Backend> LoadedProgram<B> {
    /// Loads the program of one rank onto its device. `communicator` is that of all ranks; a
    /// program without collectives needs none.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine lacks a kernel or memory. [`Error::NoCommunicator`] if a
    /// communicator is needed. [`Error::Collectives`] if a group of ranks cannot be created.
    /// [`Error::NoSuchRank`] for an unknown rank. [`Error::Program`] if the program was lowered for
    /// simulation.
    pub fn new(
        device: &mut RankDevice<B>,
        communicator: Option<&B::Communicator>,
        network: &LayerGraph,
        program: &Program,
        rank: usize,
    ) -> Result<Self, Error> {
        Self::rotation(device, communicator, network, std::slice::from_ref(program), rank)
    }

    /// Loads the programs of one rank that [`lower_rotation`](crate::program::lower_rotation)
    /// returned onto its device. Iteration `i` executes program `i` modulo their number, unless
    /// [`with_schedule`](Self::with_schedule) sets another order.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::Program`] if there are no programs or their buffers
    /// differ.
    pub fn rotation(
        device: &mut RankDevice<B>,
        communicator: Option<&B::Communicator>,
        network: &LayerGraph,
        programs: &[Program],
        rank: usize,
    ) -> Result<Self, Error> {
        let of_rank: Vec<&RankProgram> =
            programs.iter().map(|program| program.of_rank(rank)).collect::<Result<_, _>>()?;
        let Some(own) = of_rank.first() else {
            return Err(Error::Program("it has no iteration".into()));
        };
        let is_same = |other: &&RankProgram| {
            other.buffers == own.buffers
                && other.state_buffers == own.state_buffers
                && other.arena_elements == own.arena_elements
        };
        if !of_rank.iter().all(is_same) {
            return Err(Error::Program("its iterations have not the same buffers".into()));
        }
        let arena = allocate_arena(device, &of_rank)?;
        let mut scratch = scratch_buffers::<B>(&arena, own)?;
        for (spec, buffer) in own.buffers[own.state_buffers..].iter().zip(&mut scratch) {
            if let Contents::Constant(value) = spec.contents {
                device.engine.upload(&vec![value as f32; spec.elements], buffer, &mut device.queue)?;
            }
        }
        let mut kernels = Kernels::new();
        let mut steps_before = 0;
        let loaded = programs.iter().zip(&of_rank).map(|(program, own)| {
            let of_steps = kernels.of_iteration(device, network, own, program.precision)?;
            let loaded = LoadedIteration::new(&arena, communicator, (program, own), of_steps)?;
            let before = steps_before;
            steps_before += own.steps.len();
            Ok(LoadedIteration { steps_before: before, ..loaded })
        });
        Ok(Self {
            programs: loaded.collect::<Result<_, Error>>()?,
            kernels: kernels.into_prepared(),
            schedule: IterationSchedule::round_robin(programs.len()),
            scratch,
            first_not_finite: None,
            is_transferring: false,
            network: network.clone(),
            batch: programs.first().map_or(0, |program| program.batch),
            #[cfg(feature = "cuda")]
            identity: super::identity::Identity::new(),
        })
    }

    /// Sets the order in which iterations execute the programs. It must be the same on all ranks.
    ///
    /// # Errors
    /// [`Error::Program`] if it is for another number of programs.
    pub fn with_schedule(self, schedule: IterationSchedule) -> Result<Self, Error> {
        if schedule.count() != self.programs.len() {
            let got = format!(
                "it has {} iterations, but the schedule is for {}",
                self.programs.len(),
                schedule.count()
            );
            return Err(Error::Program(got));
        }
        Ok(Self { schedule, ..self })
    }

    /// Sets modelled durations for emulated GPUs, by program of the rotation, then by step. Real
    /// GPUs ignore them. The duration of a collective starts when all ranks have arrived. `None`
    /// restores the settings of the emulated driver.
    #[must_use]
    pub fn with_step_times(mut self, times: Option<Vec<Vec<Duration>>>) -> Self {
        let mut times = times.map(Vec::into_iter);
        for loaded in &mut self.programs {
            loaded.step_times = times.as_mut().and_then(Iterator::next);
        }
        self
    }

    /// Returns the program of an iteration (counted from 0), all kernels, and all buffers. `state`
    /// are the state buffers.
    pub(super) fn parts<'l>(
        &'l mut self,
        iteration: u64,
        state: &'l mut [B::Buffer],
    ) -> (&'l mut LoadedIteration<B>, &'l mut [Kernel<B>], Memory<'l, B>) {
        let loaded = self.schedule.program_of(iteration);
        let (scratch, is_transferring) = (&mut self.scratch[..], &mut self.is_transferring);
        let memory = Memory { state, scratch, is_transferring };
        (&mut self.programs[loaded], &mut self.kernels, memory)
    }

    /// Returns the program that an iteration executes. Iterations are counted from 0.
    pub(super) fn iteration(&self, iteration: u64) -> &LoadedIteration<B> {
        &self.programs[self.schedule.program_of(iteration)]
    }

    /// Name of the network of the program.
    #[must_use]
    pub fn network(&self) -> &str {
        self.network.name()
    }

    /// Returns the first program of the rotation.
    #[must_use]
    pub fn program(&self) -> &RankProgram {
        &self.programs[0].program
    }

    /// Returns the kernels of all programs of the rotation, in the order of their steps, each with
    /// the name of the first step that launches it.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = (&str, &Kernel<B>)> {
        let steps = self.programs.iter().flat_map(|loaded| loaded.program.steps.iter().zip(&loaded.kernels));
        let mut known = HashSet::new();
        let first = steps.filter_map(move |(step, &kernel)| {
            let kernel = kernel.filter(|&kernel| known.insert(kernel))?;
            Some((step, kernel))
        });
        first.map(|(step, kernel)| (step.label.as_str(), &self.kernels[kernel]))
    }

    /// Returns the number of iterations until the programs repeat.
    #[must_use]
    pub fn rotation_length(&self) -> usize {
        self.programs.len()
    }

    /// Returns the memory that the rank allocates to execute the programs, without the workspaces
    /// of its kernels.
    #[must_use]
    pub fn memory(&self) -> RankMemory {
        RankMemory::of_rotation(self.programs.iter().map(|loaded| &loaded.program))
    }

    /// Returns the metrics of the loss layers that the rank runs, at the end of an iteration.
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine fails.
    pub(super) fn metrics(
        &self,
        device: &mut RankDevice<B>,
        iteration: u64,
    ) -> Result<Vec<LossMetrics>, Error> {
        let of_loss = |&(layer, buffer): &(LayerId, BufferId)| {
            let mut metrics = [0.0; 2];
            let buffer = &self.scratch[buffer.0 - self.program().state_buffers];
            device.engine.download(buffer, &mut metrics, &mut device.queue)?;
            Ok(LossMetrics::new(layer, self.network.layer(layer), metrics))
        };
        self.iteration(iteration).metrics.iter().map(of_loss).collect()
    }

    /// The first layer, in the order of the steps, with an output that had a NaN or infinity when
    /// the loss was computed and was not finite; `None` if there was none. Only outputs that the
    /// backward pass needs are examined, and only on a backend whose kernels are complete when they
    /// are enqueued: later steps overwrite them.
    #[must_use]
    pub fn first_not_finite(&self) -> Option<LayerId> {
        self.first_not_finite
    }
}

impl<B: Backend> LoadedIteration<B> {
    /// Returns the site of a step for the multiplexer: its index among the steps of all programs of
    /// the rotation, one program after another. `step` is its index in this program.
    pub(super) fn site(&self, step: usize) -> usize {
        self.steps_before + step
    }

    fn new(
        arena: &B::Arena,
        communicator: Option<&B::Communicator>,
        (program, own): (&Program, &RankProgram),
        kernels: Vec<Option<usize>>,
    ) -> Result<Self, Error> {
        let communicators: Result<_, Error> = own
            .steps
            .iter()
            .map(|step| match step.op {
                Op::Collective(id) => group::<B>(communicator, (program, own.rank), id).map(Some),
                _ => Ok(None),
            })
            .collect();
        let bucket = |step: &Step| {
            step.bucket(&own.buffers).map(|buffers| Bucket::new(arena, own, buffers)).transpose()
        };
        let buckets: Result<_, Error> = own.steps.iter().map(bucket).collect();
        let redistributed = own.steps.iter().map(|step| match step.op {
            Op::Collective(id) => {
                RedistributionWrites::of_step(&program.collectives[id.0].op, step, own.rank)
            }
            _ => Ok(RedistributionWrites::default()),
        });
        let redistributed: Result<_, Error> = redistributed.collect();
        let sent: Result<_, Error> =
            own.steps.iter().map(|step| sent_buffer::<B>(arena, own, step)).collect();
        let on_lane = |lane| {
            let steps = own.steps.iter().enumerate();
            steps.filter(|(_, step)| step.lane() == lane).map(|(index, _)| index).collect()
        };
        // The last buffer of each loss that is written has the sum over micro-batches.
        let mut metrics = BTreeMap::new();
        for &id in own.steps.iter().flat_map(|step| &step.writes) {
            if let Contents::Operand(layer, Role::Metrics) = own.buffers[id.0].contents {
                metrics.insert(layer, id);
            }
        }
        Ok(Self {
            steps_before: 0,
            kernels,
            buckets: buckets?,
            redistributed: redistributed?,
            sent: sent?,
            communicators: communicators?,
            compute: on_lane(Lane::Compute),
            communication: on_lane(Lane::Communication),
            metrics: metrics.into_iter().collect(),
            step_times: None,
            program: own.clone(),
            collectives: program.collectives.clone(),
        })
    }

    /// Returns the modelled duration of a step on emulated GPUs. `step` is its index in this
    /// program. Zero without modelled durations, when the emulated driver uses its own settings
    /// instead.
    #[cfg(feature = "cuda")]
    pub(super) fn step_time(&self, step: usize) -> Duration {
        let known = self.step_times.as_ref().and_then(|times| times.get(step));
        known.copied().unwrap_or_default()
    }
}

fn group<B: Backend>(
    communicator: Option<&B::Communicator>,
    (program, rank): (&Program, usize),
    id: CollectiveId,
) -> Result<B::Communicator, Error> {
    let collective = &program.collectives[id.0];
    let communicator =
        communicator.ok_or_else(|| Error::NoCommunicator { collective: collective.label.clone() })?;
    Ok(communicator.group(collective.group_of(rank))?)
}
