//! What a simulation found.

use std::time::Duration;

use gpu_mux::{ForegroundState, Occupancy};

use super::machine::Window;
use super::rank::Rank;
use super::{SimulateOptions, Timeline};
use crate::program::Program;

/// What a simulation found in the iterations after the warm-up. All times are virtual.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// Mean time of an iteration after the warm-up: from the moment when the last rank has ended the warm-up to the moment
    /// when the last rank has ended the last iteration, by the number of iterations between. Ranks go on to their next
    /// iteration without waiting for each other, so iterations may overlap.
    pub iteration: Duration,
    /// Samples of the foreground's global batch by second: one batch an iteration.
    pub foreground_samples_per_s: f64,
    /// Background samples by second, of all ranks together; 0 without background.
    pub background_samples_per_s: f64,
    /// Where the time of all ranks goes in an iteration.
    pub activity: Activity,
    /// In which of this time the background's samples are trained on.
    pub background_by_activity: BackgroundRates,
    /// The part of all ranks' time in which they compute, for either job, or the foreground could.
    pub gpu_busy_fraction: f64,
    /// The part of all ranks' time in which the foreground computes, or could if its device were free.
    pub foreground_busy_fraction: f64,
    /// The part that the background used of all time in which the foreground neither computes nor transfers: it waits
    /// for other ranks, or has nothing to do. `None` without background, or when there is no such time.
    pub background_share_of_idle: Option<f64>,
    /// By rank: the steps of the last iteration, by index, in the order in which they started.
    pub started: Vec<Vec<usize>>,
    /// The last iteration's timeline, if it was asked for.
    pub timeline: Option<Timeline>,
}

/// Where the time of all ranks goes in an iteration, by what the foreground does on each. The three add up to the time of
/// an iteration by the number of ranks, to rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activity {
    /// Its kernels run, or could if the device were free, whether or not a collective transfers meanwhile.
    pub computing: Duration,
    /// Not that, but a collective that the rank belongs to transfers: all its ranks have come.
    pub communicating: Duration,
    /// Not that either: it waits for other ranks, or has nothing to do.
    pub idle: Duration,
}

impl Activity {
    /// The active GPU time: computing or communicating.
    #[must_use]
    pub fn active(&self) -> Duration {
        self.computing.saturating_add(self.communicating)
    }
}

/// Background samples by second, of all ranks together, by what the foreground does on a rank meanwhile: the samples of a
/// rank are divided by the time that background is on its device. They add up to
/// [`background_samples_per_s`](Simulation::background_samples_per_s), to rounding.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BackgroundRates {
    /// While it [computes](Activity::computing).
    pub computing: f64,
    /// While it [only communicates](Activity::communicating).
    pub communicating: f64,
    /// While it [is idle](Activity::idle).
    pub idle: f64,
}

/// The states of a device in which its foreground is idle.
const IDLE: [ForegroundState; 2] = [ForegroundState::Waiting, ForegroundState::Idle];

impl Simulation {
    pub(super) fn new(
        program: &Program,
        options: &SimulateOptions,
        classes: &[Rank<'_>],
        window: Window,
    ) -> Self {
        let elapsed = window.end.saturating_sub(window.start);
        let (iterations, seconds) = (window.iterations.max(1), elapsed.as_secs_f64());
        // A program that takes no time at all has no rates.
        let by_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let of_all = |amount: &dyn Fn(&Rank<'_>) -> f64| -> f64 {
            classes.iter().map(|class| class.ranks() as f64 * amount(class)).sum()
        };
        let background = |states: &[ForegroundState]| {
            of_all(&|class| background_time(&class.occupancy(), states).as_secs_f64())
        };
        let rate = |states: &[ForegroundState]| {
            by_second(of_all(&|class| {
                let all = background_time(&class.occupancy(), &ForegroundState::ALL).as_secs_f64();
                let part = background_time(&class.occupancy(), states).as_secs_f64();
                if all > 0.0 { class.background_samples() * (part / all) } else { 0.0 }
            }))
        };
        let time = |states: &[ForegroundState]| -> Duration {
            let of_class = |class: &Rank<'_>| {
                let ranks = u32::try_from(class.ranks()).unwrap_or(u32::MAX);
                states
                    .iter()
                    .map(|&state| class.occupancy().time(state))
                    .sum::<Duration>()
                    .saturating_mul(ranks)
            };
            classes.iter().map(of_class).sum()
        };
        let ranks = classes.iter().map(Rank::ranks).sum::<usize>().max(1) as f64;
        let of_time = |amount: f64| by_second(amount) / ranks;
        let (computing, idle) = (time(&[ForegroundState::Computing]), time(&IDLE));
        let (foreground, used) = (computing.as_secs_f64(), background(&IDLE));
        let share = (options.background.is_some() && !idle.is_zero()).then(|| used / idle.as_secs_f64());
        Self {
            iteration: elapsed / iterations,
            foreground_samples_per_s: by_second(program.batch as f64 * f64::from(iterations)),
            background_samples_per_s: by_second(of_all(&|class| class.background_samples())),
            activity: Activity {
                computing: computing / iterations,
                communicating: time(&[ForegroundState::Transferring]) / iterations,
                idle: idle / iterations,
            },
            background_by_activity: BackgroundRates {
                computing: rate(&[ForegroundState::Computing]),
                communicating: rate(&[ForegroundState::Transferring]),
                idle: rate(&IDLE),
            },
            gpu_busy_fraction: of_time(foreground + background(&[ForegroundState::Transferring]) + used),
            foreground_busy_fraction: of_time(foreground),
            background_share_of_idle: share,
            started: by_rank(classes.iter().flat_map(Rank::started)),
            timeline: options.timeline.then(|| timeline(classes)),
        }
    }
}

/// How long the background was on a device while the foreground was in one of these states.
fn background_time(occupancy: &Occupancy, states: &[ForegroundState]) -> Duration {
    states.iter().map(|&state| occupancy.background(state)).sum()
}

fn timeline(classes: &[Rank<'_>]) -> Timeline {
    let origin = classes.iter().map(Rank::begin).min().unwrap_or_default();
    let events = by_rank(classes.iter().flat_map(|class| class.timelines(origin)));
    Timeline::new(events.into_iter().flatten().collect())
}

/// What comes rank by rank in any order, in the order of the ranks.
fn by_rank<T>(of_ranks: impl Iterator<Item = (usize, T)>) -> Vec<T> {
    let mut of_ranks: Vec<(usize, T)> = of_ranks.collect();
    of_ranks.sort_by_key(|&(rank, _)| rank);
    of_ranks.into_iter().map(|(_, of_rank)| of_rank).collect()
}
