//! Order in which the implementations are measured.
//!
//! A *sample* is the mean time of a series of executions of one operation. A *round* measures every
//! implementation once, with several samples of each operation. The *size* of an operation is that
//! of the larger of a rank's send and receive buffer, in bytes.

use anyhow::Context;
use collectives::CollectiveKind;

use crate::coll::CollOperation;
use crate::coll::backend::{Implementation, Wait};
use crate::coll::bench_rank::BenchOperation;
use crate::coll::mpi::Mpirun;
use crate::coll::threads;
use crate::coll::timing::{SampleOptions, Samples, Task};
use crate::progress;

/// Operations that a run of the command measures, and how often.
pub(crate) struct MeasurementSchedule {
    /// Implementations to measure, in the requested order.
    pub(crate) implementations: Vec<Implementation>,
    /// Program that starts ranks that are processes. `None` if no implementation needs it.
    pub(crate) mpirun: Option<Mpirun>,
    /// Operations to measure, by group: the number of its ranks, and pairs of an operation and its
    /// size in bytes.
    pub(crate) groups: Vec<(usize, Vec<(CollOperation, u64)>)>,
    /// Number of rounds.
    pub(crate) rounds: usize,
    /// Number and duration of the samples of an operation in a round.
    pub(crate) sample_options: SampleOptions,
}

/// Samples of one operation at one size by one implementation.
#[derive(Debug)]
pub(crate) struct Series {
    /// Implementation that was measured.
    pub(crate) implementation: Implementation,
    /// Operation that was measured; for a copy, the one that is compared with it.
    pub(crate) operation: CollOperation,
    /// Number of ranks of the group.
    pub(crate) ranks: usize,
    /// Size of the operation in bytes; 0 for a barrier.
    pub(crate) bytes: u64,
    /// Samples of each round in which this series was measured, in order.
    pub(crate) rounds: Vec<Samples>,
}

/// One launch of the ranks of an implementation.
struct Launch {
    implementation: Implementation,
    ranks: usize,
    /// Tasks with the indices of their series.
    tasks: Vec<(Task, usize)>,
}

impl MeasurementSchedule {
    /// Runs all rounds. Every other round measures the implementations in reverse order, so that a
    /// drift of the machine's speed affects all of them. The ranks of only one implementation exist
    /// at a time. If one fails, the samples measured before are returned with the error.
    pub(crate) fn run(&self) -> (Vec<Series>, anyhow::Result<()>) {
        let (launches, mut series) = self.launches();
        let outcome = self.run_rounds(&launches, &mut series);
        (series, outcome)
    }

    fn run_rounds(&self, launches: &[Launch], series: &mut [Series]) -> anyhow::Result<()> {
        let progress = progress::bar(launches.len().saturating_mul(self.rounds));
        for round in 0..self.rounds {
            let forwards = launches.iter();
            let order: Vec<&Launch> =
                if round % 2 == 0 { forwards.collect() } else { forwards.rev().collect() };
            for launch in order {
                progress.set_message(format!("{} ranks: {}", launch.ranks, launch.implementation));
                for ((_, index), samples) in launch.tasks.iter().zip(self.launch(launch)?) {
                    series[*index].rounds.push(samples);
                }
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        Ok(())
    }

    fn launch(&self, launch: &Launch) -> anyhow::Result<Vec<Samples>> {
        let tasks: Vec<Task> = launch.tasks.iter().map(|(task, _)| *task).collect();
        match launch.implementation {
            Implementation::Copy | Implementation::StridedCopy => {
                threads::launch(launch.ranks, Wait::Park, &tasks, self.sample_options)
            }
            Implementation::Threads(wait) => threads::launch(launch.ranks, wait, &tasks, self.sample_options),
            Implementation::Mpi(_) | Implementation::OpenMpi => {
                let mpirun = self.mpirun.as_ref().context("nothing to start processes with")?;
                mpirun.launch(launch.ranks, launch.implementation, &tasks, self.sample_options)
            }
        }
    }

    fn launches(&self) -> (Vec<Launch>, Vec<Series>) {
        let (mut launches, mut all_series) = (Vec::new(), Vec::new());
        for (ranks, operations) in &self.groups {
            let copies = [Implementation::Copy, Implementation::StridedCopy];
            for &implementation in copies.iter().chain(&self.implementations) {
                let mut tasks = Vec::new();
                for &(operation, bytes) in operations {
                    let Some(task) = bench_operation(implementation, operation) else { continue };
                    tasks.push((Task { operation: task, bytes }, all_series.len()));
                    let (ranks, rounds) = (*ranks, Vec::new());
                    all_series.push(Series { implementation, operation, ranks, bytes, rounds });
                }
                if !tasks.is_empty() {
                    launches.push(Launch { implementation, ranks: *ranks, tasks });
                }
            }
        }
        (launches, all_series)
    }
}

/// Returns what an implementation executes to measure an operation. `None` for copies that are not
/// compared with it.
fn bench_operation(implementation: Implementation, operation: CollOperation) -> Option<BenchOperation> {
    const ALL_REDUCE: CollOperation = CollOperation::Collective(CollectiveKind::AllReduce);
    match (implementation, operation) {
        (Implementation::Copy, ALL_REDUCE | CollOperation::Redistribution) => Some(BenchOperation::Copy),
        (Implementation::StridedCopy, CollOperation::Redistribution) => Some(BenchOperation::StridedCopy),
        (Implementation::Copy | Implementation::StridedCopy, _) => None,
        _ => Some(BenchOperation::Measured(operation)),
    }
}
