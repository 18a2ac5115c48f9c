//! Comparison of long runs with queueing theory.

use std::time::Duration;

use cluster_scheduler::{
    Arrival, Cluster, Execution, GpuType, Job, JobId, Mode, Policy, Report, SimulationOptions, Table,
    simulate,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const SERVERS: usize = 8;
const LOAD: f64 = 0.7;
const SERVICE: f64 = 100.0;
const JOBS: u64 = 40_000;

/// Runs one-GPU jobs with exponential times between arrivals and exponential durations.
fn run(policy: &Policy) -> Report {
    let mut table = Table::new();
    let kind = table.kind("milliseconds");
    let execution = Execution::full(1, Duration::from_millis(1)).unwrap();
    table.set(kind, GpuType(0), Mode::DataParallel, execution);
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut exponential = |mean: f64| {
        let part = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        -mean * (1.0 - part).ln()
    };
    let mut at = 0.0;
    let arrivals: Vec<Arrival> = (0..JOBS)
        .map(|number| {
            at += exponential(SERVICE / (SERVERS as f64 * LOAD));
            let iterations = (exponential(SERVICE) * 1000.0).ceil() as u64;
            Arrival {
                at: Duration::from_secs_f64(at),
                id: JobId(number),
                job: Job::new(kind, iterations.max(1), 1),
            }
        })
        .collect();
    let cluster = Cluster::uniform("a", 1, SERVERS).unwrap();
    simulate(&cluster, &table, policy, &arrivals, &SimulationOptions::default()).unwrap()
}

/// Returns the mean time in an M/M/c queue, by Erlang's C formula.
fn erlang_c() -> f64 {
    let offered = SERVERS as f64 * LOAD;
    let term = |n: usize| (1..=n).fold(1.0, |term, k| term * offered / k as f64);
    let waits = term(SERVERS) / (1.0 - LOAD);
    let probability = waits / ((0..SERVERS).map(term).sum::<f64>() + waits);
    SERVICE + probability * SERVICE / (SERVERS as f64 * (1.0 - LOAD))
}

/// L = lambda W: the mean number of jobs is the arrival rate times the mean time in the cluster.
#[test]
fn littles_law_holds() {
    for policy in [Policy::fifo(), Policy::srtf(), Policy::least_attained_service()] {
        let report = run(&policy);
        // Uses the known rate of arrivals, not the realized one.
        let rate = SERVERS as f64 * LOAD / SERVICE;
        let ratio = report.mean_jobs() / (rate * report.mean_completion());
        assert!((ratio - 1.0).abs() < 0.02, "{}: L / (lambda W) is {ratio}", policy.name);
    }
}

#[test]
fn fifo_is_an_m_m_c_queue() {
    let (found, theory) = (run(&Policy::fifo()).mean_completion(), erlang_c());
    assert!((found / theory - 1.0).abs() < 0.03, "{found} s, Erlang C: {theory} s");
}
