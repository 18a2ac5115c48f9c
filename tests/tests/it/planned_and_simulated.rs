//! What a plan predicts is what its program takes when it is simulated, and what follows from that.

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

/// Within 0.1%: iteration, and where the time of all GPUs goes.
fn agrees(job: &Job<'_>, plan: &LoweredPlan<'_>) -> Result<(), Error> {
    let simulated = simulate_plan(job, plan, &SimulateOptions::default())?;
    let of_all = plan.iteration_us * GPUS as f64;
    for (what, planned_us, simulated_us, of_us) in [
        ("iteration", plan.iteration_us, us(simulated.iteration), plan.iteration_us),
        ("computing", plan.computing_us, us(simulated.activity.computing), of_all),
        ("communicating", plan.communicating_us, us(simulated.activity.communicating), of_all),
        ("idle", plan.idle_us, us(simulated.activity.idle), of_all),
        ("GPU time", plan.gpu_time_us, us(simulated.activity.active()), of_all),
    ] {
        let off = (planned_us - simulated_us) / of_us;
        assert!(off.abs() < 1e-3, "{}, {what}: {planned_us} us, simulated {simulated_us} us", plan.model);
    }
    Ok(())
}

#[test]
fn every_plan_takes_what_it_predicts() -> Result<(), Error> {
    for model in ["vgg16", "resnet-18", "digits-cnn"] {
        with_job(model, |job| {
            for mode in [Mode::DataParallel, Mode::Burst { amplification: 1.5 }, Mode::Knee] {
                agrees(job, &find_plan(job, &PlanRequest::new(GPUS, mode))?)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn the_steps_that_an_iteration_waits_for_add_up_to_it() -> Result<(), Error> {
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

/// At a limit that data parallelism keeps, a burst plan is never slower.
#[test]
fn burst_plans_are_never_slower_than_data_parallelism_within_the_limit() -> Result<(), Error> {
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
