//! Several jobs on one cluster, simulated with shared links.

use std::time::Duration;

use deeppool::collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::{Job, LoweredPlan};
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::LowerOptions;
use deeppool::simulate::{
    BackgroundCosts, ClusterJob, ClusterOptions, ClusterSimulation, SimulateOptions, SimulationReport,
    contended, policy_named, simulate_cluster, simulate_plan,
};
use layer_graph::{LayerGraph, zoo};
use layer_profile::{DeviceModel, ProfileTable};

const DP: Mode = Mode::DataParallel;
const BURST: Mode = Mode::Burst { amplification: 2.0 };

/// A network with its times on A100s.
struct Network {
    graph: LayerGraph,
    profile: ProfileTable,
    batch: usize,
}

impl Network {
    fn new(name: &str, batch: usize, gpus: usize) -> Self {
        let graph = zoo::model(name).unwrap();
        let profile = DeviceModel::named("a100").unwrap().profile(&graph, &shard_sizes(batch, gpus)).unwrap();
        Self { graph, profile, batch }
    }

    fn job<'a>(&'a self, link: &'a LinkModel) -> Job<'a> {
        Job::new(Costs::new(&self.graph, &self.profile, link), self.batch, LowerOptions::default())
    }
}

fn plan<'a>(job: &Job<'a>, gpus: usize, mode: Mode) -> LoweredPlan<'a> {
    find_plan(job, &PlanRequest::new(gpus, mode)).unwrap()
}

/// Simulates copies of a plan at these places.
fn copies(
    link: &LinkModel,
    (job, plan): (&Job<'_>, &LoweredPlan<'_>),
    places: &[Vec<usize>],
    options: SimulateOptions,
) -> ClusterSimulation {
    let program = plan.training().for_simulation().unwrap();
    let place = |gpus: &Vec<usize>| ClusterJob::new("copy", program, job.costs(), gpus.clone());
    let jobs: Vec<ClusterJob<'_>> = places.iter().map(place).collect();
    simulate_cluster(link, 64, &jobs, &ClusterOptions::new(options)).unwrap()
}

#[test]
fn one_job_alone_has_the_report_of_its_simulation_to_the_byte() {
    let link = LinkModel::named("dgx-a100-pod").unwrap();
    let background = Network::new("vgg16", 8, 1);
    let background = BackgroundCosts::new(background.job(&link).costs(), 8).unwrap();
    let naive = policy_named("naive").unwrap();
    for (name, batch, gpus, mode) in [
        ("vgg16", 32, 8, DP),
        ("vgg16", 256, 16, BURST),
        ("resnet-50", 128, 32, DP),
        ("inception-v3", 64, 16, BURST),
        ("digits-cnn", 32, 4, BURST),
    ] {
        let network = Network::new(name, batch, gpus);
        let job = network.job(&link);
        let plan = plan(&job, gpus, mode);
        let options = SimulateOptions::default().with_iterations(8);
        for options in [
            options.clone(),
            options.clone().with_device(contended()),
            options.clone().with_background(Some(background.clone())),
            options.with_background(Some(background.clone())).with_device(contended()).with_policy(naive),
        ] {
            let expected = simulate_plan(&job, &plan, &options).unwrap();
            let shared = copies(&link, (&job, &plan), &[(0..gpus).collect()], options);
            let [only] = &shared.jobs[..] else { panic!("{:?}", shared.jobs.len()) };
            assert_eq!((&only.alone, &only.beside), (&expected, &expected), "{name}");
            let report = |result| {
                let report = SimulationReport::of_result(&job, &plan, result, expected.iteration).unwrap();
                serde_json::to_string(&report).unwrap()
            };
            assert_eq!(report(&only.beside), report(&expected));
            let busy = shared.levels[0].max_busy;
            assert!((0.0..=1.0).contains(&busy) && (busy > 0.0 || name == "digits-cnn"), "{busy}");
        }
    }
}

#[test]
fn jobs_that_share_no_link_do_not_slow_each_other_down() {
    let link = LinkModel::named("a100-100gbe").unwrap();
    let network = Network::new("resnet-50", 256, 16);
    let job = network.job(&link);
    let plan = plan(&job, 16, BURST);
    let places = [(0..16).collect(), (16..32).collect(), (48..64).rev().collect::<Vec<usize>>()];
    let shared = copies(&link, (&job, &plan), &places, SimulateOptions::default());
    for of_job in &shared.jobs {
        assert_eq!(of_job.beside, of_job.alone);
        assert!((of_job.slowdown() - 1.0).abs() < f64::EPSILON);
    }
    // The numbers of the ranks, and so the order of the hosts, do not matter.
    assert_eq!(shared.jobs[0].beside.iteration, shared.jobs[2].beside.iteration);
}

#[test]
fn equal_jobs_share_adapters_equally() {
    let link = LinkModel::named("a100-100gbe").unwrap();
    let network = Network::new("vgg16", 64, 8);
    let job = network.job(&link);
    let plan = plan(&job, 8, DP);
    // Two jobs with half of two hosts each.
    let halves: Vec<Vec<usize>> =
        (0..2).map(|half| (0..16).filter(|gpu| gpu % 8 / 4 == half).collect()).collect();
    let shared = copies(&link, (&job, &plan), &halves, SimulateOptions::default());
    let [one, other] = &shared.jobs[..] else { panic!("two jobs") };
    assert_eq!(one.beside, other.beside);
    // Communication dominates: 553 MB over an adapter of 12 GB/s, against 15 ms of computing.
    assert!((1.5..2.0).contains(&one.slowdown()), "{}", one.slowdown());
    let level = &shared.levels[1];
    assert_eq!((level.used_links, level.busiest.to_string()), (4, "host 0, sent".into()));
    assert!((0.9..1.0).contains(&level.max_busy), "{level:?}");
    assert!((level.mean_busy - level.max_busy).abs() < 1e-9);

    // On one host each, they do not share the adapters, which they do not use.
    let hosts = [(0..8).collect(), (8..16).collect()];
    let apart = copies(&link, (&job, &plan), &hosts, SimulateOptions::default());
    assert!((apart.jobs[1].slowdown() - 1.0).abs() < f64::EPSILON);
    assert_eq!(apart.levels[1].used_links, 0);
}

#[test]
fn jobs_of_different_lengths_run_until_all_have_ended() {
    let link = LinkModel::named("a100-100gbe").unwrap();
    let (long, short) = (Network::new("vgg16", 1024, 8), Network::new("resnet-18", 16, 8));
    let (long, short) = (long.job(&link), short.job(&link));
    let [of_long, of_short] = [&long, &short].map(|job| plan(job, 8, DP));
    let spread = |first: usize| (0..8).map(|host| host * 8 + first).collect::<Vec<usize>>();
    let programs = [&of_long, &of_short].map(|plan| plan.training().for_simulation().unwrap());
    let delay = Duration::from_millis(200);
    let jobs = [
        ClusterJob::new("long", programs[0], long.costs(), spread(0)),
        ClusterJob::new("short", programs[1], short.costs(), spread(1)).with_start(delay),
    ];
    let options = ClusterOptions::new(SimulateOptions::default().with_iterations(6).with_timeline(true));
    let shared = simulate_cluster(&link, 64, &jobs, &options).unwrap();
    let [long, short] = &shared.jobs[..] else { panic!("two jobs") };
    // The warm-up is one iteration.
    assert_eq!(long.beside.iterations.len(), 5);
    assert!(short.beside.iterations.len() > 10, "{}", short.beside.iterations.len());
    assert!(long.slowdown() > 1.001 && short.slowdown() > 1.1, "{} {}", long.slowdown(), short.slowdown());
    let total = |of_job: &deeppool::simulate::SharedJob| of_job.beside.iterations.iter().sum::<Duration>();
    assert!(shared.duration >= total(long) && shared.duration >= delay + total(short));
    // The long job hides most of its communication behind computing. Iterations of the short job
    // differ: some run while the long one only computes.
    let (min, max) = (short.beside.iterations.iter().min(), short.beside.iterations.iter().max());
    assert!(max.unwrap().as_secs_f64() > 1.2 * min.unwrap().as_secs_f64(), "{min:?} {max:?}");

    let trace = shared.timeline.expect("a requested timeline").to_chrome_trace();
    let events = trace["traceEvents"].as_array().unwrap();
    let of_job = |pid: u64| {
        let spans = events.iter().filter(move |event| event["ph"] == "X" && event["pid"] == pid);
        spans.map(|event| (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap())).collect::<Vec<_>>()
    };
    let length = long.beside.iterations.last().unwrap().as_secs_f64() * 1e6;
    for pid in [1, 2] {
        let spans = of_job(pid);
        assert!(spans.len() > 10, "{pid}: {}", spans.len());
        assert!(spans.iter().all(|&(start, took)| start <= length && start + took >= 0.0));
    }
    let slowed = events.iter().filter(|event| {
        let alone = event["args"]["alone_us"].as_f64();
        alone.is_some_and(|alone| event["dur"].as_f64().unwrap() > alone * 1.1)
    });
    assert!(slowed.count() > 0);
    let name = |event: &&serde_json::Value| event["name"] == "process_name";
    let names: Vec<&str> =
        events.iter().filter(name).filter_map(|event| event["args"]["name"].as_str()).collect();
    assert_eq!(names, ["long (simulated)", "short (simulated)"]);
}

#[test]
fn impossible_gpus_are_errors_that_name_the_job() {
    let link = LinkModel::named("dgx-a100-pod").unwrap();
    let network = Network::new("digits-cnn", 32, 2);
    let job = network.job(&link);
    let plan = plan(&job, 2, DP);
    let program = plan.training().for_simulation().unwrap();
    let at = |name: &str, gpus: &[usize]| ClusterJob::new(name, program, job.costs(), gpus.to_vec());
    for (jobs, expected) in [
        (vec![at("one", &[0])], "1 for 2 ranks of job `one`"),
        (vec![at("one", &[0, 16])], "16 of 16 for job `one`"),
        (vec![at("one", &[0, 1]), at("two", &[1, 2])], "1 for job `one` and job `two`"),
        (vec![at("one", &[3, 3])], "3 for job `one`"),
    ] {
        let error = simulate_cluster(&link, 16, &jobs, &ClusterOptions::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let late = at("two", &[2, 3]).with_start(Duration::from_secs(3_600 * 24 * 365));
    let error = simulate_cluster(&link, 16, &[at("one", &[0, 1]), late], &ClusterOptions::default());
    assert!(error.unwrap_err().to_string().contains("of job `one`"));
    let error = simulate_cluster(&link, 10_000, &[], &ClusterOptions::default()).unwrap_err();
    assert!(error.to_string().contains("connects 1120 ranks, not 10000"), "{error}");
}
