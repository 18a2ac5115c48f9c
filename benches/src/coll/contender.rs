//! What is measured: one operation, on one rank, over and over.

use std::collections::TryReserveError;
use std::hint::black_box;

use collectives::{CollectiveKind, Communicator, ReduceOp};

/// One rank of a group that works on `f32`.
pub(crate) trait Contender {
    fn rank(&self) -> usize;

    fn size(&self) -> usize;

    /// Does the operation once. Allocates nothing.
    fn collective(&mut self, collective: CollectiveKind, buffers: &mut Buffers) -> anyhow::Result<()>;

    fn barrier(&mut self) -> anyhow::Result<()>;

    /// The maximum over the ranks, the same to the bit on all of them.
    fn largest(&mut self, mine: f32) -> anyhow::Result<f32>;
}

/// What a rank does over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Collective(CollectiveKind),
    /// Reads its buffer and writes another as large: what no all-reduce can do without.
    Copy,
}

impl Work {
    /// What a rank sends from and receives into; in place where there is nothing for the latter.
    pub(crate) fn elements(self, bytes: u64, ranks: usize) -> (usize, usize) {
        let whole = bytes as usize / size_of::<f32>();
        let part = whole / ranks;
        match self {
            Self::Collective(CollectiveKind::ReduceScatter) => (whole, part),
            Self::Collective(CollectiveKind::AllGather) => (part, whole),
            Self::Collective(CollectiveKind::AllToAll | CollectiveKind::Send) | Self::Copy => (whole, whole),
            Self::Collective(_) => (whole, 0),
        }
    }

    pub(crate) fn run(self, contender: &mut impl Contender, buffers: &mut Buffers) -> anyhow::Result<()> {
        match self {
            Self::Collective(collective) => contender.collective(collective, buffers),
            Self::Copy => {
                black_box(&mut buffers.receive).copy_from_slice(black_box(&buffers.send));
                Ok(())
            }
        }
    }
}

/// A rank's memory.
pub(crate) struct Buffers {
    pub(crate) send: Vec<f32>,
    /// Empty for operations that work in place.
    pub(crate) receive: Vec<f32>,
    /// Elements to and from each rank, for an all-to-all.
    pub(crate) counts: Vec<usize>,
}

impl Buffers {
    /// # Errors
    /// Where there is no memory for them.
    pub(crate) fn new(work: Work, bytes: u64, ranks: usize) -> Result<Self, TryReserveError> {
        let (send, receive) = work.elements(bytes, ranks);
        let counts = vec![bytes as usize / size_of::<f32>() / ranks; ranks];
        Ok(Self { send: zeros(send)?, receive: zeros(receive)?, counts })
    }

    pub(crate) fn result(&self) -> &[f32] {
        if self.receive.is_empty() { &self.send } else { &self.receive }
    }
}

fn zeros(elements: usize) -> Result<Vec<f32>, TryReserveError> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(elements)?;
    buffer.resize(elements, 0.0);
    Ok(buffer)
}

/// Communicators of `collectives` whose ranks hold host memory.
impl<C: Communicator<f32, Buffer = Vec<f32>, Queue = ()>> Contender for C {
    fn rank(&self) -> usize {
        collectives::Group::rank(self)
    }

    fn size(&self) -> usize {
        collectives::Group::size(self)
    }

    fn collective(&mut self, collective: CollectiveKind, buffers: &mut Buffers) -> anyhow::Result<()> {
        let Buffers { send, receive, counts } = buffers;
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

    fn barrier(&mut self) -> anyhow::Result<()> {
        Ok(collectives::Group::barrier(self, &mut ())?)
    }

    fn largest(&mut self, mine: f32) -> anyhow::Result<f32> {
        let mut largest = vec![mine];
        self.all_reduce(&mut largest, ReduceOp::Max, &mut ())?;
        Ok(largest[0])
    }
}
