//! Assignment of a published file's rows to the layers of a network. A *row* is one line of the
//! file: the times of a layer, or of a block of layers, at one batch size.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use layer_graph::{Conv2d, Layer, LayerGraph, LayerId, LayerKind};

use super::PublishedProfile;
use super::proportional::divide;
use super::row::PublishedRow;
use crate::{DeviceModel, ProfileError, structure};

/// Published times of a network's layers at one batch size.
pub(super) struct PublishedTimes {
    /// Forward and backward times.
    times: HashMap<LayerId, [Option<Duration>; 2]>,
}

impl PublishedTimes {
    /// Assigns the rows of one batch size to the layers of a network. The time of a row of several
    /// layers is divided between them in proportion to their times in `model`.
    ///
    /// # Errors
    /// [`ProfileError::Published`] for the first row that matches no layer, or the last row if
    /// layers remain without one.
    pub(super) fn of(
        network: &LayerGraph,
        rows: &[PublishedRow],
        model: &DeviceModel,
    ) -> Result<Self, ProfileError> {
        let groups = groups(network, rows)?;
        let has_relus = rows.iter().any(is_relu);
        let mut times = Self { times: HashMap::new() };
        let mut rows = rows.iter().zip(&groups).peekable();
        while let Some((row, layers)) = rows.next() {
            let mut assign = |pass: usize, layers: &[LayerId], time: Duration| {
                let weights = layers.iter().map(|&id| {
                    let time = model.layer_time(network.layer(id), row.batch);
                    [time.forward, time.backward][pass]
                });
                let shares = divide(time, &weights.collect::<Vec<_>>());
                for (&id, share) in layers.iter().zip(shares) {
                    times.times.entry(id).or_default()[pass] = Some(share);
                }
            };
            assign(0, layers, row.forward);
            let is_combined = has_relus && matches!(row.kind.as_str(), "conv2d" | "linear");
            if let Some((relu, relu_layers)) = rows.next_if(|(next, _)| is_combined && is_relu(next)) {
                assign(0, relu_layers, relu.forward);
                let both = [layers.as_slice(), relu_layers].concat();
                assign(1, &both, row.backward.saturating_add(relu.backward));
            } else if !is_combined {
                assign(1, layers, row.backward);
            }
        }
        Ok(times)
    }

    /// Returns the published times of a layer, `[forward, backward]`. `None` for a time that the
    /// file does not have.
    pub(super) fn of_layer(&self, id: LayerId) -> [Option<Duration>; 2] {
        self.times.get(&id).copied().unwrap_or_default()
    }
}

fn is_relu(row: &PublishedRow) -> bool {
    PublishedProfile::layer_label(&row.kind) == Some("relu")
}

/// Returns the layers of each row, in order. Kinds of layers without any row are skipped; every
/// other layer must have one.
fn groups(network: &LayerGraph, rows: &[PublishedRow]) -> Result<Vec<Vec<LayerId>>, ProfileError> {
    let kinds: HashSet<&str> =
        rows.iter().filter_map(|row| PublishedProfile::layer_label(&row.kind)).collect();
    let layers: Vec<(LayerId, &Layer)> = network.computing_layers().collect();
    let next_layer = |from: usize| {
        let found = layers[from..].iter().position(|(_, layer)| kinds.contains(layer.kind().label()));
        found.map(|offset| from + offset)
    };
    let mut position = 0;
    let mut groups = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(next) = next_layer(position) else {
            let problem = format!("`{}` comes after all layers of `{}`", row.text, network.name());
            return Err(row.error(problem));
        };
        let count = if row.kind == "ResnetBottleneck" {
            let kinds: Vec<&Layer> = layers[next..].iter().map(|&(_, layer)| layer).collect();
            bottleneck(row, &kinds)
        } else {
            fits(row, layers[next].1).then_some(1)
        };
        let Some(count) = count else {
            let (id, layer) = layers[next];
            let problem = format!(
                "expected a row for layer `{}` of `{}` ({}), found `{}`",
                layer.name(),
                network.name(),
                structure::of(network, id),
                row.text
            );
            return Err(row.error(problem));
        };
        groups.push(layers[next..next + count].iter().map(|&(id, _)| id).collect());
        position = next + count;
    }
    match (next_layer(position), rows.last()) {
        (Some(missing), Some(last)) => {
            let problem = format!(
                "the rows of batch {} end here: there is none for layer `{}` of `{}`",
                last.batch,
                layers[missing].1.name(),
                network.name()
            );
            Err(last.error(problem))
        }
        _ => Ok(groups),
    }
}

/// Returns whether a row describes a layer: same kind, parameters and shapes.
fn fits(row: &PublishedRow, layer: &Layer) -> bool {
    let input =
        if *layer.kind() == LayerKind::Concat { layer.output_shape() } else { &layer.input_shapes()[0] };
    if PublishedProfile::layer_label(&row.kind) != Some(layer.kind().label()) || row.input != input.dims() {
        return false;
    }
    let pairs = |expected: [(&str, [usize; 2]); 3]| {
        expected.into_iter().all(|(name, pair)| row.pair(name) == Some(pair))
    };
    match layer.kind() {
        LayerKind::Conv2d(conv) => {
            row.size("in_channels") == Some(input.dims()[0])
                && row.size("out_channels") == Some(conv.out_channels)
                && conv.groups == 1
                && pairs([("kernel_size", conv.kernel), ("stride", conv.stride), ("padding", conv.padding)])
        }
        LayerKind::MaxPool2d(pool) | LayerKind::AvgPool2d(pool) => {
            pairs([("kernel_size", pool.kernel), ("stride", pool.stride), ("padding", pool.padding)])
        }
        LayerKind::AdaptiveAvgPool2d(pool) => {
            [row.size("output_height"), row.size("output_width")] == pool.output.map(Some)
        }
        LayerKind::Linear(linear) => {
            row.size("in_features") == Some(input.innermost())
                && row.size("out_features") == Some(linear.out_features)
        }
        _ => true,
    }
}

/// Returns the number of layers that belong to a residual block's row: three convolutions with
/// normalisations and activations, an optional projection, the sum and its ReLU.
fn bottleneck(row: &PublishedRow, layers: &[&Layer]) -> Option<usize> {
    let first = layers.first()?;
    if row.input != first.input_shapes()[0].dims() {
        return None;
    }
    let planes = row.size("planes")?;
    let width = planes.checked_mul(row.size("base_width")?)? / 64;
    let stride = row.size("stride").unwrap_or(1);
    let projected = row.parameters.contains_key("downsampleParams");
    let convolution = |channels: usize, kernel: usize, stride: usize| {
        LayerKind::from(Conv2d::new(channels, kernel).stride(stride).padding(kernel / 2).without_bias())
    };
    let out = planes.checked_mul(4)?;
    let mut expected = vec![
        Some(convolution(width, 1, 1)),
        None,
        Some(LayerKind::Relu),
        Some(convolution(width, 3, stride)),
        None,
        Some(LayerKind::Relu),
        Some(convolution(out, 1, 1)),
        None,
    ];
    if projected {
        expected.extend([Some(convolution(out, 1, stride)), None]);
    }
    expected.extend([Some(LayerKind::Add), Some(LayerKind::Relu)]);
    let is = |(layer, expected): (&&Layer, &Option<LayerKind>)| match expected {
        Some(kind) => layer.kind() == kind,
        None => matches!(layer.kind(), LayerKind::BatchNorm(_)),
    };
    (layers.len() >= expected.len() && layers.iter().zip(&expected).all(is)).then_some(expected.len())
}
