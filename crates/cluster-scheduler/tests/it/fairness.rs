//! Fairness metrics of reports.

use std::time::Duration;

use cluster_scheduler::{
    Arrival, Cluster, Execution, GpuType, Job, JobId, Mode, Policy, SimulationOptions, Table, simulate,
};

/// Four GPUs. One job uses all of them for 100 s from time 0; another one arrives at 60 s, waits
/// for 40 s and takes 100 s.
#[test]
fn finish_time_ratios_are_relative_to_an_equal_part_of_the_cluster() {
    let mut table = Table::new();
    let kind = table.kind("a");
    table.set(kind, GpuType(0), Mode::DataParallel, Execution::full(4, Duration::from_secs(1)).unwrap());
    let job = |id: u64, at: u64| Arrival {
        at: Duration::from_secs(at),
        id: JobId(id),
        job: Job::new(kind, 100, 4),
    };
    let cluster = Cluster::uniform("a", 1, 4).unwrap();
    let run = |jobs: &[Arrival]| {
        simulate(&cluster, &table, &Policy::fifo(), jobs, &SimulationOptions::default())
            .unwrap()
            .finish_time_ratios()
    };
    assert!((run(&[job(0, 0)])[0] - 1.0).abs() < 1e-12);
    let found = run(&[job(0, 0), job(1, 60)]);
    // The first job takes 100 s with 1.4 jobs on average: 140 s on its part. The second takes 140 s
    // with 180 / 140 jobs.
    let expected = [100.0 / 140.0, 140.0 / (100.0 * 180.0 / 140.0)];
    assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9), "{found:?}");
}
