//! How one operation at one size is timed.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use collectives::CollectiveKind;

use crate::coll::contender::{Buffers, Contender, Work};
use crate::coll::size;

/// One operation at one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) work: Work,
    pub(crate) bytes: u64,
}

/// How much is measured at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) samples: usize,
    /// What a sample takes, at least.
    pub(crate) min_time: Duration,
}

/// What one launch of the ranks found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    /// The slowest rank's mean time of an operation, for each sample.
    pub(crate) times_us: Vec<f64>,
    /// Operations in each sample.
    pub(crate) iterations: u64,
}

/// Measures on one rank while the others do the same. All ranks return the same.
pub(crate) fn measure(contender: &mut impl Contender, task: Task, effort: Effort) -> anyhow::Result<Samples> {
    let buffers = Buffers::new(task.work, task.bytes, contender.size());
    // No rank begins where another one has no memory.
    let failed = contender.largest(if buffers.is_ok() { 0.0 } else { 1.0 })? > 0.0;
    let (false, Ok(mut buffers)) = (failed, buffers) else {
        let (bytes, ranks) = (size::shown(task.bytes), contender.size());
        bail!("there is no memory for buffers of {bytes} on each of {ranks} ranks");
    };
    check(contender, task.work, &mut buffers)?;
    // Sums of it never grow, and unlike 0.0 it is no page of zeros that the system has yet to provide.
    buffers.send.fill(-0.0);
    let iterations = warm_up(contender, task.work, &mut buffers, effort.min_time)?;
    let times: anyhow::Result<Vec<f64>> = (0..effort.samples)
        .map(|_| {
            let took = timed(contender, task.work, &mut buffers, iterations)?;
            let messages = if task.work == Work::Collective(CollectiveKind::Send) { 2.0 } else { 1.0 };
            Ok(took * 1e6 / (iterations as f64 * messages))
        })
        .collect();
    Ok(Samples { times_us: times?, iterations })
}

/// Does it once, and compares what comes out with what has to.
fn check(contender: &mut impl Contender, work: Work, buffers: &mut Buffers) -> anyhow::Result<()> {
    let (rank, ranks) = (contender.rank(), contender.size());
    let of = |rank: usize| (rank + 1) as f32;
    buffers.send.fill(of(rank));
    work.run(contender, buffers)?;
    let total = (ranks * (ranks + 1) / 2) as f32;
    let whole =
        |buffer: &[f32], expected: f32| buffer.iter().all(|element| element.to_bits() == expected.to_bits());
    let by_rank = |buffer: &[f32], part: usize| {
        part == 0 || buffer.chunks(part).enumerate().all(|(from, part)| whole(part, of(from)))
    };
    let result = buffers.result();
    let right = match work {
        Work::Copy => whole(result, of(rank)),
        Work::Collective(collective) => match collective {
            CollectiveKind::AllReduce | CollectiveKind::ReduceScatter => whole(result, total),
            CollectiveKind::AllGather | CollectiveKind::AllToAll => by_rank(result, result.len() / ranks),
            CollectiveKind::Broadcast => whole(result, of(0)),
            CollectiveKind::Send => whole(result, of(1 - rank)),
            _ => true,
        },
    };
    ensure!(right, "rank {rank}: a wrong result of {work:?} over {ranks} ranks");
    Ok(())
}

/// Runs until times have settled, and gives the number of operations that fill a sample.
fn warm_up(
    contender: &mut impl Contender,
    work: Work,
    buffers: &mut Buffers,
    min_time: Duration,
) -> anyhow::Result<u64> {
    let mut iterations = 1;
    loop {
        // The same on all ranks, and so is what follows from it.
        let took = timed(contender, work, buffers, iterations)?;
        let wanted = min_time.as_secs_f64();
        if took >= wanted / 4.0 {
            return Ok((iterations as f64 * wanted / took).ceil().max(1.0) as u64);
        }
        iterations *= 2;
    }
}

/// Seconds that the slowest rank takes for all iterations, when all begin together.
fn timed(
    contender: &mut impl Contender,
    work: Work,
    buffers: &mut Buffers,
    iterations: u64,
) -> anyhow::Result<f64> {
    contender.barrier()?;
    let start = Instant::now();
    for _ in 0..iterations {
        work.run(contender, buffers)?;
    }
    let took = start.elapsed().as_secs_f32();
    Ok(f64::from(contender.largest(took)?))
}
