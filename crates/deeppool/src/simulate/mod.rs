//! Executes a program in virtual time: costs instead of work.

mod background;
mod machine;
mod rank;
mod steps;
mod timeline;
mod workload;

use std::time::Duration;

use gpu_mux::{DeviceParameters, ForegroundState, Policy};

pub use background::BackgroundCosts;
pub use timeline::{Timeline, TimelineEvent};
pub use workload::workload;

use crate::Error;
use crate::costs::Costs;
use crate::program::Program;
use machine::Machine;
use rank::Rank;
use steps::RankSteps;

/// How a simulation runs.
#[derive(Debug, Clone)]
pub struct SimulateOptions {
    /// Iterations to run, at least one.
    pub iterations: usize,
    /// A background job that every rank runs by itself.
    pub background: Option<BackgroundCosts>,
    /// How foreground and background share a rank's device.
    pub policy: Policy,
    /// What a rank's device is made of: [`undisturbed`] by default, or [`contended`].
    pub device: DeviceParameters,
    /// Whether the last iteration's timeline is kept.
    pub timeline: bool,
}

impl Default for SimulateOptions {
    /// 20 iterations without background.
    fn default() -> Self {
        Self {
            iterations: 20,
            background: None,
            policy: Policy::default(),
            device: undisturbed(),
            timeline: false,
        }
    }
}

/// The policy of a name, a preset's or one of [`Policy::ladder`].
///
/// # Errors
/// [`Error::Setting`], which lists the presets.
pub fn policy_named(name: &str) -> Result<Policy, Error> {
    Policy::named(name).ok_or_else(|| Error::Setting {
        setting: "the policy",
        expected: "naive, priority, deeppool, feedback or default",
        got: format!("`{name}`"),
    })
}

/// A device as the planner's formula has it: launching takes no time, and communication takes nothing from computing.
///
/// The times of a profile contain the gaps between kernels, since layers are timed as captured graphs.
#[must_use]
pub fn undisturbed() -> DeviceParameters {
    DeviceParameters {
        communication_share: 0.0,
        communication_memory: 0.0,
        ..DeviceParameters::a100().without_overheads()
    }
}

/// A device on which launching takes an A100's host its time, and communication kernels hold multiprocessors and use
/// memory bandwidth.
///
/// The gaps between kernels stay out: the times of a profile contain them.
#[must_use]
pub fn contended() -> DeviceParameters {
    DeviceParameters {
        kernel_gap: Duration::ZERO,
        graph_node_gap: Duration::ZERO,
        ..DeviceParameters::a100()
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

/// Runs a program over and over in virtual time.
///
/// Each rank's two lanes run their steps in the program's order, each step after those that it depends on, on a
/// [virtual device](gpu_mux::VirtualDevice) that the foreground shares with the background by the policy, as a
/// [`Driver`](gpu_mux::Driver) does on a GPU. A collective starts when the last of its ranks has come to it, takes as
/// long as the link model says, or longer where a device is contended, and ends for all together; a rank starts its
/// next iteration when all its steps are finished.
///
/// The result is no better than the costs, and than the model of the device. With background the foreground is run by
/// itself first, since a policy may ask how long its communication takes then. O((steps + background pieces) x
/// ranks) an iteration.
///
/// # Errors
/// When the profile lacks a time that is needed, a device is asked for that cannot be, or the program can never end.
pub fn simulate(
    program: &Program,
    costs: &Costs<'_>,
    options: &SimulateOptions,
) -> Result<Simulation, Error> {
    let mut steps = RankSteps::of_ranks(program, costs)?;
    if options.background.is_some() {
        steps = expected(program, steps, options)?;
    }
    let mut machine = Machine::new(program, &steps, options)?;
    let elapsed = machine.run()?;
    Ok(summarise(program, options, &machine.ranks, elapsed))
}

/// The steps with how long their communication waits when the foreground is by itself.
fn expected(
    program: &Program,
    steps: Vec<RankSteps>,
    options: &SimulateOptions,
) -> Result<Vec<RankSteps>, Error> {
    // In the second iteration everything is as in the later ones.
    let alone = SimulateOptions { iterations: 2, background: None, timeline: false, ..options.clone() };
    let mut machine = Machine::new(program, &steps, &alone)?;
    machine.run()?;
    let partners: Vec<Vec<Duration>> =
        machine.ranks.iter().map(|rank| rank.partners_after().to_vec()).collect();
    drop(machine);
    Ok(steps.into_iter().zip(&partners).map(|(steps, partners)| steps.expecting(partners)).collect())
}

fn summarise(
    program: &Program,
    options: &SimulateOptions,
    ranks: &[Rank<'_>],
    elapsed: Duration,
) -> Simulation {
    let iterations = options.iterations.max(1);
    let seconds = elapsed.as_secs_f64();
    // A program that takes no time at all has no rates.
    let by_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
    let sum = |time: &dyn Fn(&Rank<'_>) -> Duration| -> f64 {
        ranks.iter().map(|rank| time(rank).as_secs_f64()).sum()
    };
    let foreground = sum(&|rank| rank.occupancy().time(ForegroundState::Computing));
    let transferring = sum(&|rank| rank.occupancy().background(ForegroundState::Transferring));
    let idle = [ForegroundState::Waiting, ForegroundState::Idle];
    let idle_time = sum(&|rank| idle.iter().map(|&state| rank.occupancy().time(state)).sum());
    let used = sum(&|rank| idle.iter().map(|&state| rank.occupancy().background(state)).sum());
    let share = (options.background.is_some() && idle_time > 0.0).then(|| used / idle_time);
    let by_rank = |amount: f64| by_second(amount) / ranks.len() as f64;
    Simulation {
        iteration: elapsed.div_f64(iterations as f64),
        foreground_samples_per_s: by_second((program.batch * iterations) as f64),
        background_samples_per_s: by_second(ranks.iter().map(Rank::background_samples).sum()),
        gpu_busy_fraction: by_rank(foreground + transferring + used),
        foreground_busy_fraction: by_rank(foreground),
        background_share_of_idle: share,
        started: ranks.iter().map(Rank::started).collect(),
        timeline: options.timeline.then(|| timeline(ranks)),
    }
}

fn timeline(ranks: &[Rank<'_>]) -> Timeline {
    let origin = ranks.iter().map(Rank::begin).min().unwrap_or_default();
    Timeline::new(ranks.iter().flat_map(|rank| rank.timeline(origin)).collect())
}
