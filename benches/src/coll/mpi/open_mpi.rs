//! Open MPI's own blocking operations, for comparison.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;

use anyhow::ensure;
use collectives::CollectiveKind;
use mpi::collective::SystemOperation;
use mpi::environment::Universe;
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Root, Source};

use super::subarrays::Subarrays;
use crate::coll::bench_rank::{BenchRank, Buffers};

/// `MPI_IN_PLACE` as defined by Open MPI's `mpi.h`. The bindings lack it, because it is a cast.
const IN_PLACE: *const c_void = ptr::without_provenance(1);

/// A rank of Open MPI's default communicator.
pub(super) struct OpenMpi {
    world: SimpleCommunicator,
    /// Datatypes of the last redistribution.
    subarrays: Option<Subarrays>,
}

impl OpenMpi {
    /// Returns this process's rank in an initialized MPI library.
    pub(super) fn new(universe: &Universe) -> Self {
        Self { world: universe.world(), subarrays: None }
    }

    /// All-reduces in place, as this repository's backends do. It is faster on long buffers than
    /// with a second buffer.
    fn all_reduce(&self, buffer: &mut [f32]) -> anyhow::Result<()> {
        let count = c_int::try_from(buffer.len())?;
        // SAFETY: the buffer has `count` elements of the given type, and nothing else accesses it
        // until the call returns. The other buffer is `MPI_IN_PLACE`. The handles are constants of
        // an initialized library and of its world.
        let code = unsafe {
            ffi::MPI_Allreduce(
                IN_PLACE,
                buffer.as_mut_ptr().cast(),
                count,
                ffi::RSMPI_FLOAT,
                ffi::RSMPI_SUM,
                self.world.as_raw(),
            )
        };
        ensure!(u32::try_from(code) == Ok(ffi::MPI_SUCCESS), "MPI_Allreduce failed with {code}");
        Ok(())
    }
}

impl BenchRank for OpenMpi {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn size(&self) -> usize {
        self.world.size() as usize
    }

    fn collective(&mut self, collective: CollectiveKind, buffers: &mut Buffers) -> anyhow::Result<()> {
        let Buffers { send, receive, .. } = buffers;
        let sum = SystemOperation::sum();
        match collective {
            CollectiveKind::AllReduce => self.all_reduce(send)?,
            CollectiveKind::ReduceScatter => {
                self.world.reduce_scatter_block_into(&send[..], &mut receive[..], sum);
            }
            CollectiveKind::AllGather => self.world.all_gather_into(&send[..], &mut receive[..]),
            CollectiveKind::Broadcast => self.world.process_at_rank(0).broadcast_into(&mut send[..]),
            CollectiveKind::AllToAll => self.world.all_to_all_into(&send[..], &mut receive[..]),
            CollectiveKind::Send if self.world.rank() == 0 => {
                self.world.process_at_rank(1).send_with_tag(&send[..], 0);
                self.world.process_at_rank(1).receive_into_with_tag(&mut receive[..], 0);
            }
            CollectiveKind::Send => {
                self.world.process_at_rank(0).receive_into_with_tag(&mut receive[..], 0);
                self.world.process_at_rank(0).send_with_tag(&send[..], 0);
            }
            CollectiveKind::Barrier => self.world.barrier(),
            other => anyhow::bail!("{other} is not measured"),
        }
        Ok(())
    }

    fn redistribute(&mut self, buffers: &mut Buffers) -> anyhow::Result<()> {
        let Buffers { send, receive, .. } = buffers;
        let subarrays = match self.subarrays.take().filter(|types| types.part() == send.len()) {
            Some(subarrays) => subarrays,
            None => Subarrays::new(BenchRank::size(self), send.len())?,
        };
        self.subarrays.insert(subarrays).all_to_all(send, receive, &self.world)
    }

    fn barrier(&mut self) -> anyhow::Result<()> {
        self.world.barrier();
        Ok(())
    }

    fn max_over_ranks(&mut self, value: f32) -> anyhow::Result<f32> {
        let mut max = 0.0_f32;
        self.world.all_reduce_into(&value, &mut max, SystemOperation::max());
        Ok(max)
    }
}
