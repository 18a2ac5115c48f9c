//! Copies of rows of elements at regular distances.

use std::ptr;

use cudarc::driver::sys;

use crate::{Error, Result};

/// A copy of rows of consecutive elements. The rows are in slices: both are at regular distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowCopy {
    /// Number of slices, and of rows of a slice.
    pub counts: [usize; 2],
    /// Number of elements of a row.
    pub len: usize,
    /// Places in the source.
    pub from: Rows,
    /// Places in the destination.
    pub to: Rows,
}

/// Places of rows in a buffer, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Index of the first element of the first row.
    pub first: usize,
    /// Distance of slices, a multiple of the second, and of the rows of a slice. Unused for one
    /// slice or row.
    pub distances: [usize; 2],
}

impl RowCopy {
    /// Number of elements that are copied.
    pub(crate) fn elements(&self) -> usize {
        let is_empty = self.len == 0 || self.counts.contains(&0);
        if is_empty { 0 } else { self.counts.iter().product::<usize>() * self.len }
    }

    /// Checks the places of the rows in buffers of `lens` elements, the source first.
    pub(crate) fn check(&self, lens: [usize; 2]) -> Result<()> {
        let elements = self.counts.iter().try_fold(self.len, |elements, &count| elements.checked_mul(count));
        let mut places = [&self.from, &self.to].into_iter().zip(lens);
        match elements {
            Some(0) => Ok(()),
            Some(_) if places.all(|(rows, len)| self.is_possible(rows, len)) => Ok(()),
            _ => Err(Error::Invalid(format!("{self:?} exceeds buffers of {lens:?} elements, or overlaps"))),
        }
    }

    fn is_possible(&self, rows: &Rows, len: usize) -> bool {
        let [slices, count] = self.counts;
        let [slice, row] = rows.distances;
        let end = || {
            let slices = slice.checked_mul(slices - 1)?;
            let rows_end = row.checked_mul(count - 1)?.checked_add(self.len)?;
            rows.first.checked_add(slices)?.checked_add(rows_end)
        };
        let are_rows_apart = count == 1 || row >= self.len;
        let are_slices_apart = match [slices, count] {
            [1, _] => true,
            [_, 1] => slice >= self.len,
            _ => slice >= row.saturating_mul(count) && row > 0 && slice % row == 0,
        };
        end().is_some_and(|end| end <= len) && are_rows_apart && are_slices_apart
    }

    /// Returns the parameters of the copy between buffers of elements of `bytes` bytes at these
    /// addresses, the source first.
    pub(crate) fn parameters(&self, bytes: usize, [from, to]: [u64; 2]) -> sys::CUDA_MEMCPY3D {
        let width = self.len * bytes;
        // Slices of one row are rows of one slice.
        let [slices, count] = if self.counts[1] == 1 { [1, self.counts[0]] } else { self.counts };
        let place = |rows: &Rows, address: u64| {
            let [slice, row] = rows.distances;
            let row = if self.counts[1] == 1 { slice } else { row };
            let pitch = if count == 1 { width } else { row * bytes };
            let height = if slices == 1 { count } else { slice / row };
            (address + (rows.first * bytes) as u64, pitch, height)
        };
        let ((from, from_pitch, from_height), (to, to_pitch, to_height)) =
            (place(&self.from, from), place(&self.to, to));
        sys::CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: ptr::null(),
            srcDevice: from,
            srcArray: ptr::null_mut(),
            reserved0: ptr::null_mut(),
            srcPitch: from_pitch,
            srcHeight: from_height,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: ptr::null_mut(),
            dstDevice: to,
            dstArray: ptr::null_mut(),
            reserved1: ptr::null_mut(),
            dstPitch: to_pitch,
            dstHeight: to_height,
            WidthInBytes: width,
            Height: count,
            Depth: slices,
        }
    }
}
