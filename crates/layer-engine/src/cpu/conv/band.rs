//! Bands: the rows of a source that a block of rows of a grid reads (`stencil.rs` defines source,
//! grid, point and tap). All distances and offsets are in elements.

use std::ops::Range;

use super::super::Real;
use super::stencil::Stencil;

/// Access to the rows of a source that a block of rows of the grid reads. The rows are read in
/// place, or from a copy padded with zeros if some of them lie outside the source.
#[derive(Debug)]
pub(super) struct Bands {
    stencil: Stencil,
    copied: bool,
    /// Distance between channels, in elements.
    channel_pitch: usize,
    /// Distance between rows, in elements.
    row_pitch: usize,
}

impl Bands {
    /// Creates the access for blocks of at most `rows` rows of the grid.
    pub(super) fn new(stencil: Stencil, rows: usize) -> Self {
        let copied = !stencil.stays_inside();
        let [height, width] =
            if copied { [stencil.seen_rows(rows), stencil.seen_columns()] } else { stencil.source };
        Self { stencil, copied, channel_pitch: height * width, row_pitch: width }
    }

    /// Returns the number of elements of memory for the copied band of one sample with `channels`
    /// channels, or 0 if rows are read in place.
    pub(super) fn elements(&self, channels: usize) -> usize {
        if self.copied { channels * self.channel_pitch } else { 0 }
    }

    /// Returns the distance between the bands of two samples with `channels` channels each.
    /// `distance` is the distance between samples in the source.
    pub(super) fn pitch(&self, channels: usize, distance: usize) -> usize {
        if self.copied { channels * self.channel_pitch } else { distance }
    }

    /// Returns the distance between the elements that a point of the grid reads and those of the
    /// point in the next row.
    pub(super) fn down(&self) -> usize {
        self.stencil.step[0] * self.row_pitch
    }

    /// Returns the distance between the elements that a point of the grid reads and those of the
    /// point in the next column.
    pub(super) fn right(&self) -> usize {
        self.stencil.step[1]
    }

    /// Returns, for each of `channels` channels and each tap, the offset in a band of the element
    /// that the first point of its block reads.
    pub(super) fn offsets(&self, channels: usize) -> Vec<usize> {
        let taps = |channel: usize| {
            let shifts = self.stencil.taps.iter().map(|tap| tap.shift);
            shifts.map(move |[y, x]| channel * self.channel_pitch + y * self.row_pitch + x)
        };
        (0..channels).flat_map(taps).collect()
    }

    /// Returns the bands of the rows `rows` of the grid, for one or several samples: a part of the
    /// source, or a copy in `memory`. The arguments in parentheses are the source from the first
    /// sample on, the number of channels of a sample, which are contiguous, and the distance
    /// between samples.
    pub(super) fn get<'a, T: Real>(
        &self,
        (source, channels, distance): (&'a [T], usize, usize),
        rows: &Range<usize>,
        memory: &'a mut [T],
    ) -> &'a [T] {
        let [height, width] = self.stencil.source;
        if !self.copied {
            let seen = self.stencil.seen(rows);
            let first = seen.start.unsigned_abs() * width + self.stencil.low[1].unsigned_abs();
            return &source[first..];
        }
        let elements = self.elements(channels).max(1);
        for (source, memory) in source.chunks(distance.max(1)).zip(memory.chunks_exact_mut(elements)) {
            self.copy(&source[..channels * height * width], rows, memory);
        }
        memory
    }

    /// Copies the band of one sample.
    fn copy<T: Real>(&self, source: &[T], rows: &Range<usize>, memory: &mut [T]) {
        let [height, width] = self.stencil.source;
        let seen = self.stencil.seen(rows);
        // The band may begin left of the source (zeros are inserted) or right of it (columns that
        // no window reads are skipped).
        let low = self.stencil.low[1];
        let zeros = low.min(0).unsigned_abs().min(self.row_pitch);
        let skipped = low.max(0).unsigned_abs().min(width);
        let copied = (width - skipped).min(self.row_pitch - zeros);
        let channels = source.chunks_exact(height * width).zip(memory.chunks_exact_mut(self.channel_pitch));
        for (channel, band) in channels {
            for (row, band) in seen.clone().zip(band.chunks_exact_mut(self.row_pitch)) {
                match usize::try_from(row).ok().filter(|&row| row < height) {
                    Some(row) => {
                        band[..zeros].fill(T::zero());
                        let first = row * width + skipped;
                        band[zeros..zeros + copied].copy_from_slice(&channel[first..first + copied]);
                        band[zeros + copied..].fill(T::zero());
                    }
                    None => band.fill(T::zero()),
                }
            }
        }
    }
}
