//! The Pareto frontier of plans.

use burst_planner::{
    Arrangement, Evaluator, TrainingFrontier, TrainingPoint, TrainingProblem, TrainingSearch, search_training,
};

use super::workers::Workers;
use super::{Job, JobCosts};
use crate::Error;
use crate::plan::{DataParallelTimes, ExecutionPlan, GpuCounts, Mode, PlanRequest};
use crate::program::PartialBackpropagation;

/// Tables of layers x GPU counts x GPUs are no larger.
const MOST_ENTRIES: usize = 200_000_000;

/// The Pareto-optimal ones of the burst plans of a [`Job`] that were evaluated: none of them is at least as good in iteration time and
/// GPU time, and better in one.
#[derive(Debug, Clone)]
pub struct PlanFrontier<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) request: PlanRequest,
    pub(super) problem: TrainingProblem,
    pub(super) found: TrainingFrontier,
    pub(super) data_parallel: DataParallelTimes,
    workers: Option<Workers<'a>>,
}

impl Job<'_> {
    /// Finds the plan that is asked for. The same question has the same answer.
    ///
    /// Data parallelism is not searched for: it is `min(gpus, batch)` GPUs for every layer, whatever the GPU counts of the
    /// request.
    ///
    /// # Errors
    /// When no plan keeps the limits on amplification and memory, the question is out of proportion, or the profile lacks a time.
    pub fn plan(&self, request: &PlanRequest) -> Result<ExecutionPlan, Error> {
        match request.mode {
            Mode::DataParallel => self.data_parallel(request),
            mode => self.frontier(request)?.plan(mode),
        }
    }

    /// Searches for the Pareto frontier of burst plans; the request's mode does not matter. For [workers](PlanRequest::with_worker_gpus) it
    /// is that of everything that is found for one of them, as all of them do it, by the time of the whole program.
    ///
    /// # Errors
    /// When no plan keeps the limit on memory, the question is out of proportion, or the profile lacks a time.
    pub fn frontier(&self, request: &PlanRequest) -> Result<PlanFrontier<'_>, Error> {
        self.check(request)?;
        if let Some(workers) = Workers::of(self, request)? {
            let (problem, found) = workers.frontier(self, request)?;
            let data_parallel = self.data_parallel_times(request.gpus)?;
            let (request, workers) = (request.clone(), Some(workers));
            return Ok(PlanFrontier { job: self, request, problem, found, data_parallel, workers });
        }
        let gpus = request.gpus;
        let counts = request.gpu_counts.for_batch(self.micro_batch()?, gpus);
        let parts = self.lowering.partial.as_ref().map_or(1, PartialBackpropagation::parts);
        check_size(self.costs.network().len().saturating_mul(parts), counts.len(), gpus)?;
        let mut problem = self.training_problem(gpus, &counts)?;
        problem.memory_limit_bytes = request.memory_limit_bytes;
        let data_parallel = self.data_parallel_times(gpus)?;
        // Unless the counts were listed, the search may also try data parallelism on any number of GPUs.
        let costs = match request.gpu_counts {
            GpuCounts::List(_) => self.training_costs_on(counts),
            _ => self.training_costs(),
        };
        let found = search(&problem, costs, request)?;
        Ok(PlanFrontier { job: self, request: request.clone(), problem, found, data_parallel, workers: None })
    }

    pub(super) fn data_parallel(&self, request: &PlanRequest) -> Result<ExecutionPlan, Error> {
        self.check(request)?;
        let count = request.gpus.min(self.micro_batch()?);
        let mut problem = self.training_problem(request.gpus, &[count])?;
        problem.memory_limit_bytes = request.memory_limit_bytes;
        let arrangement = Arrangement::data_parallel(&problem, count)?;
        Evaluator::new(&problem, self.training_costs())?.check_memory(&arrangement)?;
        let times = self.data_parallel_times(request.gpus)?;
        self.predicted(&problem, &arrangement, request, Mode::DataParallel, None, times)
    }

    pub(crate) fn data_parallel_times(&self, gpus: usize) -> Result<DataParallelTimes, Error> {
        let count = gpus.min(self.micro_batch()?);
        let problem = self.training_problem(gpus, &[count])?;
        let mut evaluator = Evaluator::new(&problem, self.training_costs())?;
        let arrangement = Arrangement::data_parallel(&problem, count)?;
        let memory_peak_bytes = evaluator.memory(&arrangement)?.into_iter().max();
        if self.lowering.partial.is_some() {
            return self.simulated_data_parallel(&problem, &arrangement, memory_peak_bytes);
        }
        let time = evaluator.evaluate(&arrangement)?;
        let amplification = time.gpu_time_us / evaluator.single_gpu_us()?;
        Ok(DataParallelTimes { iteration_us: time.iteration_us, amplification, memory_peak_bytes })
    }

    fn check(&self, request: &PlanRequest) -> Result<(), Error> {
        request.check()?;
        self.costs.link().check_ranks(request.gpus)?;
        if self.batch == 0 {
            return Err(Error::EmptyBatch);
        }
        self.micro_batch()?;
        Workers::of(self, request)?;
        let effort = request.effort;
        if !(effort > 0.0 && effort <= 1e6) {
            let (setting, expected) = ("the effort of a search", "above 0, at most 1e6");
            return Err(Error::Setting { setting, expected, got: effort.to_string() });
        }
        Ok(())
    }
}

/// Searches as long as is asked for.
pub(super) fn search(
    problem: &TrainingProblem,
    costs: JobCosts<'_>,
    request: &PlanRequest,
) -> Result<TrainingFrontier, Error> {
    let mut options = TrainingSearch::default();
    options.effort = request.effort;
    options.stop = request.stop.clone();
    Ok(search_training(problem, costs, &options)?)
}

pub(super) fn check_size(layers: usize, counts: usize, gpus: usize) -> Result<(), Error> {
    if layers.saturating_mul(counts).saturating_mul(gpus) <= MOST_ENTRIES {
        return Ok(());
    }
    Err(Error::Setting {
        setting: "the size of a plan, layers x GPU counts x GPUs,",
        expected: "at most 200,000,000: give fewer GPUs or fewer GPU counts",
        got: format!("{layers} x {counts} x {gpus}"),
    })
}

impl PlanFrontier<'_> {
    /// The arrangements, by rising iteration time and falling GPU time.
    #[must_use]
    pub fn arrangements(&self) -> &TrainingFrontier {
        &self.found
    }

    /// One of the plans; or the data-parallel one, which need not be among them.
    ///
    /// # Errors
    /// When none keeps the limit.
    pub fn plan(&self, mode: Mode) -> Result<ExecutionPlan, Error> {
        if self.job.lowering.partial.is_some() && mode != Mode::DataParallel {
            return self.best_partial(mode);
        }
        match self.point(mode)? {
            Some(point) => self.plan_of(point, mode),
            None => self.job.data_parallel(&self.request),
        }
    }

    /// The arrangement that a mode asks for; `None` for data parallelism.
    pub(crate) fn point(&self, mode: Mode) -> Result<Option<&TrainingPoint>, Error> {
        Ok(Some(match mode {
            Mode::DataParallel => return Ok(None),
            Mode::Burst { amplification } => self.found.fastest_within(amplification)?,
            Mode::Deadline { iteration_us } => self.found.cheapest_within(iteration_us)?,
            Mode::Knee => self.found.knee().ok_or(burst_planner::Error::NoNodes)?,
        }))
    }

    /// Every layer on the first `part` of the GPUs, whether or not it has room there.
    pub(crate) fn data_parallel_on(&self, part: usize) -> Result<ExecutionPlan, Error> {
        let problem = self.job.training_problem(self.request.gpus, &[part])?;
        self.unbounded(&problem, &Arrangement::data_parallel(&problem, part)?)
    }

    /// At most so many of the plans, spread evenly over the logarithms of their times; the fastest is the first.
    ///
    /// # Errors
    /// When the profile lacks a time.
    pub fn plans(&self, most: usize) -> Result<Vec<ExecutionPlan>, Error> {
        let points = self.found.points();
        let logarithm = |point: &TrainingPoint| point.time.iteration_us.ln();
        let (Some(first), Some(last)) = (points.first().map(logarithm), points.last().map(logarithm)) else {
            return Ok(Vec::new());
        };
        let step = (last - first) / most.saturating_sub(1).max(1) as f64;
        let mut plans = Vec::new();
        let mut next = first;
        for point in points {
            if plans.len() < most && logarithm(point) >= next - 1e-12 {
                next = (logarithm(point) + step).max(next);
                plans.push(self.unbounded_plan_of(point)?);
            }
        }
        Ok(plans)
    }

    /// The plan of one of the [arrangements](Self::arrangements), without a bound: much faster to have.
    ///
    /// # Errors
    /// When the profile lacks a time.
    pub fn unbounded_plan_of(&self, point: &TrainingPoint) -> Result<ExecutionPlan, Error> {
        self.with_worker(point, self.unbounded(&self.problem, &point.arrangement)?)
    }

    /// A plan that says what its workers take alone, if it is one of workers.
    fn with_worker(&self, point: &TrainingPoint, mut plan: ExecutionPlan) -> Result<ExecutionPlan, Error> {
        plan.worker = self.workers.as_ref().map(|workers| workers.planned(&point.arrangement)).transpose()?;
        Ok(plan)
    }

    fn unbounded(
        &self,
        problem: &TrainingProblem,
        arrangement: &Arrangement,
    ) -> Result<ExecutionPlan, Error> {
        let mode = Mode::Burst { amplification: f64::INFINITY };
        self.job.predicted(problem, arrangement, &self.request, mode, None, self.data_parallel)
    }

    /// The plan of one of the [arrangements](Self::arrangements), as the answer to a request for this mode.
    ///
    /// # Errors
    /// When the profile lacks a time.
    pub fn plan_of(&self, point: &TrainingPoint, mode: Mode) -> Result<ExecutionPlan, Error> {
        let bound_us = self.lower_bound_us(mode, point);
        let plan = self.job.predicted(
            &self.problem,
            &point.arrangement,
            &self.request,
            mode,
            // What is known of one micro-batch says little about all of them, and what is known of the whole nothing about a part.
            (self.job.lowering.micro_batches == 1 && self.job.lowering.partial.is_none()).then_some(bound_us),
            self.data_parallel,
        )?;
        self.with_worker(point, plan)
    }

    /// No plan that keeps the limit, or takes no more GPU time than this one where there is none, is faster.
    fn lower_bound_us(&self, mode: Mode, point: &TrainingPoint) -> f64 {
        self.found.lower_bound_us(match mode {
            Mode::Burst { amplification } => amplification,
            _ => point.time.gpu_time_us / self.found.single_gpu_us(),
        })
    }
}
