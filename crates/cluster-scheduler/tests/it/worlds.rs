//! Random clusters, tables, jobs and disturbances.

use std::time::Duration;

use cluster_scheduler::{
    Arrival, Cluster, Disturbance, Execution, GpuType, Granularity, Job, JobId, Mode, Policy, Report,
    SimulationOptions, Table, simulate,
};
use proptest::prelude::*;

/// A cluster, a table, jobs, and disturbances.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) table: Table,
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) disturbances: Vec<(Duration, Disturbance)>,
}

const KINDS: usize = 3;
const COUNTS: [usize; 4] = [1, 2, 4, 8];

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl World {
    pub(crate) fn run(&self, policy: &Policy, granularity: Granularity) -> Report {
        let options =
            SimulationOptions { granularity, record: true, disturbances: self.disturbances.clone() };
        simulate(&self.cluster, &self.table, policy, &self.arrivals, &options).unwrap()
    }

    /// Returns the minimum and maximum duration of an iteration of a job alone, over all modes and
    /// types.
    pub(crate) fn extremes(&self, job: &Job) -> (Duration, Duration) {
        let all = (0..self.cluster.types().len() as u16).flat_map(|of_type| {
            let modes = [Mode::DataParallel, Mode::Spb(2), Mode::Spb(4), Mode::Burst(0), Mode::Burst(1)];
            let counts = std::iter::once(job.gpus).chain(job.other_gpu_counts.clone());
            counts.flat_map(move |gpus| modes.map(move |mode| (GpuType(of_type), gpus, mode)))
        });
        let times = all.filter_map(|(gpu_type, gpus, mode)| {
            let allocation = cluster_scheduler::Allocation { gpu_type, gpus, spread: false };
            self.table.execution(job.kind, allocation, mode).map(Execution::iteration)
        });
        let times: Vec<Duration> = times.collect();
        (times.iter().min().copied().unwrap(), times.iter().max().copied().unwrap())
    }
}

/// Returns all policies; the fair ones have rounds as long as some iterations.
pub(crate) fn policies() -> Vec<Policy> {
    let round = Duration::from_secs(30);
    vec![
        Policy::fifo(),
        Policy::srtf(),
        tight(Policy::least_attained_service()),
        Policy::max_min_fairness().with_rounds(round, round),
        Policy::finish_time_fairness().with_rounds(round, round),
        tight(Policy::iteration_level()),
        tight(Policy::jigsaw(2)),
        tight(Policy::jigsaw(4)),
        tight(Policy::measured_pairs()),
        tight(Policy::burst()),
        tight(Policy::burst_fixed()),
        tight(Policy::partition()),
    ]
}

/// Sets levels that short jobs reach.
fn tight(policy: Policy) -> Policy {
    let levels = vec![Duration::from_secs(2), Duration::from_secs(20)];
    Policy { order: cluster_scheduler::Order::AttainedService { levels }, ..policy }
}

/// Strategy for worlds with at most this number of jobs.
pub(crate) fn worlds(jobs: usize) -> impl Strategy<Value = World> {
    let hosts = prop_oneof![
        Just(vec![("a", 8)]),
        Just(vec![("a", 4), ("a", 4)]),
        Just(vec![("a", 8), ("b", 8)]),
        Just(vec![("a", 2), ("b", 8), ("b", 3)]),
    ];
    let times = proptest::collection::vec((1u64..400, 0u64..200, 1u64..30), KINDS);
    let job = (0..KINDS, 0u64..60_000, 1u64..200, 0..COUNTS.len(), 1u64..5);
    let disturbance = (any::<prop::sample::Index>(), 0u64..90_000, any::<bool>());
    (hosts, times, proptest::collection::vec(job, 1..=jobs), proptest::collection::vec(disturbance, 0..8))
        .prop_map(|(hosts, times, jobs, disturbances)| {
            let cluster = Cluster::new(hosts).unwrap();
            let table = table(&cluster, &times);
            let kinds: Vec<_> = table.kinds().collect();
            let mut arrivals: Vec<Arrival> = jobs
                .iter()
                .enumerate()
                .map(|(number, &(kind, at, iterations, count, weight))| Arrival {
                    at: ms(at),
                    id: JobId(number as u64),
                    job: Job {
                        other_gpu_counts: COUNTS[..count].to_vec(),
                        weight: weight as f64,
                        ..Job::new(kinds[kind], iterations, COUNTS[count])
                    },
                })
                .collect();
            arrivals.sort_by_key(|arrival| arrival.at);
            let disturbances = disturbances
                .into_iter()
                .map(|(job, at, fails)| {
                    let id = job.get(&arrivals).id;
                    (ms(at), if fails { Disturbance::Failure(id) } else { Disturbance::Cancel(id) })
                })
                .collect();
            World { cluster, table, arrivals, disturbances }
        })
}

/// Creates a table: each kind has a computing time on one GPU, a synchronization time on several,
/// and is slower on the second type.
fn table(cluster: &Cluster, times: &[(u64, u64, u64)]) -> Table {
    let mut table = Table::new();
    for (kind, &(compute, synchronize, slower)) in times.iter().enumerate() {
        let kind = table.kind(&format!("kind {kind}"));
        for of_type in 0..cluster.types().len() as u16 {
            let slower = if of_type == 0 { 10 } else { 5 + slower };
            for gpus in COUNTS {
                let (compute, synchronize) =
                    (ms(compute * slower), ms(if gpus > 1 { synchronize * slower } else { 0 }));
                let iteration = compute + synchronize;
                let layers = [(compute / 12, compute / 6); 4];
                let mut set = |mode, execution| table.set(kind, GpuType(of_type), mode, execution);
                set(Mode::DataParallel, Execution::parts(iteration, &vec![compute; gpus]).unwrap());
                for parts in [2, 4] {
                    let execution = Execution::spb(gpus, &layers, synchronize, usize::from(parts));
                    set(Mode::Spb(parts), execution.unwrap());
                }
                for (point, longer) in [1.0, 1.2].into_iter().enumerate() {
                    let iteration = iteration.mul_f64(longer);
                    let busy = |gpu: usize| iteration.mul_f64(1.0 / (1.0 + gpu as f64 * longer.powi(4)));
                    let busy: Vec<Duration> = (0..gpus).map(busy).collect();
                    set(Mode::Burst(point as u16), Execution::parts(iteration, &busy).unwrap());
                }
            }
        }
    }
    let kinds: Vec<_> = table.kinds().collect();
    for (index, &one) in kinds.iter().enumerate() {
        for (&other, &(compute, synchronize, _)) in kinds[index..].iter().zip(times) {
            // The sum of some pairs is below the threshold.
            let parts = [compute, synchronize].map(|figure| 0.3 + (figure % 8) as f64 / 10.0);
            table.set_pair_speeds(GpuType(0), [one, other], parts).unwrap();
        }
    }
    table
}
