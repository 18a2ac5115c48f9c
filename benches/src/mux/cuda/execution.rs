//! Execution of the jobs on the GPU.
//!
//! A *round* is one iteration of a job. A *piece* is a background tasklet. The policy's *bound* is
//! the maximum duration of a piece.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gpu_mux::cuda::{CudaDevice, Work};
use gpu_mux::{Device, Driver, Finished, Host, JobId, Policy, RunOutcome, Tasklet};

use super::spans::{ActivityTimes, Span, SpanKind, activity_times};
use super::steps::JobSteps;

/// Number of iterations in which a policy learns the workload and the GPU's clocks rise.
const WARM_UP: usize = 20;
/// Maximum time without a finished tasklet.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Measurements of an execution, without its warm-up.
pub(super) struct Execution {
    /// Duration of each iteration of the foreground, or of the background if it runs alone.
    pub(super) iterations: Vec<Duration>,
    /// Times in which the foreground does not compute, over all iterations.
    pub(super) activity_times: ActivityTimes,
    /// Number of rounds of the background during the iterations. A partial round counts as its
    /// finished share of the round's estimated time.
    pub(super) background_rounds: f64,
    /// Number of completed pieces of the background.
    pub(super) background_pieces: u64,
    /// Number of completed pieces whose duration alone exceeds the policy's bound; 0 if the policy
    /// has none.
    pub(super) over_long_pieces: u64,
}

impl Execution {
    /// Returns the sum of the iterations' durations.
    pub(super) fn elapsed(&self) -> Duration {
        self.iterations.iter().sum()
    }
}

/// Executes the jobs under a policy until `iterations` iterations have ended after a warm-up.
/// Iterations are those of the foreground, or of the background if it runs alone.
///
/// # Errors
/// If a CUDA call fails, or if no tasklet finishes for a minute.
pub(super) fn execute(
    device: CudaDevice,
    policy: Policy,
    foreground: Option<JobSteps>,
    background: Option<JobSteps>,
    iterations: usize,
) -> Result<Execution> {
    let mut driver = Driver::new(policy, device);
    let mut jobs = Jobs {
        foreground,
        background,
        iterations,
        last: driver.device().now(),
        ends: Vec::new(),
        spans: Vec::new(),
        last_end: Duration::ZERO,
        bound: policy.background_piece,
        over_long_pieces: 0,
        before: (0, 0.0),
    };
    loop {
        let until = jobs.last + TIMEOUT;
        if driver.run(&mut jobs, Some(until))? == RunOutcome::Done {
            return jobs.execution();
        }
        ensure!(jobs.last + TIMEOUT > until, "nothing has finished for {} s", TIMEOUT.as_secs());
    }
}

/// The two jobs and their measurements.
struct Jobs {
    foreground: Option<JobSteps>,
    background: Option<JobSteps>,
    /// Number of iterations to measure.
    iterations: usize,
    /// Time at which the host last saw a tasklet finish.
    last: Duration,
    /// Ends of rounds on the device's clock, from the last one of the warm-up on. The spans use the
    /// same clock.
    ends: Vec<Duration>,
    spans: Vec<Span>,
    last_end: Duration,
    /// Bound of the policy, and the number of pieces since the warm-up that exceed it alone.
    bound: Option<Duration>,
    over_long_pieces: u64,
    /// Progress of the background at the end of the warm-up.
    before: (u64, f64),
}

impl Host<CudaDevice> for Jobs {
    type Error = anyhow::Error;

    fn offer(&mut self) -> Option<(Tasklet, Work)> {
        let mut jobs = [&mut self.foreground, &mut self.background].into_iter().flatten();
        jobs.find_map(JobSteps::next)
    }

    fn finish(
        &mut self,
        Finished { tasklet, took }: Finished,
        driver: &mut Driver<CudaDevice>,
    ) -> Result<()> {
        self.last = driver.device().now();
        // The host may notice the end much later.
        let end = driver.device_mut().last_end()?.context("when a tasklet has ended is not known")?;
        let is_foreground = tasklet.job == JobId::FOREGROUND;
        let host = if is_foreground { &mut self.foreground } else { &mut self.background };
        let host =
            host.as_mut().with_context(|| format!("{tasklet} has finished, and its job does not run"))?;
        let step = host.finish(tasklet);
        let start = end.saturating_sub(took);
        if let Some(transfer) = step.transfer {
            let begin = end.saturating_sub(took.min(transfer));
            self.spans.push(Span { kind: SpanKind::Waiting, start, end: begin });
            self.spans.push(Span { kind: SpanKind::Transfer, start: begin, end });
        } else {
            let kind = if is_foreground { SpanKind::Compute } else { SpanKind::Background };
            self.spans.push(Span { kind, start, end });
        }
        let alone = step.prepared.estimate;
        if !is_foreground && self.bound.is_some_and(|bound| alone > bound) {
            self.over_long_pieces += 1;
        }
        if is_foreground || self.foreground.is_none() {
            self.last_end = self.last_end.max(end);
        }
        self.end_rounds();
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.ends.len() > self.iterations
    }

    fn background_failed(&mut self, job: JobId, error: &::cuda::Error) -> Result<()> {
        bail!("{job}: {error}")
    }
}

impl Jobs {
    /// Records the end of each round of the measured job.
    fn end_rounds(&mut self) {
        let measured = self.foreground.as_ref().or(self.background.as_ref());
        let measured_rounds = measured.map_or(0, JobSteps::rounds);
        if measured_rounds < WARM_UP + self.ends.len() {
            return;
        }
        if self.ends.is_empty() {
            self.spans.clear();
            self.before = self.progress();
            self.over_long_pieces = 0;
        }
        self.ends.push(self.last_end);
    }

    fn progress(&self) -> (u64, f64) {
        self.background.as_ref().map_or((0, 0.0), JobSteps::progress)
    }

    fn execution(&self) -> Result<Execution> {
        let (pieces, rounds) = self.progress();
        let (from, to) = self.ends.first().zip(self.ends.last()).context("no iteration was measured")?;
        Ok(Execution {
            iterations: self.ends.windows(2).map(|ends| ends[1].saturating_sub(ends[0])).collect(),
            activity_times: activity_times(&self.spans, *from, *to),
            background_rounds: rounds - self.before.1,
            background_pieces: pieces - self.before.0,
            over_long_pieces: self.over_long_pieces,
        })
    }
}
