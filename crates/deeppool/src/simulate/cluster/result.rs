//! The result of a simulated cluster.

use std::time::Duration;

use collectives::ClusterLink;

use super::ClusterTimeline;
use crate::simulate::Simulation;

/// The result of a [simulated cluster](super::simulate_cluster).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ClusterSimulation {
    /// Results of the jobs, in their order.
    pub jobs: Vec<SharedJob>,
    /// Use of the levels of links by all jobs, from the innermost level.
    pub levels: Vec<LevelUse>,
    /// Virtual time of the whole simulation.
    pub duration: Duration,
    /// Timeline of all jobs in the last iteration of the job with the longest iterations; `None` if
    /// it was not requested.
    pub timeline: Option<ClusterTimeline>,
}

/// The result of one job of a cluster.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SharedJob {
    /// Name of the job.
    pub name: String,
    /// GPU of the cluster of each rank.
    pub gpus: Vec<usize>,
    /// Virtual time of the job's start.
    pub start: Duration,
    /// The job on the same GPUs without the other jobs.
    pub alone: Simulation,
    /// The job beside the others.
    pub beside: Simulation,
}

impl SharedJob {
    /// Returns the mean iteration time beside the other jobs divided by that alone; 1 for a job
    /// without duration.
    #[must_use]
    pub fn slowdown(&self) -> f64 {
        if self.alone.iteration.is_zero() {
            return 1.0;
        }
        self.beside.iteration.as_secs_f64() / self.alone.iteration.as_secs_f64()
    }
}

/// Use of one level of links over the whole simulation. A link is *busy* for the time in which its
/// bytes would pass at its capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LevelUse {
    /// Number of the level: 0 inside hosts, 1 between hosts.
    pub level: usize,
    /// Number of links, in both directions.
    pub links: usize,
    /// Number of links that carry bytes.
    pub used_links: usize,
    /// Capacity of each link, in bytes per second.
    pub bytes_per_s: f64,
    /// Mean fraction of the time in which the used links are busy; 0 without any.
    pub mean_busy: f64,
    /// The busiest link.
    pub busiest: ClusterLink,
    /// Fraction of the time in which the busiest link is busy.
    pub max_busy: f64,
}
