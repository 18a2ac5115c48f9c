//! Operations that are measured, and the ranks that execute them.
//!
//! The *size* of an operation is that of the larger of a rank's send and receive buffer, in bytes.

use std::hint::black_box;
use std::sync::Arc;

use anyhow::Context;
use collectives::{
    CollectiveKind, Communicator, HostBuffer, Layout, Redistribution, RedistributionBuffers, ReduceOp,
};

use crate::coll::CollOperation;

/// A rank of a group that performs collectives on `f32`, as seen by the benchmark.
pub(crate) trait BenchRank {
    /// Returns the number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of ranks of the group.
    fn size(&self) -> usize;

    /// Executes a collective once on the given buffers, without an allocation. Reductions are sums.
    /// A send is a ping-pong: from rank 0 to rank 1 and back.
    ///
    /// # Errors
    /// If the collective fails or is not one of those that are measured.
    fn collective(&mut self, collective: CollectiveKind, buffers: &mut Buffers) -> anyhow::Result<()>;

    /// Redistributes a matrix once on the given buffers.
    ///
    /// # Errors
    /// If the redistribution fails.
    fn redistribute(&mut self, buffers: &mut Buffers) -> anyhow::Result<()>;

    /// Waits until all ranks have called this.
    ///
    /// # Errors
    /// If a rank fails or does not arrive in time.
    fn barrier(&mut self) -> anyhow::Result<()>;

    /// Returns the maximum of `value` over the ranks, bitwise identical on all of them.
    ///
    /// # Errors
    /// If the all-reduce fails.
    fn max_over_ranks(&mut self, value: f32) -> anyhow::Result<f32>;
}

/// Operation of a rank in a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchOperation {
    /// Executes an operation that is reported.
    Measured(CollOperation),
    /// Copies the send buffer to the receive buffer. An all-reduce and a redistribution need at
    /// least this memory traffic.
    Copy,
    /// Copies the send buffer to the receive buffer with the pieces of a redistribution: from parts
    /// of rows of the source to whole rows of the target.
    StridedCopy,
}

impl BenchOperation {
    /// Returns the numbers of `f32` elements of a rank's send and receive buffer, for an operation
    /// of size `bytes` among `ranks` ranks. The latter is 0 for operations in place.
    pub(crate) fn elements(self, bytes: u64, ranks: usize) -> (usize, usize) {
        let whole = bytes as usize / size_of::<f32>();
        let part = whole / ranks;
        let collective = match self {
            Self::Measured(CollOperation::Collective(collective)) => collective,
            Self::Measured(CollOperation::Redistribution) | Self::Copy | Self::StridedCopy => {
                return (whole, whole);
            }
        };
        match collective {
            CollectiveKind::ReduceScatter => (whole, part),
            CollectiveKind::AllGather => (part, whole),
            CollectiveKind::AllToAll | CollectiveKind::Send => (whole, whole),
            _ => (whole, 0),
        }
    }

    /// Executes the operation once.
    ///
    /// # Errors
    /// If the collective fails or is not one of those that are measured.
    pub(crate) fn run(self, bench_rank: &mut impl BenchRank, buffers: &mut Buffers) -> anyhow::Result<()> {
        match self {
            Self::Measured(CollOperation::Collective(collective)) => {
                bench_rank.collective(collective, buffers)
            }
            Self::Measured(CollOperation::Redistribution) => bench_rank.redistribute(buffers),
            Self::Copy => {
                black_box(&mut buffers.receive).copy_from_slice(black_box(&buffers.send));
                Ok(())
            }
            Self::StridedCopy => {
                copy_blocks(black_box(&buffers.send), black_box(&mut buffers.receive), bench_rank.size());
                Ok(())
            }
        }
    }
}

/// Buffers of a rank for one operation.
pub(crate) struct Buffers {
    /// Input of the operation. Operations in place overwrite it with their result.
    pub(crate) send: HostBuffer<f32>,
    /// Result. Empty for operations in place.
    pub(crate) receive: HostBuffer<f32>,
    /// Number of elements that an all-to-all sends to rank i and receives from it, for each rank i.
    /// Other operations do not use it.
    pub(crate) counts: Vec<usize>,
    /// Moves of a redistribution, and its buffers for packed elements. `None` for other operations.
    pub(crate) moves: Option<(Arc<Redistribution>, [HostBuffer<f32>; 2])>,
}

impl Buffers {
    /// Allocates the buffers of rank `rank` for an operation of size `bytes` among `ranks` ranks,
    /// filled with zeros.
    ///
    /// # Errors
    /// If the allocation fails.
    pub(crate) fn new(
        operation: BenchOperation,
        bytes: u64,
        rank: usize,
        ranks: usize,
    ) -> anyhow::Result<Self> {
        let (send, receive) = operation.elements(bytes, ranks);
        let counts = vec![bytes as usize / size_of::<f32>() / ranks; ranks];
        let moves = match operation {
            BenchOperation::Measured(CollOperation::Redistribution) => {
                let rows_to_columns = rows_to_columns(send, ranks)?;
                let [sent, received] = rows_to_columns.packed_len(rank, 1)?;
                Some((Arc::new(rows_to_columns), [zeros(sent)?, zeros(received)?]))
            }
            _ => None,
        };
        Ok(Self { send: zeros(send)?, receive: zeros(receive)?, counts, moves })
    }

    /// Returns the buffer that has the result of the operation.
    pub(crate) fn result(&self) -> &[f32] {
        if self.receive.is_empty() { &self.send } else { &self.receive }
    }
}

/// Returns the redistribution of a matrix whose rows are divided among the ranks, `part` elements
/// each, to the same matrix divided by columns.
fn rows_to_columns(part: usize, ranks: usize) -> anyhow::Result<Redistribution> {
    let columns = CollOperation::columns(ranks);
    let (extents, all) = ([part / columns * ranks, columns], (0..ranks).collect::<Vec<_>>());
    let [rows, columns] = [[ranks, 1], [1, ranks]].map(|parts| Layout::grid(&extents, &parts, &all));
    Ok(Redistribution::new(&rows?, &columns?)?)
}

/// Copies rows of a matrix to rows of a matrix with `1 / ranks` of the columns: first the first
/// columns of all rows, then the next ones.
fn copy_blocks(from: &[f32], to: &mut [f32], ranks: usize) {
    let columns = CollOperation::columns(ranks);
    let narrow = columns / ranks;
    let height = from.len() / ranks;
    if height == 0 {
        return;
    }
    for (block, to) in to.chunks_exact_mut(height).enumerate() {
        for (from, to) in from.chunks_exact(columns).zip(to.chunks_exact_mut(narrow)) {
            to.copy_from_slice(&from[block * narrow..][..narrow]);
        }
    }
}

fn zeros(elements: usize) -> Result<HostBuffer<f32>, std::collections::TryReserveError> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(elements)?;
    buffer.resize(elements, 0.0);
    Ok(buffer.into())
}

/// Communicators of `collectives` on host memory.
impl<C: Communicator<f32, Buffer = HostBuffer<f32>, Queue = ()>> BenchRank for C {
    fn rank(&self) -> usize {
        collectives::Group::rank(self)
    }

    fn size(&self) -> usize {
        collectives::Group::size(self)
    }

    fn collective(&mut self, collective: CollectiveKind, buffers: &mut Buffers) -> anyhow::Result<()> {
        let Buffers { send, receive, counts, .. } = buffers;
        match collective {
            CollectiveKind::AllReduce => self.all_reduce(send, ReduceOp::Sum, &mut ())?,
            CollectiveKind::ReduceScatter => self.reduce_scatter(send, receive, ReduceOp::Sum, &mut ())?,
            CollectiveKind::AllGather => self.all_gather(send, receive, &mut ())?,
            CollectiveKind::Broadcast => self.broadcast(send, 0, &mut ())?,
            CollectiveKind::AllToAll => self.all_to_all_v(send, counts, receive, counts, &mut ())?,
            CollectiveKind::Send if collectives::Group::rank(self) == 0 => {
                self.send(send, 1, 0, &mut ())?;
                self.receive(receive, 1, 0, &mut ())?;
            }
            CollectiveKind::Send => {
                self.receive(receive, 0, 0, &mut ())?;
                self.send(send, 0, 0, &mut ())?;
            }
            CollectiveKind::Barrier => collectives::Group::barrier(self, &mut ())?,
            other => anyhow::bail!("{other} is not measured"),
        }
        Ok(())
    }

    fn redistribute(&mut self, buffers: &mut Buffers) -> anyhow::Result<()> {
        let Buffers { send, receive, moves, .. } = buffers;
        let (redistribution, packed) = moves.as_mut().context("a redistribution without its moves")?;
        let mut all = RedistributionBuffers {
            input: std::mem::take(send),
            output: std::mem::take(receive),
            packed: std::mem::take(packed),
        };
        Communicator::redistribute(self, redistribution, &mut all, 1, &mut ())?;
        RedistributionBuffers { input: *send, output: *receive, packed: *packed } = all;
        Ok(())
    }

    fn barrier(&mut self) -> anyhow::Result<()> {
        Ok(collectives::Group::barrier(self, &mut ())?)
    }

    fn max_over_ranks(&mut self, value: f32) -> anyhow::Result<f32> {
        let mut max = HostBuffer::from(vec![value]);
        self.all_reduce(&mut max, ReduceOp::Max, &mut ())?;
        Ok(max[0])
    }
}
