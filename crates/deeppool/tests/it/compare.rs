//! The comparison of ways to share GPUs, against the planner's times and against each other.

use collectives::LinkModel;
use deeppool::compare::{Comparison, Point, SharingMode, max_total_plan};
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::{find_frontier, find_plan};
use deeppool::program::LowerOptions;
use deeppool::simulate::{BackgroundCosts, SimulateOptions, simulate_plan};
use layer_graph::{Split, zoo};
use layer_profile::DeviceModel;

/// Burst parallelism without a limit on amplification.
const FREE: Mode = Mode::Burst { amplification: f64::INFINITY };

/// Calls `with` with the training job of a model on up to `gpus` A100s.
fn with_job<T>(
    (model, batch, gpus): (&str, usize, usize),
    link: &LinkModel,
    with: impl FnOnce(&Job<'_>, &BackgroundCosts) -> T,
) -> T {
    let network = zoo::model(model).unwrap();
    let mut sizes = shard_sizes(batch, gpus);
    sizes.push(8);
    sizes.sort_unstable();
    sizes.dedup();
    let profile = DeviceModel::named("a100").unwrap().profile(&network, &sizes).unwrap();
    let job = Job::new(Costs::new(&network, &profile, link), batch, LowerOptions::default());
    let background = BackgroundCosts::new(job.costs(), 8).unwrap();
    with(&job, &background)
}

fn hosts() -> LinkModel {
    LinkModel::dgx_a100().between_hosts(4, LinkModel::ethernet_100g()).unwrap()
}

#[test]
fn partitions_match_the_planner_times() {
    with_job(("vgg16", 32, 8), &LinkModel::dgx_a100(), |job, background| {
        let compared =
            Comparison::new(job, &PlanRequest::new(8, FREE), background, &SimulateOptions::default(), |_| {})
                .unwrap();
        let partitions: Vec<_> =
            compared.points.iter().filter(|point| point.mode == SharingMode::Partition).collect();
        assert!(partitions.len() >= 4);
        for point in partitions {
            let plan = find_plan(job, &PlanRequest::new(point.gpus, Mode::DataParallel)).unwrap();
            let foreground = 32.0 * 1e6 / plan.iteration_us;
            assert!((point.foreground_samples_per_s / foreground - 1.0).abs() < 1e-6, "{}", point.gpus);
            let others = (8 - point.gpus) as f64 * 8.0 / background.iteration_time().as_secs_f64();
            assert!((point.background_samples_per_s - others).abs() < 1e-6 * others.max(1.0));
        }
        // By the planner's times, no other partition is better than alternating between the
        // simulated ones.
        let envelope = compared.envelope(&[SharingMode::Partition]);
        for gpus in 1..=8 {
            let plan = find_plan(job, &PlanRequest::new(gpus, Mode::DataParallel)).unwrap();
            let foreground = 32.0 * 1e6 / plan.iteration_us;
            let total = foreground + (8 - gpus) as f64 * background.samples_per_s();
            let best = envelope.total_at(foreground * (1.0 - 1e-6)).unwrap();
            assert!(best >= total * (1.0 - 1e-6), "{gpus} GPUs: {best} {total}");
        }
    });
}

#[test]
fn sharing_envelope_covers_the_modes_it_includes() {
    for (question, link) in [
        (("vgg16", 32, 8), LinkModel::dgx_a100()),
        (("inception-v3", 16, 8), hosts()),
        (("resnet-18", 12, 12), LinkModel::dgx_a100_pod()),
        (("digits-cnn", 5, 7), hosts()),
    ] {
        with_job(question, &link, |job, background| {
            let request = PlanRequest::new(question.2, FREE);
            let compared =
                Comparison::new(job, &request, background, &SimulateOptions::default(), |_| {}).unwrap();
            let sharing = compared.sharing();
            for point in &compared.points {
                let within = matches!(
                    point.mode,
                    SharingMode::DataParallel | SharingMode::DataParallelCollocated | SharingMode::Burst
                );
                let foreground = point.foreground_samples_per_s;
                let total = sharing.total_at(foreground);
                assert!(!within || total.unwrap() >= point.total_samples_per_s() * (1.0 - 1e-9), "{point:?}");
                if let (Some([min_foreground, max_foreground]), Some([min_total, _])) =
                    (point.foreground_range, point.total_range)
                {
                    assert!(min_foreground <= foreground && foreground <= max_foreground, "{point:?}");
                    assert!(min_total <= point.total_samples_per_s(), "{point:?}");
                }
            }
            assert!(compared.advice().contains("of the fastest foreground"), "{}", compared.advice());
        });
    }
}

#[test]
fn burst_points_are_those_of_the_comparison_and_splits_are_faster() {
    with_job(("vgg16", 32, 8), &LinkModel::dgx_a100(), |job, background| {
        let request = PlanRequest::new(8, Mode::Burst { amplification: 2.0 });
        let options = SimulateOptions::default();
        let compared = Comparison::new(job, &request, background, &options, |_| {}).unwrap();
        let points = Comparison::burst_points(job, &request, background, &options).unwrap();
        // Data parallelism with background jobs is a burst plan, too.
        let mut of_comparison = compared.points.iter();
        assert!(points.len() > 8 && points.iter().all(|point| of_comparison.any(|other| other == point)));
        let request = request.with_splits(Split::ALL.to_vec());
        let split = Comparison::burst_points(job, &request, background, &options).unwrap();
        let fastest =
            |points: &[Point]| points.iter().map(|point| point.foreground_samples_per_s).fold(0.0, f64::max);
        assert!(fastest(&split) > 1.2 * fastest(&points), "{split:?}");
    });
}

/// GPUs and hosts without foreground work run background jobs alone.
#[test]
fn unused_gpus_run_background_jobs_at_full_speed() {
    with_job(("vgg16", 32, 16), &LinkModel::dgx_a100_pod(), |job, background| {
        for gpus in [1, 8] {
            let request = PlanRequest::new(gpus, Mode::DataParallel);
            let mut plan = find_plan(job, &request).unwrap().into_plan();
            plan.gpus = 16;
            let plan = job.lower(plan).unwrap();
            let options = SimulateOptions::default().with_background(Some(background.clone()));
            let shared = simulate_plan(job, &plan, &options).unwrap().background_samples_per_s;
            let free = (16 - gpus) as f64 * background.samples_per_s();
            assert!(shared >= free * 0.999, "{gpus} GPUs used: {shared} of {free}");
        }
    });
}

#[test]
fn max_total_plan_is_at_least_as_good_as_any_limit() {
    // Limits from 1.02 to 10 for a network without branches. CI tries 40 limits, and another
    // network with branches.
    let asked = std::env::var("DEEPPOOL_LIMITS").ok().and_then(|limits| limits.parse().ok());
    let (count, networks) = asked.map_or((6, 1), |count| (count, 2));
    let questions = [(("vgg16", 32, 8), LinkModel::dgx_a100()), (("inception-v3", 16, 8), hosts())];
    for (question, link) in questions.into_iter().take(networks) {
        with_job(question, &link, |job, background| {
            let options = SimulateOptions::default().with_iterations(8);
            let request = PlanRequest::new(question.2, FREE);
            let frontier = find_frontier(job, &request).unwrap();
            let fastest_us = frontier.plan(FREE).unwrap().iteration_us;
            let total = |simulation: &deeppool::simulate::Simulation| {
                simulation.foreground_samples_per_s + simulation.background_samples_per_s
            };
            let limits = (0..count).map(|step| 1.02 * 10_f64.powf(f64::from(step) / f64::from(count - 1)));
            let plans = limits.filter_map(|amplification| frontier.plan(Mode::Burst { amplification }).ok());
            let mut plans: Vec<_> = plans.filter(|plan| plan.iteration_us <= fastest_us / 0.5).collect();
            plans.dedup_by(|one, other| one.layers == other.layers);
            let shared = options.clone().with_background(Some(background.clone()));
            let totals: Vec<f64> =
                plans.iter().map(|plan| total(&simulate_plan(job, plan, &shared).unwrap())).collect();
            for foreground in [0.5, 0.9, 0.95] {
                let found = max_total_plan(job, &request, foreground, background, &options).unwrap();
                assert!(found.plan.iteration_us <= fastest_us / foreground * (1.0 + 1e-9));
                let best = total(&found.simulation);
                for (plan, of_limit) in plans.iter().zip(&totals) {
                    let is_allowed = plan.iteration_us <= fastest_us / foreground;
                    let limit = plan.amplification;
                    assert!(
                        !is_allowed || best >= of_limit * 0.99,
                        "{question:?} {foreground} {limit}: {best} {of_limit}"
                    );
                }
            }
            // With 100% of the fastest speed it is the fastest plan within any limit.
            for amplification in [1.5, 2.0, f64::INFINITY] {
                let request = PlanRequest::new(question.2, Mode::Burst { amplification });
                let found = max_total_plan(job, &request, 1.0, background, &options).unwrap();
                assert_eq!(found.plan.plan(), find_plan(job, &request).unwrap().plan());
            }
        });
    }
}
