//! Fair shares of a cluster's time, after Gavel (Narayanan et al., OSDI 2020): the linear and cone
//! programs of its policies, for an interior-point solver.
//!
//! A share x\[i\]\[t\] is the fraction of time in which job i runs on GPUs of type t. The shares of
//! a job sum to at most 1; the shares of a type, weighted with the jobs' numbers of GPUs, sum to at
//! most its GPUs. The optimum is often not unique: an interior-point solver ends near the middle of
//! the optimal set, a simplex solver in a corner, and the schedules differ accordingly.

mod cone_program;
mod finish_time;
mod max_min;
mod one_type;

pub(crate) use finish_time::by_cone_program;
pub use finish_time::{finish_time, proportional};
pub use max_min::max_min;

/// Demand of a group of identical jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// Number of jobs in the group. Each gets the same share.
    pub jobs: usize,
    /// Number of GPUs on which each job runs.
    pub gpus: usize,
    /// Iterations per second of each job on each type of GPU; 0 if it does not run there. The types
    /// are in the order of the argument `gpus` of the functions of this module.
    pub speeds: Vec<f64>,
    /// Weight of each job under max-min fairness, which equalizes GPU time divided by weight.
    pub weight: f64,
}

/// Progress of a job, or of each job of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Time since the job's arrival, in seconds.
    pub elapsed: f64,
    /// Number of remaining iterations.
    pub remaining: f64,
    /// Time in seconds that all of its work, completed and remaining, takes on 1/n of the cluster,
    /// where n is the number of jobs.
    pub isolated: f64,
}
