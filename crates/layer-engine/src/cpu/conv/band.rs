//! Bands. A pass of a convolution reads a *source*, such as the image. Its *grid* has a *point* for
//! each element of the result that it computes, and each point reads the source at the *taps*, the
//! elements of the convolution kernel. A *band* is the part of the source that a block of rows of
//! the grid reads. All distances and offsets are in elements.

use std::ops::Range;

use super::super::Real;
use super::stencil::Stencil;

/// Access to the bands of a source. A band is read in place, or from a copy padded with zeros if
/// the grid reads elements outside the source.
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
    /// Creates the access to the bands of blocks of at most `rows` rows of the grid.
    pub(super) fn new(stencil: Stencil, rows: usize) -> Self {
        let copied = !stencil.stays_inside();
        let [height, width] = if copied {
            [stencil.source_row_count(rows), stencil.source_column_count()]
        } else {
            stencil.source
        };
        Self { stencil, copied, channel_pitch: height * width, row_pitch: width }
    }

    /// Returns the number of elements of the copied band of one sample with `channels` channels, or
    /// 0 if bands are read in place.
    pub(super) fn elements(&self, channels: usize) -> usize {
        if self.copied { channels * self.channel_pitch } else { 0 }
    }

    /// Returns the distance between the bands of two consecutive samples with `channels` channels
    /// each. `distance` is the distance between the samples in the source.
    pub(super) fn sample_distance(&self, channels: usize, distance: usize) -> usize {
        if self.copied { channels * self.channel_pitch } else { distance }
    }

    /// Returns the distance between the elements that a point of the grid reads and those of the
    /// point in the next row.
    pub(super) fn row_distance(&self) -> usize {
        self.stencil.source_stride[0] * self.row_pitch
    }

    /// Returns the distance between the elements that a point of the grid reads and those of the
    /// point in the next column.
    pub(super) fn column_distance(&self) -> usize {
        self.stencil.source_stride[1]
    }

    /// Returns the offset in a band of the element that the first point of the block reads, for
    /// each tap of each of `channels` channels: all taps of the first channel, then those of the
    /// next.
    pub(super) fn offsets(&self, channels: usize) -> Vec<usize> {
        let taps = |channel: usize| {
            let shifts = self.stencil.taps.iter().map(|tap| tap.shift);
            shifts.map(move |[y, x]| channel * self.channel_pitch + y * self.row_pitch + x)
        };
        (0..channels).flat_map(taps).collect()
    }

    /// Returns the bands of the grid rows `rows`, for one or several samples: a part of the source,
    /// or a copy in `memory`, which has `elements(channels)` elements per sample. `source` begins
    /// with the first of the samples; each has `channels` contiguous channels, and `distance` is
    /// the distance between samples.
    pub(super) fn band_of_rows<'a, T: Real>(
        &self,
        (source, channels, distance): (&'a [T], usize, usize),
        rows: &Range<usize>,
        memory: &'a mut [T],
    ) -> &'a [T] {
        let [height, width] = self.stencil.source;
        if !self.copied {
            let source_rows = self.stencil.source_rows(rows);
            let first = source_rows.start.unsigned_abs() * width + self.stencil.min_shift[1].unsigned_abs();
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
        let source_rows = self.stencil.source_rows(rows);
        // The band may begin left of the source (zeros are inserted) or right of it (columns that
        // no window reads are skipped).
        let min_shift = self.stencil.min_shift[1];
        let zeros = min_shift.min(0).unsigned_abs().min(self.row_pitch);
        let skipped = min_shift.max(0).unsigned_abs().min(width);
        let copied = (width - skipped).min(self.row_pitch - zeros);
        let channels = source.chunks_exact(height * width).zip(memory.chunks_exact_mut(self.channel_pitch));
        for (channel, band) in channels {
            for (row, band) in source_rows.clone().zip(band.chunks_exact_mut(self.row_pitch)) {
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
