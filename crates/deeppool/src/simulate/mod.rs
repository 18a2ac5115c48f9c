//! The simulator: executes a program in virtual time, with costs instead of work.
//!
//! A rank arrives at a collective when the rank's step for it is at the front of the rank's
//! communication lane.
//! The other ranks of the collective are its partners. The warm-up is the first iterations, which
//! are not measured. A class is a set of ranks that run the same steps for the same times. With
//! partial backpropagation, a rotation is the sequence of iterations after which the programs
//! repeat.

mod background;
mod background_ranks;
mod cluster;
mod contention;
mod distributed;
mod gang_windows;
mod job_rates;
mod jobs;
mod member;
mod plan;
mod rank;
mod report;
mod result;
mod simulated_ranks;
mod steps;
mod times;
mod workload;

use std::num::NonZeroUsize;
use std::time::Duration;

use gpu_mux::{DeviceParameters, Policy, check_virtual_time};

pub use background::BackgroundCosts;
pub use background_ranks::background_ranks;
pub use cluster::{
    ClusterJob, ClusterJobSpec, ClusterJobsFile, ClusterOptions, ClusterSimulation, ClusterTimeline,
    GpuPlacement, JobGpus, JobMode, LevelUse, SharedJob, place_jobs, simulate_cluster,
};
pub use distributed::DistributedBackground;
pub use job_rates::JobRates;
pub use plan::simulate_plan;
pub use report::{BackgroundByActivity, BackgroundJobReport, RankIteration, RankTime, SimulationReport};
pub use result::{BackgroundRates, SimulatedActivity, Simulation};
pub use workload::workload;

use crate::Error;
use crate::costs::Costs;
use crate::program::Program;
use contention::times_of_shared_machine;
use simulated_ranks::SimulatedRanks;
use steps::RankClass;
use times::ProgramTimes;

/// Options of a simulation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SimulateOptions {
    /// Number of foreground iterations, the warm-up (a quarter) included; 0 counts as 1. A program
    /// with several iterations runs a whole number of times, at least twice, so the number is
    /// rounded up.
    pub iterations: usize,
    /// Background job of which every rank runs its own copy; `None` for the foreground alone.
    pub background: Option<BackgroundCosts>,
    /// Background jobs on several ranks each, beside the copies of `background`. All members of a
    /// job need room for it beside the foreground and the copy.
    pub distributed: Vec<DistributedBackground>,
    /// Memory of every rank's device, in bytes: the background job runs on the ranks where the
    /// rest of it beside the foreground is large enough. `None` for no limit.
    pub memory_limit_bytes: Option<u64>,
    /// Policy by which foreground and background share a rank's device.
    pub policy: Policy,
    /// Parameters of every rank's device: [`undisturbed`] by default, or [`contended`].
    pub device: DeviceParameters,
    /// Whether to record the timeline of the last iteration, or, with partial backpropagation, of
    /// the last rotation.
    pub timeline: bool,
}

impl Default for SimulateOptions {
    /// 20 iterations without background.
    fn default() -> Self {
        Self {
            iterations: 20,
            background: None,
            distributed: Vec::new(),
            memory_limit_bytes: None,
            policy: Policy::default(),
            device: undisturbed(),
            timeline: false,
        }
    }
}

impl SimulateOptions {
    /// Sets the number of foreground iterations.
    #[must_use]
    pub fn with_iterations(self, iterations: usize) -> Self {
        Self { iterations, ..self }
    }

    /// Sets the background job of every rank; `None` for the foreground alone.
    #[must_use]
    pub fn with_background(self, background: Option<BackgroundCosts>) -> Self {
        Self { background, ..self }
    }

    /// Sets the background jobs on several ranks each.
    #[must_use]
    pub fn with_distributed(self, distributed: Vec<DistributedBackground>) -> Self {
        Self { distributed, ..self }
    }

    /// Removes all background jobs, and the recording of the timeline.
    #[must_use]
    pub fn without_background(self) -> Self {
        Self { background: None, distributed: Vec::new(), timeline: false, ..self }
    }

    /// Whether there are background jobs.
    #[must_use]
    pub fn has_background(&self) -> bool {
        self.background.is_some() || !self.distributed.is_empty()
    }

    /// Sets the memory of every rank's device, in bytes.
    #[must_use]
    pub fn with_memory_limit(self, memory_limit_bytes: Option<u64>) -> Self {
        Self { memory_limit_bytes, ..self }
    }

    /// Returns the background job of a rank on whose device the foreground holds
    /// `foreground_bytes`; `None` if the rest of the memory is too small for it.
    #[must_use]
    pub fn background_beside(&self, foreground_bytes: u64) -> Option<&BackgroundCosts> {
        let fits = |background: &&BackgroundCosts| {
            let both = foreground_bytes.saturating_add(background.memory_bytes());
            self.memory_limit_bytes.is_none_or(|limit| both <= limit)
        };
        self.background.as_ref().filter(fits)
    }

    /// Returns whether each distributed background job runs beside a foreground `program`: whether
    /// all its members have room for it beside the foreground, the copy, and the jobs before it.
    #[must_use]
    pub fn have_room(&self, program: &Program) -> Vec<bool> {
        let mut held: Vec<u64> = vec![0; program.world()];
        for rank in &program.ranks {
            let foreground = rank.total_bytes();
            let copy = self.background_beside(foreground).map_or(0, BackgroundCosts::memory_bytes);
            rank.represented_ranks.iter().for_each(|&rank| held[rank] = foreground.saturating_add(copy));
        }
        let has_room = |job: &DistributedBackground| {
            let with_job = |rank: usize| held.get(rank)?.checked_add(job.memory_bytes(rank));
            let fits = |&rank: &usize| {
                with_job(rank).is_some_and(|bytes| self.memory_limit_bytes.is_none_or(|limit| bytes <= limit))
            };
            let fits = job.ranks().iter().all(fits);
            if fits {
                job.ranks().iter().for_each(|&rank| held[rank] += job.memory_bytes(rank));
            }
            fits
        };
        self.distributed.iter().map(has_room).collect()
    }

    /// Sets the policy by which foreground and background share a rank's device.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Sets the parameters of every rank's device.
    #[must_use]
    pub fn with_device(self, device: DeviceParameters) -> Self {
        Self { device, ..self }
    }

    /// Sets whether to record the timeline of the last iteration.
    #[must_use]
    pub fn with_timeline(self, timeline: bool) -> Self {
        Self { timeline, ..self }
    }

    /// Converts the number of iterations to a number of runs of a program with `iterations`
    /// iterations: rounds up, to at least 2 runs. Changes nothing for a program with one iteration.
    fn for_program(mut self, iterations: usize) -> Self {
        if iterations > 1 {
            self.iterations = self.iterations.div_ceil(iterations).max(2);
        }
        self
    }

    /// Returns the number of times that the program runs, at least once.
    fn iterations(&self) -> u32 {
        u32::try_from(self.iterations).unwrap_or(u32::MAX).max(1)
    }

    /// Lets the host launch ahead without limit if there is no background: a collective then starts
    /// as soon as its dependencies are done, whatever was launched before it.
    fn unlimited_if_alone(mut self) -> Self {
        if !self.has_background() {
            self.policy.foreground_ahead = NonZeroUsize::MAX;
        }
        self
    }

    /// Returns the number of iterations of the warm-up: a quarter, at least one if there are two or
    /// more.
    fn warm_up(&self) -> u32 {
        let iterations = self.iterations();
        (iterations / 4).max(1).min(iterations - 1)
    }
}

/// Returns the multiplexer's policy with the given name: a preset or one of [`Policy::ladder`].
///
/// # Errors
/// [`Error::UnknownPolicy`] if no policy has this name. It lists the presets.
pub fn policy_named(name: &str) -> Result<Policy, Error> {
    let unknown = || {
        let known = Policy::all().into_iter().map(|(known, _)| known).collect();
        Error::UnknownPolicy { name: name.into(), known }
    };
    Policy::named(name).ok_or_else(unknown)
}

/// Returns the parameters of an A100 on which launching takes no time and communication does not
/// slow down computing, as the planner assumes.
///
/// The times of a profile include the gaps between kernels, since layers are timed as captured CUDA
/// graphs.
#[must_use]
pub fn undisturbed() -> DeviceParameters {
    DeviceParameters {
        communication_share: 0.0,
        communication_memory: 0.0,
        ..DeviceParameters::a100().without_overheads()
    }
}

/// Returns the parameters of an A100 with the launch times of its host, on which communication
/// kernels occupy multiprocessors and memory bandwidth.
///
/// There are no gaps between kernels, since the times of a profile include them.
#[must_use]
pub fn contended() -> DeviceParameters {
    DeviceParameters {
        kernel_gap: Duration::ZERO,
        graph_node_gap: Duration::ZERO,
        ..DeviceParameters::a100()
    }
}

/// Runs a program repeatedly in virtual time, with the durations of its steps from `costs`.
///
/// Each rank's two lanes run their steps in the program's order, each step after its dependencies,
/// on a [virtual device](gpu_mux::VirtualDevice). The collectives of background jobs on several
/// ranks run in [gang windows](gpu_mux::Gangs); a collective of the foreground that begins beside
/// one on the same rank waits for its end, which is at most the policy's bound on pieces. The
/// foreground shares it with the background by the policy, as a [`Driver`](gpu_mux::Driver) does on
/// a GPU. A collective starts when its last rank has arrived, takes the time of the link model, or
/// longer on a contended device, and ends for all ranks together. A rank starts its next iteration
/// when all its steps have finished, independently of other ranks. Ranks that run the same steps
/// for the same times are simulated once.
///
/// If the profile has [times of several ranks](layer_profile::ProfileTable::contended), the ranks
/// are cores of one machine: a step takes the time of the number of ranks that compute or transfer
/// meanwhile (with a background job, of all ranks), and a rank does not compute while a collective
/// that it belongs to transfers.
///
/// The first quarter of the iterations (at least one of two or more) is the warm-up. The
/// measurement is from the moment when the last rank has ended the warm-up to the moment when the
/// last rank has ended the last iteration.
///
/// The result is as accurate as the costs and the device model. With a background job, the
/// foreground is first simulated alone, since a policy may use the duration of its communication.
/// O((steps + background pieces) x c^2) per iteration for c classes of equal ranks.
///
/// # Errors
/// [`Error::Profile`] if the profile lacks a time. [`Error::Setting`] for
/// [too long](check_virtual_time) a simulation. [`Error::Mux`] for invalid device parameters.
/// [`Error::Program`] if the program can never end.
pub fn simulate(
    program: &Program,
    costs: &Costs<'_>,
    options: &SimulateOptions,
) -> Result<Simulation, Error> {
    let (classes, options) = &prepare(program, costs, ProgramTimes::new(program, costs)?, options)?;
    run_alone(program, classes, options)
}

/// Runs the classes of a prepared program.
fn run_alone(
    program: &Program,
    classes: &[RankClass<'_>],
    options: &SimulateOptions,
) -> Result<Simulation, Error> {
    let mut simulated = SimulatedRanks::new(program, classes, options)?;
    let window = simulated.run(options.warm_up(), options.iterations())?;
    let jobs = simulated.background_jobs(&window);
    Ok(Simulation::new(program, options, &simulated.ranks, window, jobs))
}

/// Returns the classes of a program's ranks whose steps take these times, and the options of its
/// simulation.
///
/// # Errors
/// As [`simulate`].
fn prepare<'a>(
    program: &'a Program,
    costs: &Costs<'_>,
    times: ProgramTimes,
    options: &SimulateOptions,
) -> Result<(Vec<RankClass<'a>>, SimulateOptions), Error> {
    let options = &options.clone().for_program(program.iterations);
    let mut classes = RankClass::of_ranks(program, costs, &times)?;
    // No iteration takes longer than all steps one after another. The foreground alone runs twice.
    let steps = classes.iter().flat_map(|class| class.steps.iteration.in_order_times());
    let upper_bound = steps.fold(Duration::ZERO, Duration::saturating_add);
    let iterations = u64::from(options.iterations().max(2));
    check_virtual_time(upper_bound, iterations, None, classes.len()).map_err(implausible)?;
    if costs.profile().contended().is_some() {
        let times = times_of_shared_machine(times, program, costs, options)?;
        classes = RankClass::of_ranks(program, costs, &times)?;
    }
    let have_room = options.have_room(program);
    let jobs = || options.distributed.iter().enumerate().zip(&have_room).filter(|(_, runs)| **runs);
    classes = RankClass::divided(classes, |rank| {
        jobs().filter_map(|((index, job), _)| Some((index, job.class_of(rank)?))).collect()
    });
    if options.has_background() {
        let alone;
        (classes, alone) = with_partner_waits(program, classes, options)?;
        let iterations = u64::from(options.iterations());
        let members = options.distributed.iter().flat_map(|job| &job.classes);
        let jobs = options.background.iter().map(BackgroundCosts::iteration);
        for background in jobs.chain(members.map(|class| &class.iteration)) {
            check_virtual_time(alone, iterations, Some(background), classes.len()).map_err(implausible)?;
        }
    }
    Ok((classes, options.clone().unlimited_if_alone()))
}

/// Returns the error for times or bandwidths that make a simulation too long.
fn implausible(error: gpu_mux::Error) -> Error {
    match error {
        gpu_mux::Error::OutOfRange { name, value, expected } => {
            Error::Setting { setting: name, expected, got: value }
        }
        other => other.into(),
    }
}

/// Returns the classes, with the time for which each communication step waits for other ranks if
/// the foreground runs alone, and the duration of a run of the program alone.
fn with_partner_waits<'a>(
    program: &'a Program,
    classes: Vec<RankClass<'a>>,
    options: &SimulateOptions,
) -> Result<(Vec<RankClass<'a>>, Duration), Error> {
    // The second iteration is representative of the later ones.
    let alone = options.clone().without_background().with_iterations(2).unlimited_if_alone();
    let mut simulated = SimulatedRanks::new(program, &classes, &alone)?;
    let window = simulated.run(alone.warm_up(), alone.iterations())?;
    let partners: Vec<Vec<Duration>> =
        simulated.ranks.iter().map(|rank| rank.jobs.partners_after().to_vec()).collect();
    drop(simulated);
    let classes = classes.into_iter().zip(&partners);
    let classes = classes.map(|(class, partners)| class.with_partner_waits(partners)).collect();
    Ok((classes, window.end.saturating_sub(window.start)))
}
