//! The search for plans. The *Pareto frontier* of plans has those that no other known plan beats in
//! both iteration time and GPU time. A *point* of it is an arrangement (the ranks and the order of
//! the layers) with its times. The number of *samples of a micro-batch* is counted over all ranks
//! here: the global batch divided by the number of micro-batches, which must divide it.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use burst_planner::{
    Arrangement, Error as Unplanned, Evaluator, Frontier, LowerBound, Plan, PlanProblem, PlanTime,
    ProofBudget,
};

use super::arranged_plan::arranged_plan;
use super::partial::{best_partial, simulated_data_parallel};
use super::program_memory::program_bytes;
use super::search::{check_size, search};
use super::workers::Workers;
use crate::Error;
use crate::batch::check_batch;
use crate::job::{Job, JobCosts, LoweredPlan, data_parallel_bytes, plan_problem};
use crate::plan::{DataParallelTimes, GpuCounts, Mode, PlanRequest, PlanningWork};
use crate::program::PartialBackpropagation;

/// The Pareto frontier of the burst plans of a job that a search evaluated: no other evaluated plan
/// is at least as good in both iteration time and GPU time, and better in one.
#[derive(Debug, Clone)]
pub struct PlanFrontier<'a> {
    job: Job<'a>,
    request: PlanRequest,
    problem: PlanProblem,
    found: Frontier,
    data_parallel: DataParallelTimes,
    workers: Option<Workers<'a>>,
}

/// Finds the plan for a request. The result is deterministic.
///
/// Data parallelism needs no search: every layer runs on all GPUs, but at most on one GPU per
/// sample of a micro-batch. The GPU counts of the request are ignored. If the GPUs do not divide
/// the samples evenly, some have one sample more than the others.
///
/// # Errors
/// [`Error::Planner`] if no plan is within the limits on amplification, time and memory.
/// [`Error::EmptyBatch`] if the job has no samples. [`Error::Setting`] if the request is invalid or
/// too large, or if the number of micro-batches does not divide the global batch.
/// [`Error::Profile`] if the profile lacks a time.
pub fn find_plan<'a>(job: &Job<'a>, request: &PlanRequest) -> Result<LoweredPlan<'a>, Error> {
    Ok(find_selected(job, request)?.plan)
}

/// A plan with the frontier that it is from.
pub(super) struct SelectedPlan<'a> {
    pub(super) plan: LoweredPlan<'a>,
    /// `None` for data parallelism.
    frontier: Option<PlanFrontier<'a>>,
}

impl<'a> SelectedPlan<'a> {
    /// Returns the plan with a lower bound that is proved within `request`'s budget.
    ///
    /// # Errors
    /// As [`PlanFrontier::plan`].
    pub(super) fn proved(self, request: &PlanRequest) -> Result<LoweredPlan<'a>, Error> {
        let Some(mut frontier) = self.frontier.filter(|_| request.proof != ProofBudget::Off) else {
            return Ok(self.plan);
        };
        frontier.request.proof = request.proof;
        frontier.plan(request.mode)
    }
}

/// Finds the plan for a request, and the frontier that it is from.
///
/// # Errors
/// As [`find_plan`].
pub(super) fn find_selected<'a>(job: &Job<'a>, request: &PlanRequest) -> Result<SelectedPlan<'a>, Error> {
    if request.mode == Mode::DataParallel {
        return Ok(SelectedPlan { plan: data_parallel(job, request)?, frontier: None });
    }
    let frontier = find_frontier(job, request)?;
    Ok(SelectedPlan { plan: frontier.plan(request.mode)?, frontier: Some(frontier) })
}

/// Searches for the Pareto frontier of burst plans. The mode of the request is ignored. For
/// [workers](PlanRequest::with_worker_gpus) it searches for plans of one worker, then evaluates
/// each of them with all workers.
///
/// # Errors
/// [`Error::Planner`] if no plan is within the limit on memory. [`Error::EmptyBatch`] if the job
/// has no samples. [`Error::Setting`] if the request is invalid or too large, or if the number of
/// micro-batches does not divide the global batch. [`Error::Profile`] if the profile lacks a time.
pub fn find_frontier<'a>(job: &Job<'a>, request: &PlanRequest) -> Result<PlanFrontier<'a>, Error> {
    ModelLimit::new(request).frontier(job, request)
}

/// Maximum number of searches with a lower limit than the request's.
const MAX_LOWERED: usize = 4;
/// Memory by the planner's model, relative to the limit, from which the memory of the program is
/// checked. The model is at least 0.63 times the program's memory for 1,014 ranks of random
/// placements.
const CHECKED_FROM: f64 = 0.6;
/// Memory by the planner's model, relative to the limit, up to which the program may be within the
/// limit.
const POSSIBLE_UP_TO: f64 = 1.05;

/// The limit of the planner's memory model, which estimates the memory of programs.
struct ModelLimit {
    /// The limit on the memory of programs.
    limit_bytes: Option<u64>,
    model_bytes: Option<u64>,
    lowered: usize,
}

impl ModelLimit {
    fn new(request: &PlanRequest) -> Self {
        let limit_bytes = request.memory_limit_bytes;
        Self { limit_bytes, model_bytes: limit_bytes, lowered: 0 }
    }

    /// Lowers the limit of the model, by which a program with `needed_bytes` bytes is within the
    /// limit. Returns false if it was lowered often before.
    fn lower(&mut self, needed_bytes: u64) -> bool {
        let (Some(limit), Some(model)) = (self.limit_bytes, self.model_bytes) else { return false };
        self.lowered += 1;
        let ratio = limit as f64 / needed_bytes.max(1) as f64;
        self.model_bytes = Some((model as f64 * ratio.min(0.999)) as u64);
        self.lowered <= MAX_LOWERED
    }

    /// Searches for the frontier of plans whose programs are within the limit. Programs are lowered
    /// only for points near the limit. If some points exceed it, the limit of the model is lowered,
    /// and of the frontiers found the one with the fastest plan is returned.
    fn frontier<'a>(&mut self, job: &Job<'a>, request: &PlanRequest) -> Result<PlanFrontier<'a>, Error> {
        let mut best: Option<PlanFrontier<'a>> = None;
        loop {
            let of_model = request.clone().with_memory_limit(self.model_bytes);
            let mut found = match frontier_by_model(job, &of_model) {
                Err(Error::Planner(Unplanned::MemoryExceeded { needed_bytes, nodes, .. })) => {
                    let limit_bytes = self.limit_bytes.unwrap_or_default();
                    let possible_bytes = (limit_bytes as f64 * POSSIBLE_UP_TO) as u64;
                    if self.lowered == 0
                        && self.model_bytes == self.limit_bytes
                        && needed_bytes <= possible_bytes
                    {
                        self.model_bytes = Some(possible_bytes);
                        continue;
                    }
                    let needed_bytes = needed_bytes.max(limit_bytes.saturating_add(1));
                    let exceeded = Unplanned::MemoryExceeded { limit_bytes, needed_bytes, nodes };
                    return best.ok_or(exceeded.into());
                }
                found => found?,
            };
            found.request = request.clone();
            let Some(limit_bytes) = self.limit_bytes.filter(|_| job.lowering().partial.is_none()) else {
                return Ok(found);
            };
            let exceeding = found.retain_within(limit_bytes)?;
            let fastest_us = |frontier: &PlanFrontier<'_>| {
                frontier.found.plans().first().map_or(f64::INFINITY, |plan| plan.time.iteration_us)
            };
            let best_us = best.as_ref().map_or(f64::INFINITY, fastest_us);
            if fastest_us(&found) < best_us {
                best = Some(found);
            }
            match exceeding {
                Some(needed_bytes) if self.lower(needed_bytes) => {}
                exceeding => {
                    let (needed_bytes, nodes) = (exceeding.unwrap_or(limit_bytes), Vec::new());
                    let exceeded = Unplanned::MemoryExceeded { limit_bytes, needed_bytes, nodes };
                    return best.ok_or(exceeded.into());
                }
            }
        }
    }
}

/// Returns the job with layers that may be split as a request says. Workers and partial
/// backpropagation use no splits.
pub(super) fn with_splits<'a>(job: &Job<'a>, request: &PlanRequest) -> Job<'a> {
    let is_whole = job.lowering().partial.is_some() || request.worker_gpus.is_some();
    if is_whole { job.clone() } else { job.with_splits(&request.splits, request.gpus) }
}

/// Searches for the Pareto frontier of plans within the request's memory limit by the planner's
/// model.
fn frontier_by_model<'a>(job: &Job<'a>, request: &PlanRequest) -> Result<PlanFrontier<'a>, Error> {
    check(job, request)?;
    if let Some(workers) = Workers::of(job, request)? {
        let (problem, found) = workers.frontier(job, request)?;
        let data_parallel = data_parallel_times(job, request.gpus)?;
        let (request, workers) = (request.clone(), Some(workers));
        return Ok(PlanFrontier { job: job.clone(), request, problem, found, data_parallel, workers });
    }
    let gpus = request.gpus;
    let job = &with_splits(job, request);
    let counts = request.gpu_counts.for_batch(job.micro_batch()?, gpus);
    let parts = job.lowering().partial.as_ref().map_or(1, PartialBackpropagation::parts);
    check_size(job.costs().network().len().saturating_mul(parts), counts.len(), gpus)?;
    let mut problem = plan_problem(job, gpus, &counts)?;
    problem.memory_limit_bytes = request.memory_limit_bytes;
    let data_parallel = data_parallel_times(job, gpus)?;
    // Unless the counts were listed, the search may also propose data parallelism on any number of
    // GPUs.
    let costs = match request.gpu_counts {
        GpuCounts::List(_) => JobCosts::new(job).on_counts(counts),
        _ => JobCosts::new(job),
    };
    let found = search(&problem, costs, request)?;
    Ok(PlanFrontier {
        job: job.clone(),
        request: request.clone(),
        problem,
        found,
        data_parallel,
        workers: None,
    })
}

/// Returns the plan of data parallelism.
fn data_parallel<'a>(job: &Job<'a>, request: &PlanRequest) -> Result<LoweredPlan<'a>, Error> {
    check(job, request)?;
    let count = request.gpus.min(job.micro_batch()?);
    let problem = plan_problem(job, request.gpus, &[count])?;
    let arrangement = Arrangement::data_parallel(&problem, count)?;
    let times = data_parallel_times(job, request.gpus)?;
    arranged_plan(job, &problem, &arrangement, request, Mode::DataParallel, || None, times)
}

/// Computes the times of one iteration and the memory of data parallelism on `gpus` GPUs, but at
/// most on one GPU per sample of a micro-batch. If the GPUs do not divide the samples evenly, some
/// have one sample more than the others.
///
/// # Errors
/// [`Error::Setting`] if the number of micro-batches does not divide the global batch.
/// [`Error::Profile`] if the profile lacks a time.
fn data_parallel_times(job: &Job<'_>, gpus: usize) -> Result<DataParallelTimes, Error> {
    let count = gpus.min(job.micro_batch()?);
    if job.lowering().partial.is_some() {
        return simulated_data_parallel(job, count);
    }
    let problem = plan_problem(job, count, &[count])?;
    let mut evaluator = Evaluator::new(&problem, JobCosts::new(job))?;
    let single_gpu_us = evaluator.single_gpu_us()?;
    times_on(job, &mut evaluator, single_gpu_us, count, &mut HashMap::new())
}

/// Computes the times of one iteration and the memory of data parallelism on each of the given
/// numbers of GPUs, but at most on one GPU per sample of a micro-batch.
///
/// # Errors
/// [`Error::Setting`] if the number of micro-batches does not divide the global batch.
/// [`Error::Profile`] if the profile lacks a time.
pub(crate) fn data_parallel_times_on(
    job: &Job<'_>,
    counts: RangeInclusive<usize>,
) -> Result<Vec<DataParallelTimes>, Error> {
    let max = job.micro_batch()?;
    let problem = plan_problem(job, max.min(*counts.end()), &counts.clone().collect::<Vec<_>>())?;
    let mut evaluator = Evaluator::new(&problem, JobCosts::new(job))?;
    let single_gpu_us = evaluator.single_gpu_us()?;
    let mut memory = HashMap::new();
    counts.map(|count| times_on(job, &mut evaluator, single_gpu_us, count.min(max), &mut memory)).collect()
}

/// Computes the times and the memory of data parallelism on `count` GPUs. `memory` caches the
/// memory by the number of samples of the largest shard, and by whether there are several GPUs.
fn times_on(
    job: &Job<'_>,
    evaluator: &mut Evaluator<'_>,
    single_gpu_us: f64,
    count: usize,
    memory: &mut HashMap<(usize, bool), u64>,
) -> Result<DataParallelTimes, Error> {
    let (PlanTime { iteration_us, gpu_time_us, .. }, _) = evaluator.data_parallel(count)?;
    let amplification = gpu_time_us / single_gpu_us;
    let shard = (job.micro_batch()?.div_ceil(count), count > 1);
    let memory_peak_bytes = if let Some(&known) = memory.get(&shard) {
        known
    } else {
        let bytes = data_parallel_bytes(job, count)?;
        memory.insert(shard, bytes);
        bytes
    };
    Ok(DataParallelTimes { iteration_us, amplification, memory_peak_bytes: Some(memory_peak_bytes) })
}

/// Checks a request before anything is allocated whose size depends on it.
fn check(job: &Job<'_>, request: &PlanRequest) -> Result<(), Error> {
    request.check()?;
    job.costs().link().check_ranks(request.gpus)?;
    check_batch(job.batch())?;
    job.micro_batch()?;
    Workers::of(job, request)?;
    let effort = request.effort;
    if !(effort > 0.0 && effort <= 1e6) {
        let (setting, expected) = ("the effort of a search", "above 0, at most 1e6");
        return Err(Error::Setting { setting, expected, got: effort.to_string() });
    }
    Ok(())
}

impl<'a> PlanFrontier<'a> {
    /// The points of the frontier, by ascending iteration time and descending GPU time.
    #[must_use]
    pub fn points(&self) -> &Frontier {
        &self.found
    }

    /// Returns the plan that a mode selects. For data parallelism it need not be on the frontier.
    ///
    /// # Errors
    /// [`Error::Planner`] if no plan is within the limit.
    pub fn plan(&self, mode: Mode) -> Result<LoweredPlan<'a>, Error> {
        if self.job.lowering().partial.is_some() && mode != Mode::DataParallel {
            let found = (&self.problem, self.found.plans());
            return best_partial(&self.job, found, &self.request, mode, self.data_parallel);
        }
        match self.point(mode)? {
            Some(point) => self.plan_of(point, mode),
            None => data_parallel(&self.job, &self.request),
        }
    }

    /// Returns the point that a mode selects; `None` for data parallelism.
    ///
    /// # Errors
    /// [`Error::Planner`] if no point is within the limit.
    pub(crate) fn point(&self, mode: Mode) -> Result<Option<&Plan>, Error> {
        Ok(Some(match mode {
            Mode::DataParallel => return Ok(None),
            Mode::Burst { amplification } => self.found.fastest_within(amplification)?,
            Mode::Deadline { iteration_us } => self.found.cheapest_within(iteration_us)?,
            Mode::Knee => self.found.knee().ok_or(burst_planner::Error::NoNodes)?,
        }))
    }

    /// Returns the plan of data parallelism on the ranks `0..count`, without a lower bound and
    /// without a memory limit.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks a time.
    pub(crate) fn data_parallel_on(&self, count: usize) -> Result<LoweredPlan<'a>, Error> {
        let problem = plan_problem(&self.job, self.request.gpus, &[count])?;
        let request = self.request.clone().with_memory_limit(None);
        self.unbounded(&problem, &Arrangement::data_parallel(&problem, count)?, &request)
    }

    /// Returns at most `max` plans of the frontier without lower bounds, about evenly spaced by the
    /// logarithm of their iteration times, the fastest first.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks a time.
    pub fn plans(&self, max: usize) -> Result<Vec<LoweredPlan<'a>>, Error> {
        let points = self.found.plans();
        let logarithm = |point: &Plan| point.time.iteration_us.ln();
        let (Some(first), Some(last)) = (points.first().map(logarithm), points.last().map(logarithm)) else {
            return Ok(Vec::new());
        };
        let step = (last - first) / max.saturating_sub(1).max(1) as f64;
        let mut plans = Vec::new();
        let mut next = first;
        for point in points {
            if plans.len() < max && logarithm(point) >= next - 1e-12 {
                next = (logarithm(point) + step).max(next);
                plans.push(self.unbounded_plan_of(point)?);
            }
        }
        Ok(plans)
    }

    /// Returns the plan of one of the [points](Self::points) without a lower bound. This is faster
    /// than `plan_of`, which spends most of its time on the bound.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks a time.
    pub fn unbounded_plan_of(&self, point: &Plan) -> Result<LoweredPlan<'a>, Error> {
        self.with_worker(point, self.unbounded(&self.problem, &point.arrangement, &self.request)?)
    }

    /// Adds the times of one worker to a plan of workers.
    fn with_worker(&self, point: &Plan, mut plan: LoweredPlan<'a>) -> Result<LoweredPlan<'a>, Error> {
        plan.plan_mut().worker =
            self.workers.as_ref().map(|workers| workers.times_of_one(&point.arrangement)).transpose()?;
        Ok(plan)
    }

    fn unbounded(
        &self,
        problem: &PlanProblem,
        arrangement: &Arrangement,
        request: &PlanRequest,
    ) -> Result<LoweredPlan<'a>, Error> {
        let mode = Mode::Burst { amplification: f64::INFINITY };
        arranged_plan(&self.job, problem, arrangement, request, mode, || None, self.data_parallel)
    }

    /// Removes the points whose programs need more memory than the limit, among those near it by
    /// the planner's model. Returns the memory of the fullest of them.
    fn retain_within(&mut self, limit_bytes: u64) -> Result<Option<u64>, Error> {
        let near = (limit_bytes as f64 * CHECKED_FROM) as u64;
        let mut evaluator = Evaluator::new(&self.problem, JobCosts::new(&self.job))?;
        let mut bytes = Vec::with_capacity(self.found.plans().len());
        for Plan { arrangement, .. } in self.found.plans() {
            self.request.stop.check()?;
            let by_model = evaluator.memory(arrangement)?.into_iter().max().unwrap_or(0);
            bytes.push(if by_model < near {
                by_model
            } else {
                program_bytes(&self.job, self.problem.gpus, arrangement)?
            });
        }
        drop(evaluator);
        let mut of_points = bytes.iter();
        self.found.retain(|_| of_points.next().is_none_or(|&bytes| bytes <= limit_bytes));
        Ok(bytes.into_iter().filter(|&bytes| bytes > limit_bytes).max())
    }

    /// Returns the plan of one of the [points](Self::points), for a mode whose limit is stored in
    /// the plan. The plan has a lower bound on the iteration time: for `Mode::Burst`, of all plans
    /// within its amplification limit; for the other modes, such as `Mode::Knee` and
    /// `Mode::Deadline`, of all plans with at most the GPU time of this point. There is no bound
    /// with several micro-batches or with partial backpropagation.
    ///
    /// # Errors
    /// [`Error::Planner`] if the program of the point exceeds the memory limit. [`Error::Profile`]
    /// if the profile lacks a time.
    pub fn plan_of(&self, point: &Plan, mode: Mode) -> Result<LoweredPlan<'a>, Error> {
        // The bound of one micro-batch does not hold for the batch, and that of the whole batch not
        // for partial backpropagation.
        let is_bounded = self.job.lowering().micro_batches == 1 && self.job.lowering().partial.is_none();
        let plan = arranged_plan(
            &self.job,
            &self.problem,
            &point.arrangement,
            &self.request,
            mode,
            || is_bounded.then(|| self.bound(mode, point)),
            self.data_parallel,
        )?;
        self.with_worker(point, plan)
    }

    /// Proves a lower bound on the iteration time within the budget of the request: for
    /// `Mode::Burst`, of all plans within its amplification limit; for other modes, of all plans
    /// with at most the GPU time of `point`.
    fn bound(&self, mode: Mode, point: &Plan) -> (LowerBound, PlanningWork) {
        let limit = match mode {
            Mode::Burst { amplification } => amplification,
            _ => point.time.gpu_time_us / self.found.single_gpu_us(),
        };
        let PlanRequest { proof: budget, stop, .. } = &self.request;
        let bound = self.found.prove(limit, *budget, stop);
        let search = (self.found.evaluations(), self.found.search_end());
        (bound, PlanningWork::new(search, &bound, *budget))
    }
}
