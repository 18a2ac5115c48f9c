//! Simulation of background jobs on the foreground's GPUs, by each policy.

use std::time::Duration;

use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::gpu_mux::{Policy, Workload};
use deeppool::job::{Job, LoweredPlan};
use deeppool::plan::{ExecutionPlan, Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::{LowerOptions, Program};
use deeppool::simulate::{BackgroundCosts, SimulateOptions, Simulation, contended, simulate, workload};
use layer_graph::zoo;
use layer_profile::DeviceModel;

/// Calls `check` with the burst plan of a network on 8 GPUs within amplification 2, and a
/// background job of the same network with batch 8.
fn with_burst_plan(model: &str, check: impl Fn(&Program, &Costs<'_>, &BackgroundCosts)) {
    let request = PlanRequest::new(8, Mode::Burst { amplification: 2.0 });
    with_plan(model, |job| find_plan(job, &request).unwrap(), check);
}

/// Calls `check` with a given plan of a network on 8 GPUs, and a background job of the same network
/// with batch 8.
fn with_plan(
    model: &str,
    plan: impl for<'a> Fn(&Job<'a>) -> LoweredPlan<'a>,
    check: impl Fn(&Program, &Costs<'_>, &BackgroundCosts),
) {
    let network = zoo::model(model).unwrap();
    let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(32, 8)).unwrap();
    let link = LinkModel::dgx_a100();
    let costs = Costs::new(&network, &profile, &link);
    let job = Job::new(costs.clone(), 32, LowerOptions::default());
    let lowered = plan(&job);
    check(lowered.training().first_program().unwrap(), &costs, &BackgroundCosts::new(&costs, 8).unwrap());
}

#[test]
fn policies_have_consistent_throughput_and_busy_fractions() {
    with_burst_plan("vgg16", |program, costs, background| {
        let run = |options: &SimulateOptions| simulate(program, costs, options).unwrap();
        let base = SimulateOptions::default().with_iterations(6).with_device(contended());
        let alone = run(&base);
        assert_eq!(alone.background_share_of_idle, None);
        let slowdown = |shared: &Simulation| shared.iteration.as_secs_f64() / alone.iteration.as_secs_f64();
        let shared =
            |policy| run(&base.clone().with_policy(policy).with_background(Some(background.clone())));
        for (name, policy) in Policy::presets() {
            let result = shared(policy);
            assert_eq!(result, shared(policy), "{name}: not deterministic");
            assert!(slowdown(&result) >= 1.0, "{name}: {}", slowdown(&result));
            let all: Duration = result.iterations.iter().sum();
            let rounded = all.abs_diff(result.iteration * result.iterations.len() as u32);
            assert!(rounded < Duration::from_nanos(result.iterations.len() as u64), "{name}");
            let share = result.background_share_of_idle.unwrap();
            for part in [share, result.gpu_busy_fraction, result.foreground_busy_fraction] {
                assert!((0.0..=1.0 + 1e-9).contains(&part), "{name}: {part}");
            }
            let alone_samples_per_s = 8.0 * background.samples_per_s();
            assert!(result.background_samples_per_s <= alone_samples_per_s, "{name}");
        }
        let (ours, naive) = (shared(Policy::default()), shared(Policy::naive()));
        println!("default {:.4}, naive {:.4}", slowdown(&ours), slowdown(&naive));
        assert!(slowdown(&ours) < 1.03 && slowdown(&naive) > 1.1);
        assert!(ours.background_share_of_idle.unwrap() > 0.8);
    });
}

#[test]
fn events_of_a_timeline_lane_do_not_overlap() {
    with_burst_plan("vgg16", |program, costs, background| {
        for (name, policy) in Policy::presets() {
            let options = SimulateOptions::default()
                .with_iterations(3)
                .with_background(Some(background.clone()))
                .with_policy(policy)
                .with_device(contended())
                .with_timeline(true);
            let timeline = simulate(program, costs, &options).unwrap().timeline.unwrap();
            for rank in 0..8 {
                for lane in ["compute", "communication", "background"] {
                    let of_lane = timeline
                        .events()
                        .iter()
                        .filter(|event| event.rank == rank && event.work.lane() == lane);
                    let mut events: Vec<_> = of_lane.collect();
                    events.sort_by_key(|event| (event.start, event.duration));
                    for pair in events.windows(2) {
                        let apart = pair[0].start + pair[0].duration <= pair[1].start;
                        assert!(apart, "{name}: {lane} of rank {rank}: {pair:?}");
                    }
                }
            }
        }
    });
}

/// Many gaps of Inception's branches are shorter than a background tasklet.
#[test]
fn default_policy_limits_the_slowdown_in_short_gaps() {
    with_burst_plan("inception-v3", |program, costs, background| {
        let alone = simulate(program, costs, &SimulateOptions::default()).unwrap();
        let shared = SimulateOptions::default().with_background(Some(background.clone()));
        let shared = simulate(program, costs, &shared).unwrap();
        let slowdown = shared.iteration.as_secs_f64() / alone.iteration.as_secs_f64();
        println!("inception-v3: {slowdown:.4}");
        assert!(slowdown < 1.06, "{slowdown}");
    });
}

/// The plan is also a file, so that changes of the planner do not change the workload.
#[test]
fn simulator_writes_the_workload_file_of_mux_bench() {
    let plan = include_str!("../../../crates/gpu-mux/workloads/vgg16-8-gpus-plan.json");
    let plan = ExecutionPlan::from_json(plan).unwrap();
    let committed = include_str!("../../../crates/gpu-mux/workloads/vgg16-8-gpus-rank-1.json");
    with_plan(
        "vgg16",
        |job| job.lower(plan.clone()).unwrap(),
        |program, costs, background| {
            let written = workload(program, costs, 1, background).unwrap();
            assert_eq!(written, Workload::from_json(committed).unwrap());
            assert_eq!(written.to_json() + "\n", committed, "the formatting differs");
            let error = workload(program, costs, 8, background).unwrap_err().to_string();
            assert!(error.contains("no rank 8"), "{error}");
        },
    );
}
