//! The planner's formula beside the simulator: where they must agree, and how far apart they may be.

use burst_planner::{Plan, PlanProblem, SearchOptions, TimeModel, data_parallel, evaluate_overlap, fastest};
use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::planning::{Mode, PlanRequest};
use deeppool::program::{LowerOptions, Placement, lower_training};
use deeppool::simulate::{SimulateOptions, simulate};
use layer_graph::zoo;
use layer_profile::DeviceModel;

/// A network on 8 GPUs, with layer times modelled for an A100.
fn with_plans(
    model: &str,
    batch: usize,
    check: impl Fn(&PlanProblem, &dyn Fn(&Plan) -> f64),
) -> Result<(), deeppool::Error> {
    let network = zoo::model(model)?;
    let profile = DeviceModel::named("a100")?.profile(&network, &shard_sizes(batch, 8))?;
    let link = LinkModel::dgx_a100();
    let costs = Costs::new(&network, &profile, &link);
    let problem = PlanRequest::new(&costs, batch, 8, Mode::DataParallel).problem()?;
    // A bucket of its own for every gradient, as the planner has it.
    let options = LowerOptions { bucket_bytes: 1, ..LowerOptions::default() };
    let simulated_us = |plan: &Plan| {
        let ranks = plan.assignments.iter().map(|layer| layer.ranks.clone().collect()).collect();
        let placement = Placement::new(&network, 8, ranks).unwrap();
        let program = lower_training(&network, &placement, batch, &options).unwrap();
        simulate(&program, &costs, &SimulateOptions::default()).unwrap().iteration.as_secs_f64() * 1e6
    };
    check(&problem, &simulated_us);
    Ok(())
}

fn search(time_model: TimeModel) -> SearchOptions {
    SearchOptions::default().with_time_model(time_model)
}

#[test]
fn in_a_chain_overlap_is_what_the_simulator_does() -> Result<(), deeppool::Error> {
    for model in ["vgg11", "vgg16"] {
        with_plans(model, 32, |problem, simulated_us| {
            let mut plans = vec![data_parallel(problem).unwrap()];
            for limit in [1.2, 1.5, 2.0] {
                plans.extend(
                    [TimeModel::Additive, TimeModel::Overlap]
                        .map(|time_model| fastest(problem, limit, &search(time_model)).unwrap()),
                );
            }
            for plan in plans {
                let planned_us = evaluate_overlap(problem, &plan.choice).unwrap().iteration_us;
                let ratio = simulated_us(&plan) / planned_us;
                println!("{model}: planned {planned_us:.0} us, simulated / planned = {ratio:.4}");
                // Small gradients are charged a share of a full bucket, which has less latency.
                assert!((ratio - 1.0).abs() < 0.01, "{model}: {ratio}");
            }
        })?;
    }
    Ok(())
}

#[test]
fn with_branches_overlap_is_close_to_the_simulator() -> Result<(), deeppool::Error> {
    for (model, batch) in [("resnet-50", 32), ("inception-v3", 32)] {
        with_plans(model, batch, |problem, simulated_us| {
            for limit in [1.5, 2.0, 3.0] {
                let plan = fastest(problem, limit, &search(TimeModel::Overlap)).unwrap();
                let ratio = simulated_us(&plan) / plan.totals.iteration_us;
                println!("{model}, limit {limit}: simulated / planned = {ratio:.4}");
                assert!((ratio - 1.0).abs() < 0.05, "{model}: {ratio}");
            }
        })?;
    }
    Ok(())
}

/// Waves know nothing of all-reduces that compete with transfers, so they are simulated slower than planned; but faster
/// than branches one after another.
#[test]
fn branches_at_the_same_time_are_faster_when_simulated() -> Result<(), deeppool::Error> {
    with_plans("inception-v3", 32, |problem, simulated_us| {
        let plan = |time_model| fastest(problem, 1.5, &search(time_model)).unwrap();
        let (serial, waves) = (plan(TimeModel::Additive), plan(TimeModel::Waves));
        let (serial_us, waves_us) = (simulated_us(&serial), simulated_us(&waves));
        println!("simulated: one after another {serial_us:.0} us, in waves {waves_us:.0} us");
        assert!(waves.assignments.iter().any(|layer| layer.ranks.start > 0));
        assert!(waves_us < serial_us);
    })
}
