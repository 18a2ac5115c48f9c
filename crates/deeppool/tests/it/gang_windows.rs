//! Background jobs on several ranks in the simulator: what they do to the foreground, and how they
//! use the time in which all their ranks are idle.

use std::time::Duration;

use deeppool::costs::{Costs, default_link, shard_sizes};
use deeppool::job::{Job, LoweredPlan};
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::{LowerOptions, Placement, lower_training};
use deeppool::simulate::{
    BackgroundCosts, DistributedBackground, SimulateOptions, Simulation, SimulationReport, contended,
    simulate, simulate_plan, undisturbed,
};
use layer_graph::zoo;
use layer_profile::DeviceModel;
use proptest::prelude::*;

/// Samples of a background job on each of its ranks.
const SAMPLES_PER_RANK: usize = 8;

/// Calls `with` with a job of a model on `gpus` A100s, and a burst plan of it.
fn with_plan<T>(
    (model, batch, gpus): (&str, usize, usize),
    with: impl FnOnce(&Job<'_>, &LoweredPlan<'_>) -> T,
) -> T {
    let network = zoo::model(model).unwrap();
    let mut sizes = shard_sizes(batch, gpus);
    sizes.extend(shard_sizes(SAMPLES_PER_RANK, SAMPLES_PER_RANK));
    sizes.sort_unstable();
    sizes.dedup();
    let profile = DeviceModel::named("a100").unwrap().profile(&network, &sizes).unwrap();
    let link = default_link("a100", gpus).unwrap();
    let job = Job::new(Costs::new(&network, &profile, &link), batch, LowerOptions::default());
    let plan = find_plan(&job, &PlanRequest::new(gpus, Mode::Burst { amplification: 2.0 })).unwrap();
    with(&job, &plan)
}

/// Creates jobs of `size` ranks each on all of `gpus` ranks.
fn jobs(job: &Job<'_>, gpus: usize, size: usize) -> Vec<DistributedBackground> {
    let ranks: Vec<usize> = (0..gpus).collect();
    let of_ranks =
        |ranks: &[usize]| DistributedBackground::data_parallel(job.costs(), SAMPLES_PER_RANK * size, ranks);
    ranks.chunks(size).map(|ranks| of_ranks(ranks).unwrap()).collect()
}

/// Returns the quantile of the iteration times.
fn quantile(simulation: &Simulation, part: f64) -> f64 {
    let mut times: Vec<Duration> = simulation.iterations.clone();
    times.sort_unstable();
    times[((times.len() - 1) as f64 * part).round() as usize].as_secs_f64()
}

#[test]
fn jobs_on_several_ranks_use_the_windows_without_harm() {
    with_plan(("vgg16", 32, 8), |job, plan| {
        let options = SimulateOptions::default().with_iterations(80);
        let alone = simulate_plan(job, plan, &options).unwrap();
        let beside = |size: usize| {
            simulate_plan(job, plan, &options.clone().with_distributed(jobs(job, 8, size))).unwrap()
        };
        let slower = |beside: &Simulation, part| quantile(beside, part) / quantile(&alone, part) - 1.0;
        let single = beside(1);
        for size in [2, 4] {
            let beside = beside(size);
            let (median, high) = (slower(&beside, 0.5), slower(&beside, 0.99));
            assert!(median <= 0.015 && median <= slower(&single, 0.5) + 0.005, "@{size}: {median}");
            assert!(high <= 0.03, "@{size}: {high}");
            for job in &beside.distributed {
                assert!(job.used_share.is_none_or(|used| used >= 0.8), "@{size}: {job:?}");
            }
            let sum: f64 = beside.distributed.iter().map(|job| job.samples_per_s).sum();
            assert!(
                sum > 100.0 && (sum / beside.background_samples_per_s - 1.0).abs() < 0.05,
                "@{size}: {sum}"
            );
        }
    });
}

#[test]
fn job_whose_ranks_are_never_idle_together_does_not_progress() {
    with_plan(("vgg16", 32, 8), |job, plan| {
        let options = SimulateOptions::default().with_distributed(jobs(job, 8, 8));
        let (report, _) = SimulationReport::new(job, plan, &options).unwrap();
        let [all] = &report.background_jobs[..] else { panic!("one job") };
        assert!(all.runs && all.windows_met == Some(false) && all.collectives == 0, "{all:?}");
        // One iteration's forward pass may run before the first collective.
        assert!(all.samples_per_s < 0.05 * all.samples_per_s_alone, "{all:?}");
    });
}

#[test]
fn jobs_on_one_rank_each_equal_copies() {
    with_plan(("vgg16", 32, 8), |job, plan| {
        let options = SimulateOptions::default();
        let copy = BackgroundCosts::new(job.costs(), SAMPLES_PER_RANK).unwrap();
        let copies = simulate_plan(job, plan, &options.clone().with_background(Some(copy))).unwrap();
        let single = simulate_plan(job, plan, &options.with_distributed(jobs(job, 8, 1))).unwrap();
        let (copies, single) = (copies.background_samples_per_s, single.background_samples_per_s);
        assert!((single / copies - 1.0).abs() < 0.03, "{single} samples/s, copies {copies}");
    });
}

#[test]
fn job_without_room_on_one_of_its_ranks_does_not_run() {
    with_plan(("vgg16", 32, 8), |job, plan| {
        let jobs = jobs(job, 8, 4);
        let program = plan.training().for_simulation().unwrap();
        let held = |ranks: &[usize]| {
            let of_rank = |rank: usize| {
                let programs = &program.ranks;
                programs
                    .iter()
                    .find(|program| program.represented_ranks.contains(&rank))
                    .unwrap()
                    .total_bytes()
            };
            ranks.iter().map(|&rank| of_rank(rank)).max().unwrap()
        };
        let needed: Vec<u64> =
            jobs.iter().map(|job| held(job.ranks()) + job.memory_bytes(job.ranks()[0])).collect();
        let options = SimulateOptions::default().with_distributed(jobs);
        for limit in [needed[0].min(needed[1]) - 1, needed[0].min(needed[1]), needed[0].max(needed[1])] {
            let options = options.clone().with_memory_limit(Some(limit));
            let runs: Vec<bool> = needed.iter().map(|&needed| needed <= limit).collect();
            assert_eq!(options.have_room(program), runs);
            let simulated = simulate_plan(job, plan, &options).unwrap();
            for (rates, runs) in simulated.distributed.iter().zip(runs) {
                assert_eq!(rates.samples_per_s > 0.0, runs, "{rates:?}");
            }
        }
    });
}

/// Number of random simulations: 500, or that of the environment variable `GANG_CASES`.
fn cases() -> u32 {
    std::env::var("GANG_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Jobs of any sizes on any ranks, beside each other and beside copies: every simulation ends,
    /// the same way each time, and the foreground is not slowed beyond its budget.
    #[test]
    fn every_simulation_of_background_jobs_ends(
        sets in prop::collection::vec(prop::sample::subsequence(vec![0, 1, 2, 3], 1..=4), 1..5),
        samples in 1..5usize,
        gpus in 1..5usize,
        copies in any::<bool>(),
        contention in any::<bool>(),
    ) {
        let network = zoo::model("digits-cnn").unwrap();
        let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(32, 32)).unwrap();
        let link = default_link("a100", 4).unwrap();
        let costs = Costs::new(&network, &profile, &link);
        let of_ranks = |ranks: &Vec<usize>| {
            DistributedBackground::data_parallel(&costs, samples * ranks.len(), ranks).unwrap()
        };
        let job = Job::new(costs.clone(), 32, LowerOptions::default());
        let placement = vec![gpus; network.computing_layers().len()];
        let placement = Placement::first_ranks(&network, 4, &placement).unwrap();
        let program = lower_training(&network, &placement, 32, job.lowering()).unwrap();
        let options = SimulateOptions::default()
            .with_device(if contention { contended() } else { undisturbed() })
            .with_background(copies.then(|| BackgroundCosts::new(&costs, 4).unwrap()))
            .with_distributed(sets.iter().map(of_ranks).collect());
        let simulated = simulate(&program, &costs, &options).unwrap();
        prop_assert_eq!(&simulated, &simulate(&program, &costs, &options).unwrap());
        // Jobs on ranks without a foreground always progress.
        for (set, rates) in sets.iter().zip(&simulated.distributed) {
            if set.iter().all(|&rank| rank >= gpus) {
                prop_assert!(rates.samples_per_s > 0.0, "{:?} {:?}", set, rates);
            }
        }
    }
}

/// Prints the slow-down of the foreground and the use of windows, by the size of the jobs.
#[test]
#[ignore = "prints figures of three networks on 8 and 64 GPUs"]
fn figures() {
    let filter = std::env::var("GANG_FIGURES").unwrap_or_default();
    for (model, batch, gpus) in [
        ("vgg16", 32, 8),
        ("wrn-101-2", 32, 8),
        ("inception-v3", 32, 8),
        ("vgg16", 256, 64),
        ("wrn-101-2", 256, 64),
        ("inception-v3", 256, 64),
    ] {
        if !format!("{model}@{gpus}").contains(&filter) {
            continue;
        }
        with_plan((model, batch, gpus), |job, plan| {
            let options = SimulateOptions::default().with_iterations(80);
            let alone = simulate_plan(job, plan, &options).unwrap();
            println!("{model} {batch} on {gpus}: alone {:?}", alone.iteration);
            for size in [1, 2, 4, 8] {
                let begin = std::time::Instant::now();
                let jobs = jobs(job, gpus, size);
                let beside = simulate_plan(job, plan, &options.clone().with_distributed(jobs)).unwrap();
                let slower = |part: f64| 100.0 * (quantile(&beside, part) / quantile(&alone, part) - 1.0);
                let mean = |of: &dyn Fn(&deeppool::simulate::JobRates) -> f64| {
                    beside.distributed.iter().map(of).sum::<f64>() / beside.distributed.len() as f64
                };
                println!(
                    "  @{size}: slower {:.2}% p99 {:.2}%, {:.0} samples/s, windows {:.1}% of time, used \
                     {:.1}%, of idle {:.1}%, {:.0} collectives, wait {:.0} us ({:.1?})",
                    slower(0.5),
                    slower(0.99),
                    beside.background_samples_per_s,
                    100.0 * mean(&|job| job.window_share),
                    100.0 * mean(&|job| job.used_share.unwrap_or(f64::NAN)),
                    100.0 * beside.background_share_of_idle.unwrap_or(f64::NAN),
                    mean(&|job| job.collectives as f64),
                    mean(&|job| job.mean_wait.unwrap_or_default().as_secs_f64() * 1e6),
                    begin.elapsed(),
                );
            }
        });
    }
}
