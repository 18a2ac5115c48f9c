//! Plans within a memory limit: with recomputed activations or micro-batches if no plan of the job
//! fits, or only a slower one.

use burst_planner::{Arrangement, Error as Unplanned, PlanTime, ProofBudget};

use super::checkpoint_choice::{CheckpointChoice, choose_checkpoints, time_of};
use super::frontier::{SelectedPlan, find_selected, with_splits};
use super::largest_batch::with_largest_batch;
use super::micro_batches::with_micro_batches;
use super::program_memory::{data_parallel_gpus, data_parallel_on};
use crate::Error;
use crate::job::{Job, LoweredPlan, single_gpu_us};
use crate::plan::{ExecutionPlan, Mode, PlanRequest};
use crate::program::{ELEMENT_BYTES, LowerOptions};

/// Maximum number of variants of a job that are planned, by their estimated times.
const MAX_SEARCHES: usize = 3;
/// Estimated time of a variant relative to the smallest one, up to which it is planned.
const PLANNED_UP_TO: f64 = 1.03;
/// Relative tolerance of limits on amplification and time.
const TOLERANCE: f64 = 1e-9;
/// Distance of a plan to its lower bound, relative to the bound, below which no variant is tried.
const MIN_GAP: f64 = 1e-3;

/// Returns whether more memory could make a plan possible.
fn may_fit_with_more_memory(error: &Unplanned, request: &PlanRequest) -> bool {
    match error {
        Unplanned::MemoryExceeded { .. } => true,
        Unplanned::LimitUnreachable { .. } | Unplanned::DeadlineUnreachable { .. } => {
            request.memory_limit_bytes.is_some()
        }
        _ => false,
    }
}

/// Finds the plan for a request, and the job that it is for: the given one or, if no plan or only a
/// slower one is within the memory limit, a variant of it with
/// - [recomputed activations](crate::program::LowerOptions::checkpoints),
/// - 2, 4, 8 or more micro-batches,
/// - or both.
///
/// For each number of micro-batches, the checkpoints with the minimum recomputation are chosen with
/// which data parallelism, or the plan without a memory limit, is within the limit. The variants
/// that are the fastest with those plans are planned.
///
/// No variant changes the result of training: networks with batch normalisation get no
/// micro-batches.
///
/// # Errors
/// As [`find_plan`](super::find_plan). [`Error::BatchTooLarge`] if no plan is within the memory
/// limit, but there is one of a smaller batch.
pub fn plan_within_memory<'a>(
    job: &Job<'a>,
    request: &PlanRequest,
) -> Result<(Job<'a>, LoweredPlan<'a>), Error> {
    let Some(limit_bytes) = request.memory_limit_bytes else {
        return Ok((job.clone(), find_selected(job, request)?.plan));
    };
    let job = &with_splits(job, request);
    let found = find_selected(job, request);
    let (fitting, unplanned) = match found {
        Ok(found) if !may_be_faster(&found.plan, limit_bytes, request) => {
            return Ok((job.clone(), found.plan));
        }
        Ok(found) => (Some((job.clone(), found)), None),
        Err(Error::Planner(error)) if may_fit_with_more_memory(&error, request) => (None, Some(error)),
        Err(error) => return Err(error),
    };
    if let Some(unplanned) = unplanned.as_ref().filter(|_| limit_bytes < min_state_bytes(job, request)) {
        return Err(Error::Planner(unplanned.clone()));
    }
    let variants = request.clone().with_proof(ProofBudget::Off);
    let mut search = Search { request: &variants, limit_bytes, fastest: None, unplanned };
    let without = fitting.as_ref().map(|(_, found)| search.value(&found.plan));
    let smallest = search.try_variants(job, without)?;
    if search.fastest.is_none() {
        search.try_smallest(&smallest)?;
    }
    let is_faster = search.fastest_value() < without.unwrap_or(f64::INFINITY);
    search.fastest = search.fastest.filter(|_| is_faster);
    request.stop.check()?;
    let Search { fastest, unplanned, .. } = search;
    match (fastest, fitting, unplanned) {
        (Some((job, found)), ..) => Ok((job, found.proved(request)?)),
        // Its bound is proved already.
        (None, Some((job, found)), _) => Ok((job, found.plan)),
        (None, None, Some(unplanned)) => Err(with_largest_batch(unplanned, job, request)?),
        (None, None, None) => Err(Error::Planner(Unplanned::NoNodes)),
    }
}

/// Returns whether a plan could be slower because of the memory limit.
fn may_be_faster(plan: &ExecutionPlan, limit_bytes: u64, request: &PlanRequest) -> bool {
    request.gpus > 1
        && matches!(request.mode, Mode::Burst { .. })
        && plan.single_gpu_memory_bytes.is_some_and(|bytes| bytes > limit_bytes)
        && plan.gap.is_none_or(|gap| gap > MIN_GAP)
}

/// Returns a lower bound on the memory of the rank with the largest layer, or the largest part of
/// it, for any micro-batches: its parameters and their gradients.
fn min_state_bytes(job: &Job<'_>, request: &PlanRequest) -> u64 {
    let network = job.costs().network();
    let max_parameters = network.layers().map(|(id, _)| network.own_parameter_count(id)).max().unwrap_or(0);
    let parts = if request.splits.is_empty() { 1 } else { request.gpus.max(1) };
    2 * ELEMENT_BYTES * (max_parameters / parts) as u64
}

/// The search for the fastest variant of a job.
struct Search<'r, 'a> {
    /// The request, without proofs.
    request: &'r PlanRequest,
    limit_bytes: u64,
    fastest: Option<(Job<'a>, SelectedPlan<'a>)>,
    /// The error of the last job without a plan.
    unplanned: Option<Unplanned>,
}

impl<'a> Search<'_, 'a> {
    /// The value of a plan that is minimised.
    fn value(&self, plan: &ExecutionPlan) -> f64 {
        match self.request.mode {
            Mode::Deadline { .. } => plan.gpu_time_us,
            _ => plan.iteration_us,
        }
    }

    fn fastest_value(&self) -> f64 {
        self.fastest.as_ref().map_or(f64::INFINITY, |(_, found)| self.value(&found.plan))
    }

    /// Plans the variants of a job that may be the fastest. `without` is the value of the plan of
    /// the job itself, if it is within the limit. Returns for each number of micro-batches the
    /// variant that needs the least memory with data parallelism, in bytes.
    fn try_variants(&mut self, job: &Job<'a>, without: Option<f64>) -> Result<Vec<(u64, Job<'a>)>, Error> {
        let free = self.without_limit(job)?;
        let gains = without
            .zip(free.as_ref())
            .is_none_or(|(without, (value, _))| *value <= without * (1.0 - MIN_GAP));
        if !gains {
            return Ok(Vec::new());
        }
        let (mut variants, smallest) = self.variants(job, free.as_ref().map(|(_, placed)| placed))?;
        variants.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let best = variants.first().map_or(f64::INFINITY, |&(value, _)| value);
        for (value, variant) in variants.into_iter().take(MAX_SEARCHES) {
            let limit = without.unwrap_or(f64::INFINITY).min(self.fastest_value().max(best * PLANNED_UP_TO));
            if value >= limit {
                break;
            }
            self.try_job(variant);
        }
        self.improve_checkpoints()?;
        Ok(smallest)
    }

    /// Returns the plan of a burst request without the memory limit: its value and its arrangement.
    fn without_limit(&self, job: &Job<'a>) -> Result<Option<(f64, Arrangement)>, Error> {
        if self.request.gpus == 1 || !matches!(self.request.mode, Mode::Burst { .. }) {
            return Ok(None);
        }
        let request = self.request.clone().with_memory_limit(None);
        let plan = match find_selected(job, &request) {
            Ok(found) => found.plan,
            Err(Error::Planner(_) | Error::Profile(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some((self.value(&plan), arrangement(job, &plan)?)))
    }

    /// Returns variants within the limit with their values, and for each number of micro-batches
    /// the variant that needs the least memory with data parallelism. `free` is the arrangement of
    /// a plan without a limit.
    #[expect(clippy::type_complexity, reason = "two lists")]
    fn variants(
        &self,
        job: &Job<'a>,
        free: Option<&Arrangement>,
    ) -> Result<(Vec<(f64, Job<'a>)>, Vec<(u64, Job<'a>)>), Error> {
        let single_us = single_gpu_us(job)?;
        let (mut variants, mut all_smallest) = (Vec::new(), Vec::new());
        let mut best = f64::INFINITY;
        for job in with_micro_batches(job) {
            self.request.stop.check()?;
            let data_parallel = self.data_parallel(&job)?;
            let placed = match free.filter(|&free| *free != data_parallel) {
                Some(free) => is_possible(&job, self.request.gpus, free)?.then_some(free),
                None => None,
            };
            let mut min_value = f64::INFINITY;
            for (index, arrangement) in [Some(&data_parallel), placed].into_iter().flatten().enumerate() {
                // A measured profile may lack times of smaller shards.
                let Ok(kept) = time_of(&job, self.request.gpus, arrangement) else { continue };
                min_value = min_value.min(self.value_of(kept, single_us).unwrap_or(f64::INFINITY));
                if min_value >= best {
                    continue;
                }
                let CheckpointChoice { fastest, smallest } =
                    choose_checkpoints(&job, self.request.gpus, arrangement, self.limit_bytes)?;
                if index == 0 {
                    all_smallest.push(smallest);
                }
                let Some(fastest) = fastest else { continue };
                let time = time_of(&fastest, self.request.gpus, arrangement)?;
                if let Some(value) = self.value_of(time, single_us) {
                    best = best.min(value);
                    variants.push((value, fastest));
                }
            }
            // More micro-batches are slower.
            if min_value >= best {
                break;
            }
        }
        Ok((variants, all_smallest))
    }

    /// Returns data parallelism on the maximum GPU count of the request.
    fn data_parallel(&self, job: &Job<'a>) -> Result<Arrangement, Error> {
        Ok(data_parallel_on(job, data_parallel_gpus(self.request, job.micro_batch()?)))
    }

    /// Returns the value of a plan with the given times; `None` if it is not within the limits of
    /// the request's mode.
    fn value_of(&self, time: PlanTime, single_gpu_us: f64) -> Option<f64> {
        let PlanTime { iteration_us, gpu_time_us, .. } = time;
        match self.request.mode {
            Mode::Burst { amplification } => {
                let is_within = gpu_time_us <= amplification * single_gpu_us * (1.0 + TOLERANCE);
                is_within.then_some(iteration_us)
            }
            Mode::Deadline { iteration_us: deadline_us } => {
                (iteration_us <= deadline_us * (1.0 + TOLERANCE)).then_some(gpu_time_us)
            }
            _ => Some(iteration_us),
        }
    }

    /// Plans the variant with the fastest checkpoints with which the fastest plan so far is within
    /// the limit, while that is faster.
    fn improve_checkpoints(&mut self) -> Result<(), Error> {
        while let Some((job, found)) = &self.fastest {
            if self.request.gpus == 1 || job.lowering().checkpoints.is_empty() {
                break;
            }
            let before = self.value(&found.plan);
            let arrangement = arrangement(job, &found.plan)?;
            let kept = job.with_lowering(LowerOptions { checkpoints: Vec::new(), ..job.lowering().clone() });
            let choice = choose_checkpoints(&kept, self.request.gpus, &arrangement, self.limit_bytes)?;
            let Some(faster) = choice.fastest else { break };
            let value =
                self.value_of(time_of(&faster, self.request.gpus, &arrangement)?, found.plan.single_gpu_us);
            if value.is_none_or(|value| value >= before * (1.0 - MIN_GAP)) {
                break;
            }
            self.try_job(faster);
            if self.fastest_value() >= before * (1.0 - MIN_GAP) {
                break;
            }
        }
        Ok(())
    }

    /// Plans variants that need little memory, by number of micro-batches, until one is within the
    /// limit, and improves its checkpoints.
    fn try_smallest(&mut self, smallest: &[(u64, Job<'a>)]) -> Result<(), Error> {
        for (_, variant) in smallest {
            self.try_job(variant.clone());
            if self.fastest.is_some() {
                break;
            }
        }
        self.improve_checkpoints()
    }

    /// Plans a job, and stores its plan if it is the fastest so far.
    fn try_job(&mut self, job: Job<'a>) {
        match find_selected(&job, self.request) {
            Ok(found) => {
                let value = self.value(&found.plan);
                if value < self.fastest_value() {
                    self.fastest = Some((job, found));
                }
            }
            Err(Error::Planner(error)) if may_fit_with_more_memory(&error, self.request) => {
                // For a limit on amplification or time, the error of the whole batch is the most
                // informative.
                if matches!(self.unplanned, Some(Unplanned::MemoryExceeded { .. })) {
                    self.unplanned = Some(error);
                }
            }
            // A time of a smaller shard is missing in a measured profile, or the search was
            // stopped.
            Err(_) => {}
        }
    }
}

/// Returns the arrangement of a plan.
fn arrangement(job: &Job<'_>, plan: &ExecutionPlan) -> Result<Arrangement, Error> {
    job.nodes().arrangement(&plan.placement(job.costs().network())?)
}

/// Returns whether every rank has samples of each micro-batch.
fn is_possible(job: &Job<'_>, gpus: usize, arrangement: &Arrangement) -> Result<bool, Error> {
    let placement = job.nodes().placement(gpus, arrangement)?;
    let ranges = job.costs().network().computing_layers().map(|(id, _)| placement.sample_ranges(id));
    let max_ranges = ranges.max().unwrap_or(0);
    Ok(job.micro_batch().is_ok_and(|samples| max_ranges <= samples))
}
