//! Plans with partial backpropagation, which are judged by their programs in virtual time.

use burst_planner::{Arrangement, Error as Unplanned, TrainingProblem};

use super::{Job, PlanFrontier};
use crate::Error;
use crate::costs::micros;
use crate::plan::{DataParallelTimes, ExecutionPlan, Mode};
use crate::program::{LowerOptions, PartialBackpropagation, PartialDepth};
use crate::simulate::{SimulateOptions, Simulation, simulate};

/// So many plans are run in virtual time at most.
const MOST_CANDIDATES: usize = 24;
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
        let program = self.lowered_for_simulation(arrangement, gpus)?;
        simulate(&program, &self.costs, &SimulateOptions::default())
    }

    /// An error where something is partial, for what knows nothing of that.
    pub(crate) fn check_whole(&self) -> Result<(), Error> {
        match &self.lowering.partial {
            None => Ok(()),
            Some(partial) => Err(Error::Setting {
                setting: "partial backpropagation",
                expected: "none where plans are compared, explained or chosen by their total",
                got: format!("{} parts", partial.parts()),
            }),
        }
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
    /// Of the plans that are Pareto-optimal where everything is backpropagated, some where there are many, and data parallelism, the best one
    /// for a mode with what is partial about them. More GPUs may give another choice, so that more of them may be slower; times are those of their programs in virtual time.
    pub(super) fn best_partial(&self, mode: Mode) -> Result<ExecutionPlan, Error> {
        let points = self.found.points();
        let most = MOST_CANDIDATES.min(points.len());
        // The first, the last, and others as far from each other as possible.
        let place = |index: usize| index * (points.len() - 1) / most.saturating_sub(1).max(1);
        let points = (0..most).map(|index| &points[place(index)].arrangement);
        let mut exceeded = None;
        let mut plans = Vec::new();
        for arrangement in points.chain(self.data_parallel_candidate()?.iter()) {
            self.request.stop.check()?;
            let plan =
                self.job.predicted(&self.problem, arrangement, &self.request, mode, None, self.data_parallel);
            match plan {
                Err(error @ Error::Planner(Unplanned::MemoryExceeded { .. })) => exceeded = Some(error),
                plan => plans.push(plan?),
            }
        }
        if let (true, Some(error)) = (plans.is_empty(), exceeded) {
            return Err(error);
        }
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
            _ => plans
                .iter()
                .min_by(|a, b| {
                    let product = |plan: &ExecutionPlan| plan.iteration_us * plan.gpu_time_us;
                    product(a).total_cmp(&product(b))
                })
                .ok_or(Unplanned::NoNodes),
        };
        Ok(best?.clone())
    }

    /// Every layer on all GPUs, if that is one of the GPU counts.
    fn data_parallel_candidate(&self) -> Result<Option<Arrangement>, Error> {
        let most = self.job.micro_batch()?;
        let count = self.request.gpus.min(most);
        let is_allowed = self.request.gpu_counts.for_batch(most, self.request.gpus).contains(&count);
        Ok(if is_allowed { Some(Arrangement::data_parallel(&self.problem, count)?) } else { None })
    }
}
