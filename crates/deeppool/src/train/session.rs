//! The course of a training run on one rank.

use std::time::{Duration, Instant};

use collectives::Group;

use super::background::BackgroundParts;
use super::checkpoint::CheckpointWriter;
use super::checkpoint_files::{self, Found};
use super::image_orders::ImageOrders;
use super::programs::Programs;
use super::rank::{Rank, TrainedInterval, TrainingDriver};
use super::shared_jobs::SharedJobs;
use super::summary::{CopySummary, summarise};
use super::sync_schedule::SyncSchedule;
use super::{
    CheckpointEvery, EpochReport, Evaluation, Progress, TrainConfig, TrainReport, agreement,
    background_state, checkpoint, exchange, trace,
};
use crate::Error;
use crate::runtime::{Backend, RankDevice, RankDriver, TrainingBackend};

/// Trains as one rank, on the device of `engine`. Every rank of the communicator calls it with the
/// same configuration.
///
/// Ranks compare their configurations before the first step. The trained weights depend only on the
/// configuration and the seed, and not on the device, the ranks of layers or the background jobs,
/// up to the rounding of sums. Rank 0 calls `progress`. Every rank returns the report of the whole
/// run. All ranks write checkpoints, into a folder that all of them share.
///
/// # Errors
/// [`Error::RankDiffers`] on every rank if their configurations differ.
/// [`Error::WorldSizeMismatch`] if the plan is for another number of ranks. The errors of an
/// invalid configuration. [`Error::Checkpoint`] if a checkpoint cannot be used. If a rank fails, it
/// returns its own error, and the others that of a collective that names the rank.
pub fn train_rank<B: TrainingBackend>(
    config: &TrainConfig<'_>,
    engine: &B::Engine,
    communicator: B::Communicator,
    progress: &dyn Fn(Progress),
) -> Result<TrainReport, Error> {
    let writer = acquire_folder::<B>(config, engine, &communicator)?;
    let found = checkpoint::find(config);
    agree::<B>(config, engine, &communicator, found.as_ref().map_or(0, Found::iteration))?;
    config.check()?;
    let resumed = (&found?, writer.as_ref());
    run_rank::<B>(config, &Programs::new(config)?, resumed, engine, communicator, progress)
}

/// Acquires the folder of checkpoints on rank 0, for all ranks.
///
/// # Errors
/// [`Error::Checkpoint`] on every rank if rank 0 cannot acquire it.
fn acquire_folder<B: TrainingBackend>(
    config: &TrainConfig<'_>,
    engine: &B::Engine,
    communicator: &B::Communicator,
) -> Result<Option<CheckpointWriter>, Error> {
    let is_first = communicator.rank() == 0;
    let writer = if is_first { CheckpointWriter::acquire(config) } else { Ok(None) };
    let problem = match &writer {
        Ok(_) => String::new(),
        Err(Error::Checkpoint { problem, .. }) => problem.clone(),
        Err(error) => error.to_string(),
    };
    let mut device = RankDevice::<B>::new(engine.clone())?;
    let problems = exchange::gather(&mut device, communicator, problem.as_bytes())?;
    let of_first = problems.first().map(|bytes| String::from_utf8_lossy(bytes)).unwrap_or_default();
    match &config.checkpoint {
        Some(checkpoint) if !is_first && !of_first.is_empty() => {
            Err(checkpoint_files::checkpoint_error(&checkpoint.folder, of_first))
        }
        _ => writer,
    }
}

/// Checks that all ranks have the same configuration, and that there are as many as in the
/// placement.
fn agree<B: TrainingBackend>(
    config: &TrainConfig<'_>,
    engine: &B::Engine,
    communicator: &B::Communicator,
    iteration: u64,
) -> Result<(), Error> {
    let mut device = RankDevice::<B>::new(engine.clone())?;
    let fingerprint = agreement::fingerprint(config, iteration);
    agreement::check(&exchange::gather(&mut device, communicator, &fingerprint)?)?;
    let (planned, ranks) = (config.placement().world(), communicator.size());
    if planned == ranks { Ok(()) } else { Err(Error::WorldSizeMismatch { planned, ranks }) }
}

/// Trains as [`train_rank`] does, after all ranks have compared their configurations. `programs`
/// are those of the configuration, `found` is the checkpoint to resume from, if any, and `writer`
/// is that of rank 0.
///
/// # Errors
/// As [`train_rank`], without those of the configuration.
pub(super) fn run_rank<B: TrainingBackend>(
    config: &TrainConfig<'_>,
    programs: &Programs<'_>,
    (found, writer): (&Found, Option<&CheckpointWriter>),
    engine: &B::Engine,
    communicator: B::Communicator,
    progress: &dyn Fn(Progress),
) -> Result<TrainReport, Error> {
    check_background::<B>(config)?;
    let number = communicator.rank();
    let report_progress = |at: Progress| {
        if number == 0 {
            progress(at);
        }
    };
    report_progress(Progress::Started);
    if number == 0 {
        checkpoint::remove_unfinished(config);
    }
    for damaged in &found.damaged {
        report_progress(Progress::DamagedCheckpoint(damaged.to_string()));
    }
    let orders = ImageOrders::choose::<B>(config, programs, engine, &communicator)?;
    let mut rank = Rank::<B>::new(config, programs, orders.of_foreground::<B>(engine), communicator)?;
    let mut background =
        BackgroundParts::<B>::of_all(config, programs, &orders.of_background::<B>(engine), rank.parts().3)?;
    let groups: Vec<Option<B::Communicator>> =
        background.iter_mut().map(BackgroundParts::take_group).collect();
    let mut memory = rank.memory();
    for parts in &background {
        let (bytes, allocated) = parts.memory_bytes();
        memory.background_bytes += bytes;
        memory.allocated_bytes += allocated;
    }
    let image_order = B::HAS_IMAGE_LAYOUTS.then(|| orders.foreground.clone());
    let mut report = TrainReport { kernels: rank.kernels(), image_order, ..TrainReport::default() };
    if let Some(weights) = config.initial {
        weights.write_to(config.network(), rank.state())?;
    }
    if let Some(checkpoint) = &found.checkpoint {
        checkpoint::restore(checkpoint, config, &mut rank)?;
        background.iter_mut().try_for_each(|parts| parts.restore(checkpoint, number))?;
        report.first_iteration = found.iteration();
        report_progress(Progress::Resumed(report.first_iteration));
        if let Some(changed) = writer.map_or(Ok(None), |writer| writer.changed_settings(checkpoint))? {
            report_progress(Progress::ChangedSettings(changed));
        }
    }
    let mut driver = <TrainingDriver<'_, B>>::new(engine, config.policy)?;
    for (parts, (_, job)) in background.iter_mut().zip(config.background_of(number)) {
        driver.add(parts.start(), job.weight)?;
    }
    let mut shared = SharedJobs::new(config);
    let jobs = (&mut driver, &mut shared, &groups[..]);
    let trained = train_to_end(config, (&mut rank, writer), jobs, &mut report, &report_progress);
    let (elapsed, background_samples) = trained.map_err(|error| driver.explain(number, error))?;
    if config.traced_iterations > 0 {
        let own = rank.trace(&driver)?;
        report.timeline = Some(trace::timeline(config, programs, &rank.gather_values(&own)?));
    }
    let copies = config.background_of(number).zip(driver.background()).zip(background_samples);
    let copies = copies.map(|(((job, _), copy), samples)| CopySummary {
        job,
        samples,
        iterations: copy.iterations as u64,
        loss: copy.observer.loss(),
        losses: copy.observer.losses().to_vec(),
        error: copy.error.filter(|_| !shared.failed_elsewhere(job, number)),
    });
    summarise(&mut report, &mut rank, config, memory, (copies.collect(), elapsed))?;
    Ok(report)
}

/// Checks that the backend runs the background jobs.
///
/// # Errors
/// [`Error::Setting`] with the first job that needs collectives, if background jobs have none.
fn check_background<B: TrainingBackend>(config: &TrainConfig<'_>) -> Result<(), Error> {
    match config.background.iter().find(|job| job.is_shared()) {
        Some(job) if !B::HAS_BACKGROUND_COLLECTIVES => Err(Error::Setting {
            setting: "the ranks of a background job",
            expected: "1, or a copy on each rank, on GPUs",
            got: format!("`{}`", job.label()),
        }),
        _ => Ok(()),
    }
}

/// The background jobs of a rank: their driver, what all ranks know about them, and the
/// communicators of those on several ranks.
type JobsOfRank<'r, 'a, 'j, B> =
    (&'r mut TrainingDriver<'a, B>, &'r mut SharedJobs<'j>, &'r [Option<<B as Backend>::Communicator>]);

/// Trains from the first iteration of the report to the end of the run, or until it is stopped.
/// Returns the training time of this rank, and the samples of each background job of this rank.
fn train_to_end<B: TrainingBackend>(
    config: &TrainConfig<'_>,
    (rank, writer): (&mut Rank<'_, B>, Option<&CheckpointWriter>),
    (driver, shared, groups): JobsOfRank<'_, '_, '_, B>,
    report: &mut TrainReport,
    report_progress: &dyn Fn(Progress),
) -> Result<(Duration, Vec<f64>), Error> {
    let (per_epoch, end) = (config.iterations_per_epoch(), config.iterations());
    let mut iteration = report.first_iteration;
    let (mut elapsed, mut background_samples) = (Duration::ZERO, vec![0.0; groups.len()]);
    let mut epoch = CurrentEpoch::default();
    let mut sync_schedule = SyncSchedule::new();
    let mut best_score = best_so_far(config, rank)?;
    let mut is_stopped = false;
    while iteration < end && !is_stopped {
        let epoch_end = (iteration / per_epoch + 1) * per_epoch;
        let next_save = match config.checkpoint.as_ref().map(|checkpoint| checkpoint.every) {
            Some(CheckpointEvery::Iterations(every)) => (iteration / every + 1).saturating_mul(every),
            _ => end,
        };
        let interval_end = [epoch_end, next_save, end, iteration.saturating_add(sync_schedule.iterations)];
        let interval_end = interval_end.into_iter().min().unwrap_or(end);
        let interval = rank.train(iteration, interval_end, driver)?;
        let trained = interval_end - iteration;
        elapsed += interval.elapsed;
        for (all, samples) in background_samples.iter_mut().zip(&interval.background_samples) {
            *all += samples;
        }
        epoch.add(&interval);
        let speed = (trained, interval.elapsed, interval.background_samples.iter().sum());
        for (iteration, &loss) in (iteration + 1..).zip(&interval.losses) {
            report_progress(Progress::Iteration { iteration, loss });
        }
        report.losses.extend(interval.losses);
        iteration = interval_end;
        let (mut test, mut is_best) = (None, false);
        if iteration == epoch_end {
            let evaluation = rank.evaluate()?;
            is_best = evaluation.score() > best_score;
            test = Some(evaluation.clone());
            best_score = best_score.max(evaluation.score());
            let of_epoch = epoch.report(config, rank, iteration / per_epoch, evaluation)?;
            report_progress(Progress::Epoch(of_epoch.clone()));
            report.epochs.push(of_epoch);
            epoch = CurrentEpoch::default();
        }
        let has_failure = shared.has_new_failure::<B>(driver, rank.rank());
        let agreed = sync_schedule.agree(config, rank, speed, has_failure)?;
        if agreed.has_failure {
            shared.exchange_failures(rank, driver)?;
        }
        report_progress(Progress::Speed {
            iteration,
            foreground_samples_per_s: agreed.foreground_samples_per_s,
            background_samples_per_s: agreed.background_samples_per_s,
        });
        is_stopped = agreed.stop;
        let is_due = is_stopped || agreed.save || is_best || iteration == next_save || iteration == end;
        if config.checkpoint.is_some() && is_due {
            let started = Instant::now();
            shared.finish_iterations(rank, driver)?;
            let jobs = driver.background_between_iterations()?;
            let jobs = shared.without_failed(jobs, rank.rank());
            let files = background_state::files(config, jobs, groups, rank.rank())?;
            checkpoint::save(config, rank, writer, (iteration, test), files)?;
            sync_schedule.saved(started.elapsed());
        }
    }
    shared.finish_iterations(rank, driver)?;
    report.is_stopped = iteration < end;
    Ok((elapsed, background_samples))
}

/// Returns the highest [score](Evaluation::score) of the existing checkpoints on rank 0, or
/// infinity if the best one is not kept.
fn best_so_far<B: TrainingBackend>(config: &TrainConfig<'_>, rank: &mut Rank<'_, B>) -> Result<f64, Error> {
    let Some(checkpoint) = config.checkpoint.as_ref().filter(|checkpoint| checkpoint.keep_best) else {
        return Ok(f64::INFINITY);
    };
    let best = checkpoint_files::best(&checkpoint.folder)?.map_or(f64::NEG_INFINITY, |(_, score)| score);
    let of_first = rank.gather(&best.to_le_bytes())?.into_iter().next();
    let bytes = of_first.and_then(|bytes| bytes.try_into().ok());
    Ok(bytes.map_or(best, f64::from_le_bytes))
}

/// Sums over the current epoch's iterations in this run.
#[derive(Default)]
struct CurrentEpoch {
    iterations: u64,
    /// Sum of the iterations' mean losses.
    loss: f64,
    elapsed: Duration,
    background_samples: f64,
}

impl CurrentEpoch {
    fn add(&mut self, interval: &TrainedInterval) {
        self.iterations += interval.losses.len() as u64;
        self.loss += interval.losses.iter().sum::<f64>();
        self.elapsed += interval.elapsed;
        self.background_samples += interval.background_samples.iter().sum::<f64>();
    }

    fn report<B: TrainingBackend>(
        &self,
        config: &TrainConfig<'_>,
        rank: &mut Rank<'_, B>,
        epoch: u64,
        test: Evaluation,
    ) -> Result<EpochReport, Error> {
        let seconds = self.elapsed.as_secs_f64();
        let mut sum = [self.background_samples as f32];
        rank.sum_over_ranks(&mut sum)?;
        Ok(EpochReport {
            epoch,
            train_loss: self.loss / self.iterations as f64,
            test,
            foreground_samples_per_s: (self.iterations * config.batch() as u64) as f64 / seconds,
            background_samples_per_s: f64::from(sum[0]) / seconds,
        })
    }
}
