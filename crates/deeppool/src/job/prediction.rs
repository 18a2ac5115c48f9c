//! An arrangement with what it takes, as a plan; and a plan as an arrangement.

use burst_planner::{Activity, Arrangement, Evaluator, PathStep, TrainingProblem};
use layer_graph::LayerId;

use super::Job;
use crate::Error;
use crate::costs::micros;
use crate::plan::{
    DataParallelTimes, ExecutionPlan, Mode, PlanRequest, PlannedLayer, PlannedLowering, ProfileOrigin,
};
use crate::program::{Placement, Program, RankMemory, lower_for_simulation};

/// What an iteration takes.
struct Predicted {
    iteration_us: f64,
    gpu_time_us: f64,
    single_gpu_us: f64,
    /// Of all ranks together.
    activity: Activity,
}

impl Job<'_> {
    /// The plan of an arrangement.
    pub(super) fn predicted(
        &self,
        problem: &TrainingProblem,
        arrangement: &Arrangement,
        request: &PlanRequest,
        mode: Mode,
        lower_bound_us: Option<f64>,
        data_parallel: DataParallelTimes,
    ) -> Result<ExecutionPlan, Error> {
        let Predicted { iteration_us, gpu_time_us, single_gpu_us, activity } =
            self.times(problem, arrangement)?;
        // A bound of nothing says nothing.
        let lower_bound_us = lower_bound_us.filter(|&bound_us| bound_us > 0.0);
        let layers = problem.nodes.iter().zip(&arrangement.ranks).map(|(node, ranks)| PlannedLayer {
            name: node.name.clone(),
            gpus: ranks.len(),
            ranks: ranks.clone(),
            split: None,
        });
        let names = || arrangement.order.iter().map(|&node| problem.nodes[node].name.clone()).collect();
        let profile = self.costs.profile();
        let memory = self.memory_of(arrangement, request.gpus)?;
        if self.lowering.partial.is_some() {
            // The planner's own model of memory is of the whole.
            check_memory(memory.total_bytes(), request.memory_limit_bytes)?;
        }
        Ok(ExecutionPlan {
            schema: crate::plan::SCHEMA.into(),
            model: self.costs.network().name().into(),
            batch: self.batch,
            gpus: request.gpus,
            mode: mode.plan_mode(),
            worker: None,
            amplification_limit: match mode {
                // Without a limit there is no figure to write.
                Mode::Burst { amplification } => Some(amplification).filter(|limit| limit.is_finite()),
                _ => None,
            },
            deadline_us: match mode {
                Mode::Deadline { iteration_us } => Some(iteration_us).filter(|limit| limit.is_finite()),
                _ => None,
            },
            profile: ProfileOrigin {
                device: profile.device().into(),
                origin: profile.origin(),
                accuracy: profile.accuracy().cloned(),
                measurement: profile.measurement().cloned(),
            },
            link: self.costs.link().name().into(),
            lowering: PlannedLowering::from(&self.lowering),
            iteration_us,
            gpu_time_us,
            single_gpu_us,
            amplification: gpu_time_us / single_gpu_us,
            lower_bound_us,
            gap: lower_bound_us.map(|bound_us| iteration_us / bound_us - 1.0),
            computing_us: activity.computing_us,
            communicating_us: activity.communicating_us,
            idle_us: activity.idle_us,
            memory_peak_bytes: Some(memory.total_bytes()),
            memory: Some(memory),
            memory_limit_bytes: request.memory_limit_bytes,
            single_gpu_memory_bytes: Some(self.uncut().single_gpu_memory_bytes()?),
            dp: data_parallel,
            layers: layers.collect(),
            order: (!arrangement.order.is_sorted()).then(names),
        })
    }

    /// The times of an arrangement: by the planner's evaluation, or where something is partial by its program in virtual time.
    fn times(&self, problem: &TrainingProblem, arrangement: &Arrangement) -> Result<Predicted, Error> {
        let mut evaluator = Evaluator::new(problem, self.training_costs())?;
        let single_gpu_us = evaluator.single_gpu_us()?;
        if self.lowering.partial.is_some() {
            let simulated = self.simulated(arrangement, problem.gpus)?;
            let of = &simulated.activity;
            let [computing_us, communicating_us, idle_us] =
                [of.computing, of.communicating, of.idle].map(micros);
            return Ok(Predicted {
                iteration_us: micros(simulated.iteration),
                gpu_time_us: micros(of.active()),
                single_gpu_us,
                activity: Activity { computing_us, communicating_us, idle_us },
            });
        }
        let time = evaluator.evaluate(arrangement)?;
        let of_ranks = evaluator.activity(arrangement)?;
        let of_all = |part: fn(&Activity) -> f64| of_ranks.iter().map(part).sum::<f64>();
        Ok(Predicted {
            iteration_us: time.iteration_us,
            gpu_time_us: time.gpu_time_us,
            single_gpu_us,
            activity: Activity {
                computing_us: of_all(|rank| rank.computing_us),
                communicating_us: of_all(|rank| rank.communicating_us),
                idle_us: of_all(|rank| rank.idle_us),
            },
        })
    }

    /// What the rank holds that holds most.
    fn memory_of(&self, arrangement: &Arrangement, gpus: usize) -> Result<RankMemory, Error> {
        Ok(self.lowered_for_simulation(arrangement, gpus)?.memory_peak())
    }

    /// The program of an arrangement.
    pub(super) fn lowered_for_simulation(
        &self,
        arrangement: &Arrangement,
        gpus: usize,
    ) -> Result<Program, Error> {
        let network = self.costs.network();
        let layers: Vec<LayerId> = network.layers().skip(1).map(|(id, _)| id).collect();
        let order = arrangement.order.iter().map(|&node| layers[node]).collect();
        let placement =
            Placement::new(network, gpus, arrangement.ranks.clone())?.with_order(network, order)?;
        lower_for_simulation(network, &placement, self.batch, &self.lowering)
    }

    /// What one GPU would hold that trains alone.
    pub(crate) fn single_gpu_memory_bytes(&self) -> Result<u64, Error> {
        let problem = self.training_problem(1, &[1])?;
        let alone = Arrangement::data_parallel(&problem, 1)?;
        let held = Evaluator::new(&problem, self.training_costs())?.memory(&alone)?;
        Ok(held.into_iter().max().unwrap_or(0))
    }

    /// The time of an iteration on one GPU, microseconds: what amplification is a multiple of.
    ///
    /// # Errors
    /// When the profile lacks the times of the whole batch.
    pub fn single_gpu_us(&self) -> Result<f64, Error> {
        let problem = self.training_problem(1, &[1])?;
        Ok(Evaluator::new(&problem, self.training_costs())?.single_gpu_us()?)
    }

    /// The steps on the critical path of a plan's iteration, which add up to its time. Nodes are the plan's layers, by index. With
    /// [partial backpropagation](crate::program::LowerOptions::partial) they are those of an iteration without that.
    ///
    /// # Errors
    /// When the plan is of another job, or the profile lacks a time.
    pub fn path(&self, plan: &ExecutionPlan) -> Result<Vec<PathStep>, Error> {
        self.evaluated(plan, |evaluator, arrangement| Ok(evaluator.path(arrangement)?))
    }

    /// Asks something about a plan of this job.
    pub(super) fn evaluated<T>(
        &self,
        plan: &ExecutionPlan,
        ask: impl FnOnce(&mut Evaluator<'_>, &Arrangement) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (problem, arrangement) = self.arranged(plan)?;
        let mut evaluator = Evaluator::new(&problem, self.training_costs())?;
        ask(&mut evaluator, &arrangement)
    }

    /// The problem that a plan solves, and how.
    pub(super) fn arranged(&self, plan: &ExecutionPlan) -> Result<(TrainingProblem, Arrangement), Error> {
        let placement = self.placement(plan)?;
        let mut counts: Vec<usize> = plan.layers.iter().map(|layer| layer.ranks.len()).collect();
        counts.sort_unstable();
        counts.dedup();
        let problem = self.training_problem(plan.gpus, &counts)?;
        let arrangement = Arrangement {
            ranks: plan.layers.iter().map(|layer| layer.ranks.clone()).collect(),
            order: placement.order().iter().map(|layer| layer.index() - 1).collect(),
        };
        Ok((problem, arrangement))
    }
}

/// An error where a rank would hold more than it may.
fn check_memory(needed_bytes: u64, limit_bytes: Option<u64>) -> Result<(), Error> {
    match limit_bytes {
        Some(limit_bytes) if needed_bytes > limit_bytes => {
            Err(burst_planner::Error::MemoryExceeded { limit_bytes, needed_bytes, nodes: Vec::new() }.into())
        }
        _ => Ok(()),
    }
}
