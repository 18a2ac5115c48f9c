//! Plans of equal workers with several GPUs each: predicted times and losses.

use collectives::LinkModel;
use deeppool::Error;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::data::Dataset;
use deeppool::job::{Job, LoweredPlan, PlannerNodes};
use deeppool::plan::{ExecutionPlan, GpuCounts, Mode, PlanRequest};
use deeppool::planning::{find_frontier, find_plan};
use deeppool::program::{LowerOptions, Placement};
use deeppool::simulate::{SimulateOptions, simulate_plan};
use deeppool_tests::{Run, scattered};
use layer_graph::{Conv2d, LayerGraph, LayerId, LayerKind, Linear, Shape, zoo};
use layer_profile::DeviceModel;
use proptest::prelude::*;

use crate::plan_independent::{TOLERANCE, distance};

const FREE: Mode = Mode::Burst { amplification: f64::INFINITY };

fn with_job<T>(
    network: &LayerGraph,
    (device, link): (&str, &LinkModel),
    (gpus, batch): (usize, usize),
    with: impl FnOnce(&Job<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let profile = DeviceModel::named(device)?.profile(network, &shard_sizes(batch, gpus))?;
    with(&Job::new(Costs::new(network, &profile, link), batch, LowerOptions::default()))
}

/// Returns a random network with a stem, branches of different lengths, and a join.
fn branches(seed: u64) -> LayerGraph {
    let draw = |index: u64, of: usize| {
        let mixed = (seed ^ (index << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize % of
    };
    let mut net = LayerGraph::new("branches", Shape::image(1, 8, 8)).unwrap();
    let stem = net.add("stem", Conv2d::new(8 + draw(0, 8), 3).padding(1), [net.input()]).unwrap();
    let mut ends: Vec<LayerId> = Vec::new();
    for branch in 0..2 + draw(1, 3) {
        let mut end = stem;
        for layer in 0..=draw(2 + branch as u64, 3) {
            let name = format!("branch{branch}.{layer}");
            end = net.add(name, Conv2d::new(4 + 4 * draw(9 + layer as u64, 5), 3).padding(1), [end]).unwrap();
        }
        ends.push(end);
    }
    let joined = net.add("joined", LayerKind::Concat, ends).unwrap();
    let flat = net.add("flat", LayerKind::Flatten, [joined]).unwrap();
    let scores = net.add("fc", Linear::new(10), [flat]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    net
}

/// Returns one of five link models: one switch (0), hosts of two GPUs with an adapter per GPU (1),
/// or hosts of two, three or four GPUs with one adapter (2 to 4).
fn links(index: usize) -> LinkModel {
    let switch = LinkModel::named("dgx-a100").unwrap().with_max_members(None);
    let network = LinkModel::named("ethernet-100g").unwrap();
    match index {
        0 => switch,
        1 => switch.between_hosts(2, network.with_adapters(2)).unwrap(),
        gpus_a_host => switch.between_hosts(gpus_a_host, network).unwrap(),
    }
}

/// Checks that a plan's iteration time is within 0.1% of the simulated time.
fn check_simulated_time(job: &Job<'_>, plan: &LoweredPlan<'_>) -> Result<(), Error> {
    let simulated = simulate_plan(job, plan, &SimulateOptions::default().with_iterations(40))?;
    let off = plan.iteration_us / (1e6 * simulated.iteration.as_secs_f64()) - 1.0;
    assert!(off.abs() < 1e-3, "{:?}: {} us, {off:+.4}", plan.worker, plan.iteration_us);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("DEEPPOOL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(24),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn plans_of_workers_predict_the_simulated_time(
        seed: u64,
        replicas in 1usize..5,
        worker_gpus in 1usize..5,
        samples in 1usize..9,
        link in 0usize..5,
        places: bool,
    ) {
        let (network, link) = (branches(seed), links(link));
        let (gpus, batch) = (replicas * worker_gpus, replicas * samples);
        let counts = if places { GpuCounts::List(vec![1]) } else { GpuCounts::All };
        let request = PlanRequest::new(gpus, Mode::Knee).with_gpu_counts(counts).with_effort(0.1);
        let request = request.with_worker_gpus(Some(worker_gpus));
        with_job(&network, ("a100", &link), (gpus, batch), |job| {
            let frontier = find_frontier(job, &request)?;
            for plan in frontier.plans(4)? {
                let worker = plan.worker.unwrap();
                assert_eq!((worker.gpus, worker.replicas), (worker_gpus, replicas));
                check_simulated_time(job, &plan)?;
                // Reading the document checks that all workers are equal.
                ExecutionPlan::from_json(&plan.to_json()?)?;
                if worker_gpus == 1 {
                    assert!((worker.speed_up() - 1.0).abs() < 1e-9);
                }
            }
            Ok(())
        })?;
    }
}

#[test]
fn plan_of_one_gpu_workers_equals_data_parallelism() -> Result<(), Error> {
    for (model, link) in [("inception-v3", 0), ("gpt2", 2), ("digits-cnn", 1)] {
        let (network, link) = (zoo::model(model)?, links(link));
        with_job(&network, ("a100", &link), (6, 24), |job| {
            let data_parallel = find_plan(job, &PlanRequest::new(6, Mode::DataParallel))?;
            let of_workers = find_plan(job, &PlanRequest::new(6, FREE).with_worker_gpus(Some(1)))?;
            assert_eq!(of_workers.training().programs()?, data_parallel.training().programs()?, "{model}");
            assert_eq!(of_workers.iteration_us.to_bits(), data_parallel.iteration_us.to_bits());
            let also = find_plan(job, &PlanRequest::new(6, Mode::DataParallel).with_worker_gpus(Some(1)))?;
            assert_eq!(also.plan(), data_parallel.plan());
            Ok(())
        })?;
    }
    Ok(())
}

/// A plan of one worker is a burst plan on all GPUs. A plan of several is at least as fast as data
/// parallelism on as many GPUs with equal shards.
#[test]
fn plans_of_workers_are_at_least_as_fast_as_their_special_cases() -> Result<(), Error> {
    let (network, link) = (zoo::model("resnet-18")?, links(0));
    with_job(&network, ("a100", &link), (4, 32), |job| {
        let free = PlanRequest::new(4, FREE);
        let [burst, one] = [None, Some(4)].map(|gpus| find_plan(job, &free.clone().with_worker_gpus(gpus)));
        let (burst, one) = (burst?, one?);
        assert_eq!(burst.layers, one.layers);
        assert_eq!(one.worker.unwrap().iteration_us.to_bits(), burst.iteration_us.to_bits());
        let two = find_plan(job, &free.with_worker_gpus(Some(2)))?;
        assert!(two.iteration_us <= two.dp.iteration_us * (1.0 + 1e-9), "{two:?}");
        Ok(())
    })
}

#[test]
fn invalid_worker_sizes_return_errors() -> Result<(), Error> {
    let (network, link) = (zoo::model("digits-cnn")?, links(0));
    with_job(&network, ("a100", &link), (6, 20), |job| {
        for (gpus, counts, mode, message) in [
            (4, "all", FREE, "a divisor of the number of GPUs, got 4 for 6 GPUs"),
            (0, "all", FREE, "a divisor of the number of GPUs, got 0"),
            (2, "all", FREE, "a multiple of the number of workers, got 20 samples for 3"),
            (3, "3", FREE, "divisors of its number of samples, got 3"),
            (3, "all", Mode::DataParallel, "1 with data parallelism, got 3"),
        ] {
            let request = PlanRequest::new(6, mode).with_gpu_counts(counts.parse()?);
            let error = find_plan(job, &request.with_worker_gpus(Some(gpus))).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let partial = job.with_partial(2, false)?;
        let error = find_plan(&partial, &PlanRequest::new(6, FREE).with_worker_gpus(Some(3))).unwrap_err();
        assert!(error.to_string().contains("none with workers"), "{error}");
        Ok(())
    })
}

/// Repeats the placement of one worker for all workers.
fn repeated(network: &LayerGraph, worker: &Placement, gpus: usize, replicas: usize) -> Placement {
    let nodes = PlannerNodes::new(network);
    let all = nodes.arrangement(worker).unwrap().replicated(gpus, replicas).unwrap();
    nodes.placement(gpus * replicas, &all).unwrap()
}

/// Workers have planned placements, round-robin placements, or random placements.
#[test]
fn losses_of_workers_match_one_rank() -> Result<(), Error> {
    let dataset = Dataset::digits()?;
    let link = LinkModel::threads_of_one_host();
    for network in [zoo::model("digits-cnn")?, branches(5)] {
        let lowering = LowerOptions::default();
        // 44 iterations per epoch.
        let run =
            Run { network: &network, dataset: &dataset, batch: 32, epochs: 3, lowering, background: None };
        let alone = run.with(&Placement::single(&network)?)?;
        assert!(alone.losses.len() > 100);
        for (replicas, gpus) in [(2, 2), (2, 1), (1, 2), (4, 1), (1, 4)] {
            let request = PlanRequest::new(replicas * gpus, FREE).with_worker_gpus(Some(gpus));
            let plan = with_job(&network, ("cpu-core", &link), (replicas * gpus, 32), |job| {
                Ok(find_plan(job, &request)?.into_plan())
            })?;
            let round_robin = (0..network.len() - 1).map(|layer| vec![layer % gpus]).collect();
            let round_robin = Placement::new(&network, gpus, round_robin)?;
            for (name, placement) in [
                ("planned", plan.placement(&network)?),
                ("round robin", repeated(&network, &round_robin, gpus, replicas)),
                ("scattered", repeated(&network, &scattered(&network, gpus, 1)?, gpus, replicas)),
            ]
            .into_iter()
            // With one GPU, all placements are equal.
            .take(if gpus == 1 { 1 } else { 3 })
            {
                let distance = distance(&alone.losses, &run.with(&placement)?.losses);
                println!("{}, {replicas} workers of {gpus}, {name}: {distance:.1e}", network.name());
                assert!(distance <= TOLERANCE, "{replicas} workers of {gpus}, {name}: {distance:.1e}");
            }
        }
    }
    Ok(())
}
