//! The part of a distributed background job on a rank: its compute pieces and its collectives, each
//! of which waits for those of the other kind that come before it. A *piece* is a run of kernels,
//! or a part of a collective, that is launched as one tasklet.

use std::sync::Arc;
use std::time::Duration;

use gpu_mux::{DeviceParameters, JobId, Kernel, Partners, Policy, StepWork, Tasklet, TaskletId, VirtualWork};

use super::distributed::{DistributedBackground, MemberClass, MemberCollective};

/// Maximum number of compute pieces offered and not finished.
const PIECES_AHEAD: u64 = 32;

/// The pieces of one iteration of a member.
#[derive(Debug, Clone)]
pub(super) struct MemberWork {
    compute: Vec<ComputePiece>,
    collectives: Vec<MemberStep>,
    /// Maximum duration of a piece of a collective, unless its latency alone takes longer.
    bound: Duration,
    captured: bool,
    /// Samples of an iteration, divided by the number of members.
    samples: f64,
}

#[derive(Debug, Clone)]
struct ComputePiece {
    kernels: Arc<[Kernel]>,
    estimate: Duration,
    /// Number of collectives of the iteration that end before it starts.
    after: u64,
    label: String,
}

#[derive(Debug, Clone)]
struct MemberStep {
    collective: usize,
    /// Time of the transfer, without the latency.
    transfer: Duration,
    /// Time of each piece besides its part of the transfer.
    latency: Duration,
    /// Number of compute pieces of the iteration that end before it starts.
    after: u64,
    label: String,
}

impl MemberWork {
    /// Cuts the steps of a member. Kernels are joined up to the policy's bound if no dependency
    /// lies between them.
    pub(super) fn new(
        job: &DistributedBackground,
        class: &MemberClass,
        policy: &Policy,
        parameters: &DeviceParameters,
    ) -> Self {
        let gap = if policy.captured_graphs { parameters.graph_node_gap } else { parameters.kernel_gap };
        let bound = policy.background_piece.unwrap_or(Duration::MAX);
        let steps = &class.iteration.steps;
        let mut work = Self {
            compute: Vec::new(),
            collectives: Vec::new(),
            captured: policy.captured_graphs,
            bound,
            samples: job.batch() as f64 / job.ranks().len().max(1) as f64,
        };
        // For each step, the number of pieces of its lane up to and including it.
        let mut ends: Vec<u64> = Vec::with_capacity(steps.len());
        let is_waited_for: Vec<bool> =
            (0..steps.len()).map(|index| steps.iter().any(|step| step.after == Some(index))).collect();
        let mut open: Vec<Kernel> = Vec::new();
        let mut first = String::new();
        let mut open_after = 0;
        for (index, step) in steps.iter().enumerate() {
            let after = step.after.map_or(0, |after| ends[after]);
            match (&step.work, class.collectives[index]) {
                (StepWork::Compute(kernels), _) => {
                    for kernel in kernels {
                        let joined = estimate(&open, gap) + gap + kernel.time();
                        if !open.is_empty() && (after > open_after || joined > bound) {
                            work.push(&mut open, open_after, gap, &first);
                        }
                        if open.is_empty() {
                            first.clone_from(&step.name);
                            open_after = after.max(open_after);
                        }
                        open.push(*kernel);
                    }
                    if is_waited_for[index] {
                        work.push(&mut open, open_after, gap, &first);
                    }
                    ends.push(work.compute.len() as u64);
                }
                (StepWork::Communication { .. }, collective) => {
                    let collective = collective.unwrap_or_default();
                    let MemberCollective { takes, latency, .. } = job.collectives[collective];
                    work.collectives.push(MemberStep {
                        collective,
                        transfer: takes.saturating_sub(latency),
                        latency,
                        after,
                        label: step.name.clone(),
                    });
                    ends.push(work.collectives.len() as u64);
                }
            }
        }
        work.push(&mut open, open_after, gap, &first);
        work
    }

    /// Ends the current piece, unless it is empty.
    fn push(&mut self, open: &mut Vec<Kernel>, after: u64, gap: Duration, label: &str) {
        if !open.is_empty() {
            let (estimate, kernels) = (estimate(open, gap), std::mem::take(open).into());
            self.compute.push(ComputePiece { kernels, estimate, after, label: label.into() });
        }
    }
}

fn estimate(kernels: &[Kernel], gap: Duration) -> Duration {
    let time: Duration = kernels.iter().map(Kernel::time).sum();
    time + gap * u32::try_from(kernels.len().saturating_sub(1)).unwrap_or(u32::MAX)
}

/// Arrival of a member at a piece of a collective.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// Index of the collective in the job.
    pub(super) collective: usize,
    /// Maximum time of the piece, without its latency. A shorter piece leaves the rest to others.
    pub(super) transfer: Duration,
    /// Latency of the piece, whatever its transfer.
    pub(super) latency: Duration,
}

/// A member in the course of its iterations. An iteration begins when all pieces of the one before
/// have finished on the rank.
#[derive(Debug, Clone)]
pub(super) struct Member {
    /// Index of the job among the distributed background jobs.
    pub(super) job: usize,
    work: Arc<MemberWork>,
    /// Number of compute pieces, of all iterations, that were offered and that have finished.
    offered: u64,
    computed: u64,
    /// Number of collectives, of all iterations, that have finished on all their ranks.
    communicated: u64,
    /// Number of pieces of collectives that were launched.
    launched: u64,
    /// Finished part of the transfer of the current collective, and of its current piece.
    transferred: Duration,
    transferring: Duration,
    /// Whether the arrival at the next piece was reported.
    arrived: bool,
    /// Sum of the estimates of the finished compute pieces.
    computed_time: Duration,
}

impl Member {
    /// Creates a member before its first iteration.
    pub(super) fn new(job: usize, work: Arc<MemberWork>) -> Self {
        Self {
            job,
            work,
            offered: 0,
            computed: 0,
            communicated: 0,
            launched: 0,
            transferred: Duration::ZERO,
            transferring: Duration::ZERO,
            arrived: false,
            computed_time: Duration::ZERO,
        }
    }

    /// Returns the multiplexer's job of the compute pieces, or of the collectives. Job 0 of the
    /// background is the copy of the job that runs on every rank.
    fn id(&self, collectives: bool) -> JobId {
        let job = u32::try_from(self.job).unwrap_or(u32::MAX);
        JobId::background(job.saturating_mul(2).saturating_add(1 + u32::from(collectives)))
    }

    /// Whether a tasklet is a compute piece or a collective of this member.
    pub(super) fn owns(&self, tasklet: TaskletId) -> bool {
        [false, true].map(|collectives| self.id(collectives)).contains(&tasklet.job)
    }

    /// Returns the next compute piece to offer; `None` if it waits.
    pub(super) fn offer(&mut self) -> Option<(Tasklet, VirtualWork)> {
        let [pieces, collectives] = self.pieces();
        let iteration = self.offered.checked_div(pieces)?;
        let piece = &self.work.compute[(self.offered % pieces) as usize];
        let waits = self.communicated < iteration * collectives + piece.after
            || self.computed < iteration * pieces
            || self.offered - self.computed >= PIECES_AHEAD;
        if waits {
            return None;
        }
        let tasklet = Tasklet::new(self.id(false), self.offered).estimated(piece.estimate);
        self.offered += 1;
        Some((tasklet, VirtualWork::Compute { kernels: piece.kernels.clone(), captured: self.work.captured }))
    }

    /// Returns the current collective; `None` if the member has none.
    fn collective(&self) -> Option<&MemberStep> {
        let [_, collectives] = self.pieces();
        self.work.collectives.get(self.communicated.checked_rem(collectives)? as usize)
    }

    /// Returns the arrival of the member at the next piece of its current collective; `None` if it
    /// waits or has arrived before.
    pub(super) fn arrive(&mut self) -> Option<Arrival> {
        let [pieces, collectives] = self.pieces();
        let iteration = self.communicated.checked_div(collectives)?;
        let step = self.collective()?;
        if self.arrived || self.computed < iteration * pieces + step.after {
            return None;
        }
        let left = step.transfer.saturating_sub(self.transferred);
        let room = self.work.bound.saturating_sub(step.latency).max(self.work.bound / 2);
        let arrival =
            Arrival { collective: step.collective, transfer: left.min(room), latency: step.latency };
        self.arrived = true;
        Some(arrival)
    }

    /// Returns the tasklet and the work of a piece that takes `takes`, of the collective at which
    /// the member has arrived.
    pub(super) fn launch(&mut self, takes: Duration) -> Option<(Tasklet, VirtualWork)> {
        let latency = self.collective()?.latency;
        let tasklet = Tasklet::new(self.id(true), self.launched)
            .communicating(gpu_mux::Communication::AllReduce)
            .estimated(takes);
        self.launched += 1;
        self.transferring = takes.saturating_sub(latency);
        Some((tasklet, VirtualWork::Communication { transfer: takes, partners: Partners::Ready }))
    }

    /// Records the end of a tasklet of this member on the rank. Returns its label and whether it
    /// was a collective, which ends when it has ended on all ranks.
    pub(super) fn finish(&mut self, tasklet: TaskletId) -> (String, bool) {
        let [pieces, _] = self.pieces();
        if tasklet.job == self.id(true) {
            return (self.collective().map_or_else(String::new, |step| step.label.clone()), true);
        }
        let piece = &self.work.compute[tasklet.number.checked_rem(pieces).unwrap_or(0) as usize];
        self.computed += 1;
        self.computed_time = self.computed_time.saturating_add(piece.estimate);
        (piece.label.clone(), false)
    }

    /// Records that the last launched piece of a collective has ended on all its ranks.
    pub(super) fn end_collective(&mut self) {
        self.arrived = false;
        self.transferred += std::mem::take(&mut self.transferring);
        if self.collective().is_none_or(|step| self.transferred >= step.transfer) {
            self.communicated += 1;
            self.transferred = Duration::ZERO;
        }
    }

    /// Returns the samples of the job trained on so far, divided by its number of members, in
    /// proportion to the finished compute pieces.
    pub(super) fn samples(&self) -> f64 {
        let iteration: Duration = self.work.compute.iter().map(|piece| piece.estimate).sum();
        if iteration.is_zero() {
            return 0.0;
        }
        self.computed_time.as_secs_f64() / iteration.as_secs_f64() * self.work.samples
    }

    /// Returns the numbers of compute pieces and of collectives of an iteration.
    fn pieces(&self) -> [u64; 2] {
        [self.work.compute.len() as u64, self.work.collectives.len() as u64]
    }
}
