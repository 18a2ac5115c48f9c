//! Workloads: the repeated steps of a foreground and a background job on one device, and their
//! simulation.

mod cut;
#[cfg(feature = "json")]
mod format;
mod hosts;
mod simulation;
mod virtual_time;

use std::time::Duration;

pub use hosts::{BackgroundHost, ForegroundHost};
pub use simulation::{Jobs, SimulationOptions, SimulationReport};
pub use virtual_time::check_virtual_time;

use crate::seconds::total;
use crate::{Communication, Kernel, Lane};

/// Foreground and background job as seen by one device: the steps of one iteration of each.
///
/// With the feature `json`, `Workload::from_json` reads it and `Workload::to_json` writes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Name for display.
    pub name: String,
    /// Iteration of the foreground job.
    pub foreground: Iteration,
    /// Iteration of the background job.
    pub background: Iteration,
}

/// One iteration of a job on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Iteration {
    /// Number of samples of an iteration: the global batch of a job on several devices.
    pub samples: usize,
    /// Steps in launch order.
    pub steps: Vec<WorkloadStep>,
}

/// Step of an iteration, launched as one tasklet.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadStep {
    /// Name for display.
    pub name: String,
    /// Kernels or communication of the step.
    pub work: StepWork,
    /// Index in this iteration, from 0, of the last earlier step on the other lane that this step
    /// waits for. `None` if it waits for none.
    pub after: Option<usize>,
}

/// Work of a [`WorkloadStep`].
#[derive(Debug, Clone, PartialEq)]
pub enum StepWork {
    /// Runs kernels, one after another, on the compute lane.
    Compute(Vec<Kernel>),
    /// Exchanges data with other devices, on the communication lane.
    Communication {
        /// Duration of the transfer once all partners have arrived.
        transfer: Duration,
        /// Time from the end of the previous communication until the last partner arrives. It also
        /// applies across iterations, because other devices depend on this one only through
        /// communication. For the first communication it is measured from the start.
        partners_after: Duration,
        /// Kind of communication: send, receive or all-reduce.
        communication: Communication,
    },
}

impl Workload {
    /// Returns the workload with the durations of all kernels multiplied by `factor`, from 0 to an
    /// hour each. Those of communication stay the same.
    #[must_use]
    pub fn with_kernel_times(mut self, factor: f64) -> Self {
        for step in self.foreground.steps.iter_mut().chain(&mut self.background.steps) {
            if let StepWork::Compute(kernels) = &mut step.work {
                for kernel in kernels {
                    *kernel = kernel.scaled(factor);
                }
            }
        }
        self
    }
}

impl Iteration {
    /// Returns the sum of the durations of the iteration's kernels, alone on a device.
    #[must_use]
    pub fn compute_time(&self) -> Duration {
        total(self.kernels().map(Kernel::time))
    }

    /// Returns the duration of each step when the job runs alone and executes one step after
    /// another, regardless of lanes; communication includes the wait for its partners. DeepPool's
    /// runtimes time their tasklets and idle periods this way.
    #[must_use]
    pub fn in_order_times(&self) -> Vec<Duration> {
        let (mut now, mut communication_end) = (Duration::ZERO, Duration::ZERO);
        let mut round = || -> Vec<Duration> {
            let times = self.steps.iter().map(|step| {
                let begin = now;
                match &step.work {
                    StepWork::Compute(kernels) => {
                        now = now.saturating_add(total(kernels.iter().map(Kernel::time)));
                    }
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
        // In the first round, the partners of the first communication arrive relative to the start
        // and not to the previous round.
        round();
        round()
    }

    /// Iterates over all kernels of the iteration's compute steps, in order.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.steps.iter().flat_map(WorkloadStep::kernels)
    }
}

impl WorkloadStep {
    /// Returns the kernels of the step in order; empty for a communication.
    #[must_use]
    pub fn kernels(&self) -> &[Kernel] {
        match &self.work {
            StepWork::Compute(kernels) => kernels,
            StepWork::Communication { .. } => &[],
        }
    }

    /// Returns the lane on which the step runs.
    #[must_use]
    pub fn lane(&self) -> Lane {
        match self.work {
            StepWork::Compute(_) => Lane::Compute,
            StepWork::Communication { .. } => Lane::Communication,
        }
    }
}
