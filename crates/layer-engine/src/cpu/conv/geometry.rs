use std::ops::Range;

use layer_graph::{Conv2d, Layer};

use crate::cpu::Real;

/// The windows of a kernel that slides over an image of one group of channels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    /// Zeros above and to the left of the image.
    pub(super) padding: [usize; 2],
    pub(super) out_height: usize,
    pub(super) out_width: usize,
}

impl Windows {
    /// Number of windows.
    pub(super) fn count(&self) -> usize {
        self.out_height * self.out_width
    }

    /// Elements that a window sees.
    pub(super) fn patch(&self) -> usize {
        self.channels * self.taps()
    }

    /// Positions of the kernel.
    pub(super) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// The height and width that all windows together see.
    pub(super) fn seen(&self) -> [usize; 2] {
        let seen = |windows: usize, axis: usize| (windows - 1) * self.stride[axis] + self.kernel[axis];
        [seen(self.out_height, 0), seen(self.out_width, 1)]
    }

    /// Whether some window sees what lies outside the image.
    pub(super) fn need_padding(&self) -> bool {
        let [height, width] = self.seen();
        self.padding != [0, 0] || height > self.height || width > self.width
    }

    /// Elements of an image with just the padding that is seen.
    pub(super) fn padded_elements(&self) -> usize {
        let [height, width] = self.seen();
        self.channels * height * width
    }

    /// Elements from a row to the next, in an image that has its padding if it needs any.
    pub(super) fn row(&self) -> usize {
        if self.need_padding() { self.seen()[1] } else { self.width }
    }

    /// How far what the `k`th element of a column sees lies from what the first one sees.
    pub(super) fn offset(&self, k: usize) -> usize {
        let plane =
            if self.need_padding() { self.seen()[0] * self.seen()[1] } else { self.height * self.width };
        let (channel, tap) = (k / self.taps(), k % self.taps());
        channel * plane + tap / self.kernel[1] * self.row() + tap % self.kernel[1]
    }

    /// The part of a padded axis that lies in the image.
    pub(super) fn inside(&self, axis: usize) -> Range<usize> {
        let (size, seen) = ([self.height, self.width][axis], self.seen()[axis]);
        self.padding[axis].min(seen)..(self.padding[axis] + size).min(seen)
    }

    /// Writes an image with its padding, which is as much as the windows see.
    pub(super) fn pad<T: Real>(&self, image: &[T], padded: &mut [T]) {
        let [height, width] = self.seen();
        let (rows, columns) = (self.inside(0), self.inside(1));
        let planes = image.chunks_exact(self.height * self.width);
        for (plane, padded) in planes.zip(padded.chunks_exact_mut(height * width)).take(self.channels) {
            for (y, row) in padded.chunks_exact_mut(width).enumerate() {
                if !rows.contains(&y) {
                    row.fill(T::zero());
                    continue;
                }
                row[..columns.start].fill(T::zero());
                row[columns.end..].fill(T::zero());
                let from = &plane[(y - rows.start) * self.width..][..columns.len()];
                row[columns.clone()].copy_from_slice(from);
            }
        }
    }

    /// Adds columns, a matrix of `patch() x count()`, to the places of an image that they came from.
    pub(super) fn scatter<T: Real>(&self, columns: &[T], image: &mut [T]) {
        for (k, column) in columns.chunks_exact(self.count()).enumerate() {
            let (channel, tap) = (k / self.taps(), k % self.taps());
            let (ky, kx) = (tap / self.kernel[1], tap % self.kernel[1]);
            let xs = self.windows_inside(1, kx);
            for y in self.windows_inside(0, ky) {
                if xs.is_empty() {
                    continue;
                }
                let row = channel * self.height + y * self.stride[0] + ky - self.padding[0];
                let first = row * self.width + xs.start * self.stride[1] + kx - self.padding[1];
                let seen = image[first..].iter_mut().step_by(self.stride[1]);
                let column = &column[y * self.out_width..][xs.clone()];
                seen.zip(column).for_each(|(to, &from)| *to += from);
            }
        }
    }

    /// The windows along an axis that see the image where the kernel is at `offset`.
    fn windows_inside(&self, axis: usize, offset: usize) -> Range<usize> {
        let (size, windows) = [(self.height, self.out_height), (self.width, self.out_width)][axis];
        let (stride, padding) = (self.stride[axis], self.padding[axis]);
        let first = padding.saturating_sub(offset).div_ceil(stride);
        let end = (size + padding).saturating_sub(offset).div_ceil(stride).min(windows);
        first.min(end)..end
    }

    /// The windows that slide over the gradient of the output and see, for each element of the input, all that it had a part
    /// in; `None` where a step larger than one or much padding makes that impossible.
    pub(super) fn reversed(&self, out_channels: usize) -> Option<Self> {
        let padding = |axis: usize| (self.kernel[axis] - 1).checked_sub(self.padding[axis]);
        let (vertical, horizontal) = (padding(0)?, padding(1)?);
        (self.stride == [1, 1]).then_some(Self {
            channels: out_channels,
            height: self.out_height,
            width: self.out_width,
            kernel: self.kernel,
            stride: [1, 1],
            padding: [vertical, horizontal],
            out_height: self.height,
            out_width: self.width,
        })
    }

    /// Windows of a single element, each of which sees its own place in an image of the output's size.
    pub(super) fn pointwise(&self, channels: usize) -> Self {
        Self {
            channels,
            height: self.out_height,
            width: self.out_width,
            kernel: [1, 1],
            stride: [1, 1],
            padding: [0, 0],
            ..*self
        }
    }
}

/// The sizes of a convolution.
#[derive(Debug, Clone, Copy)]
pub(in crate::cpu) struct Geometry {
    /// Independent groups of channels.
    pub(super) groups: usize,
    /// Output channels of a group.
    pub(super) out_channels: usize,
    /// The windows over the channels of a group.
    pub(super) windows: Windows,
}

impl Geometry {
    /// The sizes of a layer that is this convolution; `None` when its shapes are not images.
    pub(in crate::cpu) fn new(layer: &Layer, conv: &Conv2d) -> Option<Self> {
        let (channels, height, width) = layer.input_shapes().first()?.as_image()?;
        let (out_channels, out_height, out_width) = layer.output_shape().as_image()?;
        let windows = Windows {
            channels: channels / conv.groups,
            height,
            width,
            kernel: conv.kernel,
            stride: conv.stride,
            padding: conv.padding,
            out_height,
            out_width,
        };
        Some(Self { groups: conv.groups, out_channels: out_channels / conv.groups, windows })
    }

    /// Elements of a group's part of an image.
    pub(super) fn group_input(&self) -> usize {
        self.windows.channels * self.windows.height * self.windows.width
    }

    /// Elements of a group's part of an output.
    pub(super) fn group_output(&self) -> usize {
        self.out_channels * self.windows.count()
    }

    /// Elements of a group's weights.
    pub(super) fn group_weights(&self) -> usize {
        self.out_channels * self.windows.patch()
    }

    pub(super) fn input_elements(&self) -> usize {
        self.groups * self.group_input()
    }

    pub(super) fn output_elements(&self) -> usize {
        self.groups * self.group_output()
    }

    pub(super) fn weight_elements(&self) -> usize {
        self.groups * self.group_weights()
    }
}
