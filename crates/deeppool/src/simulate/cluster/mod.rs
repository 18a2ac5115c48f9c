//! Simulation of several jobs whose collectives share the links of one cluster.

mod file;
mod placement;
mod result;
mod run;
mod timeline;

pub use file::{ClusterJobSpec, ClusterJobsFile, JobMode};
pub use placement::{GpuPlacement, JobGpus, place_jobs};
pub use result::{ClusterSimulation, LevelUse, SharedJob};
pub use timeline::ClusterTimeline;

use std::time::Duration;

use collectives::{ClusterLinks, Flow, LinkModel};

use super::steps::RankClass;
use super::times::ProgramTimes;
use super::{SimulateOptions, Simulation, prepare, run_alone};
use crate::Error;
use crate::costs::Costs;
use crate::program::Program;
use run::ClusterRun;

/// A job of a [simulated cluster](simulate_cluster).
#[derive(Debug, Clone)]
pub struct ClusterJob<'a> {
    name: String,
    program: &'a Program,
    costs: &'a Costs<'a>,
    gpus: Vec<usize>,
    start: Duration,
}

impl<'a> ClusterJob<'a> {
    /// Creates a job that starts at virtual time 0. Rank `i` of the program runs on GPU `gpus[i]`
    /// of the cluster. The times of compute steps are those of `costs`, and the times of
    /// collectives those of the cluster's link model.
    #[must_use]
    pub fn new(name: &str, program: &'a Program, costs: &'a Costs<'a>, gpus: Vec<usize>) -> Self {
        Self { name: name.into(), program, costs, gpus, start: Duration::ZERO }
    }

    /// Sets the virtual time of the job's start.
    #[must_use]
    pub fn with_start(self, start: Duration) -> Self {
        Self { start, ..self }
    }

    /// Name of the job.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// GPU of the cluster of each rank.
    #[must_use]
    pub fn gpus(&self) -> &[usize] {
        &self.gpus
    }

    /// Whether another job has the same program, costs and times of collectives.
    fn equals(&self, other: &Self) -> bool {
        std::ptr::eq(self.program, other.program) && std::ptr::eq(self.costs, other.costs)
    }
}

/// Options of a [simulated cluster](simulate_cluster).
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// Options of each job: the minimum number of iterations, and the policy and parameters of the
    /// devices.
    simulate: SimulateOptions,
}

impl ClusterOptions {
    /// Creates the options of a cluster whose jobs are simulated with these options.
    #[must_use]
    pub fn new(simulate: SimulateOptions) -> Self {
        Self { simulate }
    }
}

/// A job with the classes of its ranks and the flows of its collectives.
struct PreparedJob<'a> {
    classes: Vec<RankClass<'a>>,
    options: SimulateOptions,
    flows: Vec<Flow>,
    alone: Simulation,
}

/// Runs several jobs in virtual time on a cluster of `gpus` GPUs whose links they share.
///
/// A collective starts when its last rank has arrived. It is then a [`Flow`] over the [links of the
/// cluster](ClusterLinks): links that several jobs use at the same time are shared max-min fairly.
/// Alone, it takes the time of the link model for the GPUs of its ranks. The rest is as in
/// [`simulate`](super::simulate()), and one job alone has the same result.
///
/// All jobs run until each of them has run the number of iterations of the options, so that none is
/// measured without the others. A job with short iterations runs more of them. The measurement of a
/// job begins after its own warm-up. Collectives of one job do not slow each other down. Jobs use
/// different GPUs.
///
/// O(log flows + connected flows) per start and end of a collective, in addition to the cost of
/// [`simulate`](super::simulate()) for each job.
///
/// # Errors
/// As [`simulate`](super::simulate()). [`Error::Collectives`] if the link model connects fewer
/// GPUs. [`Error::Setting`] if a job has no GPU for a rank, a GPU that does not exist or belongs
/// to another job, or if a job runs millions of iterations beside another one.
pub fn simulate_cluster(
    link: &LinkModel,
    gpus: usize,
    jobs: &[ClusterJob<'_>],
    options: &ClusterOptions,
) -> Result<ClusterSimulation, Error> {
    check_gpus(gpus, jobs)?;
    let links = ClusterLinks::new(link, gpus)?;
    let mut prepared: Vec<PreparedJob<'_>> = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        let flows = job.program.collectives.iter();
        let flows = flows.map(|collective| Costs::collective_flow(collective, &links, &job.gpus));
        let flows: Vec<Flow> = flows.map(|flow| Ok(flow?.with_owner(index))).collect::<Result<_, Error>>()?;
        let same_times =
            |other: &&PreparedJob<'_>| other.flows.iter().map(Flow::alone).eq(flows.iter().map(Flow::alone));
        let equal = jobs.iter().zip(&prepared).filter(|(other, _)| other.equals(job)).map(|(_, other)| other);
        let known = equal.into_iter().find(same_times);
        let (classes, options, alone) = if let Some(known) = known {
            (known.classes.clone(), known.options.clone(), known.alone.clone())
        } else {
            let times = ProgramTimes::with_flows(job.program, job.costs, &flows)?;
            let of_job = options.simulate.clone().with_timeline(false);
            let (classes, of_job) = prepare(job.program, job.costs, times, &of_job)?;
            let alone = run_alone(job.program, &classes, &of_job)?;
            (classes, of_job, alone)
        };
        prepared.push(PreparedJob { classes, options, flows, alone });
    }
    check_iterations(jobs, &prepared)?;
    let mut run = ClusterRun::new(&links, jobs, &prepared, options.simulate.timeline)?;
    run.run()?;
    Ok(run.result(jobs, &prepared))
}

/// Maximum number of steps of a simulation that one job runs while the others run.
const MAX_STEPS: f64 = 1e9;

/// Checks that no job runs for a very long time because of another one.
fn check_iterations(jobs: &[ClusterJob<'_>], prepared: &[PreparedJob<'_>]) -> Result<(), Error> {
    let end = |(job, of_job): (&ClusterJob<'_>, &PreparedJob<'_>)| {
        let of_program = job.program.iterations.max(1) as f64;
        job.start.as_secs_f64()
            + of_job.alone.iteration.as_secs_f64() * of_program * f64::from(of_job.options.iterations())
    };
    let last = jobs.iter().zip(prepared).map(end).fold(0.0, f64::max);
    for (job, of_job) in jobs.iter().zip(prepared) {
        let run = of_job.alone.iteration.as_secs_f64() * job.program.iterations.max(1) as f64;
        let steps: usize = of_job.classes.iter().map(|class| class.steps.origins.len()).sum();
        let runs = (last - job.start.as_secs_f64()) / run;
        if run > 0.0 && runs * steps as f64 > MAX_STEPS {
            return Err(Error::Setting {
                setting: "the iterations of a job that run until all jobs have ended",
                expected: "few: start the jobs closer together, or simulate fewer iterations",
                got: format!("{runs:.0} of job `{}`", job.name),
            });
        }
    }
    Ok(())
}

/// Checks that each rank has a GPU of its own.
fn check_gpus(gpus: usize, jobs: &[ClusterJob<'_>]) -> Result<(), Error> {
    let mut job_of: Vec<Option<&str>> = Vec::new();
    for job in jobs {
        let ranks = job.program.world();
        if job.gpus.len() < ranks {
            return Err(Error::Setting {
                setting: "the number of GPUs of a job",
                expected: "at least its number of ranks",
                got: format!("{} for {ranks} ranks of job `{}`", job.gpus.len(), job.name),
            });
        }
        for &gpu in &job.gpus {
            if gpu >= gpus {
                return Err(Error::Setting {
                    setting: "a GPU of a job",
                    expected: "the number of a GPU of the cluster, from 0",
                    got: format!("{gpu} of {gpus} for job `{}`", job.name),
                });
            }
            if gpu >= job_of.len() {
                job_of.resize(gpu + 1, None);
            }
            if let Some(other) = job_of[gpu].replace(&job.name) {
                return Err(Error::Setting {
                    setting: "a GPU of a job",
                    expected: "one that no other job uses",
                    got: format!("{gpu} for job `{other}` and job `{}`", job.name),
                });
            }
        }
    }
    Ok(())
}
