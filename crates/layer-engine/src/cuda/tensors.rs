//! Tables of the tensors on which one launch works.

use std::ops::Range;

use cuda::{Buffer, Stream};

/// Maximum number of tensors of a launch: `TENSORS` in `kernels/optimizer.cu`.
const MAX_TENSORS: usize = 120;

/// Number of elements of `first_block`, the first field of the table.
const PLACES: usize = 128;

/// Tensors of one launch, with the blocks that work on them: `Tensors` in `kernels/optimizer.cu`.
/// The addresses are those of the operands of the launch.
#[derive(Debug)]
pub(super) struct TensorTable {
    /// Indices of the gradients among the operands that are read.
    gradients: Range<usize>,
    /// Whether parameters and velocities are written. Those of gradient `i` are the operands `2 i`
    /// and `2 i + 1` that are written.
    updates: bool,
    /// First block of each tensor, and number of elements of each: the first fields of the table.
    head: Vec<u32>,
    /// Number of blocks of all tensors.
    blocks: usize,
}

impl TensorTable {
    /// Size of a table in words of 32 bits.
    pub(super) const WORDS: usize = PLACES + MAX_TENSORS + 3 * 2 * MAX_TENSORS;

    /// Divides gradients, the first operands that are read, into tables of one launch each.
    /// `elements` is the number of elements of each gradient, and `blocks` returns the number of
    /// blocks for a number of elements.
    pub(super) fn of_gradients(
        elements: &[usize],
        updates: bool,
        blocks: impl Fn(usize) -> usize,
    ) -> Vec<Self> {
        let table = |(index, elements): (usize, &[usize])| {
            let first = index * MAX_TENSORS;
            let mut head = vec![0; PLACES + MAX_TENSORS];
            let mut total = 0;
            for (place, &elements) in elements.iter().enumerate() {
                head[place] = total as u32;
                head[PLACES + place] = elements as u32;
                total += blocks(elements);
            }
            head[elements.len()..PLACES].fill(total as u32);
            Self { gradients: first..first + elements.len(), updates, head, blocks: total }
        };
        elements.chunks(MAX_TENSORS).enumerate().map(table).collect()
    }

    /// Returns the number of blocks of all tensors.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns the number of elements that a launch reads and writes.
    pub(super) fn traffic_elements(&self) -> usize {
        let elements: usize = self.head[PLACES..].iter().map(|&elements| elements as usize).sum();
        if self.updates { 5 * elements } else { elements }
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
        let (head, addresses) = words.split_at_mut(self.head.len());
        head.copy_from_slice(&self.head);
        let mut put = |array: usize, place: usize, buffer: &Buffer<f32>| {
            buffer.use_in(stream)?;
            let (address, word) = (buffer.address(), 2 * (array * MAX_TENSORS + place));
            // Addresses are little-endian.
            (addresses[word], addresses[word + 1]) = (address as u32, (address >> 32) as u32);
            Ok(())
        };
        let Range { start, end } = self.gradients;
        for (place, gradient) in reads.skip(start).take(end - start).enumerate() {
            put(0, place, gradient)?;
        }
        let updated = if self.updates { 2 * (end - start) } else { 0 };
        for (place, buffer) in writes.skip(2 * start).take(updated).enumerate() {
            put(1 + place % 2, place / 2, buffer)?;
        }
        Ok(())
    }
}
