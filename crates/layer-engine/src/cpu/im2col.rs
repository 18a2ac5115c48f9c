use std::ops::Range;

use layer_graph::{Conv2d, Layer};

use super::Real;

/// Elements of a block of columns: one megabyte of single precision, so that a block stays in the second-level cache
/// between being gathered and being multiplied.
const BLOCK_ELEMENTS: usize = 1 << 18;

/// The sizes of a convolution, and the way between images and columns.
///
/// A *column* holds what one window sees of one group's channels: `patch()` elements. The columns of a range of output
/// rows are a matrix of `patch() x windows`, so that the convolution is a matrix product (im2col: Chellapilla, Puri and
/// Simard, 2006).
#[derive(Debug, Clone)]
pub(super) struct Geometry {
    pub(super) channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) out_channels: usize,
    pub(super) out_height: usize,
    pub(super) out_width: usize,
    pub(super) groups: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
}

impl Geometry {
    /// The sizes of a layer that is this convolution; `None` when its shapes are not images.
    pub(super) fn new(layer: &Layer, conv: &Conv2d) -> Option<Self> {
        let (channels, height, width) = layer.input_shapes().first()?.as_image()?;
        let (out_channels, out_height, out_width) = layer.output_shape().as_image()?;
        Some(Self {
            channels,
            height,
            width,
            out_channels,
            out_height,
            out_width,
            groups: conv.groups,
            kernel: conv.kernel,
            stride: conv.stride,
            padding: conv.padding,
        })
    }

    /// Elements of a column.
    pub(super) fn patch(&self) -> usize {
        self.channels / self.groups * self.kernel[0] * self.kernel[1]
    }

    pub(super) fn input_elements(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Windows of an image.
    pub(super) fn windows(&self) -> usize {
        self.out_height * self.out_width
    }

    pub(super) fn output_elements(&self) -> usize {
        self.out_channels * self.windows()
    }

    pub(super) fn weight_elements(&self) -> usize {
        self.out_channels * self.patch()
    }

    /// Whether an image is its own matrix of columns.
    pub(super) fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0]
    }

    /// Output rows whose columns are gathered at a time.
    fn block_rows(&self) -> usize {
        let fitting = (BLOCK_ELEMENTS / (self.patch() * self.out_width)).clamp(1, self.out_height);
        // Blocks of the same size, rather than a small one at the end.
        self.out_height.div_ceil(self.out_height.div_ceil(fitting))
    }

    /// The ranges of output rows that are worked on one after another.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (rows, height) = if self.is_pointwise() {
            (self.out_height, self.out_height)
        } else {
            (self.block_rows(), self.out_height)
        };
        (0..height).step_by(rows).map(move |first| first..(first + rows).min(height))
    }

    /// Elements of the largest block of columns; none when images are used as they are.
    pub(super) fn column_elements(&self) -> usize {
        if self.is_pointwise() { 0 } else { self.patch() * self.block_rows() * self.out_width }
    }

    /// The windows along one axis that see the image where the kernel is at `offset`.
    fn inside(&self, axis: usize, offset: usize) -> Range<usize> {
        let (size, windows) = [(self.height, self.out_height), (self.width, self.out_width)][axis];
        let (stride, padding) = (self.stride[axis], self.padding[axis]);
        let first = padding.saturating_sub(offset).div_ceil(stride);
        let end = (size + padding).saturating_sub(offset).div_ceil(stride).min(windows);
        first.min(end)..end
    }

    /// Whether a kernel position sees the image as it lies, only shifted: its windows are as many as the image is wide,
    /// one element apart.
    fn is_shifted(&self) -> bool {
        self.stride == [1, 1] && self.width == self.out_width
    }

    /// Calls `body` with what every kernel position of every channel sees, in the order of the columns.
    fn views(&self, rows: &Range<usize>, mut body: impl FnMut(View)) {
        for channel in 0..self.channels / self.groups {
            for y in 0..self.kernel[0] {
                let inside = self.inside(0, y);
                let start = inside.start.clamp(rows.start, rows.end);
                let seen = start..inside.end.clamp(start, rows.end);
                for x in 0..self.kernel[1] {
                    let windows = self.inside(1, x);
                    let seen = if windows.is_empty() { rows.start..rows.start } else { seen.clone() };
                    let first = if seen.is_empty() {
                        0
                    } else {
                        let row = channel * self.height + seen.start * self.stride[0] + y - self.padding[0];
                        row * self.width + windows.start * self.stride[1] + x - self.padding[1]
                    };
                    body(View { rows: seen.start - rows.start..seen.end - rows.start, windows, first });
                }
            }
        }
    }

    /// Writes the columns of a range of output rows of one group's channels.
    pub(super) fn gather<T: Real>(&self, image: &[T], rows: &Range<usize>, columns: &mut [T]) {
        let width = self.out_width;
        let mut columns = columns.chunks_exact_mut(rows.len() * width);
        self.views(rows, |view| {
            let Some(column) = columns.next() else { return };
            column[..view.rows.start * width].fill(T::zero());
            column[view.rows.end * width..].fill(T::zero());
            if view.rows.is_empty() {
                return;
            }
            if self.is_shifted() {
                let span = view.span(width);
                column[span.clone()].copy_from_slice(&image[view.first..view.first + span.len()]);
            }
            for (row, column) in
                column.chunks_exact_mut(width).take(view.rows.end).skip(view.rows.start).enumerate()
            {
                column[..view.windows.start].fill(T::zero());
                column[view.windows.end..].fill(T::zero());
                if !self.is_shifted() {
                    let first = view.first + row * self.stride[0] * self.width;
                    let seen = image[first..].iter().step_by(self.stride[1]);
                    column[view.windows.clone()].iter_mut().zip(seen).for_each(|(to, &from)| *to = from);
                }
            }
        });
    }

    /// Adds the columns of a range of output rows to where they came from: the transpose of [`gather`](Self::gather).
    /// Leaves what lies outside the image zeroed in the columns.
    pub(super) fn scatter<T: Real>(&self, columns: &mut [T], rows: &Range<usize>, image: &mut [T]) {
        let width = self.out_width;
        let mut columns = columns.chunks_exact_mut(rows.len() * width);
        self.views(rows, |view| {
            let Some(column) = columns.next() else { return };
            if view.rows.is_empty() {
                return;
            }
            for (row, column) in
                column.chunks_exact_mut(width).take(view.rows.end).skip(view.rows.start).enumerate()
            {
                if self.is_shifted() {
                    column[..view.windows.start].fill(T::zero());
                    column[view.windows.end..].fill(T::zero());
                } else {
                    let first = view.first + row * self.stride[0] * self.width;
                    let seen = image[first..].iter_mut().step_by(self.stride[1]);
                    seen.zip(&column[view.windows.clone()]).for_each(|(to, &from)| *to += from);
                }
            }
            if self.is_shifted() {
                let span = view.span(width);
                let seen = &mut image[view.first..view.first + span.len()];
                seen.iter_mut().zip(&column[span]).for_each(|(to, &from)| *to += from);
            }
        });
    }
}

/// What one kernel position of one channel sees of an image in a range of output rows.
struct View {
    /// The output rows that see the image, counted from the first of the range.
    rows: Range<usize>,
    /// The windows of such a row that see the image.
    windows: Range<usize>,
    /// The element that the first of these windows sees.
    first: usize,
}

impl View {
    /// From the first window that sees the image to the last, with the padding in between.
    fn span(&self, width: usize) -> Range<usize> {
        self.rows.start * width + self.windows.start..(self.rows.end - 1) * width + self.windows.end
    }
}
