//! Redistribution of a matrix by `MPI_Alltoallw`, with datatypes of subarrays.
#![allow(unsafe_code)]

use std::ffi::c_int;

use anyhow::ensure;
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator;

use crate::coll::CollOperation;

/// `MPI_ORDER_C` as defined by Open MPI's `mpi.h`: arrays are row-major.
const ORDER_C: c_int = 0;

/// Datatypes of a redistribution from rows to columns: for each other rank, the block that is sent
/// to it and the block that is received from it. They are freed when dropped.
pub(super) struct Subarrays {
    /// Number of elements of the rank's part.
    part: usize,
    send: Vec<ffi::MPI_Datatype>,
    receive: Vec<ffi::MPI_Datatype>,
    /// One element of each datatype for each rank.
    counts: Vec<c_int>,
    /// Distances of the arrays from the start of the buffers, in bytes: none.
    starts: Vec<c_int>,
}

impl Subarrays {
    /// Creates the datatypes of a matrix of which each of `ranks` ranks has `part` elements: whole
    /// rows before, whole columns afterwards.
    ///
    /// # Errors
    /// If the library fails.
    pub(super) fn new(ranks: usize, part: usize) -> anyhow::Result<Self> {
        let columns = CollOperation::columns(ranks);
        let (rows, narrow) = (part / columns, columns / ranks);
        let (counts, starts) = (vec![1; ranks], vec![0; ranks]);
        let mut types = Self { part, send: Vec::new(), receive: Vec::new(), counts, starts };
        for other in 0..ranks {
            types.send.push(block([rows, columns], [rows, narrow], [0, other * narrow])?);
            types.receive.push(block([rows * ranks, narrow], [rows, narrow], [other * rows, 0])?);
        }
        Ok(types)
    }

    /// Number of elements of the rank's part.
    pub(super) fn part(&self) -> usize {
        self.part
    }

    /// Redistributes the matrix among all ranks of `world`, whose number is that of
    /// [`new`](Self::new).
    ///
    /// # Errors
    /// If a buffer is no part of the matrix, or if the library fails.
    pub(super) fn all_to_all(
        &self,
        send: &[f32],
        receive: &mut [f32],
        world: &SimpleCommunicator,
    ) -> anyhow::Result<()> {
        let is_part =
            [send.len(), receive.len()] == [self.part; 2] && self.counts.len() == world.size() as usize;
        ensure!(is_part, "buffers of {} and {} elements instead of {}", send.len(), receive.len(), self.part);
        // SAFETY: the buffers have the elements of the arrays, and nothing else accesses them until
        // the call returns. The datatypes are committed, and the lists have an entry for each rank
        // of the world.
        let code = unsafe {
            ffi::MPI_Alltoallw(
                send.as_ptr().cast(),
                self.counts.as_ptr(),
                self.starts.as_ptr(),
                self.send.as_ptr(),
                receive.as_mut_ptr().cast(),
                self.counts.as_ptr(),
                self.starts.as_ptr(),
                self.receive.as_ptr(),
                world.as_raw(),
            )
        };
        ensure!(u32::try_from(code) == Ok(ffi::MPI_SUCCESS), "MPI_Alltoallw failed with {code}");
        Ok(())
    }
}

impl Drop for Subarrays {
    fn drop(&mut self) {
        for datatype in self.send.iter_mut().chain(&mut self.receive) {
            // SAFETY: a committed datatype that no operation uses any more.
            unsafe { ffi::MPI_Type_free(datatype) };
        }
    }
}

/// Creates the datatype of a block of a matrix of `f32`.
fn block(matrix: [usize; 2], size: [usize; 2], start: [usize; 2]) -> anyhow::Result<ffi::MPI_Datatype> {
    let [matrix, size, start] = [matrix, size, start].map(|of| of.map(c_int::try_from));
    let [matrix, size, start] = [[matrix[0]?, matrix[1]?], [size[0]?, size[1]?], [start[0]?, start[1]?]];
    // SAFETY: the lists have two numbers each, and the last argument receives the datatype, which
    // is then committed.
    let (datatype, codes) = unsafe {
        let mut datatype = ffi::RSMPI_DATATYPE_NULL;
        let created = ffi::MPI_Type_create_subarray(
            2,
            matrix.as_ptr(),
            size.as_ptr(),
            start.as_ptr(),
            ORDER_C,
            ffi::RSMPI_FLOAT,
            &raw mut datatype,
        );
        (datatype, [created, ffi::MPI_Type_commit(&raw mut datatype)])
    };
    let success = codes.iter().all(|&code| u32::try_from(code) == Ok(ffi::MPI_SUCCESS));
    ensure!(success, "a datatype of a block of a matrix failed with {codes:?}");
    Ok(datatype)
}
