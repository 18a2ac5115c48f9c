use std::ops::Range;

use layer_graph::{Conv2d, Layer};

use super::Real;

/// Elements of a block of columns: half a megabyte of single precision, so that a block stays in the second-level cache
/// between being gathered and being multiplied.
const BLOCK_ELEMENTS: usize = 1 << 17;

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

    /// Calls `body` with every run of windows that a kernel position makes over an image: where the run starts in the
    /// columns, and the channel, the image row and the range of image columns it sees, if it sees any.
    fn runs(&self, rows: &Range<usize>, mut body: impl FnMut(usize, Option<Run>)) {
        let [kernel_height, kernel_width] = self.kernel;
        let mut start = 0;
        for channel in 0..self.channels / self.groups {
            for y in 0..kernel_height {
                let inside_rows = self.inside(0, y);
                for x in 0..kernel_width {
                    let windows = self.inside(1, x);
                    for row in rows.clone() {
                        let run = (inside_rows.contains(&row) && !windows.is_empty()).then(|| {
                            let image_row =
                                channel * self.height + row * self.stride[0] + y - self.padding[0];
                            let column = windows.start * self.stride[1] + x - self.padding[1];
                            Run { windows: windows.clone(), first: image_row * self.width + column }
                        });
                        body(start, run);
                        start += self.out_width;
                    }
                }
            }
        }
    }

    /// Writes the columns of a range of output rows of one group's channels.
    pub(super) fn gather<T: Real>(&self, image: &[T], rows: &Range<usize>, columns: &mut [T]) {
        let step = self.stride[1];
        self.runs(rows, |start, run| {
            let column = &mut columns[start..start + self.out_width];
            let Some(Run { windows, first }) = run else {
                column.fill(T::zero());
                return;
            };
            column[..windows.start].fill(T::zero());
            column[windows.end..].fill(T::zero());
            if step == 1 {
                let length = windows.len();
                column[windows].copy_from_slice(&image[first..first + length]);
            } else {
                let seen = image[first..].iter().step_by(step);
                column[windows].iter_mut().zip(seen).for_each(|(to, &from)| *to = from);
            }
        });
    }

    /// Adds the columns of a range of output rows to where they came from: the transpose of [`gather`](Self::gather).
    pub(super) fn scatter<T: Real>(&self, columns: &[T], rows: &Range<usize>, image: &mut [T]) {
        let step = self.stride[1];
        self.runs(rows, |start, run| {
            let Some(Run { windows, first }) = run else { return };
            let column = &columns[start + windows.start..start + windows.end];
            if step == 1 {
                let seen = &mut image[first..first + column.len()];
                seen.iter_mut().zip(column).for_each(|(to, &from)| *to += from);
            } else {
                let seen = image[first..].iter_mut().step_by(step);
                seen.zip(column).for_each(|(to, &from)| *to += from);
            }
        });
    }
}

/// A run of windows along a row that see the image, and the element that the first of them sees.
struct Run {
    windows: Range<usize>,
    first: usize,
}
