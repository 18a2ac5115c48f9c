//! Predictions of planned networks against simulation, and their critical paths and bounds.

use std::time::Duration;

use collectives::LinkModel;
use deeppool::Error;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::{Job, LoweredPlan};
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::{PlanAnalysis, find_plan};
use deeppool::program::LowerOptions;
use deeppool::simulate::{SimulateOptions, simulate_plan};
use layer_graph::zoo;
use layer_profile::DeviceModel;

const GPUS: usize = 8;
const BATCH: usize = 32;

fn with_job(model: &str, check: impl Fn(&Job<'_>) -> Result<(), Error>) -> Result<(), Error> {
    let network = zoo::model(model)?;
    let profile = DeviceModel::named("a100")?.profile(&network, &shard_sizes(BATCH, GPUS))?;
    let link = LinkModel::dgx_a100();
    check(&Job::new(Costs::new(&network, &profile, &link), BATCH, LowerOptions::default()))
}

fn us(time: Duration) -> f64 {
    1e6 * time.as_secs_f64()
}

/// Checks that the iteration time and the activity of all GPUs are within 0.1% of the simulation.
fn check_prediction(job: &Job<'_>, plan: &LoweredPlan<'_>) -> Result<(), Error> {
    let simulated = simulate_plan(job, plan, &SimulateOptions::default())?;
    let total_us = plan.iteration_us * GPUS as f64;
    for (quantity, planned_us, simulated_us, scale_us) in [
        ("iteration", plan.iteration_us, us(simulated.iteration), plan.iteration_us),
        ("computing", plan.computing_us, us(simulated.activity.computing), total_us),
        ("communicating", plan.communicating_us, us(simulated.activity.communicating), total_us),
        ("idle", plan.idle_us, us(simulated.activity.idle), total_us),
        ("GPU time", plan.gpu_time_us, us(simulated.activity.active()), total_us),
    ] {
        let error = (planned_us - simulated_us) / scale_us;
        assert!(
            error.abs() < 1e-3,
            "{}, {quantity}: {planned_us} us, simulated {simulated_us} us",
            plan.model
        );
    }
    Ok(())
}

#[test]
fn plans_predict_simulated_iteration_time_and_activity() -> Result<(), Error> {
    for model in ["vgg16", "resnet-18", "digits-cnn"] {
        with_job(model, |job| {
            for mode in [Mode::DataParallel, Mode::Burst { amplification: 1.5 }, Mode::Knee] {
                check_prediction(job, &find_plan(job, &PlanRequest::new(GPUS, mode))?)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn critical_path_steps_sum_to_the_iteration_time() -> Result<(), Error> {
    with_job("vgg16", |job| {
        for mode in [Mode::DataParallel, Mode::Burst { amplification: 1.5 }] {
            let plan = find_plan(job, &PlanRequest::new(GPUS, mode))?;
            let sum: f64 =
                PlanAnalysis::new(job, &plan)?.critical_path()?.iter().map(|step| step.time_us).sum();
            assert!((sum / plan.iteration_us - 1.0).abs() < 1e-6, "{sum} us of {} us", plan.iteration_us);
        }
        Ok(())
    })
}

#[test]
fn burst_plan_is_not_slower_than_data_parallelism_within_the_limit() -> Result<(), Error> {
    with_job("vgg16", |job| {
        let plan = find_plan(job, &PlanRequest::new(GPUS, Mode::DataParallel))?;
        assert_eq!((plan.dp.iteration_us, plan.dp.amplification), (plan.iteration_us, plan.amplification));
        let limit = Mode::Burst { amplification: plan.amplification };
        let burst = find_plan(job, &PlanRequest::new(GPUS, limit))?;
        assert!(burst.iteration_us <= plan.iteration_us * (1.0 + 1e-9));
        assert!(burst.lower_bound_us.is_some_and(|bound_us| bound_us <= burst.iteration_us));
        Ok(())
    })
}
