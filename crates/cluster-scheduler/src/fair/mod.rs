//! Fair shares of a cluster's time, after Gavel (Narayanan et al., OSDI 2020): the programs of its
//! policies, for an interior-point solver.
//!
//! A share x\[i\]\[t\] is the fraction of time in which job i runs on GPUs of type t. The shares of
//! a job sum to at most 1; the shares of a type, weighted with the jobs' numbers of GPUs, sum to at
//! most its GPUs. The optimum is often not unique: an interior-point solver ends near the middle of
//! the optimal set, a simplex solver in a corner, and the schedules differ accordingly.

mod finish_time;
mod max_min;
mod one_type;
mod program;

pub(crate) use finish_time::by_cone_program;
pub use finish_time::{finish_time, proportional};
pub use max_min::max_min;

/// A group of identical jobs and their demand.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// Number of jobs in the group. Each gets the same share.
    pub jobs: usize,
    /// Number of GPUs of each job.
    pub gpus: usize,
    /// Iterations per second on each type of GPU; 0 if they do not run there.
    pub speeds: Vec<f64>,
    /// Weight of each job relative to other jobs.
    pub weight: f64,
}

/// Progress of a job, or of each job of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Seconds since its arrival.
    pub elapsed: f64,
    /// Remaining iterations.
    pub remaining: f64,
    /// Seconds that its completed and remaining work takes on 1/n of the cluster, where n is the
    /// number of jobs.
    pub isolated: f64,
}
