//! Plans with partial backpropagation. They are evaluated by simulating their programs, since the
//! planner's evaluation does not model it.

use burst_planner::{Arrangement, Error as Unplanned, Plan, PlanProblem};

use super::arranged_plan::arranged_plan;
use crate::Error;
use crate::costs::micros;
use crate::job::{Job, LoweredPlan, PlannerNodes, plan_problem, single_gpu_us};
use crate::plan::{DataParallelTimes, Mode, PlanRequest};
use crate::simulate::{SimulateOptions, simulate};

/// Maximum number of plans that are simulated.
const MAX_CANDIDATES: usize = 24;
/// Relative tolerance of limits on amplification and time.
const TOLERANCE: f64 = 1e-9;

/// Computes the times and the memory of data parallelism on `count` GPUs with partial
/// backpropagation by simulation.
pub(super) fn simulated_data_parallel(job: &Job<'_>, count: usize) -> Result<DataParallelTimes, Error> {
    let problem = plan_problem(job, count, &[count])?;
    let arrangement = Arrangement::data_parallel(&problem, count)?;
    let placement = PlannerNodes::new(job.costs().network()).placement(problem.gpus, &arrangement)?;
    let training = job.training(placement);
    let program = training.for_simulation()?;
    let memory_peak_bytes = Some(program.peak_bytes());
    let simulated = simulate(program, job.costs(), &SimulateOptions::default())?;
    let amplification = micros(simulated.activity.active()) / single_gpu_us(job)?;
    Ok(DataParallelTimes { iteration_us: micros(simulated.iteration), amplification, memory_peak_bytes })
}

/// Returns the best plan of a mode, by the times of the simulated programs. The candidates are some
/// of `points`, the plans of `problem` that are Pareto-optimal without partial backpropagation, and
/// data parallelism. More GPUs may give other candidates, and so a slower plan.
///
/// # Errors
/// [`Error::Planner`] if no candidate is within the limits. [`Error::Profile`] if the profile lacks
/// a time.
pub(super) fn best_partial<'a>(
    job: &Job<'a>,
    (problem, points): (&PlanProblem, &[Plan]),
    request: &PlanRequest,
    mode: Mode,
    data_parallel: DataParallelTimes,
) -> Result<LoweredPlan<'a>, Error> {
    let count = MAX_CANDIDATES.min(points.len());
    // The first, the last, and others at equal distances.
    let place = |index: usize| index * (points.len() - 1) / count.saturating_sub(1).max(1);
    let points = (0..count).map(|index| &points[place(index)].arrangement);
    let mut exceeded = None;
    let mut plans = Vec::new();
    for arrangement in points.chain(data_parallel_candidate(job, problem, request)?.iter()) {
        request.stop.check()?;
        let plan = arranged_plan(job, problem, arrangement, request, mode, || None, data_parallel);
        match plan {
            Err(error @ Error::Planner(Unplanned::MemoryExceeded { .. })) => exceeded = Some(error),
            plan => plans.push(plan?),
        }
    }
    if let (true, Some(error)) = (plans.is_empty(), exceeded) {
        return Err(error);
    }
    let min = |value: fn(&LoweredPlan<'a>) -> f64| plans.iter().map(value).fold(f64::INFINITY, f64::min);
    let (min_amplification, min_us) = (min(|plan| plan.amplification), min(|plan| plan.iteration_us));
    let best = match mode {
        Mode::Deadline { iteration_us } => plans
            .iter()
            .filter(|plan| plan.iteration_us <= iteration_us * (1.0 + TOLERANCE))
            .min_by(|a, b| a.gpu_time_us.total_cmp(&b.gpu_time_us))
            .ok_or(Unplanned::DeadlineUnreachable { deadline_us: iteration_us, smallest_us: min_us }),
        Mode::Burst { amplification } => plans
            .iter()
            .filter(|plan| plan.amplification <= amplification * (1.0 + TOLERANCE))
            .min_by(|a, b| a.iteration_us.total_cmp(&b.iteration_us))
            .ok_or(Unplanned::LimitUnreachable { limit: amplification, smallest: min_amplification }),
        // The knee: the minimum product of iteration time and GPU time.
        _ => plans
            .iter()
            .min_by(|a, b| {
                let product = |plan: &LoweredPlan<'a>| plan.iteration_us * plan.gpu_time_us;
                product(a).total_cmp(&product(b))
            })
            .ok_or(Unplanned::NoNodes),
    };
    Ok(best?.clone())
}

/// Returns data parallelism on all GPUs, if that is one of the GPU counts.
fn data_parallel_candidate(
    job: &Job<'_>,
    problem: &PlanProblem,
    request: &PlanRequest,
) -> Result<Option<Arrangement>, Error> {
    let samples = job.micro_batch()?;
    let count = request.gpus.min(samples);
    let is_allowed = request.gpu_counts.for_batch(samples, request.gpus).contains(&count);
    Ok(if is_allowed { Some(Arrangement::data_parallel(problem, count)?) } else { None })
}
