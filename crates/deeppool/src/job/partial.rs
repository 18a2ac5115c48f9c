//! Plans with partial backpropagation, which are judged by their programs in virtual time.

use burst_planner::{Arrangement, Error as Unplanned, TrainingProblem};
use layer_graph::LayerId;

use super::{Job, PlanFrontier};
use crate::Error;
use crate::costs::micros;
use crate::plan::{DataParallelTimes, ExecutionPlan, Mode};
use crate::program::{LowerOptions, PartialBackpropagation, PartialDepth, Placement, lower_for_simulation};
use crate::simulate::{SimulateOptions, Simulation, simulate};

/// Amplification and deadlines are kept at this, relatively.
const SAME: f64 = 1e-9;

impl Job<'_> {
    /// The same job with partial backpropagation in so many parts, by layers or by the time that the backward steps of the whole batch take
    /// on one GPU.
    ///
    /// # Errors
    /// When there are less than two parts, or the profile lacks a time.
    pub fn with_partial(&self, parts: usize, by_time: bool) -> Result<Self, Error> {
        let network = self.costs.network();
        let mut times = vec![0; network.len()];
        for (id, _) in network.layers().skip(1).filter(|_| by_time) {
            let backward = self.costs.layer_time(id, self.batch)?.backward;
            times[id.index()] = u64::try_from(backward.as_nanos()).unwrap_or(u64::MAX);
        }
        let depth = if by_time { PartialDepth::Time(&times) } else { PartialDepth::Layers };
        let partial = Some(PartialBackpropagation::new(network, parts, depth)?);
        Ok(self.lowered(LowerOptions { partial, ..self.lowering.clone() }))
    }

    /// What an arrangement takes in virtual time, of layers on ranks in an order.
    pub(super) fn simulated(&self, arrangement: &Arrangement, gpus: usize) -> Result<Simulation, Error> {
        let network = self.costs.network();
        let layers: Vec<LayerId> = network.layers().skip(1).map(|(id, _)| id).collect();
        let order = arrangement.order.iter().map(|&node| layers[node]).collect();
        let placement =
            Placement::new(network, gpus, arrangement.ranks.clone())?.with_order(network, order)?;
        let program = lower_for_simulation(network, &placement, self.batch, &self.lowering)?;
        simulate(&program, &self.costs, &SimulateOptions::default())
    }

    /// What data parallelism takes in virtual time.
    pub(super) fn simulated_data_parallel(
        &self,
        problem: &TrainingProblem,
        arrangement: &Arrangement,
        memory_peak_bytes: Option<u64>,
    ) -> Result<DataParallelTimes, Error> {
        let simulated = self.simulated(arrangement, problem.gpus)?;
        let amplification = micros(simulated.activity.active()) / self.single_gpu_us()?;
        Ok(DataParallelTimes { iteration_us: micros(simulated.iteration), amplification, memory_peak_bytes })
    }
}

impl PlanFrontier<'_> {
    /// Of the plans that are Pareto-optimal where everything is backpropagated, and data parallelism, the best one for a mode with what is
    /// partial about them; their times are those of their programs in virtual time.
    pub(super) fn best_partial(&self, mode: Mode) -> Result<ExecutionPlan, Error> {
        let points = self.found.points().iter().map(|point| &point.arrangement);
        let alone = self.job.data_parallel(&self.request).ok();
        let mut plans: Vec<ExecutionPlan> = points
            .map(|arrangement| {
                self.job.predicted(&self.problem, arrangement, &self.request, mode, None, self.data_parallel)
            })
            .collect::<Result<_, _>>()?;
        plans.extend(alone.map(|plan| ExecutionPlan { mode: mode.plan_mode(), ..plan }));
        let least = |value: fn(&ExecutionPlan) -> f64| plans.iter().map(value).fold(f64::INFINITY, f64::min);
        let (least_amplification, least_us) =
            (least(|plan| plan.amplification), least(|plan| plan.iteration_us));
        let best = match mode {
            Mode::Deadline { iteration_us } => plans
                .iter()
                .filter(|plan| plan.iteration_us <= iteration_us * (1.0 + SAME))
                .min_by(|a, b| a.gpu_time_us.total_cmp(&b.gpu_time_us))
                .ok_or(Unplanned::DeadlineUnreachable { deadline_us: iteration_us, smallest_us: least_us }),
            Mode::Burst { amplification } => plans
                .iter()
                .filter(|plan| plan.amplification <= amplification * (1.0 + SAME))
                .min_by(|a, b| a.iteration_us.total_cmp(&b.iteration_us))
                .ok_or(Unplanned::LimitUnreachable { limit: amplification, smallest: least_amplification }),
            // The point where a little more of one costs as much of the other: the least product.
            Mode::Knee | Mode::DataParallel => plans
                .iter()
                .min_by(|a, b| {
                    let product = |plan: &ExecutionPlan| plan.iteration_us * plan.gpu_time_us;
                    product(a).total_cmp(&product(b))
                })
                .ok_or(Unplanned::NoNodes),
        };
        let best = best?.clone();
        Ok(ExecutionPlan {
            amplification_limit: match mode {
                Mode::Burst { amplification } => Some(amplification).filter(|limit| limit.is_finite()),
                _ => None,
            },
            deadline_us: match mode {
                Mode::Deadline { iteration_us } => Some(iteration_us).filter(|limit| limit.is_finite()),
                _ => None,
            },
            ..best
        })
    }
}
