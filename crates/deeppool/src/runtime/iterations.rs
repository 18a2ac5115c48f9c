//! The iterations of a loaded program, executed step by step, with the interfaces to data and
//! observers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use gpu_mux::{JobState, PolledJob, Upcoming};
use layer_engine::{Engine, LaunchContext, Role};
use layer_graph::LayerId;

use super::loaded::LoadedIteration;
use super::loss_metrics::{LossMetrics, sample_weight};
use super::pending::{CollectiveBuffers, PendingCollective};
use super::{Backend, LoadedProgram, RankDevice, RankState};
use crate::Error;
use crate::program::{BatchPart, BufferId, Contents, Op, StepId};

/// Source of the samples of training iterations.
pub trait BatchSource {
    /// Appends a range of the features or labels of each of some samples to `out`: one sample after
    /// another. `iteration` is counted from 0, and `samples` are positions in its global batch. If
    /// the loss ignores a label, every rank loads the labels of all samples, besides its own ones.
    ///
    /// # Errors
    /// Any error of the source. It ends the job.
    fn load(
        &mut self,
        iteration: u64,
        part: BatchPart,
        samples: Range<usize>,
        elements: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<(), Error>;
}

/// Time interval of some work.
#[derive(Debug, Clone, Copy)]
pub struct TimeSpan {
    /// Instant at which the work began.
    pub began: Instant,
    /// Instant at which the work ended.
    pub ended: Instant,
}

impl TimeSpan {
    /// Returns the interval from `began` until now.
    fn since(began: Instant) -> Self {
        Self { began, ended: Instant::now() }
    }
}

/// Observer of the steps and iterations of a job. Its methods are called while the job runs; by
/// default they do nothing.
pub trait Observer {
    /// Receives a compute step that is about to run, or a collective that starts. `_step` is an
    /// index into the program of the iteration to which it belongs.
    fn started(&mut self, _step: StepId) {}

    /// Receives steps that have run, or a collective that is complete, with the time interval.
    /// `_steps` are the steps that were launched together, in program order. A step that was
    /// divided into several launches is received once for each of them.
    fn ended(&mut self, _steps: &[StepId], _ran: TimeSpan) {}

    /// Receives the end of an iteration, counted from 0, at time `at`. `metrics` are those of the
    /// loss layers that the rank runs, in the network's order.
    ///
    /// # Errors
    /// Any error ends the run.
    fn finished_iteration(
        &mut self,
        _iteration: u64,
        _metrics: &[LossMetrics],
        _at: Instant,
    ) -> Result<(), Error> {
        Ok(())
    }
}

impl<O: Observer + ?Sized> Observer for &mut O {
    fn started(&mut self, step: StepId) {
        (**self).started(step);
    }

    fn ended(&mut self, steps: &[StepId], ran: TimeSpan) {
        (**self).ended(steps, ran);
    }

    fn finished_iteration(
        &mut self,
        iteration: u64,
        metrics: &[LossMetrics],
        at: Instant,
    ) -> Result<(), Error> {
        (**self).finished_iteration(iteration, metrics, at)
    }
}

/// Ignores all events.
impl Observer for () {}

/// A job that runs a loaded program for a number of iterations, tasklet by tasklet. Each compute
/// step is a tasklet. Collectives progress while the job is polled.
pub struct Iterations<'a, B: Backend, S, O> {
    /// The program, or the programs of a rotation.
    pub(super) loaded: &'a mut LoadedProgram<B>,
    /// Parameters, velocities and running statistics.
    pub(super) state: &'a mut RankState<B>,
    /// The device of the rank.
    pub(super) device: &'a mut RankDevice<B>,
    /// Source of the samples.
    pub(super) source: S,
    /// Observer of the steps.
    pub(super) observer: O,
    /// Seed, learning rate and current iteration, from 0.
    pub(super) context: LaunchContext,
    /// The iteration after the last one.
    pub(super) end: u64,
    /// Whether each step of the current iteration has finished.
    finished: Vec<bool>,
    /// Number of finished compute steps of the current iteration.
    pub(super) computed: usize,
    /// Number of complete communication steps of the current iteration.
    pub(super) communicated: usize,
    /// The current collective, and its start.
    pub(super) pending: Option<(PendingCollective<B>, Instant)>,
    /// Samples that were loaded and not yet copied to the device; reused to avoid allocations.
    pub(super) staging: Vec<f32>,
    /// By loss layer: the last iteration for which the weight of samples was computed, and the
    /// weight.
    weights: BTreeMap<LayerId, (u64, f32)>,
    /// Error with which the job ends when it is polled next.
    pub(super) failure: Option<Error>,
}

impl<'a, B: Backend, S: BatchSource, O: Observer> Iterations<'a, B, S, O> {
    /// Creates a job for the iterations from `context.iteration` up to `end`, exclusive.
    pub fn new(
        device: &'a mut RankDevice<B>,
        loaded: &'a mut LoadedProgram<B>,
        state: &'a mut RankState<B>,
        source: S,
        observer: O,
        context: LaunchContext,
        end: u64,
    ) -> Self {
        let finished = vec![false; loaded.iteration(context.iteration).program.steps.len()];
        Self {
            loaded,
            state,
            device,
            source,
            observer,
            context,
            end,
            finished,
            computed: 0,
            communicated: 0,
            pending: None,
            staging: Vec::new(),
            weights: BTreeMap::new(),
            failure: None,
        }
    }

    /// Returns the current iteration, from 0, plus the fraction of its compute steps that have run.
    #[must_use]
    pub fn progress(&self) -> f64 {
        let steps = self.current().compute.len().max(1);
        self.context.iteration as f64 + self.computed as f64 / steps as f64
    }

    /// The observer of the steps.
    #[must_use]
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Returns the state, with the device and the program that are needed to read it.
    pub(crate) fn state(&mut self) -> (&RankState<B>, &mut RankDevice<B>, &LoadedProgram<B>) {
        (self.state, self.device, self.loaded)
    }

    /// The current iteration, from 0.
    pub(crate) fn iteration(&self) -> u64 {
        self.context.iteration
    }

    /// The program of the current iteration.
    pub(super) fn current(&self) -> &LoadedIteration<B> {
        self.loaded.iteration(self.context.iteration)
    }

    fn at(&self, step: usize) -> Upcoming {
        Upcoming { site: u32::try_from(self.current().site(step)).ok(), estimate: None }
    }

    fn can_run(&self, step: usize) -> bool {
        self.current().program.steps[step].after.iter().all(|step| self.finished[step.0])
    }

    /// Starts and completes collectives without waiting.
    fn communicate(&mut self) -> Result<(), Error> {
        let (current, _, mut memory) = self.loaded.parts(self.context.iteration, &mut self.state.buffers);
        while let Some(&index) = current.communication.get(self.communicated) {
            let step = &current.program.steps[index];
            let mut at = CollectiveBuffers {
                step,
                memory: &mut memory,
                bucket: current.buckets[index].as_mut(),
                redistributed: current.redistributed[index],
                sent: current.sent[index].as_mut(),
                device: &mut *self.device,
            };
            if let Some((pending, _)) = &mut self.pending {
                if !pending.test()? {
                    break;
                }
                if let Some((complete, began)) = self.pending.take() {
                    complete.finish(&mut at)?;
                    *at.memory.is_transferring = false;
                    self.observer.ended(&[StepId(index)], TimeSpan::since(began));
                }
                self.finished[index] = true;
                self.communicated += 1;
            } else {
                let (Op::Collective(id), Some(group)) = (&step.op, &current.communicators[index]) else {
                    break;
                };
                if !step.after.iter().all(|step| self.finished[step.0]) {
                    break;
                }
                let op = &current.collectives[id.0].op;
                let began = Instant::now();
                *at.memory.is_transferring = true;
                self.pending = Some((PendingCollective::start(op, group, &mut at)?, began));
                self.observer.started(StepId(index));
            }
        }
        Ok(())
    }

    /// The state of a job whose steps wait for collectives.
    fn communicating(&self) -> JobState {
        let step = self.current().communication.get(self.communicated);
        step.map_or(JobState::Waiting, |&step| JobState::Communicating(self.at(step)))
    }

    /// Loads a range of the features or labels of samples into `staging`, images in the order of
    /// the engine, and labels as [`Role::Labels`] has them. See [`BatchSource::load`].
    ///
    /// # Errors
    /// The error of the source.
    pub(super) fn load(
        &mut self,
        iteration: u64,
        part: BatchPart,
        (samples, elements): (Range<usize>, Range<usize>),
    ) -> Result<(), Error> {
        self.staging.clear();
        self.source.load(iteration, part, samples, elements.clone(), &mut self.staging)?;
        if part == BatchPart::Labels {
            return self.add_weights(iteration, &elements);
        }
        let network = &self.loaded.network;
        // Images are loaded whole; parts are those of sequences.
        let is_whole = |id: &LayerId| network.input_elements(*id) == elements;
        if let Some(input) = network.inputs().find(is_whole) {
            let layout = self.device.engine.image_layout();
            let arranged = layout.arrange(network.layer(input), Role::Output, &self.staging);
            if let Cow::Owned(arranged) = arranged {
                self.staging = arranged;
            }
        }
        Ok(())
    }

    /// Adds the weight of each sample behind its labels in `staging` if their loss ignores a label.
    /// `elements` are the labels of a sample in `staging`.
    ///
    /// # Errors
    /// The error of the source.
    fn add_weights(&mut self, iteration: u64, elements: &Range<usize>) -> Result<(), Error> {
        let network = &self.loaded.network;
        let of = network.losses().find(|&loss| network.loss_labels(loss).contains(&elements.start));
        let ignored = of.and_then(|loss| Some((loss, network.layer(loss).ignored_label()?)));
        let Some((loss, ignored)) = ignored else { return Ok(()) };
        let known = self.weights.get(&loss).filter(|(known, _)| *known == iteration);
        let weight = if let Some(&(_, weight)) = known {
            weight
        } else {
            let (batch, of_loss, mut all) = (self.loaded.batch, network.loss_labels(loss), Vec::new());
            self.source.load(iteration, BatchPart::Labels, 0..batch, of_loss, &mut all)?;
            sample_weight(&all, ignored) as f32
        };
        self.weights.insert(loss, (iteration, weight));
        let loaded = std::mem::take(&mut self.staging);
        for sample in loaded.chunks(elements.len().max(1)) {
            self.staging.extend_from_slice(sample);
            self.staging.push(weight);
        }
        Ok(())
    }

    fn compute(&mut self, index: usize) -> Result<(), Error> {
        if let Op::LoadBatch { part, shard, elements } = &self.current().program.steps[index].op {
            let samples = (shard.first..shard.first + shard.samples, elements.clone());
            self.load(self.context.iteration, *part, samples)?;
        }
        let (current, kernels, mut memory) =
            self.loaded.parts(self.context.iteration, &mut self.state.buffers);
        let step = &current.program.steps[index];
        if let Op::LoadBatch { .. } = step.op {
            let scalars = current.program.buffers[step.writes[0].0].storage.pack(&self.staging);
            return Ok(self.device.engine.upload(
                &scalars,
                memory.get_mut(step.writes[0]),
                &mut self.device.queue,
            )?);
        }
        let Some(kernel) = current.kernels[index].and_then(|kernel| kernels.get_mut(kernel)) else {
            return Ok(());
        };
        let mut written = memory.take(&step.writes);
        let reads: Vec<&B::Buffer> = step.reads.iter().map(|&id| memory.get(id)).collect();
        let mut writes: Vec<&mut B::Buffer> = written.iter_mut().collect();
        let result =
            self.device.engine.enqueue(kernel, &reads, &mut writes, &self.context, &mut self.device.queue);
        memory.restore(&step.writes, written);
        result?;
        self.check_loss(index)
    }

    /// After the forward step of a loss: if the loss is not finite, finds the first layer whose
    /// output is not.
    fn check_loss(&mut self, index: usize) -> Result<(), Error> {
        if !B::IS_SYNCHRONOUS {
            return Ok(());
        }
        let (current, _, memory) = self.loaded.parts(self.context.iteration, &mut self.state.buffers);
        let (program, step) = (&current.program, &current.program.steps[index]);
        let layer_of = |id: BufferId, wanted: Role| match program.buffers[id.0].contents {
            Contents::Operand(layer, role) if role == wanted => Some(layer),
            _ => None,
        };
        let metrics = step.writes.iter().find(|&&id| layer_of(id, Role::Metrics).is_some());
        let (Op::Forward { .. }, Some(&metrics)) = (&step.op, metrics) else { return Ok(()) };
        let RankDevice { engine, queue, .. } = &mut *self.device;
        let mut is_finite = |id: BufferId, elements: usize| -> Result<bool, Error> {
            let storage = program.buffers[id.0].storage;
            let mut scalars = vec![0.0; storage.scalars(elements)];
            engine.download(memory.get(id), &mut scalars, queue)?;
            Ok(storage.unpack(&scalars, elements).iter().all(|value| value.is_finite()))
        };
        if is_finite(metrics, 1)? {
            return Ok(());
        }
        for id in program.alive_at(StepId(index)) {
            let Some(layer) = layer_of(id, Role::Output) else { continue };
            if !is_finite(id, program.buffers[id.0].elements)? {
                self.loaded.first_not_finite = Some(layer);
                break;
            }
        }
        Ok(())
    }

    fn next_iteration(&mut self) -> Result<(), Error> {
        self.device.engine.synchronize(&mut self.device.queue)?;
        let metrics = self.loaded.metrics(self.device, self.context.iteration)?;
        self.observer.finished_iteration(self.context.iteration, &metrics, Instant::now())?;
        self.context.iteration += 1;
        let steps = self.current().program.steps.len();
        self.finished.clear();
        self.finished.resize(steps, false);
        (self.computed, self.communicated) = (0, 0);
        Ok(())
    }
}

impl<B: Backend, S: BatchSource, O: Observer> PolledJob for Iterations<'_, B, S, O> {
    type Error = Error;

    fn poll(&mut self) -> Result<JobState, Error> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.loaded.is_transferring && self.pending.is_none() {
            return Err(Error::Program("a collective of an earlier run was not completed".into()));
        }
        while self.context.iteration < self.end {
            self.communicate()?;
            if let Some(&step) = self.current().compute.get(self.computed) {
                return Ok(if self.can_run(step) {
                    JobState::Ready(self.at(step))
                } else {
                    self.communicating()
                });
            }
            if self.communicated < self.current().communication.len() {
                return Ok(self.communicating());
            }
            self.next_iteration()?;
        }
        Ok(JobState::Finished)
    }

    fn run(&mut self) -> Result<(), Error> {
        // A step that was announced has been run by `run_available` in the meantime, and the next
        // one may still wait for a collective.
        let step = self.current().compute.get(self.computed).copied();
        if let Some(step) = step.filter(|&step| self.can_run(step)) {
            self.observer.started(StepId(step));
            let began = Instant::now();
            self.compute(step)?;
            self.observer.ended(&[StepId(step)], TimeSpan::since(began));
            self.finished[step] = true;
            self.computed += 1;
        }
        Ok(())
    }
}
