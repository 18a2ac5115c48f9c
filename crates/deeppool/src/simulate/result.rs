//! The result of a simulation.
//!
//! The activity of the foreground on a rank is computing, only communicating (not computing while a
//! collective transfers data) or idle. Fractions are from 0 to 1. A run of a program is one
//! iteration, or several with partial backpropagation.

use std::time::Duration;

use gpu_mux::{ForegroundState, Occupancy};

use super::JobRates;
use super::SimulateOptions;
use super::jobs::RankProgress;
use super::rank::Rank;
use super::simulated_ranks::Window;
use crate::program::Program;
use crate::timeline::{Origin, Timeline};

/// The result of a simulation after the warm-up. All times are virtual.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Simulation {
    /// Mean iteration time: the time from the moment when the last rank has ended the warm-up to
    /// the moment when the last rank has ended the last iteration, divided by the number of
    /// iterations. Ranks start their next iteration without waiting for each other, so iterations
    /// may overlap.
    pub iteration: Duration,
    /// Times of the iterations after the warm-up, in order: from the end of the previous one on the
    /// last rank to its own end on the last rank. Their mean is [`iteration`](Self::iteration), up
    /// to rounding. For a program with several iterations, one entry per run of the program: the
    /// time of the run divided by its number of iterations.
    pub iterations: Vec<Duration>,
    /// Foreground samples per second: one global batch per iteration.
    pub foreground_samples_per_s: f64,
    /// Background samples per second, of all ranks; 0 without a background job.
    pub background_samples_per_s: f64,
    /// Mean time of an iteration by activity of the foreground, summed over ranks.
    pub activity: SimulatedActivity,
    /// Mean time of an iteration by activity of the foreground, of each rank, by rank. The three
    /// parts of a rank add up to the iteration time.
    pub by_rank: Vec<SimulatedActivity>,
    /// Background samples per second of all ranks, by activity of the foreground at that time.
    pub background_by_activity: BackgroundRates,
    /// Fraction of all ranks' time in which the background is on the device, or the foreground
    /// computes or could if its device were free.
    pub gpu_busy_fraction: f64,
    /// Fraction of all ranks' time in which the foreground computes, or could if its device were
    /// free.
    pub foreground_busy_fraction: f64,
    /// Fraction of the foreground's [idle](SimulatedActivity::idle) time on all ranks in which the
    /// background is on the device. `None` without a background job, or without such time.
    pub background_share_of_idle: Option<f64>,
    /// Fraction of the time in which the foreground [computes](SimulatedActivity::computing) in
    /// which the background is on the device too. `None` without a background job, or without such
    /// time.
    pub background_share_of_computing: Option<f64>,
    /// Fraction of the time in which the foreground
    /// [only communicates](SimulatedActivity::communicating) in which the background is on the
    /// device. `None` without a background job, or without such time.
    pub background_share_of_communicating: Option<f64>,
    /// Results of each distributed background job, in the order of
    /// [`SimulateOptions::distributed`].
    pub distributed: Vec<JobRates>,
    /// Timeline of the last run of the program on all ranks; `None` if it was not requested.
    pub timeline: Option<Timeline>,
}

/// Mean time of an iteration on one rank, or summed over all ranks, by activity of the foreground.
/// The three parts add up to the iteration time multiplied by the number of ranks.
///
/// The activity of a rank is measured from its own end of the warm-up to its own end of the last
/// iteration, which is a whole number of iterations even if ranks are ahead of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SimulatedActivity {
    /// Time in which the foreground's kernels run, or could if the device were free, whether or not
    /// a collective transfers data.
    pub computing: Duration,
    /// Time in which the foreground does not compute, and one of its collectives transfers data,
    /// after all ranks have arrived.
    pub communicating: Duration,
    /// Time in which the foreground does neither: it waits for other ranks, or has no work.
    pub idle: Duration,
}

impl SimulatedActivity {
    /// Returns the mean activity of a rank over the given iterations of this time.
    fn of(rank: &Rank<'_>, iteration: Duration, iterations: u32) -> Self {
        let occupancy = rank.progress().occupancy;
        // The rank's window may be longer than that of the last rank.
        let computing = (occupancy.time(ForegroundState::Computing) / iterations).min(iteration);
        let rest = iteration.saturating_sub(computing);
        let communicating = (occupancy.time(ForegroundState::Transferring) / iterations).min(rest);
        Self { computing, communicating, idle: rest.saturating_sub(communicating) }
    }

    /// Returns the active time: the sum of computing and communicating.
    #[must_use]
    pub fn active(&self) -> Duration {
        self.computing.saturating_add(self.communicating)
    }
}

/// Background samples per second of all ranks, by activity of the foreground on the same rank at
/// that time. The samples of a rank are distributed evenly over the time in which the background is
/// on its device. The three rates add up to
/// [`background_samples_per_s`](Simulation::background_samples_per_s), up to rounding.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BackgroundRates {
    /// Rate from the time in which the foreground [computes](SimulatedActivity::computing).
    pub computing: f64,
    /// Rate from the time in which the foreground
    /// [only communicates](SimulatedActivity::communicating).
    pub communicating: f64,
    /// Rate from the time in which the foreground [is idle](SimulatedActivity::idle).
    pub idle: f64,
}

/// The states of a device with an idle foreground.
const IDLE: [ForegroundState; 2] = [ForegroundState::Waiting, ForegroundState::Idle];

impl Simulation {
    /// Computes the result of a simulation that has ended. `classes` are the simulated ranks, one
    /// per class of equal ranks, which counts once for each rank of the class. `window` is the
    /// virtual time from the end of the warm-up to the end of the last iteration.
    pub(super) fn new(
        program: &Program,
        options: &SimulateOptions,
        classes: &[Rank<'_>],
        window: Window,
        distributed: Vec<JobRates>,
    ) -> Self {
        let elapsed = window.end.saturating_sub(window.start);
        let of_program = u32::try_from(program.iterations).unwrap_or(u32::MAX).max(1);
        let iterations = window.iterations.max(1).saturating_mul(of_program);
        let seconds = elapsed.as_secs_f64();
        let iteration = elapsed / iterations;
        let totals = Totals::of(classes);
        let [computing, communicating] =
            [&[ForegroundState::Computing][..], &[ForegroundState::Transferring]]
                .map(|states| totals.time(states) / iterations);
        let all_ranks = iteration.saturating_mul(u32::try_from(totals.ranks).unwrap_or(u32::MAX));
        let idle = all_ranks.saturating_sub(computing).saturating_sub(communicating);
        let used = totals.background(&IDLE);
        let foreground = totals.part(totals.time(&[ForegroundState::Computing]));
        let share = |states: &[ForegroundState]| {
            let time = totals.time(states).as_secs_f64();
            (options.has_background() && time > 0.0).then(|| totals.background(states).as_secs_f64() / time)
        };
        Self {
            iteration,
            iterations: iteration_times(classes, &window, options.warm_up(), of_program),
            // A program without duration has no rates.
            foreground_samples_per_s: if seconds > 0.0 {
                program.batch as f64 * f64::from(iterations) / seconds
            } else {
                0.0
            },
            background_samples_per_s: totals.rate(classes, &ForegroundState::ALL),
            activity: SimulatedActivity { computing, communicating, idle },
            by_rank: by_rank(classes.iter().flat_map(|class| {
                let activity = SimulatedActivity::of(class, iteration, iterations);
                class.represented_ranks().map(move |rank| (rank, activity))
            })),
            background_by_activity: BackgroundRates {
                computing: totals.rate(classes, &[ForegroundState::Computing]),
                communicating: totals.rate(classes, &[ForegroundState::Transferring]),
                idle: totals.rate(classes, &IDLE),
            },
            gpu_busy_fraction: foreground
                + totals.part(totals.background(&[ForegroundState::Transferring]))
                + totals.part(used),
            foreground_busy_fraction: foreground,
            background_share_of_idle: share(&IDLE),
            background_share_of_computing: share(&[ForegroundState::Computing]),
            background_share_of_communicating: share(&[ForegroundState::Transferring]),
            distributed,
            timeline: options.timeline.then(|| timeline(program, options, classes)),
        }
    }
}

/// Returns the time of each run of the program in the window, divided by its number of iterations.
fn iteration_times(classes: &[Rank<'_>], window: &Window, warm_up: u32, of_program: u32) -> Vec<Duration> {
    let ends = (warm_up..warm_up + window.iterations).map(|iteration| {
        let ends = classes.iter().filter_map(|class| class.jobs.ends().get(iteration as usize));
        ends.max().copied().unwrap_or_default()
    });
    let mut before = window.start;
    ends.map(|end| end.saturating_sub(std::mem::replace(&mut before, end)) / of_program).collect()
}

/// Time of all ranks, each in its own iterations after the warm-up.
struct Totals {
    ranks: usize,
    /// By state of the foreground: the whole time, and the time with the background on the device.
    by_state: Vec<(ForegroundState, Duration, Duration)>,
}

impl Totals {
    fn of(classes: &[Rank<'_>]) -> Self {
        let sum = |time: &dyn Fn(&Occupancy) -> Duration| -> Duration {
            let of_class = |class: &Rank<'_>| {
                time(&class.progress().occupancy)
                    .saturating_mul(u32::try_from(class.ranks()).unwrap_or(u32::MAX))
            };
            classes.iter().map(of_class).sum()
        };
        let by_state = ForegroundState::ALL
            .map(|state| (state, sum(&|of| of.time(state)), sum(&|of| of.background(state))));
        Self { ranks: classes.iter().map(Rank::ranks).sum(), by_state: by_state.to_vec() }
    }

    fn in_states(&self, states: &[ForegroundState]) -> impl Iterator<Item = (Duration, Duration)> {
        let in_states = self.by_state.iter().filter(|(state, ..)| states.contains(state));
        in_states.map(|&(_, time, background)| (time, background))
    }

    fn time(&self, states: &[ForegroundState]) -> Duration {
        self.in_states(states).map(|(time, _)| time).sum()
    }

    fn background(&self, states: &[ForegroundState]) -> Duration {
        self.in_states(states).map(|(_, background)| background).sum()
    }

    /// Returns this time as a fraction of the whole time.
    fn part(&self, time: Duration) -> f64 {
        let all = self.time(&ForegroundState::ALL).as_secs_f64();
        if all > 0.0 { time.as_secs_f64() / all } else { 0.0 }
    }

    /// Returns the background samples per second of all ranks in these states. Each rank's samples
    /// are distributed over its background time.
    fn rate(&self, classes: &[Rank<'_>], states: &[ForegroundState]) -> f64 {
        let in_states = |class: &Rank<'_>| {
            let RankProgress { occupancy, background_samples } = class.progress();
            let time = |states: &[ForegroundState]| -> f64 {
                states.iter().map(|&state| occupancy.background(state).as_secs_f64()).sum()
            };
            let all = time(&ForegroundState::ALL);
            if all > 0.0 { class.ranks() as f64 * background_samples * time(states) / all } else { 0.0 }
        };
        let samples: f64 = classes.iter().map(in_states).sum();
        let seconds = self.time(&ForegroundState::ALL).as_secs_f64() / self.ranks.max(1) as f64;
        if seconds > 0.0 { samples / seconds } else { 0.0 }
    }
}

fn timeline(program: &Program, options: &SimulateOptions, classes: &[Rank<'_>]) -> Timeline {
    let origin = classes.iter().map(|class| class.jobs.begin()).min().unwrap_or_default();
    let events = by_rank(classes.iter().flat_map(|class| class.jobs.timelines(program, options, origin)));
    Timeline::new(Origin::Simulated, events.into_iter().flatten().collect())
}

/// Returns values by rank, in the order of the ranks.
fn by_rank<T>(of_ranks: impl Iterator<Item = (usize, T)>) -> Vec<T> {
    let mut of_ranks: Vec<(usize, T)> = of_ranks.collect();
    of_ranks.sort_by_key(|&(rank, _)| rank);
    of_ranks.into_iter().map(|(_, of_rank)| of_rank).collect()
}
