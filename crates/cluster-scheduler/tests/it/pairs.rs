//! Jobs that share a GPU at measured speeds.

use std::time::Duration;

use cluster_scheduler::{
    Arrival, Cluster, Execution, GpuType, Job, JobId, Mode, Policy, Report, SimulationOptions, Table,
    simulate,
};

fn run(parts: [f64; 2]) -> Report {
    let mut table = Table::new();
    let kinds = ["one", "other"].map(|name| table.kind(name));
    for kind in kinds {
        let execution = Execution::full(1, Duration::from_secs(1)).unwrap();
        table.set(kind, GpuType(0), Mode::DataParallel, execution);
    }
    table.set_pair_speeds(GpuType(0), kinds, parts).unwrap();
    let job = |number: usize| Arrival {
        at: Duration::ZERO,
        id: JobId(number as u64),
        job: Job::new(kinds[number], 300, 1),
    };
    let cluster = Cluster::uniform("a", 1, 1).unwrap();
    let options = SimulationOptions { record: true, ..SimulationOptions::default() };
    simulate(&cluster, &table, &Policy::measured_pairs(), &[job(0), job(1)], &options).unwrap()
}

/// Each runs at 1 / 1.25 s beside the other: both end after 375 s.
#[test]
fn paired_jobs_run_at_their_measured_speeds() {
    let report = run([0.8, 0.8]);
    let ends: Vec<_> = report.jobs.iter().map(|job| job.departure.unwrap().0.as_secs_f64()).collect();
    assert!(ends.iter().all(|end| (end - 375.0).abs() < 1e-3), "{ends:?}");
    assert!((report.efficiency() - 1.6).abs() < 1e-3, "two jobs of 300 s in 375 s of a GPU");
    assert!(report.segments.iter().any(|segment| segment.beside == Some(JobId(0))));
}

/// 0.8 + 0.6 is less than 1.5, so the jobs take turns.
#[test]
fn pairs_below_the_threshold_take_turns() {
    let report = run([0.8, 0.6]);
    assert_eq!(report.makespan, Duration::from_secs(600));
    assert!(report.segments.iter().all(|segment| segment.beside.is_none()));
}
