//! Orders of the elements of images and of filters in buffers.

use std::borrow::Cow;

use layer_graph::{Layer, LayerKind, Shape};

use crate::Role;

/// Order of the elements of images (`channels x height x width`) and of the filters of convolutions
/// in the buffers of an engine. All other tensors have the same elements in both orders.
///
/// [`Shape`] and [`Role`] give dimensions with channels first in both orders. In an engine with
/// channels last, all tensors of three dimensions count as images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ImageLayout {
    /// Images are `channels x height x width`, filters `filters x channels x height x width`.
    #[default]
    ChannelsFirst,
    /// Images are `height x width x channels`, filters `filters x height x width x channels`.
    ChannelsLast,
}

impl ImageLayout {
    /// Returns the name: `channels-first` or `channels-last`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::ChannelsFirst => "channels-first",
            Self::ChannelsLast => "channels-last",
        }
    }

    /// Returns the elements of a buffer in this order. `values` are those of the buffer of a role
    /// of a layer with channels first: one or more samples, or all parameters. An optimiser's
    /// velocities are in the order of the parameters.
    #[must_use]
    pub fn arrange<'v, T: Copy>(self, layer: &Layer, role: Role, values: &'v [T]) -> Cow<'v, [T]> {
        match self.matrices(layer, role, values.len()) {
            Some(matrices) => Cow::Owned(matrices.transposed(values)),
            None => Cow::Borrowed(values),
        }
    }

    /// Returns the elements of a buffer with channels first. `values` are those of the buffer of a
    /// role of a layer in this order. The inverse of
    /// [`arrange`](Self::arrange).
    #[must_use]
    pub fn restore<'v, T: Copy>(self, layer: &Layer, role: Role, values: &'v [T]) -> Cow<'v, [T]> {
        match self.matrices(layer, role, values.len()) {
            Some(Matrices { count, rows, columns }) => {
                Cow::Owned(Matrices { count, rows: columns, columns: rows }.transposed(values))
            }
            None => Cow::Borrowed(values),
        }
    }

    /// Returns the number of channels that are adjacent at each pixel: 1 if a tensor of this shape
    /// has no channels or they are first.
    #[cfg(feature = "cuda")]
    pub(crate) fn adjacent_channels(self, shape: &Shape) -> usize {
        match (self, shape.as_image()) {
            (Self::ChannelsLast, Some((channels, ..))) => channels,
            _ => 1,
        }
    }

    /// Returns the matrices of channels and pixels at the start of a buffer of `elements` elements.
    /// `None` if both orders are the same.
    fn matrices(self, layer: &Layer, role: Role, elements: usize) -> Option<Matrices> {
        if self == Self::ChannelsFirst {
            return None;
        }
        let images = |shape: &Shape| {
            let (channels, height, width) = shape.as_image()?;
            let count = elements / shape.elements().max(1);
            Some(Matrices { count, rows: channels, columns: height * width })
        };
        let matrices = match (role, layer.kind()) {
            (Role::Input(slot) | Role::InputGradient(slot), _) => images(layer.input_shapes().get(slot)?)?,
            (Role::Output | Role::OutputGradient, _) => images(layer.output_shape())?,
            (
                Role::Parameters | Role::ParameterGradient,
                LayerKind::Conv2d(_) | LayerKind::ConvTranspose2d(_),
            ) => {
                let parameters = layer.parameters();
                let &[count, rows, height, width] = &parameters.first()?.dims[..] else { return None };
                Matrices { count, rows, columns: height * width }
            }
            _ => return None,
        };
        (matrices.rows > 1 && matrices.columns > 1).then_some(matrices)
    }
}

/// Matrices of equal sizes, one after another, whose rows are contiguous.
struct Matrices {
    count: usize,
    rows: usize,
    columns: usize,
}

impl Matrices {
    /// Transposes each matrix. Copies the values that follow the matrices.
    fn transposed<T: Copy>(&self, values: &[T]) -> Vec<T> {
        let Self { count, rows, columns } = *self;
        let mut to = Vec::with_capacity(values.len());
        for matrix in values.chunks_exact(rows * columns).take(count) {
            for column in 0..columns {
                to.extend((0..rows).map(|row| matrix[row * columns + column]));
            }
        }
        to.extend_from_slice(&values[to.len()..]);
        to
    }
}

#[cfg(test)]
mod tests {
    use layer_graph::{Conv2d, LayerGraph, Linear};

    use super::*;

    /// Returns a convolution of images of 6 x 4 x 5 in two groups, and its filters' sides.
    fn convolution() -> (Layer, [usize; 4]) {
        let mut graph = LayerGraph::new("test", Shape::image(6, 4, 5)).unwrap();
        let kind = Conv2d::rectangular(4, [2, 3]).groups(2);
        let id = graph.add("conv", kind, [graph.input()]).unwrap();
        (graph.layer(id).clone(), [4, 3, 2, 3])
    }

    /// Returns, for each position with channels last, the position with channels first.
    fn positions([count, channels, height, width]: [usize; 4]) -> Vec<usize> {
        let mut all = Vec::new();
        for image in 0..count {
            for row in 0..height {
                for column in 0..width {
                    let places = (0..channels)
                        .map(|channel| ((image * channels + channel) * height + row) * width + column);
                    all.extend(places);
                }
            }
        }
        all
    }

    #[test]
    fn elements_of_channels_last_match_their_definition() {
        let (layer, filters) = convolution();
        let biases = filters.iter().product::<usize>()..layer.parameter_count();
        for (role, expected) in [
            (Role::Input(0), positions([3, 6, 4, 5])),
            (Role::InputGradient(0), positions([1, 6, 4, 5])),
            (Role::Output, positions([3, 4, 3, 3])),
            (Role::Parameters, positions(filters).into_iter().chain(biases.clone()).collect()),
            (Role::ParameterGradient, positions(filters).into_iter().chain(biases).collect()),
            (Role::Labels, (0..7).collect()),
        ] {
            let values: Vec<usize> = (0..expected.len()).collect();
            let last = ImageLayout::ChannelsLast.arrange(&layer, role, &values);
            assert_eq!(last.as_ref(), expected, "{role:?}");
            let first = ImageLayout::ChannelsLast.restore(&layer, role, &last);
            assert_eq!(first.as_ref(), values, "{role:?}");
            let same = ImageLayout::ChannelsFirst.arrange(&layer, role, &values);
            assert_eq!(same.as_ref(), values, "{role:?}");
        }
    }

    #[test]
    fn parameters_of_other_layers_are_not_copied() {
        let mut graph = LayerGraph::new("test", Shape::image(6, 4, 5)).unwrap();
        let flat = graph.add("flat", LayerKind::Flatten, [graph.input()]).unwrap();
        let id = graph.add("linear", Linear::new(3), [flat]).unwrap();
        let layer = graph.layer(id);
        let values = vec![0.5; layer.parameter_count()];
        let last = ImageLayout::ChannelsLast.arrange(layer, Role::Parameters, &values);
        assert!(matches!(last, Cow::Borrowed(_)));
    }
}
