//! Analysis of one plan by the planner's evaluation: its critical path, the effect of other GPU
//! counts, and the effect of faster or slower layers and links.

use burst_planner::{Arrangement, Evaluator, PathStep, PlanProblem};

use super::explain::{RunExplanation, explain};
use super::scaled_costs::ScaledCosts;
use crate::Error;
use crate::job::{Job, JobCosts, check_times, plan_problem};
use crate::plan::{ExecutionPlan, GpuCounts};

/// A plan with its planning problem and arrangement, which all analyses of it share.
#[derive(Debug, Clone)]
pub struct PlanAnalysis<'p> {
    job: Job<'p>,
    plan: &'p ExecutionPlan,
    problem: PlanProblem,
    arrangement: Arrangement,
}

impl<'p> PlanAnalysis<'p> {
    /// Prepares the analysis of a plan of this job.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan is for another job. [`Error::Profile`] if the profile lacks a
    /// time.
    pub fn new(job: &Job<'p>, plan: &'p ExecutionPlan) -> Result<Self, Error> {
        let placement = job.placement(plan)?;
        let ids = job.costs().network().computing_layers().map(|(id, _)| id);
        let mut counts: Vec<usize> = ids.map(|id| placement.sample_ranges(id)).collect();
        counts.sort_unstable();
        counts.dedup();
        let job = job.with_splits_of(plan);
        let problem = plan_problem(&job, plan.gpus, &counts)?;
        let arrangement = job.nodes().arrangement(&placement)?;
        Ok(Self { job, plan, problem, arrangement })
    }

    fn evaluator(&self) -> Result<Evaluator<'_>, Error> {
        Ok(Evaluator::new(&self.problem, JobCosts::new(&self.job))?)
    }

    /// Returns the steps on the critical path of an iteration, in the order in which they run.
    /// Their times, in microseconds, add up to the iteration time. Their nodes are indices into
    /// [`ExecutionPlan::layers`]. With [partial
    /// backpropagation](crate::program::LowerOptions::partial) the path is that of an iteration
    /// without it.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks a time.
    pub fn critical_path(&self) -> Result<Vec<PathStep>, Error> {
        Ok(self.evaluator()?.critical_path(&self.arrangement)?)
    }

    /// Returns the effect of other GPU counts for each run of layers: consecutive layers on the
    /// same ranks with the same split, which they keep. `counts` are the possible counts without a
    /// split. The next larger and the next smaller count of each run are evaluated, on the first
    /// ranks from 0. O(runs) evaluations of a plan.
    ///
    /// # Errors
    /// [`Error::Setting`] with partial backpropagation. [`Error::Profile`] if the profile lacks a
    /// time.
    pub fn explain(&self, counts: &GpuCounts) -> Result<Vec<RunExplanation>, Error> {
        self.job.check_full_backpropagation()?;
        let counts = counts.for_batch(self.job.micro_batch()?, self.plan.gpus);
        check_times(&self.job, &counts)?;
        explain(&mut self.evaluator()?, &self.problem, &self.arrangement, self.plan, &counts)
    }

    /// Returns the iteration time in microseconds if all layer times were multiplied by `layers`,
    /// and the times of all collectives by `links`.
    ///
    /// # Errors
    /// [`Error::Profile`] if the profile lacks a time.
    pub fn scaled_iteration_us(&self, layers: f64, links: f64) -> Result<f64, Error> {
        let costs = ScaledCosts { costs: JobCosts::new(&self.job), steps: layers, collectives: links };
        Ok(Evaluator::new(&self.problem, costs)?.evaluate(&self.arrangement)?.iteration_us)
    }
}
