//! The simulated ranks together, which wait for each other at collectives. One rank is simulated
//! for each class of equal ranks. The warm-up is the first runs of the program, which are not
//! measured.

use std::collections::VecDeque;
use std::time::Duration;

use gpu_mux::{Awaits, Exchange};

use super::SimulateOptions;
use super::gang_windows::{GangWindows, JobProgress};
use super::job_rates::JobRates;
use super::jobs::Span;
use super::rank::Rank;
use super::steps::RankClass;
use crate::Error;
use crate::program::{CollectiveId, Program, RankProgram};

/// The simulated ranks with a common virtual time, and the state of their collectives. One rank is
/// simulated for each class of equal ranks. Each has its own device. Ranks depend on each other
/// only by collectives.
pub(super) struct SimulatedRanks<'a> {
    program: &'a Program,
    /// The simulated ranks, one per class.
    pub(super) ranks: Vec<Rank<'a>>,
    /// Time of the next event of each class's device.
    next: Vec<Option<Duration>>,
    /// State of each collective.
    collectives: Vec<CollectiveState>,
    /// Arrivals at collectives, and ends of their transfers, that were not processed yet.
    exchanges: VecDeque<(usize, CollectiveId, Exchange)>,
    /// The collectives and windows of distributed background jobs.
    gangs: GangWindows,
    /// Their progress at the end of the warm-up and at the end.
    job_progress: Vec<Vec<JobProgress>>,
    /// Whether an iteration depends only on the times at which the ranks begin it.
    is_memoryless: bool,
    /// Collectives that have begun to transfer, with the times, if links decide when they end:
    /// [`end_transfer`](Self::end_transfer).
    begun: Option<VecDeque<(CollectiveId, Duration)>>,
}

/// The ranks that have arrived at a collective, and those that have finished it. A rank does not
/// arrive again before all have finished.
#[derive(Debug, Clone, Default)]
struct CollectiveState {
    /// The classes in the order of their arrival.
    arrived: Vec<(usize, Exchange)>,
    /// Number of their ranks.
    ranks_arrived: usize,
    ranks_done: usize,
    /// Whether its transfer on shared links has not ended.
    is_on_links: bool,
}

/// The measured interval of virtual time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Time at which the last rank has ended the warm-up.
    pub(super) start: Duration,
    /// Time at which the last rank has ended the last iteration.
    pub(super) end: Duration,
    /// Number of runs of the program in the interval.
    pub(super) iterations: u32,
}

impl<'a> SimulatedRanks<'a> {
    /// Creates the ranks at virtual time 0, with one simulated rank per class.
    ///
    /// # Errors
    /// [`Error::Mux`] for invalid device parameters.
    pub(super) fn new(
        program: &'a Program,
        classes: &'a [RankClass<'a>],
        options: &'a SimulateOptions,
    ) -> Result<Self, Error> {
        let ranks = classes.iter().enumerate().map(|(index, class)| Rank::new(index, class, options));
        let ranks = ranks.collect::<Result<Vec<_>, Error>>()?;
        Ok(Self {
            program,
            next: vec![None; ranks.len()],
            ranks,
            collectives: vec![CollectiveState::default(); program.collectives.len()],
            exchanges: VecDeque::new(),
            gangs: GangWindows::new(&options.distributed, classes)?,
            job_progress: Vec::new(),
            is_memoryless: !options.has_background()
                && options.device == options.device.without_overheads()
                && !options.timeline,
            begun: None,
        })
    }

    /// Lets the ranks share links with others: a collective ends when its own transfers on all
    /// ranks and its transfer on the links have ended.
    pub(super) fn with_shared_links(mut self) -> Self {
        (self.begun, self.is_memoryless) = (Some(VecDeque::new()), false);
        self
    }

    /// Runs the program `iterations` times on all ranks, the first `warm_up` of which are not
    /// measured, and returns the measured interval. The background runs until the end.
    ///
    /// # Errors
    /// [`Error::Mux`] if no rank can continue.
    pub(super) fn run(&mut self, warm_up: u32, iterations: u32) -> Result<Window, Error> {
        self.begin_iterations()?;
        let start = self.run_to(warm_up)?;
        self.ranks.iter_mut().for_each(Rank::end_warm_up);
        let at_start = self.gangs.progress(&self.ranks, start);
        let end = self.run_to(iterations)?;
        let at_end = self.gangs.progress(&self.ranks, end);
        self.job_progress = vec![at_start, at_end];
        Ok(Window { start, end, iterations: iterations - warm_up })
    }

    /// Begins the first iteration on all ranks, at virtual time 0.
    ///
    /// # Errors
    /// [`Error::Mux`] if a driver fails.
    pub(super) fn begin_iterations(&mut self) -> Result<(), Error> {
        for rank in 0..self.ranks.len() {
            self.advance(rank, Duration::ZERO)?;
        }
        self.run_collectives()?;
        self.run_gangs(Duration::ZERO)
    }

    /// Returns the time of the next event of any rank, unless a transfer on shared links ends
    /// before.
    pub(super) fn next_event(&self) -> Option<Duration> {
        self.next.iter().flatten().copied().chain(self.gangs.wake()).min()
    }

    /// Processes the next event.
    ///
    /// # Errors
    /// [`Error::Mux`] if there is none.
    pub(super) fn process_next_event(&mut self) -> Result<(), Error> {
        let next = (0..self.ranks.len()).filter_map(|rank| Some((self.next[rank]?, rank))).min();
        let wake = self.gangs.wake().filter(|&wake| next.is_none_or(|(next, _)| wake < next));
        if let Some(wake) = wake {
            return self.run_gangs(wake);
        }
        let (now, rank) = next.ok_or(gpu_mux::Error::Stalled)?;
        self.advance(rank, now)?;
        self.run_collectives()?;
        self.run_gangs(now)
    }

    /// Returns whether all ranks have ended the given number of iterations.
    pub(super) fn have_ended(&self, iterations: u32) -> bool {
        self.ranks.iter().all(|rank| rank.jobs.has_ended(iterations))
    }

    /// Returns the time at which the last rank has ended the given number of iterations.
    pub(super) fn end_of(&self, iterations: u32) -> Duration {
        self.ranks.iter().filter_map(|rank| rank.jobs.end_of(iterations)).max().unwrap_or_default()
    }

    /// Returns the next collective that has begun to transfer on shared links, with the time.
    pub(super) fn begun_transfer(&mut self) -> Option<(CollectiveId, Duration)> {
        self.begun.as_mut()?.pop_front()
    }

    /// Ends the transfer of a collective on the shared links, at virtual time `at`.
    ///
    /// # Errors
    /// [`Error::Mux`] if a driver fails.
    pub(super) fn end_transfer(&mut self, collective: CollectiveId, at: Duration) -> Result<(), Error> {
        let state = &mut self.collectives[collective.0];
        state.is_on_links = false;
        if state.ranks_done == self.program.collectives[collective.0].ranks.len() {
            self.end(collective, at)?;
            self.run_collectives()?;
        }
        Ok(())
    }

    /// Advances the ranks without steps to this time, on which only the background runs.
    ///
    /// # Errors
    /// [`Error::Mux`] if a driver fails.
    pub(super) fn advance_idle_ranks(&mut self, to: Duration) -> Result<(), Error> {
        for rank in 0..self.ranks.len() {
            if self.ranks[rank].jobs.is_without_steps() {
                self.advance(rank, to)?;
            }
        }
        Ok(())
    }

    /// Advances until all ranks have ended the given number of iterations. Returns that time, to
    /// which all ranks are advanced.
    ///
    /// Events of all devices are processed in the order of time, so that no device is ahead of an
    /// event on another device that could affect it. Iterations that only repeat the last one are
    /// not simulated.
    fn run_to(&mut self, iterations: u32) -> Result<Duration, Error> {
        for iteration in 1..=iterations {
            if self.repeats_after(iteration - 1) {
                self.ranks.iter_mut().for_each(|rank| rank.jobs.repeat_until(iteration));
            }
            while !self.have_ended(iteration) {
                self.process_next_event()?;
            }
        }
        let end = self.end_of(iterations);
        let repeats = self.repeats_after(iterations);
        for rank in 0..self.ranks.len() {
            if !repeats || self.ranks[rank].jobs.is_without_steps() {
                self.advance(rank, end)?;
            }
        }
        self.run_collectives()?;
        Ok(end)
    }

    /// Launches the collectives of distributed background jobs that all members have granted at
    /// `now`.
    fn run_gangs(&mut self, now: Duration) -> Result<(), Error> {
        while !self.gangs.is_empty() {
            let mut with_work = Vec::new();
            self.gangs.decide(&mut self.ranks, now, &mut with_work)?;
            if with_work.is_empty() {
                break;
            }
            for rank in with_work {
                self.advance(rank, now)?;
            }
            self.run_collectives()?;
        }
        Ok(())
    }

    /// Returns the progress of each distributed background job in the measured interval, after
    /// [`run`](Self::run), which returns that interval.
    pub(super) fn background_jobs(&self, window: &Window) -> Vec<JobRates> {
        let [start, end] = &self.job_progress[..] else { return Vec::new() };
        let elapsed = window.end.saturating_sub(window.start);
        start.iter().zip(end).map(|(start, end)| JobRates::new(start, end, elapsed)).collect()
    }

    /// Returns the interval of each step of a rank's program in the last iteration, and the
    /// duration of that iteration. `program` is one of the simulated program.
    pub(super) fn last_iteration(&self, program: &RankProgram) -> (Vec<Span>, Duration) {
        let is_of = |rank: &&Rank<'_>| rank.represents(program);
        self.ranks.iter().find(is_of).map(|rank| rank.jobs.last_iteration(program)).unwrap_or_default()
    }

    /// Whether all iterations after the given one take the same times as it: every rank begins the
    /// next iteration as long after this one as every other rank.
    fn repeats_after(&self, iteration: u32) -> bool {
        let with_steps = self.ranks.iter().filter(|rank| !rank.jobs.is_without_steps());
        let mut durations = with_steps.map(|rank| rank.jobs.duration_of(iteration));
        let first = durations.next().flatten();
        self.is_memoryless && first.is_some() && durations.all(|duration| duration == first)
    }

    /// Advances a rank to this time. Its arrivals at collectives are appended to `exchanges`.
    fn advance(&mut self, rank: usize, now: Duration) -> Result<(), Error> {
        self.ranks[rank].advance(now, &mut self.exchanges)?;
        self.next[rank] = self.ranks[rank].next_event();
        self.gangs.changed(rank, &self.ranks[rank], now);
        Ok(())
    }

    /// Begins and ends collectives for the ranks that have arrived. Ranks may then arrive at the
    /// next collectives immediately.
    fn run_collectives(&mut self) -> Result<(), Error> {
        while let Some((rank, collective, exchange)) = self.exchanges.pop_front() {
            let all_ranks = self.program.collectives[collective.0].ranks.len();
            let (ranks, state) = (self.ranks[rank].ranks(), &mut self.collectives[collective.0]);
            match exchange.awaits {
                Awaits::Partners => {
                    state.arrived.push((rank, exchange));
                    state.ranks_arrived += ranks;
                    if state.ranks_arrived == all_ranks {
                        self.begin(collective)?;
                    }
                }
                Awaits::End => {
                    state.ranks_done += ranks;
                    if state.ranks_done == all_ranks && !state.is_on_links {
                        self.end(collective, exchange.at)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, collective: CollectiveId) -> Result<(), Error> {
        let arrived = std::mem::take(&mut self.collectives[collective.0].arrived);
        // The last arrival, and the last arrival of the other ranks.
        let mut latest = arrived.iter().rev().map(|(_, exchange)| exchange.at);
        let (now, mut before) = (latest.next().unwrap_or_default(), latest.next().unwrap_or_default());
        if arrived.last().is_some_and(|&(rank, _)| self.ranks[rank].ranks() > 1) {
            before = now;
        }
        let links_free = arrived.iter().map(|&(rank, _)| self.gangs.links_free(rank)).max();
        let links_free = links_free.unwrap_or_default();
        for (place, &(rank, exchange)) in arrived.iter().enumerate() {
            let others = if place + 1 == arrived.len() { before } else { now };
            self.advance(rank, now)?;
            self.ranks[rank].begin_collective(exchange.tasklet, others, links_free)?;
            self.next[rank] = self.ranks[rank].next_event();
        }
        let state = &mut self.collectives[collective.0];
        state.arrived = arrived;
        if let Some(begun) = &mut self.begun {
            state.is_on_links = true;
            begun.push_back((collective, now));
        }
        Ok(())
    }

    fn end(&mut self, collective: CollectiveId, now: Duration) -> Result<(), Error> {
        let state = std::mem::take(&mut self.collectives[collective.0]);
        for (rank, exchange) in state.arrived {
            self.advance(rank, now)?;
            self.ranks[rank].end_collective(exchange.tasklet)?;
            self.next[rank] = self.ranks[rank].next_event();
        }
        Ok(())
    }
}
