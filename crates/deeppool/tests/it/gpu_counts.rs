//! Plans with GPU counts that do not divide the batch.

use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::{Job, LoweredPlan};
use deeppool::plan::{GpuCounts, Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::LowerOptions;
use deeppool::simulate::{SimulateOptions, simulate_plan};
use layer_graph::zoo;
use layer_profile::DeviceModel;

const BATCH: usize = 32;

/// Calls `with` with the training job of a model on up to `gpus` A100s.
fn with_job<T>(model: &str, gpus: usize, with: impl FnOnce(&Job<'_>) -> T) -> T {
    let network = zoo::model(model).unwrap();
    let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(BATCH, gpus)).unwrap();
    let link = LinkModel::dgx_a100();
    with(&Job::new(Costs::new(&network, &profile, &link), BATCH, LowerOptions::default()))
}

fn plan<'a>(job: &Job<'a>, gpus: usize, limit: f64, counts: GpuCounts) -> LoweredPlan<'a> {
    let request = PlanRequest::new(gpus, Mode::Burst { amplification: limit }).with_gpu_counts(counts);
    find_plan(job, &request).unwrap()
}

#[test]
fn counts_that_do_not_divide_the_batch_simulate_as_planned() {
    for count in [3, 5, 6] {
        with_job("vgg16", count, |job| {
            let plan = plan(job, count, f64::INFINITY, GpuCounts::List(vec![1, count]));
            assert!(plan.layers.iter().any(|layer| layer.gpus == count));
            let simulated = simulate_plan(job, &plan, &SimulateOptions::default()).unwrap();
            let simulated_us = simulated.iteration.as_secs_f64() * 1e6;
            println!("{count} GPUs: planned {:.0} us, simulated {simulated_us:.0} us", plan.iteration_us);
            assert!((simulated_us / plan.iteration_us - 1.0).abs() < 1e-3, "{count} GPUs");
        });
    }
}

/// Amplification is relative to the time on one GPU.
#[test]
fn single_gpu_time_does_not_depend_on_the_counts() {
    with_job("vgg16", 6, |job| {
        let single_us = |counts| plan(job, 6, 3.0, counts).single_gpu_us;
        let (with, without) = (single_us(GpuCounts::All), single_us(GpuCounts::List(vec![5, 2])));
        assert!((with / without - 1.0).abs() < 1e-9, "{with} {without}");
    });
}

/// More GPUs never remove a candidate of the search.
#[test]
fn counts_for_more_gpus_include_those_for_fewer() {
    for counts in [GpuCounts::Auto, GpuCounts::PowersOfTwo, GpuCounts::All] {
        for batch in [1, 2, 7, 24, 32, 100, 1000] {
            let most = counts.for_batch(batch, usize::MAX);
            assert_eq!((most.first(), most.is_sorted()), (Some(&1), true));
            for gpus in 1..50 {
                let up_to: Vec<usize> = most.iter().copied().filter(|&count| count <= gpus).collect();
                assert_eq!(counts.for_batch(batch, gpus), up_to, "{counts}, batch {batch}, {gpus} GPUs");
            }
        }
    }
}

#[test]
fn oversized_requests_are_rejected_before_searching() {
    with_job("vgg16", 1, |job| {
        let refused = |request: PlanRequest| find_plan(job, &request).unwrap_err().to_string();
        let limit = Mode::Burst { amplification: 2.0 };
        assert!(refused(PlanRequest::new(100_000, limit)).contains("16384"));
        assert!(refused(PlanRequest::new(0, Mode::DataParallel)).contains("from 1"));
        assert!(refused(PlanRequest::new(8, limit).with_effort(f64::NAN)).contains("effort"));
    });
}
