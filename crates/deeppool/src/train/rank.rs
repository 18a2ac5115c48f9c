//! One rank of a training run. An interval is the iterations between two synchronisation points, at
//! which the ranks agree whether to stop. A rotation is the number of iterations after which the
//! training programs repeat: 1 without partial backpropagation.

use std::time::{Duration, Instant};

use collectives::Group;
use gpu_mux::{CpuDriver, Policy, Usage};
use layer_engine::Engine;
use layer_graph::LayerId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::background::{BackgroundIterations, BackgroundRecord};
use super::evaluation::LossSums;
use super::programs::{Programs, context};
use super::step_times::StepTimes;
use super::trace::RankTrace;
use super::{ChosenKernel, EmulatedTimes, Epochs, Evaluation, HeldMemory, InOrder, TrainConfig, exchange};
use crate::Error;
use crate::program::{Program, StepId};
use crate::runtime::{
    Backend, Iterations, LoadedProgram, LossMetrics, Observer, RankDevice, RankDriver, RankState, TimeSpan,
    TrainingBackend,
};

/// Results of training an interval on one rank.
#[derive(Default)]
pub(super) struct TrainedInterval {
    /// Mean loss of the global batch of each iteration, in order. Equal on all ranks.
    pub(super) losses: Vec<f64>,
    /// Duration of the interval on this rank.
    pub(super) elapsed: Duration,
    /// Number of background samples that this rank trained, by job of this rank. An iteration in
    /// progress counts by the fraction of its steps.
    pub(super) background_samples: Vec<f64>,
}

/// Measurements of a rank over a whole run.
#[derive(Default)]
pub(super) struct RankRecord {
    /// Mean iteration time of each rotation, in order.
    pub(super) iteration_times: Vec<Duration>,
    /// Number and total time of iterations whose rotation is not complete yet.
    rest: (u32, Duration),
    /// Use of the rank's time by foreground and background tasklets, over all intervals.
    pub(super) usage: Usage,
}

impl RankRecord {
    /// Adds the time of an iteration. `different` is the number of iterations of a rotation, whose
    /// mean is recorded.
    fn add(&mut self, took: Duration, different: u32) {
        let (count, sum) = (self.rest.0 + 1, self.rest.1 + took);
        self.rest = (count, sum);
        if count >= different {
            self.iteration_times.push(sum / count);
            self.rest = (0, Duration::ZERO);
        }
    }
}

/// State, device, training program and communicator of a rank.
pub(super) type RankParts<'r, B> =
    (&'r mut RankState<B>, &'r mut RankDevice<B>, &'r LoadedProgram<B>, &'r <B as Backend>::Communicator);

/// A rank of a training run, with its programs loaded and its state on its device.
pub(super) struct Rank<'a, B: TrainingBackend> {
    config: &'a TrainConfig<'a>,
    communicator: B::Communicator,
    device: RankDevice<B>,
    state: RankState<B>,
    training: LoadedProgram<B>,
    evaluation: LoadedProgram<B>,
    remainder: Option<LoadedProgram<B>>,
    record: RankRecord,
    steps: StepTimes,
}

impl<'a, B: TrainingBackend> Rank<'a, B> {
    /// Loads the programs of the communicator's rank and initialises its state from the seed.
    ///
    /// # Errors
    /// If the engine cannot allocate memory or does not support a layer, or the communicator fails.
    pub(super) fn new(
        config: &'a TrainConfig<'a>,
        programs: &Programs<'_>,
        engine: B::Engine,
        communicator: B::Communicator,
    ) -> Result<Self, Error> {
        let rank = communicator.rank();
        let mut device = RankDevice::<B>::new(engine)?;
        let mut load = |programs: &[Program]| {
            LoadedProgram::rotation(&mut device, Some(&communicator), config.network(), programs, rank)
        };
        let of_rank = |times: &EmulatedTimes| {
            times.training.iter().map(|times| times.get(rank).cloned().unwrap_or_default()).collect()
        };
        let times = config.emulated_times.map(of_rank);
        let training = load(programs.training)?.with_schedule(programs.schedule())?.with_step_times(times);
        let mut load = |program| load(std::slice::from_ref(program));
        let evaluation = load(&programs.evaluation)?;
        let remainder = programs.remainder.as_ref().map(load).transpose()?;
        let state = RankState::new(&mut device, config.network(), training.program(), config.seed)?;
        let record = RankRecord::default();
        let steps = StepTimes::new(config.traced_iterations);
        Ok(Self { config, communicator, device, state, training, evaluation, remainder, record, steps })
    }

    /// Returns the number of the rank, from 0.
    pub(super) fn rank(&self) -> usize {
        self.communicator.rank()
    }

    /// Returns the state, and the device and training program by which it is read and written.
    pub(super) fn state(&mut self) -> (&mut RankState<B>, &mut RankDevice<B>, &LoadedProgram<B>) {
        (&mut self.state, &mut self.device, &self.training)
    }

    /// Returns the [state](Self::state), its device and program, and the communicator of all ranks.
    pub(super) fn parts(&mut self) -> RankParts<'_, B> {
        (&mut self.state, &mut self.device, &self.training, &self.communicator)
    }

    /// Returns the memory of the rank, without background jobs.
    pub(super) fn memory(&self) -> HeldMemory {
        let evaluation = std::iter::once(&self.evaluation).chain(&self.remainder);
        HeldMemory {
            training: self.training.memory(),
            evaluation_bytes: evaluation.map(|loaded| loaded.program().scratch_bytes()).sum(),
            background_bytes: 0,
            allocated_bytes: self.device.allocated_bytes(),
        }
    }

    /// Returns the kernels of training for which the engine chose among candidates.
    pub(super) fn kernels(&self) -> Vec<ChosenKernel> {
        let steps = self.training.kernels();
        let parts = steps.map(|(step, kernel)| (step, self.device.engine.parts(kernel)));
        let chosen = parts.filter(|(_, parts)| !parts.is_empty());
        chosen.map(|(step, parts)| ChosenKernel { step: step.into(), parts: parts.to_vec() }).collect()
    }

    /// Returns the measurements at the end of the run, and resets them. An incomplete rotation
    /// counts only if no rotation is complete.
    pub(super) fn take_record(&mut self) -> RankRecord {
        let mut record = std::mem::take(&mut self.record);
        if let (true, (count @ 1.., sum)) = (record.iteration_times.is_empty(), record.rest) {
            record.iteration_times.push(sum / count);
        }
        record
    }

    /// Returns the times of the steps of the traced iterations, of the foreground and of the
    /// background jobs of `driver`. All ranks call it.
    ///
    /// # Errors
    /// If the communicator fails.
    pub(super) fn trace(&mut self, driver: &TrainingDriver<'_, B>) -> Result<RankTrace, Error> {
        self.barrier()?;
        let background: Vec<&StepTimes> =
            driver.background().iter().map(|job| job.observer.steps()).collect();
        Ok(RankTrace::new(&self.steps, &background, driver.now()))
    }

    /// Waits until all ranks have called it.
    ///
    /// # Errors
    /// If the communicator fails.
    pub(super) fn barrier(&mut self) -> Result<(), Error> {
        Ok(self.communicator.barrier(self.device.communication_queue()?)?)
    }

    /// Replaces each value by its sum over all ranks. All ranks call it.
    ///
    /// # Errors
    /// If the device or the communicator fails.
    pub(super) fn sum_over_ranks(&mut self, values: &mut [f32]) -> Result<(), Error> {
        exchange::sum(&mut self.device, &self.communicator, values)
    }

    /// Returns the bytes that each rank has passed, indexed by rank. All ranks call it.
    ///
    /// # Errors
    /// If the device or the communicator fails.
    pub(super) fn gather(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        exchange::gather(&mut self.device, &self.communicator, own)
    }

    /// Exchanges values between all ranks. Returns them by rank. All ranks call it.
    ///
    /// # Errors
    /// If the device or the communicator fails.
    pub(super) fn gather_values<T: Serialize + DeserializeOwned>(
        &mut self,
        own: &T,
    ) -> Result<Vec<T>, Error> {
        let failed = |error: serde_json::Error| Error::Program(error.to_string());
        let own = serde_json::to_vec(own).map_err(failed)?;
        self.gather(&own)?.iter().map(|bytes| serde_json::from_slice(bytes).map_err(failed)).collect()
    }

    /// Trains the iterations `begin..end`, counted from 0, and meanwhile the background jobs of
    /// `driver`. All ranks call it.
    ///
    /// # Errors
    /// [`Error::NotFinite`] if the loss is not finite, and the errors of the device and the
    /// communicator. A background job that fails is no error.
    pub(super) fn train(
        &mut self,
        begin: u64,
        end: u64,
        driver: &mut TrainingDriver<'_, B>,
    ) -> Result<TrainedInterval, Error> {
        let config = self.config;
        let reported = config.reported_losses(self.communicator.rank());
        let mut losses = vec![0.0; (end - begin) as usize];
        let mut recorder = Recorder {
            record: &mut self.record,
            steps: &mut self.steps,
            losses: &mut losses,
            reported,
            first: begin,
            batch: config.batch(),
            rank: self.communicator.rank(),
            rotation: u32::try_from(self.training.rotation_length()).unwrap_or(u32::MAX),
            began: driver.now(),
        };
        let samples = Epochs::new(config.dataset.train(), config.batch());
        let foreground = Iterations::new(
            &mut self.device,
            &mut self.training,
            &mut self.state,
            if config.shuffle { samples.shuffled(config.seed) } else { samples },
            &mut recorder,
            context(config, begin),
            end,
        );
        let before: Vec<f64> = driver.background().iter().map(|job| job.iterations).collect();
        let ran = if config.background.is_empty() {
            driver.run(foreground)
        } else {
            driver.run_until_all(foreground, &self.communicator)
        };
        let usage = ran.map_err(|error| self.with_layer(error))?;
        self.record.usage += usage;
        let after = driver.background();
        let background = config.background_of(self.communicator.rank()).zip(before.iter().zip(&after));
        let background_samples = background
            .map(|((_, job), (before, after))| (after.iterations - before) * job.samples_of_rank())
            .collect();
        self.sum_over_ranks(&mut losses)?;
        let losses = losses.into_iter().map(|loss| f64::from(loss) / config.batch() as f64).collect();
        Ok(TrainedInterval { losses, elapsed: usage.elapsed, background_samples })
    }

    /// Adds the first layer with an output that is not finite to an [`Error::NotFinite`].
    fn with_layer(&self, error: Error) -> Error {
        let Error::NotFinite { iteration, loss, rank, layer: None } = error else { return error };
        let layer = self.training.first_not_finite();
        let layer = layer.map(|layer| self.config.network().layer(layer).name().to_owned());
        Error::NotFinite { iteration, loss, rank, layer }
    }

    /// Computes the losses of the test samples, and the fraction (0 to 1) of them that are
    /// classified correctly. All ranks call it.
    ///
    /// # Errors
    /// If the device or the communicator fails.
    pub(super) fn evaluate(&mut self) -> Result<Evaluation, Error> {
        let (config, test) = (self.config, self.config.dataset.test());
        let whole = (test.len() / config.batch()) as u64;
        let mut sums = LossSums::new(config.network(), test, config.batch());
        let rest = self.remainder.as_mut().map(|program| (program, whole, whole + 1));
        for (program, begin, end) in std::iter::once((&mut self.evaluation, 0, whole)).chain(rest) {
            let mut job = Iterations::new(
                &mut self.device,
                program,
                &mut self.state,
                InOrder::new(test, config.batch()),
                &mut sums,
                context(config, begin),
                end,
            );
            CpuDriver::<BackgroundIterations<'_, B>>::new(Policy::default()).run(&mut job)?;
        }
        let mut own = sums.reported(&config.reported_losses(self.rank()));
        self.sum_over_ranks(&mut own)?;
        Ok(sums.evaluation(config.network(), &own))
    }
}

/// The driver of a rank, which runs its foreground and its background jobs on its device.
pub(super) type TrainingDriver<'a, B> = <B as TrainingBackend>::Driver<'a, Epochs<'a>, BackgroundRecord>;

/// Observer of the foreground during an interval.
struct Recorder<'a> {
    record: &'a mut RankRecord,
    steps: &'a mut StepTimes,
    /// Loss of each iteration from `first` on, summed over the global batch: the weighted sum of
    /// the losses that the rank reports.
    losses: &'a mut [f32],
    /// The loss layers that the rank reports: each one is reported by one rank.
    reported: Vec<LayerId>,
    first: u64,
    batch: usize,
    rank: usize,
    /// Number of iterations of a rotation.
    rotation: u32,
    began: Instant,
}

impl Observer for Recorder<'_> {
    fn ended(&mut self, steps: &[StepId], ran: TimeSpan) {
        self.steps.ended(steps, ran);
    }

    fn finished_iteration(
        &mut self,
        iteration: u64,
        metrics: &[LossMetrics],
        at: Instant,
    ) -> Result<(), Error> {
        self.steps.finished_iteration(iteration, metrics, at)?;
        self.record.add(at.duration_since(self.began), self.rotation);
        self.began = at;
        let reported = metrics.iter().filter(|metrics| self.reported.contains(&metrics.layer));
        let sum = LossMetrics::weighted_sum(reported);
        let loss = sum / self.batch as f64;
        if !loss.is_finite() {
            return Err(Error::NotFinite { iteration: iteration + 1, loss, rank: self.rank, layer: None });
        }
        if let Some(own) = self.losses.get_mut((iteration - self.first) as usize) {
            *own = sum as f32;
        }
        Ok(())
    }
}
