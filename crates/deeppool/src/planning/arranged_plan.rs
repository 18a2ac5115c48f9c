//! An arrangement of the planner as a plan, with its predicted times and memory.

use burst_planner::{Activity, Arrangement, Evaluator, LowerBound, PlanProblem};
use layer_graph::Division;

use super::program_memory::check_memory;
use crate::Error;
use crate::costs::micros;
use crate::job::{Job, JobCosts, LoweredPlan, single_gpu_memory_bytes};
use crate::plan::{
    DataParallelTimes, ExecutionPlan, Mode, PlanRequest, PlannedLayer, PlannedLowering, PlanningWork,
    PredictedRange, ProfileOrigin,
};
use crate::program::LoweredTraining;
use crate::simulate::{SimulateOptions, simulate};

/// Predicted times of one iteration.
struct PredictedTimes {
    iteration_us: f64,
    gpu_time_us: f64,
    single_gpu_us: f64,
    /// Sum over all ranks.
    activity: Activity,
}

/// Converts an arrangement (the ranks and the order of the nodes) to a plan, with its predictions
/// and its programs. `mode`, `data_parallel` and the result of `prove` are stored in the plan.
/// `prove` returns a lower bound, or `None` if none is known. It may take long, and is called after
/// the memory has been checked.
///
/// # Errors
/// [`Error::Planner`] if a rank needs more memory than the request allows. [`Error::Profile`] if
/// the profile lacks a time.
pub(super) fn arranged_plan<'a>(
    job: &Job<'a>,
    problem: &PlanProblem,
    arrangement: &Arrangement,
    request: &PlanRequest,
    mode: Mode,
    prove: impl FnOnce() -> Option<(LowerBound, PlanningWork)>,
    data_parallel: DataParallelTimes,
) -> Result<LoweredPlan<'a>, Error> {
    let nodes = job.nodes();
    let placement = nodes.placement(problem.gpus, arrangement)?;
    let divisions: Vec<Division> = nodes.layers().iter().map(|&id| placement.division(id)).collect();
    let ranges = || nodes.layers().iter().map(|&id| placement.sample_ranges(id));
    let (most_ranges, fewest_ranges) = (ranges().max().unwrap_or(1), ranges().min().unwrap_or(1));
    let training = job.training(placement);
    check_memory(&training, request.memory_limit_bytes)?;
    let PredictedTimes { iteration_us, gpu_time_us, single_gpu_us, activity } =
        times(job, problem, arrangement, &training)?;
    let bound = prove();
    // Zero is trivial; store None.
    let lower_bound_us = bound.map(|(bound, _)| bound.us).filter(|&bound_us| bound_us > 0.0);
    let placed = problem.nodes.iter().zip(&arrangement.ranks).zip(&divisions);
    let layers = placed.map(|((node, ranks), &division)| PlannedLayer {
        name: node.name.clone(),
        gpus: ranks.len(),
        ranks: ranks.clone(),
        division: (!division.is_whole()).then_some(division),
    });
    let names = || arrangement.order.iter().map(|&node| problem.nodes[node].name.clone()).collect();
    let profile = job.costs().profile();
    let micro_batch = job.batch().div_ceil(job.lowering().micro_batches.max(1));
    let samples = [most_ranges, fewest_ranges].map(|ranges| micro_batch.div_ceil(ranges));
    let memory = training.for_simulation()?.memory_peak();
    let plan = ExecutionPlan {
        schema: crate::plan::SCHEMA.into(),
        model: job.costs().network().name().into(),
        batch: job.batch(),
        gpus: request.gpus,
        mode: mode.plan_mode(),
        worker: None,
        amplification_limit: match mode {
            // JSON has no infinity: no limit is no field.
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
        link: job.costs().link().name().into(),
        lowering: PlannedLowering::from(job.lowering()),
        iteration_us,
        range: PredictedRange::new(profile.accuracy(), job.costs().network(), samples, iteration_us),
        gpu_time_us,
        single_gpu_us,
        amplification: gpu_time_us / single_gpu_us,
        lower_bound_us,
        gap: lower_bound_us.map(|bound_us| iteration_us / bound_us - 1.0),
        planning: bound.map(|(_, work)| work),
        computing_us: activity.computing_us,
        communicating_us: activity.communicating_us,
        idle_us: activity.idle_us,
        memory_peak_bytes: Some(memory.total_bytes()),
        memory: Some(memory),
        memory_limit_bytes: request.memory_limit_bytes,
        single_gpu_memory_bytes: Some(single_gpu_memory_bytes(&job.whole_batch())?),
        dp: data_parallel,
        layers: layers.collect(),
        order: (!arrangement.order.is_sorted()).then(names),
    };
    Ok(LoweredPlan::with_programs(plan, training))
}

/// Computes the times of an arrangement: by the planner's evaluation, or, with partial
/// backpropagation, by simulating its program.
fn times(
    job: &Job<'_>,
    problem: &PlanProblem,
    arrangement: &Arrangement,
    training: &LoweredTraining<'_>,
) -> Result<PredictedTimes, Error> {
    let mut evaluator = Evaluator::new(problem, JobCosts::new(job))?;
    let single_gpu_us = evaluator.single_gpu_us()?;
    if job.lowering().partial.is_some() {
        let simulated = simulate(training.for_simulation()?, job.costs(), &SimulateOptions::default())?;
        let of = &simulated.activity;
        let [computing_us, communicating_us, idle_us] = [of.computing, of.communicating, of.idle].map(micros);
        return Ok(PredictedTimes {
            iteration_us: micros(simulated.iteration),
            gpu_time_us: micros(of.active()),
            single_gpu_us,
            activity: Activity { computing_us, communicating_us, idle_us },
        });
    }
    let time = evaluator.evaluate(arrangement)?;
    let of_ranks = evaluator.activity(arrangement)?;
    let of_all = |part: fn(&Activity) -> f64| of_ranks.iter().map(part).sum::<f64>();
    Ok(PredictedTimes {
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
