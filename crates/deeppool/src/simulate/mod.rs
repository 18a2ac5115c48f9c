//! Executes a program in virtual time: costs instead of work.

mod background;
mod jobs;
mod machine;
mod plan;
mod rank;
mod report;
mod result;
mod steps;
mod workload;

use std::num::NonZeroUsize;
use std::time::Duration;

use gpu_mux::{DeviceParameters, Policy};

pub use background::BackgroundCosts;
pub use plan::simulate_plan;
pub use report::{BackgroundWhile, RankIteration, RankTime, SimulationReport};
pub use result::{BackgroundRates, SimulatedActivity, Simulation};
pub use workload::workload;

use crate::Error;
use crate::costs::Costs;
use crate::program::Program;
use machine::Machine;
use steps::RankClass;

/// How a simulation runs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SimulateOptions {
    /// Iterations to run, at least one; of a program of several iterations as many more as make it run a whole number of times, at least
    /// twice.
    pub iterations: usize,
    /// A background job that every rank runs by itself.
    pub background: Option<BackgroundCosts>,
    /// How foreground and background share a rank's device.
    pub policy: Policy,
    /// What a rank's device is made of: [`undisturbed`] by default, or [`contended`].
    pub device: DeviceParameters,
    /// Whether the timeline of the last iteration is kept, or of the last rotation of roles with partial backpropagation.
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

impl SimulateOptions {
    /// This with so many iterations.
    #[must_use]
    pub fn with_iterations(self, iterations: usize) -> Self {
        Self { iterations, ..self }
    }

    /// This with a background job on every rank, or without.
    #[must_use]
    pub fn with_background(self, background: Option<BackgroundCosts>) -> Self {
        Self { background, ..self }
    }

    /// This with another policy of sharing.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// This on devices of another kind.
    #[must_use]
    pub fn with_device(self, device: DeviceParameters) -> Self {
        Self { device, ..self }
    }

    /// This with the last iteration's timeline, or without.
    #[must_use]
    pub fn with_timeline(self, timeline: bool) -> Self {
        Self { timeline, ..self }
    }

    /// How often a program of so many iterations has to run.
    fn for_program(mut self, iterations: usize) -> Self {
        if iterations > 1 {
            self.iterations = self.iterations.div_ceil(iterations).max(2);
        }
        self
    }

    /// How often the program runs, at least once.
    fn iterations(&self) -> u32 {
        u32::try_from(self.iterations).unwrap_or(u32::MAX).max(1)
    }

    /// Without a background nothing keeps the host from launching everything at once: a collective is then there as soon as
    /// what it depends on is done, whatever is launched before it.
    fn alone_if_it_is(mut self) -> Self {
        if self.background.is_none() {
            self.policy.foreground_ahead = NonZeroUsize::MAX;
        }
        self
    }

    /// Iterations before anything is measured: a quarter, at least one of two or more.
    fn warm_up(&self) -> u32 {
        let iterations = self.iterations();
        (iterations / 4).max(1).min(iterations - 1)
    }
}

/// The policy of a name, a preset's or one of [`Policy::ladder`].
///
/// # Errors
/// [`Error::Setting`], which lists the presets.
pub fn policy_named(name: &str) -> Result<Policy, Error> {
    let unknown = || {
        let known = Policy::all().into_iter().map(|(known, _)| known).collect();
        Error::UnknownPolicy { name: name.into(), known }
    };
    Policy::named(name).ok_or_else(unknown)
}

/// A device as the planner's evaluation has it: launching takes no time, and communication takes nothing from computing.
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

/// Runs a program over and over in virtual time.
///
/// Each rank's two lanes run their steps in the program's order, each step after those that it depends on, on a
/// [virtual device](gpu_mux::VirtualDevice) that the foreground shares with the background by the policy, as a
/// [`Driver`](gpu_mux::Driver) does on a GPU. A collective starts when the last of its ranks has come to it, takes as
/// long as the link model says, or longer where a device is contended, and ends for all together; a rank starts its
/// next iteration when all its steps are finished, whether or not others have finished theirs. Ranks that do the same for
/// as long are simulated once.
///
/// The first quarter of the iterations (at least one of two or more) warms up, and everything is measured from the moment
/// when the last rank has ended them to the moment when the last rank has ended the last iteration.
///
/// The result is no better than the costs, and than the model of the device. With background the foreground is run by
/// itself first, since a policy may ask how long its communication takes then. O((steps + background pieces) x c^2) an
/// iteration for c classes of ranks that do the same.
///
/// # Errors
/// When the profile lacks a time that is needed, a device is asked for that cannot be, or the program can never end.
pub fn simulate(
    program: &Program,
    costs: &Costs<'_>,
    options: &SimulateOptions,
) -> Result<Simulation, Error> {
    let mut classes = RankClass::of_ranks(program, costs)?;
    if options.background.is_some() {
        classes = expected(program, classes, options)?;
    }
    let options = &options.clone().for_program(program.iterations).alone_if_it_is();
    let mut machine = Machine::new(program, &classes, options)?;
    let window = machine.run(options.warm_up(), options.iterations())?;
    Ok(Simulation::new(program, options, &machine.ranks, window))
}

/// The steps with how long their communication waits when the foreground is by itself.
fn expected<'a>(
    program: &'a Program,
    classes: Vec<RankClass<'a>>,
    options: &SimulateOptions,
) -> Result<Vec<RankClass<'a>>, Error> {
    // In the second iteration everything is as in the later ones.
    let alone = SimulateOptions { iterations: 2, background: None, timeline: false, ..options.clone() };
    let alone = alone.alone_if_it_is();
    let mut machine = Machine::new(program, &classes, &alone)?;
    machine.run(alone.warm_up(), alone.iterations())?;
    let partners: Vec<Vec<Duration>> =
        machine.ranks.iter().map(|rank| rank.jobs.partners_after().to_vec()).collect();
    drop(machine);
    Ok(classes.into_iter().zip(&partners).map(|(class, partners)| class.expecting(partners)).collect())
}
