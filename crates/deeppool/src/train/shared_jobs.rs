//! Agreement of the ranks about background jobs that several of them train. The foreground never
//! waits for such a job: its ranks may be at different steps when an interval of the foreground
//! ends. Before a checkpoint and at the end of a run they complete the same iteration.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::rank::{Rank, TrainingDriver};
use super::{BackgroundConfig, TrainConfig};
use crate::Error;
use crate::runtime::{RankDriver, TrainingBackend};

/// Time for which a rank polls its jobs before it asks the others whether their jobs have failed.
const POLLING: Duration = Duration::from_millis(1);

/// Knowledge that all ranks share about the background jobs on several ranks.
pub(super) struct SharedJobs<'a> {
    config: &'a TrainConfig<'a>,
    /// Rank and message of the first failure of each failed job, by its index in the configuration.
    failures: BTreeMap<usize, (usize, String)>,
}

/// Message of a rank about its jobs.
#[derive(Serialize, Deserialize)]
struct JobStates {
    /// Index and error message of each job that has failed on the rank.
    failures: Vec<(usize, String)>,
    /// Index and end of each other job: the iteration after the last one that has begun.
    ends: Vec<(usize, u64)>,
    /// Whether the rank has a job that is not at its end.
    is_behind: bool,
}

impl<'a> SharedJobs<'a> {
    /// Creates the knowledge at the start of a run: no job has failed.
    pub(super) fn new(config: &'a TrainConfig<'a>) -> Self {
        Self { config, failures: BTreeMap::new() }
    }

    /// Returns whether a job has failed on this rank that the other ranks do not know of.
    pub(super) fn has_new_failure<B: TrainingBackend>(
        &self,
        driver: &TrainingDriver<'_, B>,
        rank: usize,
    ) -> bool {
        !self.own_failures::<B>(driver, rank).is_empty()
    }

    /// Tells all ranks the failures of jobs. A job that has failed on one rank ends on all. All
    /// ranks call it.
    ///
    /// # Errors
    /// If the communicator fails.
    pub(super) fn exchange_failures<B: TrainingBackend>(
        &mut self,
        rank: &mut Rank<'_, B>,
        driver: &mut TrainingDriver<'_, B>,
    ) -> Result<(), Error> {
        self.exchange(rank, driver, Vec::new(), false).map(|_| ())
    }

    /// Returns whether a job has ended on this rank because it had failed on another one.
    pub(super) fn failed_elsewhere(&self, job: usize, rank: usize) -> bool {
        self.failures.get(&job).is_some_and(|&(of, _)| of != rank)
    }

    /// Runs each job to the end of the last iteration that one of its ranks has begun, on all of
    /// its ranks. Jobs that fail end. All ranks call it, between two runs of the foreground.
    ///
    /// The ranks work in rounds, so that no rank waits for a rank on which the job has failed: each
    /// runs what it can without waiting, then all exchange their states.
    ///
    /// # Errors
    /// If the communicator fails.
    pub(super) fn finish_iterations<B: TrainingBackend>(
        &mut self,
        rank: &mut Rank<'_, B>,
        driver: &mut TrainingDriver<'_, B>,
    ) -> Result<(), Error> {
        let config = self.config;
        if !config.background.iter().any(BackgroundConfig::is_shared) {
            return Ok(());
        }
        let number = rank.rank();
        let mut own = Vec::new();
        for ((index, job), running) in config.background_of(number).zip(driver.jobs_mut()) {
            if let Some(running) = running.filter(|_| job.is_shared()) {
                own.push((index, running.end_of_begun()));
            }
        }
        let states = self.exchange(rank, driver, own, false)?;
        let mut ends: BTreeMap<usize, u64> = BTreeMap::new();
        for (index, end) in states.into_iter().flat_map(|state| state.ends) {
            let known = ends.entry(index).or_default();
            *known = end.max(*known);
        }
        for ((index, _), running) in config.background_of(number).zip(driver.jobs_mut()) {
            if let (Some(running), Some(&end)) = (running, ends.get(&index)) {
                running.set_end(end);
            }
        }
        loop {
            let is_behind = run_available::<B>(config, driver, number);
            let states = self.exchange(rank, driver, Vec::new(), is_behind)?;
            if !states.iter().any(|state| state.is_behind) {
                break;
            }
        }
        for running in driver.jobs_mut().into_iter().flatten() {
            running.set_end(u64::MAX);
        }
        Ok(())
    }

    /// Replaces jobs of this rank that have failed on any rank by `None`.
    pub(super) fn without_failed<J>(&self, jobs: Vec<Option<J>>, rank: usize) -> Vec<Option<J>> {
        let jobs = self.config.background_of(rank).zip(jobs);
        jobs.map(|((index, _), job)| job.filter(|_| !self.failures.contains_key(&index))).collect()
    }

    /// Returns the index and message of each job that has failed on this rank only, as far as all
    /// ranks know.
    fn own_failures<B: TrainingBackend>(
        &self,
        driver: &TrainingDriver<'_, B>,
        rank: usize,
    ) -> Vec<(usize, String)> {
        let jobs = self.config.background_of(rank).zip(driver.background());
        let new = jobs.filter(|((index, job), _)| job.is_shared() && !self.failures.contains_key(index));
        new.filter_map(|((index, _), status)| status.error.map(|error| (index, error))).collect()
    }

    /// Exchanges the states of jobs, and ends those that have failed on any rank.
    fn exchange<B: TrainingBackend>(
        &mut self,
        rank: &mut Rank<'_, B>,
        driver: &mut TrainingDriver<'_, B>,
        ends: Vec<(usize, u64)>,
        is_behind: bool,
    ) -> Result<Vec<JobStates>, Error> {
        let config = self.config;
        let failures = self.own_failures::<B>(driver, rank.rank());
        let states = rank.gather_values(&JobStates { failures, ends, is_behind })?;
        for (from, state) in states.iter().enumerate() {
            for (index, problem) in &state.failures {
                self.failures.entry(*index).or_insert_with(|| (from, problem.clone()));
            }
        }
        for ((index, job), running) in config.background_of(rank.rank()).zip(driver.jobs_mut()) {
            if let (Some(running), Some((of, problem))) = (running, self.failures.get(&index)) {
                running.fail(Error::BackgroundJob { job: job.label(), rank: *of, problem: problem.clone() });
            }
        }
        Ok(states)
    }
}

/// Runs the steps of this rank's shared jobs that wait for no other rank, and polls for
/// [`POLLING`]. Returns whether a job that has not failed is not at its end.
fn run_available<B: TrainingBackend>(
    config: &TrainConfig<'_>,
    driver: &mut TrainingDriver<'_, B>,
    rank: usize,
) -> bool {
    let began = Instant::now();
    loop {
        let mut is_behind = false;
        for ((_, job), running) in config.background_of(rank).zip(driver.jobs_mut()) {
            let can_run = |running: &&mut _| -> bool {
                let running: &super::background::BackgroundIterations<'_, B> = running;
                job.is_shared() && running.failure().is_none()
            };
            let Some(running) = running.filter(can_run) else { continue };
            match running.run_available() {
                Ok(is_done) => is_behind |= !is_done,
                Err(error) => running.fail(error),
            }
        }
        if !is_behind || began.elapsed() >= POLLING {
            return is_behind;
        }
        thread::yield_now();
    }
}
