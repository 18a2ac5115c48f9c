use std::ops::Range;

use layer_graph::{Conv2d, Layer};

/// The sizes of a convolution.
#[derive(Debug, Clone)]
pub(in super::super) struct Geometry {
    pub(super) groups: usize,
    /// Channels of a group's input.
    pub(super) channels: usize,
    /// Channels of a group's output.
    pub(super) filters: usize,
    /// Height and width, as everything below that has two elements.
    pub(super) image: [usize; 2],
    pub(super) output: [usize; 2],
    pub(super) kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
}

impl Geometry {
    /// The sizes of a layer that is this convolution; `None` when its shapes are not images.
    pub(in super::super) fn new(layer: &Layer, conv: &Conv2d) -> Option<Self> {
        let (channels, height, width) = layer.input_shapes().first()?.as_image()?;
        let (out_channels, out_height, out_width) = layer.output_shape().as_image()?;
        Some(Self {
            groups: conv.groups,
            channels: channels / conv.groups,
            filters: out_channels / conv.groups,
            image: [height, width],
            output: [out_height, out_width],
            kernel: conv.kernel,
            stride: conv.stride,
            padding: conv.padding,
        })
    }

    /// Elements of a kernel.
    pub(super) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    pub(super) fn weight_elements(&self) -> usize {
        self.groups * self.filters * self.channels * self.taps()
    }

    /// What the output sees of the image.
    pub(super) fn forward(&self) -> Stencil {
        let axis = |axis: usize| Axis {
            source: self.image[axis],
            step: self.stride[axis],
            shifts: (0..self.kernel[axis])
                .map(|tap| (tap, signed(tap) - signed(self.padding[axis])))
                .collect(),
            grid: self.output[axis],
            target: self.output[axis],
            first: 0,
            stride: 1,
        };
        Stencil::new(&axis(0), &axis(1), self.kernel[1])
    }

    /// What the gradient of the image sees of that of the output. With a stride, pixels that leave another remainder are
    /// seen by other elements of the kernel: there is a stencil for each pair of remainders.
    pub(super) fn backward(&self) -> Vec<Stencil> {
        let axis = |axis: usize, remainder: usize| {
            let (stride, padding) = (self.stride[axis], self.padding[axis]);
            Axis {
                source: self.output[axis],
                step: 1,
                // The pixel at `i * stride + remainder` is what the kernel's element `tap` sees in the window at
                // `i + (remainder + padding - tap) / stride`.
                shifts: (0..self.kernel[axis])
                    .map(|tap| (tap, signed(remainder + padding) - signed(tap)))
                    .filter(|(_, distance)| distance % signed(stride) == 0)
                    .map(|(tap, distance)| (tap, distance / signed(stride)))
                    .collect(),
                grid: (self.image[axis] + stride - 1 - remainder) / stride,
                target: self.image[axis],
                first: remainder,
                stride,
            }
        };
        let remainders = (0..self.stride[0]).flat_map(|y| (0..self.stride[1]).map(move |x| (y, x)));
        let stencils = remainders.map(|(y, x)| Stencil::new(&axis(0, y), &axis(1, x), self.kernel[1]));
        stencils.filter(|stencil| stencil.grid[0] * stencil.grid[1] > 0).collect()
    }
}

/// As a distance.
#[allow(clippy::cast_possible_wrap, reason = "images are smaller than memory")]
fn signed(size: usize) -> isize {
    size as isize
}

/// A stencil along one of its axes.
struct Axis {
    source: usize,
    step: usize,
    /// The taps along this axis: their index in the kernel, and how far they look.
    shifts: Vec<(usize, isize)>,
    grid: usize,
    target: usize,
    first: usize,
    stride: usize,
}

/// What the points of a grid see of a source: the point `(i, j)` sees for each tap the element `(i, j) * step + shift`, or
/// zero where that is outside. The point is the target's element `(i, j) * stride + first`.
#[derive(Debug, Clone)]
pub(super) struct Stencil {
    /// Size of the source.
    pub(super) source: [usize; 2],
    pub(super) step: [usize; 2],
    /// In the order of the kernel's elements.
    pub(super) taps: Vec<Tap>,
    /// The smallest shifts.
    pub(super) low: [isize; 2],
    /// The largest shifts less the smallest.
    pub(super) reach: [usize; 2],
    pub(super) grid: [usize; 2],
    /// Size of the target.
    pub(super) target: [usize; 2],
    pub(super) first: [usize; 2],
    pub(super) stride: [usize; 2],
}

/// An element of the kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tap {
    /// Its place in the kernel.
    pub(super) index: usize,
    /// How far from the smallest shifts it looks.
    pub(super) shift: [usize; 2],
}

impl Stencil {
    fn new(rows: &Axis, columns: &Axis, kernel_width: usize) -> Self {
        let low = [rows, columns].map(|axis| axis.shifts.iter().map(|&(_, shift)| shift).min().unwrap_or(0));
        let high = [rows, columns].map(|axis| axis.shifts.iter().map(|&(_, shift)| shift).max().unwrap_or(0));
        let distance = |shift: isize, axis: usize| (shift - low[axis]).unsigned_abs();
        let taps = rows.shifts.iter().flat_map(|&(row, y)| {
            columns.shifts.iter().map(move |&(column, x)| Tap {
                index: row * kernel_width + column,
                shift: [distance(y, 0), distance(x, 1)],
            })
        });
        Self {
            source: [rows.source, columns.source],
            step: [rows.step, columns.step],
            taps: taps.collect(),
            low,
            reach: [0, 1].map(|axis| distance(high[axis], axis)),
            grid: [rows.grid, columns.grid],
            target: [rows.target, columns.target],
            first: [rows.first, columns.first],
            stride: [rows.stride, columns.stride],
        }
    }

    /// Whether the grid's points lie in the target as in the grid.
    pub(super) fn fills_target(&self) -> bool {
        self.stride == [1, 1]
    }

    /// The source's rows that these rows of the grid see, of which some may lie outside.
    pub(super) fn seen(&self, rows: &Range<usize>) -> Range<isize> {
        let first = signed(rows.start * self.step[0]) + self.low[0];
        first..first + signed(self.seen_rows(rows.len()))
    }

    /// How many of the source's rows so many rows of the grid see.
    pub(super) fn seen_rows(&self, rows: usize) -> usize {
        rows.saturating_sub(1) * self.step[0] + self.reach[0] + 1
    }

    /// How many of the source's columns the grid sees.
    pub(super) fn seen_columns(&self) -> usize {
        (self.grid[1] - 1) * self.step[1] + self.reach[1] + 1
    }

    /// Whether nothing that is seen lies outside the source.
    pub(super) fn stays_inside(&self) -> bool {
        (0..2).all(|axis| {
            let last = self.low[axis] + signed((self.grid[axis] - 1) * self.step[axis] + self.reach[axis]);
            self.low[axis] >= 0 && last < signed(self.source[axis])
        })
    }
}
