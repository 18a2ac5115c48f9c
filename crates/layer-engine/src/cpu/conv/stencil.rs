//! Sizes of a convolution, and stencils: the access patterns of its passes. A stencil computes
//! elements of a *target* from a *source*, for example the output from the input. Its *grid* has a
//! *point* for each target element that it computes; its *taps* are the elements of the convolution
//! kernel that it multiplies. Pairs are `[along the height, along the width]`.

use std::ops::Range;

use layer_graph::{Conv2d, ConvTranspose2d, Layer, Shape};

/// Sizes of a convolution layer.
#[derive(Debug, Clone)]
pub(in super::super) struct Geometry {
    /// Number of groups into which channels are divided.
    pub(super) groups: usize,
    /// Number of input channels of a group.
    pub(super) channels: usize,
    /// Number of output channels of a group.
    pub(super) filters: usize,
    /// Size of an input channel, `[height, width]`.
    pub(super) image: [usize; 2],
    /// Size of an output channel, `[height, width]`.
    pub(super) output: [usize; 2],
    /// Size of the convolution kernel, `[height, width]`.
    pub(super) kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    /// Whether the layer is a transposed convolution: its output is the input gradient of this one.
    pub(super) is_transposed: bool,
}

impl Geometry {
    /// Returns the sizes of a convolution layer, or `None` if its shapes are not images.
    pub(in super::super) fn new(layer: &Layer, conv: &Conv2d) -> Option<Self> {
        Self::between(layer.input_shapes().first()?, layer.output_shape(), conv, false)
    }

    /// Returns the sizes of the convolution whose input gradient is the output of a transposed
    /// one, or `None` if its shapes are not images.
    pub(in super::super) fn transposed(layer: &Layer, conv: &ConvTranspose2d) -> Option<Self> {
        let input = layer.input_shapes().first()?;
        Self::between(layer.output_shape(), input, &conv.transposed(input.dims()[0]), true)
    }

    fn between(input: &Shape, output: &Shape, conv: &Conv2d, is_transposed: bool) -> Option<Self> {
        let (channels, height, width) = input.as_image()?;
        let (out_channels, out_height, out_width) = output.as_image()?;
        Some(Self {
            groups: conv.groups,
            channels: channels / conv.groups,
            filters: out_channels / conv.groups,
            image: [height, width],
            output: [out_height, out_width],
            kernel: conv.kernel,
            stride: conv.stride,
            padding: conv.padding,
            dilation: conv.dilation,
            is_transposed,
        })
    }

    /// Returns the number of elements of the convolution kernel for one pair of input and output
    /// channel.
    pub(super) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Returns the number of weights of the layer, without biases.
    pub(super) fn weight_elements(&self) -> usize {
        self.groups * self.filters * self.channels * self.taps()
    }

    /// Returns the stencil of the forward pass: its source is the image, its target the output.
    pub(super) fn forward(&self) -> Stencil {
        let axis = |axis: usize| StencilAxis {
            source: self.image[axis],
            source_stride: self.stride[axis],
            shifts: (0..self.kernel[axis])
                .map(|tap| (tap, signed(tap * self.dilation[axis]) - signed(self.padding[axis])))
                .collect(),
            grid: self.output[axis],
            target: self.output[axis],
            target_first: 0,
            target_stride: 1,
        };
        Stencil::new(&axis(0), &axis(1), self.kernel[1])
    }

    /// Returns the stencils of the input gradient: their source is the output's gradient, their
    /// target the image's. With a stride, pixels with different remainders use different elements
    /// of the kernel, so there is one stencil for each pair of remainders.
    pub(super) fn backward(&self) -> Vec<Stencil> {
        let axis = |axis: usize, remainder: usize| {
            let (stride, padding, dilation) = (self.stride[axis], self.padding[axis], self.dilation[axis]);
            StencilAxis {
                source: self.output[axis],
                source_stride: 1,
                // Tap `tap` of the window at `i + (remainder + padding - tap * dilation) / stride`
                // reads the pixel at `i * stride + remainder`.
                shifts: (0..self.kernel[axis])
                    .map(|tap| (tap, signed(remainder + padding) - signed(tap * dilation)))
                    .filter(|(_, distance)| distance % signed(stride) == 0)
                    .map(|(tap, distance)| (tap, distance / signed(stride)))
                    .collect(),
                grid: (self.image[axis] + stride - 1 - remainder) / stride,
                target: self.image[axis],
                target_first: remainder,
                target_stride: stride,
            }
        };
        let remainders = (0..self.stride[0]).flat_map(|y| (0..self.stride[1]).map(move |x| (y, x)));
        let stencils = remainders.map(|(y, x)| Stencil::new(&axis(0, y), &axis(1, x), self.kernel[1]));
        stencils.filter(|stencil| stencil.grid[0] * stencil.grid[1] > 0).collect()
    }
}

/// Converts a size to a signed distance.
#[allow(clippy::cast_possible_wrap, reason = "images are smaller than memory")]
fn signed(size: usize) -> isize {
    size as isize
}

/// A stencil along one axis.
struct StencilAxis {
    source: usize,
    source_stride: usize,
    /// Taps along this axis: index in the kernel and shift.
    shifts: Vec<(usize, isize)>,
    grid: usize,
    target: usize,
    target_first: usize,
    target_stride: usize,
}

/// Access pattern of the points of a grid. For each tap, the point `(i, j)` reads the source
/// element `(i, j) * source_stride + shift`, or zero if it lies outside. The point corresponds to
/// the target element `(i, j) * target_stride + target_first`.
#[derive(Debug, Clone)]
pub(super) struct Stencil {
    /// Size of a source channel, `[rows, columns]`.
    pub(super) source: [usize; 2],
    /// Distance between the source rows, and source columns, that neighbouring points read.
    pub(super) source_stride: [usize; 2],
    /// Taps in the order of the convolution kernel's elements.
    pub(super) taps: Vec<Tap>,
    /// Minimum shift of all taps, in source rows and columns. Negative if points read padding.
    pub(super) min_shift: [isize; 2],
    /// Maximum minus minimum shift of all taps, in source rows and columns.
    pub(super) shift_range: [usize; 2],
    /// Size of the grid, `[rows, columns]` of points.
    pub(super) grid: [usize; 2],
    /// Size of a target channel, `[rows, columns]`.
    pub(super) target: [usize; 2],
    /// Target row and column of the point `(0, 0)`.
    pub(super) target_first: [usize; 2],
    /// Distance between the target rows, and target columns, of neighbouring points.
    pub(super) target_stride: [usize; 2],
}

/// An element of the convolution kernel that a stencil multiplies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tap {
    /// Index in the convolution kernel, in row-major order.
    pub(super) index: usize,
    /// Shift in source rows and columns, minus the minimum over all taps (`Stencil::min_shift`).
    pub(super) shift: [usize; 2],
}

impl Stencil {
    fn new(rows: &StencilAxis, columns: &StencilAxis, kernel_width: usize) -> Self {
        let min_shift =
            [rows, columns].map(|axis| axis.shifts.iter().map(|&(_, shift)| shift).min().unwrap_or(0));
        let max_shift =
            [rows, columns].map(|axis| axis.shifts.iter().map(|&(_, shift)| shift).max().unwrap_or(0));
        let distance = |shift: isize, axis: usize| (shift - min_shift[axis]).unsigned_abs();
        let taps = rows.shifts.iter().flat_map(|&(row, y)| {
            columns.shifts.iter().map(move |&(column, x)| Tap {
                index: row * kernel_width + column,
                shift: [distance(y, 0), distance(x, 1)],
            })
        });
        Self {
            source: [rows.source, columns.source],
            source_stride: [rows.source_stride, columns.source_stride],
            taps: taps.collect(),
            min_shift,
            shift_range: [0, 1].map(|axis| distance(max_shift[axis], axis)),
            grid: [rows.grid, columns.grid],
            target: [rows.target, columns.target],
            target_first: [rows.target_first, columns.target_first],
            target_stride: [rows.target_stride, columns.target_stride],
        }
    }

    /// Returns whether every target element is a point, so that the points are contiguous in the
    /// target.
    pub(super) fn fills_target(&self) -> bool {
        self.target_stride == [1, 1]
    }

    /// Returns the source rows that the grid rows `rows` read. Rows outside the source have
    /// negative indices or indices beyond its height.
    pub(super) fn source_rows(&self, rows: &Range<usize>) -> Range<isize> {
        let first = signed(rows.start * self.source_stride[0]) + self.min_shift[0];
        first..first + signed(self.source_row_count(rows.len()))
    }

    /// Returns the number of source rows that `rows` consecutive rows of the grid read.
    pub(super) fn source_row_count(&self, rows: usize) -> usize {
        rows.saturating_sub(1) * self.source_stride[0] + self.shift_range[0] + 1
    }

    /// Returns the number of source columns that the grid reads.
    pub(super) fn source_column_count(&self) -> usize {
        (self.grid[1] - 1) * self.source_stride[1] + self.shift_range[1] + 1
    }

    /// Returns whether all elements that the grid reads lie inside the source.
    pub(super) fn stays_inside(&self) -> bool {
        (0..2).all(|axis| {
            let last = self.min_shift[axis]
                + signed((self.grid[axis] - 1) * self.source_stride[axis] + self.shift_range[axis]);
            self.min_shift[axis] >= 0 && last < signed(self.source[axis])
        })
    }
}
