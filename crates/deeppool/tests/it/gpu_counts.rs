//! Layers on GPU counts that do not divide the batch: planned, lowered and simulated.

use burst_planner::{LimitRule, SearchOptions};
use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::planning::{GpuCounts, Mode, PlanRequest, Planned};
use deeppool::program::{LowerOptions, lower_training};
use deeppool::simulate::{SimulateOptions, simulate};
use layer_graph::zoo;
use layer_profile::DeviceModel;

const BATCH: usize = 32;

/// What `with` makes of the costs of a model on up to `gpus` A100s.
fn with_costs<T>(model: &str, gpus: usize, with: impl FnOnce(&Costs<'_>) -> T) -> T {
    let network = zoo::model(model).unwrap();
    let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(BATCH, gpus)).unwrap();
    let link = LinkModel::dgx_a100();
    with(&Costs::new(&network, &profile, &link))
}

fn plan(costs: &Costs<'_>, gpus: usize, limit: f64, counts: GpuCounts) -> Planned {
    let mode = Mode::Burst { amplification: limit };
    PlanRequest::new(costs, BATCH, gpus, mode).with_gpu_counts(counts).plan().unwrap()
}

#[test]
fn a_batch_of_32_runs_on_3_5_and_6_gpus() {
    for count in [3, 5, 6] {
        with_costs("vgg16", count, |costs| {
            let planned = plan(costs, count, f64::INFINITY, GpuCounts::List(vec![1, count]));
            assert!(planned.plan.assignments.iter().any(|layer| layer.gpus == count));
            let placement = planned.placement(costs).unwrap();
            let lowering = LowerOptions { overlap_all_reduce: false, ..LowerOptions::default() };
            let program = lower_training(costs.network(), &placement, BATCH, &lowering).unwrap();
            let simulated = simulate(&program, costs, &SimulateOptions::default()).unwrap();
            let (planned_us, simulated_us) =
                (planned.plan.totals.iteration_us, simulated.iteration.as_secs_f64() * 1e6);
            println!("{count} GPUs: planned {planned_us:.0} us, simulated {simulated_us:.0} us");
            assert!((simulated_us / planned_us - 1.0).abs() < 0.05, "{count} GPUs");
        });
    }
}

#[test]
fn with_all_counts_plans_are_never_slower() {
    for (model, gpus) in [("vgg16", 6), ("vgg16", 12), ("resnet-18", 7)] {
        with_costs(model, gpus, |costs| {
            for limit in [1.2, 1.5, 2.0, f64::INFINITY] {
                let time_us = |counts| plan(costs, gpus, limit, counts).plan.totals.iteration_us;
                let (all, powers) = (time_us(GpuCounts::All), time_us(GpuCounts::PowersOfTwo));
                assert!(all <= powers * (1.0 + 1e-9), "{model}, {gpus} GPUs, limit {limit}: {all} {powers}");
            }
        });
    }
}

/// The time on one GPU is what amplification is a multiple of.
#[test]
fn one_gpu_need_not_be_among_the_counts() {
    with_costs("vgg16", 6, |costs| {
        let single_us = |counts| plan(costs, 6, 3.0, counts).problem.single_gpu_time_us();
        let (with, without) = (single_us(GpuCounts::All), single_us(GpuCounts::List(vec![5, 2])));
        assert!((with / without - 1.0).abs() < 1e-9, "{with} {without}");
    });
}

#[test]
fn a_request_says_what_the_limit_applies_to() {
    with_costs("vgg16", 8, |costs| {
        let mode = Mode::Burst { amplification: 1.5 };
        let per_layer = SearchOptions::default().with_limit_rule(LimitRule::PerLayer);
        let request = PlanRequest::new(costs, BATCH, 8, mode);
        let ours = request.clone().plan().unwrap().plan;
        let its = request.with_search(per_layer).plan().unwrap().plan;
        assert_eq!((ours.certified_epsilon, its.certified_epsilon), (Some(0.0), None));
        assert!(ours.totals.iteration_us <= its.totals.iteration_us);
    });
}
