//! Results of Gavel's own simulator on 500 jobs from its generator (`gavel_reference_results.csv`).

use cluster_scheduler::rounds::{self, FifoFaults, RoundsJob, RoundsOptions, RoundsPolicy, RoundsReport};
use cluster_scheduler::trace;

use crate::data;

/// Reads the jobs, with their speeds on these types of GPUs.
pub(crate) fn jobs(types: &[&str]) -> Option<Vec<RoundsJob>> {
    let jobs = trace::gavel_jobs("jobs", data::open("gavel_reference_jobs.csv.gz")?).unwrap();
    let speeds = trace::gavel_speeds("speeds", data::open("gavel_alone.csv")?).unwrap();
    let speed = |job: &trace::GavelJob, of_type: &str| {
        let of_job = |speed: &&trace::GavelSpeed| {
            speed.gpu_type == of_type && speed.kind == job.kind && speed.gpus == job.gpus
        };
        speeds.iter().find(of_job).map_or(0.0, |speed| speed.steps_per_s)
    };
    let of_rounds = |job: &trace::GavelJob| RoundsJob {
        arrival: job.arrival,
        gpus: job.gpus,
        steps: job.steps,
        speeds: types.iter().map(|of_type| speed(job, of_type)).collect(),
    };
    Some(jobs.iter().map(of_rounds).collect())
}

fn run(types: &[&str], gpus: &[usize], policy: RoundsPolicy) -> Option<RoundsReport> {
    let report = rounds::simulate(&jobs(types)?, gpus, policy, &RoundsOptions::default()).unwrap();
    println!(
        "{policy:?} on {gpus:?}: mean {:.1} s, p99 {:.1} s, makespan {:.1} s, \
         utilization {:.4}, {} allocations",
        report.mean(),
        report.p99(),
        report.makespan,
        report.utilization,
        report.allocations
    );
    Some(report)
}

fn assert_within(what: &str, found: f64, theirs: f64, tolerance: f64) {
    let off = found / theirs - 1.0;
    assert!(off.abs() <= tolerance, "{what}: {found:.1}, Gavel has {theirs:.1}: off by {:.2}%", off * 100.0);
}

#[test]
fn max_min_fairness_matches_gavel_on_32_v100() {
    let Some(report) = run(&["v100"], &[32], RoundsPolicy::MaxMinFairness) else { return };
    assert_within("mean", report.mean(), 67_269.1, 0.01);
    assert_within("makespan", report.makespan, 1_970_655.0, 0.01);
    assert_within("utilisation", report.utilization, 0.7469, 0.01);
}

#[test]
fn max_min_fairness_matches_gavel_on_three_types() {
    let types = ["v100", "p100", "k80"];
    let Some(report) = run(&types, &[12, 12, 12], RoundsPolicy::MaxMinFairness) else { return };
    assert_within("mean", report.mean(), 119_820.5, 0.05);
    assert_within("makespan", report.makespan, 2_443_274.9, 0.05);
}

#[test]
fn fifo_matches_gavel_with_and_without_its_fault() {
    let Some(report) = run(&["v100"], &[32], RoundsPolicy::Fifo(FifoFaults::GAVEL)) else { return };
    // Gavel's result uses throughputs at full precision, which are not published. According to the
    // header of its results, the same rules give a mean that is 1.3% lower with the rounded ones of
    // `gavel_alone.csv`. The figure has two digits, so the tolerance is half of the second one.
    assert_within("mean", report.mean(), 90_091.9 * (1.0 - 0.013), 0.0005);
    assert_within("makespan", report.makespan, 1_994_384.9, 0.01);
    let Some(strict) = run(&["v100"], &[32], RoundsPolicy::Fifo(FifoFaults::NONE)) else { return };
    assert_within("mean", strict.mean(), 100_201.0, 0.01);
    assert_within("makespan", strict.makespan, 2_034_014.0, 0.01);
}

/// On three types, Gavel's second fault depends on Python's random generator, so its row is one of
/// many. Here all jobs end, the result is the same for the same seed, and it differs for another
/// seed.
#[test]
fn fifo_with_both_faults_is_seeded_on_three_types() {
    let run = |seed: u64| {
        let options = RoundsOptions { seed, ..RoundsOptions::default() };
        let jobs = jobs(&["v100", "p100", "k80"])?;
        Some(rounds::simulate(&jobs, &[12, 12, 12], RoundsPolicy::Fifo(FifoFaults::GAVEL), &options).unwrap())
    };
    let (Some(one), Some(same), Some(other)) = (run(1), run(1), run(2)) else { return };
    println!("means of {:.0} s and {:.0} s; Gavel's is 319,085 s", one.mean(), other.mean());
    assert_eq!((one.completions.len(), &one), (500, &same));
    assert_ne!(one, other);
}

#[test]
fn finish_time_fairness_completes_all_jobs() {
    let Some(report) = run(&["v100"], &[32], RoundsPolicy::FinishTimeFairness) else { return };
    assert_eq!(report.completions.len(), 500);
}
