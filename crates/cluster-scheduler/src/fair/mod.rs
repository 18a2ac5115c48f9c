//! Fair shares of a cluster's time between jobs, after Gavel (Narayanan et al., OSDI 2020): the programs of its policies, for
//! an interior-point solver.
//!
//! A share x\[i\]\[t\] is the part of the time in which job i runs on GPUs of type t. They add up to at most 1 for a job, and weighted with the
//! jobs' GPUs to at most the GPUs of each type. The optimum is often not unique; an interior-point solver ends near the middle of all
//! optima, a simplex solver in a corner, and schedules differ by that.

mod finish_time;
mod max_min;
mod one_type;
mod program;

pub(crate) use finish_time::by_cones;
pub use finish_time::{Progress, finish_time, proportional};
pub use max_min::max_min;

/// Jobs that are alike, and what they want.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// How many such jobs; each gets the same share.
    pub jobs: usize,
    /// The GPUs that each wants at once.
    pub gpus: usize,
    /// Iterations a second on each type of GPU; 0 where they do not run.
    pub speeds: Vec<f64>,
    /// Their share by that of others.
    pub weight: f64,
}
