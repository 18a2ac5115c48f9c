use std::ops::Range;

use super::super::Real;
use super::stencil::Stencil;

/// How the rows of a source that a block of the grid sees are to be read: from the source itself, or, where some of what is
/// seen lies outside, from a copy with zeros there.
#[derive(Debug)]
pub(super) struct Bands {
    stencil: Stencil,
    copied: bool,
    /// From one channel to the next.
    channel_pitch: usize,
    /// From one row to the next.
    row_pitch: usize,
}

impl Bands {
    /// Bands for blocks of at most `rows` rows of the grid.
    pub(super) fn new(stencil: Stencil, rows: usize) -> Self {
        let copied = !stencil.stays_inside();
        let [height, width] =
            if copied { [stencil.seen_rows(rows), stencil.seen_columns()] } else { stencil.source };
        Self { stencil, copied, channel_pitch: height * width, row_pitch: width }
    }

    /// Elements of the memory that a sample's band of this many channels needs.
    pub(super) fn elements(&self, channels: usize) -> usize {
        if self.copied { channels * self.channel_pitch } else { 0 }
    }

    /// From a sample's band of this many channels to the next, where samples are `distance` apart in the source.
    pub(super) fn pitch(&self, channels: usize, distance: usize) -> usize {
        if self.copied { channels * self.channel_pitch } else { distance }
    }

    /// From a point of the grid to that below it.
    pub(super) fn down(&self) -> usize {
        self.stencil.step[0] * self.row_pitch
    }

    /// From a point of the grid to that right of it.
    pub(super) fn right(&self) -> usize {
        self.stencil.step[1]
    }

    /// Where in a band the first point of its block sees each tap of each of these channels.
    pub(super) fn offsets(&self, channels: usize) -> Vec<usize> {
        let taps = |channel: usize| {
            let shifts = self.stencil.taps.iter().map(|tap| tap.shift);
            shifts.map(move |[y, x]| channel * self.channel_pitch + y * self.row_pitch + x)
        };
        (0..channels).flat_map(taps).collect()
    }

    /// The bands of these rows of the grids of some samples: a part of the source, or a copy in `memory`. The source has
    /// `channels` channels of a sample one after another, and the next sample `distance` elements behind it.
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

    /// Copies the band of a sample.
    fn copy<T: Real>(&self, source: &[T], rows: &Range<usize>, memory: &mut [T]) {
        let [height, width] = self.stencil.source;
        let seen = self.stencil.seen(rows);
        // What lies between the source's left edge and the band's: zeros on the right or columns that no window covers.
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
