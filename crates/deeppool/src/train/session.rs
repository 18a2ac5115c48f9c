use std::time::{Duration, Instant};

use collectives::ThreadWorld;
use gpu_mux::{CpuDriver, Policy};
use layer_engine::{CpuEngine, ThreadPool};

use super::pace::{Decision, Pace};
use super::rank::{BackgroundParts, Programs, Rank, RankRecord, Stretch};
use super::{
    CheckpointEvery, EpochReport, HeldMemory, IterationTimes, Progress, TrainConfig, TrainReport, checkpoint,
};
use crate::Error;
use crate::runtime::{Backend, CpuThreads};

/// How long ranks wait for each other before they give up: longer than any layer computes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Trains on threads of this process, one a rank, each of which computes on its own thread or on those that all share.
///
/// What is computed depends on the configuration and the seed, not on the placement or the background job, up to the
/// rounding of sums. `progress` is called from one thread at a time.
///
/// # Errors
/// When the configuration is wrong, a checkpoint cannot be used, or a rank fails; then the error of the rank that
/// failed first, not of those that missed it.
pub fn train(config: &TrainConfig<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Result<TrainReport, Error> {
    config.check()?;
    let programs = Programs::new(config)?;
    let resumed = checkpoint::find(config)?;
    let first_iteration = resumed.as_ref().map_or(0, checkpoint::Checkpoint::iteration);
    let engine = engine(config)?;
    progress(Progress::Started);
    let world = ThreadWorld::new(config.placement.world()).with_timeout(PATIENCE);
    let outcomes = world.run(|communicator| {
        run_rank::<CpuThreads>(config, &programs, &engine, communicator, resumed.as_ref(), progress)
    });
    let (mut runs, mut errors) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(run) => runs.push(run),
            Err(error) => errors.push(error),
        }
    }
    // Ranks that lost a peer fail with a collective's error; the peer's own error says why.
    let is_consequence = |error: &Error| matches!(error, Error::Collectives(_));
    errors.sort_by_key(is_consequence);
    match errors.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(report(config, first_iteration, runs)),
    }
}

/// The engine that all ranks use.
fn engine(config: &TrainConfig<'_>) -> Result<CpuEngine<f32>, Error> {
    if config.threads_per_rank == 1 {
        return Ok(CpuEngine::new());
    }
    let wanted = config.placement.world().saturating_mul(config.threads_per_rank);
    // Where the system does not say how many cores there are, as many threads as one rank may use.
    let cores = std::thread::available_parallelism().map_or(config.threads_per_rank, std::num::NonZero::get);
    Ok(CpuEngine::sharing(&ThreadPool::new(wanted.min(cores))?, config.threads_per_rank))
}

/// What a rank returns.
struct RankRun {
    record: RankRecord,
    memory: HeldMemory,
    epochs: Vec<EpochReport>,
    elapsed: Duration,
    background_samples: f64,
    is_stopped: bool,
}

fn run_rank<B: Backend>(
    config: &TrainConfig<'_>,
    programs: &Programs,
    engine: &B::Engine,
    communicator: B::Communicator,
    resumed: Option<&checkpoint::Checkpoint>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<RankRun, Error>
where
    B::Engine: Clone,
{
    let mut rank = Rank::<B>::new(config, programs, engine.clone(), communicator)?;
    let mut parts = BackgroundParts::<B>::new(config, programs, engine.clone())?;
    let number = rank.rank();
    let mut memory = rank.memory();
    if let Some(parts) = &parts {
        let (bytes, allocated) = parts.memory_bytes();
        memory.background_bytes = bytes;
        memory.allocated_bytes += allocated;
    }
    let mut driver = CpuDriver::new(Policy::default());
    if let Some(background) = parts.as_mut().and_then(|parts| parts.start(config, number)) {
        driver.add(background);
    }
    let reports = number == config.reporter();
    let mut iteration = 0;
    if let Some(checkpoint) = resumed {
        checkpoint.restore(config, &mut rank)?;
        iteration = checkpoint.iteration();
        if reports {
            progress(Progress::Resumed(iteration));
        }
    }
    let (per_epoch, end) = (config.iterations_per_epoch(), config.iterations());
    let (mut epochs, mut elapsed, mut background_samples) = (Vec::new(), Duration::ZERO, 0.0);
    let mut epoch = EpochSoFar::default();
    let mut pace = Pace::new();
    let mut decision = Decision { stop: false, save: false };
    while iteration < end && !decision.stop {
        let epoch_end = (iteration / per_epoch + 1) * per_epoch;
        let next_save = match config.checkpoint.as_ref().map(|checkpoint| checkpoint.every) {
            Some(CheckpointEvery::Iterations(every)) => (iteration / every + 1).saturating_mul(every),
            _ => end,
        };
        let stretch_end = [epoch_end, next_save, end, iteration.saturating_add(pace.iterations)];
        let stretch_end = stretch_end.into_iter().min().unwrap_or(end);
        let stretch = rank.train(iteration, stretch_end, &mut driver, progress)?;
        let trained = stretch_end - iteration;
        elapsed += stretch.elapsed;
        background_samples += stretch.background_samples;
        epoch.add(&stretch, trained);
        iteration = stretch_end;
        if iteration == epoch_end {
            let test_accuracy = rank.evaluate()?;
            let report = epoch.report(config, &mut rank, iteration / per_epoch, test_accuracy)?;
            if reports {
                progress(Progress::Epoch(report));
            }
            epochs.push(report);
            epoch = EpochSoFar::default();
        }
        decision = pace.agree(config, &mut rank, (trained, stretch.elapsed))?;
        let is_due = decision.stop || decision.save || iteration == next_save || iteration == end;
        if config.checkpoint.is_some() && is_due {
            let started = Instant::now();
            checkpoint::save(config, &mut rank, iteration)?;
            pace.saved(started.elapsed());
        }
    }
    let is_stopped = iteration < end;
    Ok(RankRun { record: rank.into_record(), memory, epochs, elapsed, background_samples, is_stopped })
}

/// The epoch that is under way.
#[derive(Default)]
struct EpochSoFar {
    iterations: u64,
    loss: f64,
    elapsed: Duration,
    background_samples: f64,
}

impl EpochSoFar {
    fn add(&mut self, stretch: &Stretch, iterations: u64) {
        self.iterations += iterations;
        self.loss += stretch.loss;
        self.elapsed += stretch.elapsed;
        self.background_samples += stretch.background_samples;
    }

    fn report<B: Backend>(
        &self,
        config: &TrainConfig<'_>,
        rank: &mut Rank<'_, B>,
        epoch: u64,
        test_accuracy: f64,
    ) -> Result<EpochReport, Error> {
        let seconds = self.elapsed.as_secs_f64();
        let [background_samples] = rank.sum_over_ranks([self.background_samples])?;
        Ok(EpochReport {
            epoch,
            train_loss: self.loss / self.iterations as f64,
            test_accuracy,
            foreground_samples_per_s: (self.iterations * config.batch as u64) as f64 / seconds,
            background_samples_per_s: background_samples / seconds,
        })
    }
}

fn report(config: &TrainConfig<'_>, first_iteration: u64, runs: Vec<RankRun>) -> TrainReport {
    let reporter = config.reporter();
    let mut report = TrainReport { first_iteration, ..TrainReport::default() };
    report.background_samples_per_s = runs
        .iter()
        .map(|run| run.background_samples / run.elapsed.as_secs_f64().max(f64::MIN_POSITIVE))
        .sum();
    for (rank, run) in runs.into_iter().enumerate() {
        report.usage.push(run.record.usage);
        report.background_errors.extend(run.record.background_error.map(|error| (rank, error)));
        report.is_stopped |= run.is_stopped;
        report.memory.push(run.memory);
        if rank == reporter {
            let samples = (run.record.losses.len() * config.batch) as f64;
            report.foreground_samples_per_s = samples / run.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
            report.losses = run.record.losses;
            report.epochs = run.epochs;
            report.iteration_times = IterationTimes::new(run.record.iteration_times);
        }
    }
    report
}
