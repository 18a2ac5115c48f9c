//! Execution of the workload's jobs on the GPU, with replacement kernels of the same duration.

use std::num::NonZeroUsize;
use std::sync::Arc;

use ::cuda::{Context, Stream, TimingRuns};
use anyhow::Result;
use gpu_mux::cuda::{CudaDevice, DeviceOptions, Prepared, Work};
use gpu_mux::{Communication, JobId, Jobs, Kernel, Lane, Policy, StepWork, Workload};

use super::execution::{Execution, execute};
use super::kernels::{Compute, Kernels};
use super::launch_calibration::LaunchCalibration;
use super::steps::{JobSteps, PreparedStep};
use crate::mux::task::GpuOptions;

/// Kernels are timed alone. Their outputs are read by themselves only, and no result depends on
/// them.
const RUNS: TimingRuns = TimingRuns::without_side_effects(NonZeroUsize::MIN.saturating_add(4));

/// Prepares the jobs of a workload on a GPU and runs them.
pub(super) struct GpuRunner<'a> {
    /// CUDA context of the GPU.
    pub(super) context: &'a Context,
    /// Kernels that replace those of the workload.
    pub(super) kernels: &'a Arc<Kernels>,
    /// A stream without other work, for measurements of kernels.
    pub(super) stream: &'a Stream,
    /// Foreground and background jobs.
    pub(super) workload: &'a Workload,
    /// Measured speeds of the GPU, from which the launches of the replacement kernels are computed.
    pub(super) launch_calibration: LaunchCalibration<'a>,
    /// Options of the GPU. They are ignored when a job runs alone.
    pub(super) options: GpuOptions,
}

impl GpuRunner<'_> {
    /// Runs the jobs under a policy, and measures `iterations` iterations of the foreground, or of
    /// the background if it runs alone.
    ///
    /// # Errors
    /// If a CUDA call fails, or if no tasklet finishes for a minute.
    pub(super) fn execute(&mut self, policy: Policy, jobs: Jobs, iterations: usize) -> Result<Execution> {
        // The options apply only to both jobs together.
        let options = if jobs == Jobs::Both { self.options } else { GpuOptions::default() };
        let GpuOptions { gate, background_multiprocessors } = options;
        let options = DeviceOptions { gate, background_multiprocessors };
        let mut device = CudaDevice::new(self.context, policy, options)?;
        let foreground = (jobs != Jobs::Background).then(|| self.foreground(&mut device)).transpose()?;
        let background =
            (jobs != Jobs::Foreground).then(|| self.background(&mut device, &policy)).transpose()?;
        self.kernels.reset(self.stream)?;
        execute(device, policy, foreground, background, iterations)
    }

    fn foreground(&mut self, device: &mut CudaDevice) -> Result<JobSteps> {
        let mut steps = Vec::new();
        let iteration = &self.workload.foreground;
        for (step, estimate) in iteration.steps.iter().zip(iteration.in_order_times()) {
            let all = Arc::clone(self.kernels);
            steps.push(match &step.work {
                StepWork::Compute(kernels) => {
                    let launches = self.launches(kernels.iter().copied())?;
                    let prepared = device.prepare_foreground(Lane::Compute, RUNS, move |stream| {
                        launches.iter().try_for_each(|launch| all.compute(stream, *launch))
                    })?;
                    PreparedStep {
                        lane: Lane::Compute,
                        communication: Communication::Send,
                        after: step.after,
                        transfer: None,
                        prepared,
                    }
                }
                StepWork::Communication { transfer, partners_after, communication } => {
                    let exchange = self.launch_calibration.exchange(*transfer, *partners_after);
                    let work = Work::enqueue(move |stream| all.exchange(stream, exchange));
                    PreparedStep {
                        lane: Lane::Communication,
                        communication: *communication,
                        after: step.after,
                        transfer: Some(*transfer),
                        prepared: Prepared { work, estimate },
                    }
                }
            });
        }
        Ok(JobSteps::new(JobId::FOREGROUND, steps))
    }

    /// Unless the policy bounds pieces, a step is launched at once.
    fn background(&mut self, device: &mut CudaDevice, policy: &Policy) -> Result<JobSteps> {
        let iteration = &self.workload.background;
        let kernels_of = |work: &StepWork| match work {
            StepWork::Compute(kernels) => in_micro_batches(kernels, iteration.samples, policy),
            StepWork::Communication { .. } => Vec::new(),
        };
        let mut rounds: Vec<Vec<Kernel>> =
            iteration.steps.iter().map(|step| kernels_of(&step.work)).collect();
        if policy.background_piece.is_some() {
            rounds = vec![rounds.concat()];
        }
        let mut steps = Vec::new();
        for kernels in rounds.into_iter().filter(|kernels| !kernels.is_empty()) {
            let (all, launches) = (Arc::clone(self.kernels), self.launches(kernels)?);
            let prepared = device.prepare_background(JobId::BACKGROUND, RUNS, move |stream| {
                launches.iter().try_for_each(|launch| all.compute(stream, *launch))
            })?;
            steps.extend(prepared.pieces.into_iter().map(|prepared| PreparedStep {
                lane: Lane::Compute,
                communication: Communication::Send,
                after: None,
                transfer: None,
                prepared,
            }));
        }
        Ok(JobSteps::new(JobId::BACKGROUND, steps))
    }

    fn launches(&mut self, kernels: impl IntoIterator<Item = Kernel>) -> Result<Vec<Compute>> {
        kernels.into_iter().map(|kernel| Ok(self.launch_calibration.compute(&kernel)?)).collect()
    }
}

/// Divides each kernel into micro-batches of at most the policy's number of samples.
fn in_micro_batches(kernels: &[Kernel], samples: usize, policy: &Policy) -> Vec<Kernel> {
    let max_samples = policy.background_micro_batch.map_or(samples, |max| max.get().min(samples)).max(1);
    let times = samples.div_ceil(max_samples).max(1);
    let parts = kernels.iter().map(|kernel| kernel.part(1.0 / times as f64));
    parts.flat_map(|kernel| std::iter::repeat_n(kernel, times)).collect()
}
