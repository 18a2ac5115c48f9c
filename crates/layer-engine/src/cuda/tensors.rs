//! Tables of the tensors on which one launch works.

use std::ops::Range;

use cuda::{Buffer, Stream};

use super::operand::element_bytes;
use crate::Storage;

/// Number of elements of `first_block`, the first field of the table.
const PLACES: usize = 128;

/// Returns the maximum number of tensors of a launch: `TENSORS` in `kernels/optimizer.cu`.
const fn max_tensors(storage: Storage) -> usize {
    match storage {
        Storage::Scalar => 120,
        Storage::Bf16 => 96,
    }
}

/// Tensors of one launch, with the blocks that work on them: `Tensors` in `kernels/optimizer.cu`.
/// The addresses are those of the operands of the launch.
#[derive(Debug)]
pub(super) struct TensorTable {
    /// Indices of the gradients among the operands that are read.
    gradients: Range<usize>,
    /// Number of operands that are written for each gradient, one after another: none, or the
    /// parameters, the parameters in single precision if they have 16 bits, and the velocity.
    updated: usize,
    /// Number format of the parameters.
    storage: Storage,
    /// First block of each tensor, and number of elements of each: the first fields of the table.
    head: Vec<u32>,
    /// Number of blocks of all tensors.
    blocks: usize,
}

impl TensorTable {
    /// Maximum size of a table in words of 32 bits: with four addresses of each tensor.
    pub(super) const WORDS: usize = PLACES + 9 * max_tensors(Storage::Bf16);

    /// Divides gradients, the first operands that are read, into tables of one launch each.
    /// `elements` is the number of elements of each gradient, and `blocks` returns the number of
    /// blocks for a number of elements. `updates` is the number format of the parameters that are
    /// updated; `None` if there are none.
    pub(super) fn of_gradients(
        elements: &[usize],
        updates: Option<Storage>,
        blocks: impl Fn(usize) -> usize,
    ) -> Vec<Self> {
        let storage = updates.unwrap_or(Storage::Scalar);
        let updated = match updates {
            None => 0,
            Some(Storage::Scalar) => 2,
            Some(Storage::Bf16) => 3,
        };
        let max_tensors = max_tensors(storage);
        let table = |(index, elements): (usize, &[usize])| {
            let first = index * max_tensors;
            let mut head = vec![0; PLACES + max_tensors];
            let mut total = 0;
            for (place, &elements) in elements.iter().enumerate() {
                head[place] = total as u32;
                head[PLACES + place] = elements as u32;
                total += blocks(elements);
            }
            head[elements.len()..PLACES].fill(total as u32);
            Self { gradients: first..first + elements.len(), updated, storage, head, blocks: total }
        };
        elements.chunks(max_tensors).enumerate().map(table).collect()
    }

    /// Returns the number of blocks of all tensors.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns the number format of the parameters.
    pub(super) fn storage(&self) -> Storage {
        self.storage
    }

    /// Returns the number of bytes that a launch reads and writes.
    pub(super) fn traffic_bytes(&self) -> usize {
        let elements: usize = self.head[PLACES..].iter().map(|&elements| elements as usize).sum();
        let single = element_bytes(Storage::Scalar);
        elements
            * match (self.updated, self.storage) {
                (0, _) => single,
                // The gradient, and twice the parameters and the velocity.
                (_, Storage::Scalar) => 5 * single,
                (_, Storage::Bf16) => 5 * single + element_bytes(Storage::Bf16),
            }
    }

    /// Writes the table for a launch into `stream` with these operands. Graphs that are being
    /// captured keep the operands.
    ///
    /// # Errors
    /// [`cuda::Error::Invalid`] if an operand belongs to another device than the stream.
    pub(super) fn write<'a>(
        &self,
        reads: impl Iterator<Item = &'a Buffer<f32>>,
        writes: impl Iterator<Item = &'a Buffer<f32>>,
        stream: &Stream,
        words: &mut [u32; Self::WORDS],
    ) -> cuda::Result<()> {
        let (updated, (head, addresses)) = (self.updated, words.split_at_mut(self.head.len()));
        head.copy_from_slice(&self.head);
        let mut put = |array: usize, place: usize, buffer: &Buffer<f32>| {
            buffer.use_in(stream)?;
            let (address, word) = (buffer.address(), 2 * (array * max_tensors(self.storage) + place));
            // Addresses are little-endian.
            (addresses[word], addresses[word + 1]) = (address as u32, (address >> 32) as u32);
            Ok(())
        };
        let Range { start, end } = self.gradients;
        for (place, gradient) in reads.skip(start).take(end - start).enumerate() {
            put(0, place, gradient)?;
        }
        for (place, buffer) in writes.skip(updated * start).take(updated * (end - start)).enumerate() {
            put(1 + place % updated, place / updated, buffer)?;
        }
        Ok(())
    }
}
