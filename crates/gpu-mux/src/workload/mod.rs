//! What one device does over and over, to be run on a device.

mod cut;
#[cfg(feature = "json")]
mod format;
mod hosts;
mod simulation;

use std::time::Duration;

pub use hosts::{BackgroundHost, ForegroundHost};
pub use simulation::{Jobs, SimulationOptions, SimulationReport};

use crate::{Communication, Kernel, Lane};

/// A foreground and a background job as one device sees them: the steps of one iteration of each.
///
/// With the feature `json` it is read from and written to a file, see `Workload::load`.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// What it is, for people.
    pub name: String,
    /// The job that goes first.
    pub foreground: Iteration,
    /// The job that fills its gaps.
    pub background: Iteration,
}

/// One iteration of a job on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Iteration {
    /// Samples that it trains on: the global batch of a job on several devices.
    pub samples: usize,
    /// Its steps, in launch order.
    pub steps: Vec<WorkloadStep>,
}

/// What is launched at once: a tasklet, over and over.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadStep {
    /// What it is, for people.
    pub name: String,
    /// What it does.
    pub work: StepWork,
    /// The index of the latest step before it on the other lane that it waits for.
    pub after: Option<usize>,
}

/// What a [`WorkloadStep`] does.
#[derive(Debug, Clone, PartialEq)]
pub enum StepWork {
    /// Runs kernels, one after another, on the compute lane.
    Compute(Vec<Kernel>),
    /// Exchanges data with other devices, on the communication lane.
    Communication {
        /// How long that takes once all partners are there.
        transfer: Duration,
        /// How long after the end of the communication before it the last partner comes: also across the border of
        /// iterations, because other devices see no more of this one than its communication. The first of all is
        /// counted from the start.
        partners_after: Duration,
        /// What it does.
        communication: Communication,
    },
}

impl Iteration {
    /// How long its kernels take, one after another.
    #[must_use]
    pub fn compute_time(&self) -> Duration {
        self.kernels().map(Kernel::time).sum()
    }

    /// How long each step takes when the job runs by itself and does one step after another, whatever their lanes: a
    /// communication with the time for which it waits for its partners then. This is how `DeepPool`'s runtimes time
    /// their tasklets, and know how long a gap is.
    #[must_use]
    pub fn in_order_times(&self) -> Vec<Duration> {
        let (mut now, mut communication_end) = (Duration::ZERO, Duration::ZERO);
        let mut round = || -> Vec<Duration> {
            let times = self.steps.iter().map(|step| {
                let begin = now;
                match &step.work {
                    StepWork::Compute(kernels) => now += kernels.iter().map(Kernel::time).sum::<Duration>(),
                    StepWork::Communication { transfer, partners_after, .. } => {
                        let partners_come = communication_end.saturating_add(*partners_after);
                        now = now.max(partners_come).saturating_add(*transfer);
                        communication_end = now;
                    }
                }
                now.saturating_sub(begin)
            });
            times.collect()
        };
        // In the first round the first communication's partners come by the start, and not by the round before.
        round();
        round()
    }

    /// All kernels of its compute steps, in order.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.steps.iter().flat_map(WorkloadStep::kernels)
    }
}

impl WorkloadStep {
    /// Its kernels, in order; none of a communication.
    #[must_use]
    pub fn kernels(&self) -> &[Kernel] {
        match &self.work {
            StepWork::Compute(kernels) => kernels,
            StepWork::Communication { .. } => &[],
        }
    }

    /// Where it runs.
    #[must_use]
    pub fn lane(&self) -> Lane {
        match self.work {
            StepWork::Compute(_) => Lane::Compute,
            StepWork::Communication { .. } => Lane::Communication,
        }
    }
}
