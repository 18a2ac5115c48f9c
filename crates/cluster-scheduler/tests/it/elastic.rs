//! Executions chosen by elastic policies.

use std::time::Duration;

use cluster_scheduler::{
    Cluster, Command, Event, Execution, GpuType, Job, JobId, Mode, Placement, Policy, Scheduler, Sharing,
    Table,
};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Returns the first placements of a number of jobs that all arrive at once on 8 GPUs.
fn placed(table: &Table, policy: &Policy, jobs: usize, gpus: usize, also: &[usize]) -> Vec<Placement> {
    let cluster = Cluster::uniform("a", 1, 8).unwrap();
    let kind = table.find("job").unwrap();
    let mut scheduler = Scheduler::new(&cluster, table, policy.clone()).unwrap();
    for number in 0..jobs {
        let job = Job { other_gpu_counts: also.to_vec(), ..Job::new(kind, 100, gpus) };
        scheduler.handle(Duration::ZERO, Event::Arrived(JobId(number as u64), job)).unwrap();
    }
    let run = |command| match command {
        Command::Run(placement) => Some(placement),
        Command::Stop(_) => None,
    };
    scheduler.decide().unwrap().into_iter().filter_map(run).collect()
}

/// A table of a job that is faster on more GPUs and takes more GPU time there.
fn scaling() -> Table {
    let mut table = Table::new();
    let kind = table.kind("job");
    for (gpus, ms) in [(1, 80), (2, 50), (4, 30), (8, 20)] {
        table.set(kind, GpuType(0), Mode::DataParallel, Execution::full(gpus, MS(ms)).unwrap());
    }
    table
}

#[test]
fn jobs_use_as_many_gpus_as_are_free() {
    let widths = |jobs: usize| {
        let mut widths: Vec<usize> = placed(&scaling(), &Policy::partition(), jobs, 8, &[1, 2, 4])
            .iter()
            .map(|one| one.gpus.len())
            .collect();
        widths.sort_unstable_by(|a, b| b.cmp(a));
        widths
    };
    assert_eq!(widths(1), [8]);
    assert_eq!(widths(2), [4, 4]);
    assert_eq!(widths(3), [4, 2, 2]);
    assert_eq!(widths(4), [2; 4]);
    assert_eq!(widths(7), [2, 1, 1, 1, 1, 1, 1]);
    assert_eq!(widths(12), [1; 8], "and four wait");
}

/// A job on 4 GPUs with three burst plans, of which faster ones have shorter idle periods, and data
/// parallelism, which is slower than the first plan and has no idle periods.
fn frontier() -> Table {
    let mut table = Table::new();
    let kind = table.kind("job");
    let mut set = |mode, execution| table.set(kind, GpuType(0), mode, execution);
    set(Mode::DataParallel, Execution::full(4, MS(12)).unwrap());
    for (point, (iteration, busy)) in [(10, 10), (11, 8), (14, 4)].into_iter().enumerate() {
        let busy = [iteration, busy, busy, busy].map(MS);
        set(Mode::Burst(point as u16), Execution::parts(MS(iteration), &busy).unwrap());
    }
    table
}

#[test]
fn plans_with_longer_idle_periods_are_chosen_as_more_jobs_wait() {
    let whole_idle_periods =
        Policy { sharing: Sharing::IdlePeriods { efficiency: 1.0, overlap: 0.0 }, ..Policy::burst() };
    let modes = |jobs: usize| {
        let placed = placed(&frontier(), &whole_idle_periods, jobs, 4, &[]);
        placed.into_iter().map(|one| one.mode).collect::<Vec<_>>()
    };
    // The number of waiting jobs from which a point is better: with 8 GPUs, 10 + p 40 / 8 = 11 + p
    // 35 / 8 at 1.6, and 11 + p 35 / 8 = 14 + p 26 / 8 at 2.7.
    assert_eq!(modes(2), [Mode::Burst(0); 2], "nobody waits");
    assert_eq!(modes(3), [Mode::Burst(0); 2], "one waits");
    assert_eq!(modes(4), [Mode::Burst(1); 2], "two wait");
    assert_eq!(modes(5), [Mode::Burst(2); 2], "three wait");
    assert_eq!(modes(50), [Mode::Burst(2); 2]);
}

#[test]
fn data_parallelism_is_chosen_if_it_is_better() {
    let mut table = frontier();
    let kind = table.find("job").unwrap();
    table.set(kind, GpuType(0), Mode::DataParallel, Execution::full(4, MS(5)).unwrap());
    for jobs in [1, 20] {
        let placed = placed(&table, &Policy::burst(), jobs, 4, &[]);
        assert!(placed.iter().all(|one| one.mode == Mode::DataParallel && one.iteration == MS(5)));
    }
}
