//! Timing of one operation at one size.
//!
//! A *sample* is the mean time of a series of executions of the operation without a pause. The
//! *size* of an operation is that of the larger of a rank's send and receive buffer, in bytes.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use collectives::CollectiveKind;

use crate::coll::CollOperation;
use crate::coll::bench_rank::{BenchOperation, BenchRank, Buffers};
use crate::coll::size;

/// An operation to measure, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Task {
    /// Operation or copy.
    pub(crate) operation: BenchOperation,
    /// Size of the operation in bytes; 0 for a barrier.
    pub(crate) bytes: u64,
}

/// Number and duration of the samples of an operation in a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleOptions {
    /// Number of samples.
    pub(crate) samples: usize,
    /// Minimum duration of a sample.
    pub(crate) min_time: Duration,
}

/// Samples of one operation from one launch of the ranks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    /// For each sample, the mean time in microseconds of one execution on the slowest rank. Of a
    /// ping-pong, it is the time of one direction.
    pub(crate) times_us: Vec<f64>,
    /// Number of executions of the operation in each sample.
    pub(crate) iterations: u64,
}

/// Measures a task on one rank while the others do the same. All ranks return the same samples. The
/// result of the first execution is checked.
///
/// # Errors
/// If buffers cannot be allocated on a rank, if an operation fails, or if its result is wrong.
pub(crate) fn measure(
    bench_rank: &mut impl BenchRank,
    task: Task,
    sample_options: SampleOptions,
) -> anyhow::Result<Samples> {
    let buffers = Buffers::new(task.operation, task.bytes, bench_rank.rank(), bench_rank.size());
    // No rank begins if the allocation has failed on any of them.
    let failed = bench_rank.max_over_ranks(if buffers.is_ok() { 0.0 } else { 1.0 })? > 0.0;
    let (false, Ok(mut buffers)) = (failed, buffers) else {
        let (bytes, ranks) = (size::format(task.bytes), bench_rank.size());
        bail!("there is no memory for buffers of {bytes} on each of {ranks} ranks");
    };
    check(bench_rank, task.operation, &mut buffers)?;
    // Sums of -0.0 do not grow. Unlike 0.0, it is no page of zeros that the system has not
    // allocated yet.
    buffers.send.fill(-0.0);
    let iterations = warm_up(bench_rank, task.operation, &mut buffers, sample_options.min_time)?;
    let times: anyhow::Result<Vec<f64>> = (0..sample_options.samples)
        .map(|_| {
            let took = timed(bench_rank, task.operation, &mut buffers, iterations)?;
            let is_send =
                task.operation == BenchOperation::Measured(CollOperation::Collective(CollectiveKind::Send));
            let messages = if is_send { 2.0 } else { 1.0 };
            Ok(took * 1e6 / (iterations as f64 * messages))
        })
        .collect();
    Ok(Samples { times_us: times?, iterations })
}

/// Executes the operation once and checks the result.
fn check(
    bench_rank: &mut impl BenchRank,
    operation: BenchOperation,
    buffers: &mut Buffers,
) -> anyhow::Result<()> {
    let (rank, ranks) = (bench_rank.rank(), bench_rank.size());
    let of = |rank: usize| (rank + 1) as f32;
    buffers.send.fill(of(rank));
    operation.run(bench_rank, buffers)?;
    let total = (ranks * (ranks + 1) / 2) as f32;
    let whole =
        |buffer: &[f32], expected: f32| buffer.iter().all(|element| element.to_bits() == expected.to_bits());
    let by_rank = |buffer: &[f32], part: usize| {
        part == 0 || buffer.chunks(part).enumerate().all(|(from, part)| whole(part, of(from)))
    };
    let result = buffers.result();
    let right = match operation {
        BenchOperation::Copy | BenchOperation::StridedCopy => whole(result, of(rank)),
        // The rows of the target follow each other by the rank that had them.
        BenchOperation::Measured(CollOperation::Redistribution) => by_rank(result, result.len() / ranks),
        BenchOperation::Measured(CollOperation::Collective(collective)) => match collective {
            CollectiveKind::AllReduce | CollectiveKind::ReduceScatter => whole(result, total),
            CollectiveKind::AllGather | CollectiveKind::AllToAll => by_rank(result, result.len() / ranks),
            CollectiveKind::Broadcast => whole(result, of(0)),
            CollectiveKind::Send => whole(result, of(1 - rank)),
            _ => true,
        },
    };
    ensure!(right, "rank {rank}: a wrong result of {operation:?} over {ranks} ranks");
    Ok(())
}

/// Doubles the number of executions until they take a quarter of `min_time`, and returns the number
/// that takes about `min_time`.
fn warm_up(
    bench_rank: &mut impl BenchRank,
    operation: BenchOperation,
    buffers: &mut Buffers,
    min_time: Duration,
) -> anyhow::Result<u64> {
    let mut iterations = 1;
    loop {
        // The time is the same on all ranks, and so is the number of iterations.
        let took = timed(bench_rank, operation, buffers, iterations)?;
        let wanted = min_time.as_secs_f64();
        if took >= wanted / 4.0 {
            return Ok((iterations as f64 * wanted / took).ceil().max(1.0) as u64);
        }
        iterations *= 2;
    }
}

/// Returns the time in seconds that the slowest rank takes for all iterations.
fn timed(
    bench_rank: &mut impl BenchRank,
    operation: BenchOperation,
    buffers: &mut Buffers,
    iterations: u64,
) -> anyhow::Result<f64> {
    bench_rank.barrier()?;
    let start = Instant::now();
    for _ in 0..iterations {
        operation.run(bench_rank, buffers)?;
    }
    let took = start.elapsed().as_secs_f32();
    Ok(f64::from(bench_rank.max_over_ranks(took)?))
}
