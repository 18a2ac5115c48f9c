//! Executes a program in virtual time: costs instead of work.

mod background;
mod rank;
mod timeline;

use std::time::Duration;

use gpu_mux::{BackgroundLoop, Policy, VirtualDriver};

pub use background::BackgroundCosts;
pub use timeline::{Timeline, TimelineEvent};

use crate::Error;
use crate::costs::Costs;
use crate::program::Program;
use rank::Rank;

/// How a simulation runs.
#[derive(Debug, Clone)]
pub struct SimulateOptions {
    /// Iterations to run, at least one.
    pub iterations: usize,
    /// A background job that every rank runs by itself.
    pub background: Option<BackgroundCosts>,
    /// How foreground and background share a rank's device.
    pub policy: Policy,
    /// Whether the last iteration's timeline is kept.
    pub timeline: bool,
}

impl Default for SimulateOptions {
    /// 20 iterations without background.
    fn default() -> Self {
        Self { iterations: 20, background: None, policy: Policy::default(), timeline: false }
    }
}

/// What a simulation found. All times are virtual.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// Mean time of an iteration.
    pub iteration: Duration,
    /// Samples of the foreground's global batch by second.
    pub foreground_samples_per_s: f64,
    /// Background samples by second, of all ranks together; 0 without background.
    pub background_samples_per_s: f64,
    /// The part of all ranks' time in which they compute, for either job.
    pub gpu_busy_fraction: f64,
    /// The part of all ranks' time in which they compute for the foreground.
    pub foreground_busy_fraction: f64,
    /// By rank: the steps of the last iteration, by index, in the order in which they started.
    pub started: Vec<Vec<usize>>,
    /// The last iteration's timeline, if it was asked for.
    pub timeline: Option<Timeline>,
}

/// Runs a program over and over in virtual time.
///
/// Each rank's two lanes run their steps in the program's order, each step after those that it depends on. A collective
/// starts when the last of its ranks has come to it and takes as long as the link model says; a rank starts its next
/// iteration when all its steps are finished. Where the compute lane is idle, the background runs by the policy.
///
/// The result is no better than the costs. O(steps + background tasklets) an iteration.
///
/// # Errors
/// When the profile lacks a time that is needed.
pub fn simulate(
    program: &Program,
    costs: &Costs<'_>,
    options: &SimulateOptions,
) -> Result<Simulation, Error> {
    let mut ranks = prepare(program, costs, options)?;
    let iterations = options.iterations.max(1);
    for _ in 0..iterations {
        run_iteration(program, costs, &mut ranks)?;
    }
    let elapsed = ranks.iter().map(Rank::iteration_end).max().unwrap_or_default();
    for rank in &mut ranks {
        rank.idle_until(elapsed)?;
    }
    Ok(summarise(program, options, &ranks, elapsed, iterations))
}

fn prepare<'a>(
    program: &'a Program,
    costs: &Costs<'_>,
    options: &SimulateOptions,
) -> Result<Vec<Rank<'a>>, Error> {
    let cut = |job: &BackgroundCosts| BackgroundLoop::cut(job.tasklets(), options.policy.background_piece);
    let background = options.background.as_ref().map(cut).transpose()?;
    let rank = |program| {
        let device = VirtualDriver::new(options.policy, background.clone());
        Rank::new(program, costs, if options.timeline { device.recording() } else { device })
    };
    program.ranks.iter().map(rank).collect()
}

/// All ranks issue collectives in the order of the program's list, so each one's participants can be brought to it in
/// turn.
fn run_iteration(program: &Program, costs: &Costs<'_>, ranks: &mut [Rank<'_>]) -> Result<(), Error> {
    for rank in &mut *ranks {
        rank.begin_iteration();
    }
    for collective in &program.collectives {
        let mut start = Duration::ZERO;
        for &rank in &collective.ranks {
            start = start.max(ranks[rank].arrive_at_collective()?);
        }
        let end = start + costs.collective(&collective.op, collective.ranks.len());
        for &rank in &collective.ranks {
            ranks[rank].finish_collective(start, end);
        }
    }
    for rank in ranks {
        rank.run_compute()?;
    }
    Ok(())
}

fn summarise(
    program: &Program,
    options: &SimulateOptions,
    ranks: &[Rank<'_>],
    elapsed: Duration,
    iterations: usize,
) -> Simulation {
    let seconds = elapsed.as_secs_f64();
    // A program that takes no time at all has no rates.
    let by_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
    let usages: Vec<_> = ranks.iter().map(|rank| rank.device().usage()).collect();
    let foreground: f64 = usages.iter().map(|usage| usage.foreground_busy.as_secs_f64()).sum();
    let background: f64 = usages.iter().map(|usage| usage.background_busy.as_secs_f64()).sum();
    let laps: f64 = ranks.iter().map(|rank| rank.device().background_laps()).sum();
    let samples = options.background.as_ref().map_or(0, BackgroundCosts::batch) as f64;
    Simulation {
        iteration: elapsed.div_f64(iterations as f64),
        foreground_samples_per_s: by_second((program.batch * iterations) as f64),
        background_samples_per_s: by_second(laps * samples),
        gpu_busy_fraction: by_second(foreground + background) / ranks.len() as f64,
        foreground_busy_fraction: by_second(foreground) / ranks.len() as f64,
        started: ranks.iter().map(Rank::started).collect(),
        timeline: options.timeline.then(|| timeline(ranks)),
    }
}

fn timeline(ranks: &[Rank<'_>]) -> Timeline {
    let origin = ranks.iter().map(Rank::begin).min().unwrap_or_default();
    Timeline::new(ranks.iter().flat_map(|rank| rank.timeline(origin)).collect())
}
