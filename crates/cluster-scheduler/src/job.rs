use std::fmt;
use std::time::Duration;

use crate::KindId;

/// A job's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "job {}", self.0)
    }
}

/// What is to be done: so many iterations of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Which times of the table are its own.
    pub kind: KindId,
    /// The iterations to do; at least 1.
    pub iterations: u64,
    /// The GPUs that it wants.
    pub gpus: usize,
    /// Numbers of GPUs on which it may run as well, for [elastic](crate::Elastic) policies.
    pub also: Vec<usize>,
    /// Its share under the fair policies, by that of others; 1 as a rule.
    pub weight: f64,
}

impl Job {
    /// A job that runs on one number of GPUs, with weight 1.
    #[must_use]
    pub fn new(kind: KindId, iterations: u64, gpus: usize) -> Self {
        Self { kind, iterations, gpus, also: Vec::new(), weight: 1.0 }
    }
}

/// A job that arrives at a time: what traces are made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// When it arrives, from the trace's beginning.
    pub at: Duration,
    /// Its number.
    pub id: JobId,
    /// What it is.
    pub job: Job,
}
