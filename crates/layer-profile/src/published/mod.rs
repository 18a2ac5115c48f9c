//! Importer of the layer times published with DeepPool (Park et al., MLSys 2022), such as
//! `profile/A100_vgg.prof`.

mod assign;
mod proportional;
mod row;

use std::time::Duration;

use layer_graph::{LayerGraph, LayerId};

use crate::{
    BatchTime, DeviceModel, LayerProfile, LayerTime, ModelAccuracy, NetworkTime, Origin, ProfileError,
    ProfileTable,
};
use assign::PublishedTimes;
use row::{PublishedRow, parse};

/// Profile of one network at several batch sizes, in the text format of the original DeepPool.
///
/// # Format
/// A line holds the layer's kind, its parameters as JSON, the batch size, the shape of an input
/// sample, and three times: the total in milliseconds, forward and backward in microseconds.
///
/// ```text
/// conv2d{"in_channels":3,"kernel_size":3,...,"stride":1}[64][3,224,224]     2.157   2157     6
/// ReLU2d{"inplace":true,"kernel_size":1,...,"stride":1}[64][64,224,224]     4.936   1205  3730
/// ```
///
/// The rows of a batch size are consecutive and in the order of the layers; a line such as
/// `SUM(avg)  103.081` ends them. Files of percentiles are rejected, since they do not separate
/// forward from backward.
///
/// # Assignment to layers
/// - Rows are assigned by position: equal layers have equal text, but different times.
/// - In files with rows of activations, the backward pass of a convolution or linear layer was
///   measured together with the following ReLU. The sum of both backward times is divided in the
///   proportions of a device model. A final linear layer, without a ReLU, has no backward time in
///   the file.
/// - A `ResnetBottleneck` row covers a whole block. Its times are divided in the same way.
/// - Layers of a kind that occurs in no row of the file have no published times. The original's
///   networks have no dropout and no loss. Its VGG-16 has no pooling from 7x7 to 7x7, its WRN-101-2
///   no normalisation after the first convolution, and its Inception-V3 only convolutions and
///   pooling.
///
/// A device model supplies the missing times: those of such layers, and of the optimiser step.
///
/// # Files and networks
/// `A100_vgg.prof` matches `vgg16`, `A100_wrn.prof` matches `wrn-101-2`, and `A100_inception.prof`
/// matches `inception-v3`. For any other network, the error names the first row that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedProfile {
    /// Rows of each batch size, ascending.
    blocks: Vec<Vec<PublishedRow>>,
}

/// Profile of a network, converted from a published one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ImportedProfile {
    /// Times of all layers, published or modelled.
    pub table: ProfileTable,
    /// Names of the layers without published times. Their times are modelled.
    pub modelled: Vec<String>,
    /// Names of the layers with a published forward time only. Their backward time is modelled.
    pub modelled_backward: Vec<String>,
    /// Modelled time divided by the time of all forward and backward passes, the maximum over the
    /// batch sizes, in `0.0..=1.0`.
    pub modelled_share: f64,
}

impl PublishedProfile {
    /// Returns the [label](layer_graph::LayerKind::label) of the kind of layer with a name of the
    /// original's, such as `max_pool2d` of `maxPool2d`. `None` for a block of layers and for other
    /// names.
    #[must_use]
    pub fn layer_label(kind: &str) -> Option<&'static str> {
        Some(match kind {
            "conv2d" => "conv2d",
            "ReLU1d" | "ReLU2d" => "relu",
            "maxPool2d" => "max_pool2d",
            "avgPool2d" => "avg_pool2d",
            "adAvgPool2d" => "adaptive_avg_pool2d",
            "flatten" => "flatten",
            "linear" => "linear",
            "concat" => "concat",
            _ => return None,
        })
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// [`ProfileError::Published`], which names the line, if a line is malformed, a batch size
    /// occurs in two places, or there are no rows.
    pub fn from_text(text: &str) -> Result<Self, ProfileError> {
        Ok(Self { blocks: parse(text)? })
    }

    /// Returns the batch sizes in samples, ascending.
    pub fn batches(&self) -> impl Iterator<Item = usize> {
        self.blocks.iter().map(|rows| rows[0].batch)
    }

    /// Converts the rows to a profile of the given network.
    ///
    /// `model` divides the rows that cover several layers and supplies the missing times. The
    /// device of the table is the name of `model`.
    ///
    /// # Errors
    /// [`ProfileError::Published`], which names the first row that differs from the network, or the
    /// layer without a row.
    pub fn for_network(
        &self,
        network: &LayerGraph,
        model: &DeviceModel,
    ) -> Result<ImportedProfile, ProfileError> {
        let layers: Vec<LayerId> = network.computing_layers().map(|(id, _)| id).collect();
        let blocks = self.blocks.iter().map(|rows| Block::of(network, rows, &layers, model));
        let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
        let modelled_share = blocks.iter().map(Block::modelled_share).fold(0.0, f64::max);

        let profiles = layers.iter().enumerate().map(|(i, &id)| {
            let times = blocks.iter().map(|block| block.times[i]).collect();
            LayerProfile::new(network, id, update(network, id, model), times)
        });
        let whole =
            blocks.iter().map(|block| NetworkTime { batch: block.batch, time: block.whole, spread: None });
        let (profiles, whole) = (profiles.collect(), whole.collect());
        let table = ProfileTable::new(network.name(), model.name(), Origin::Imported, profiles, whole)?;
        let accuracy = ModelAccuracy {
            basis: format!(
                "for the optimiser's step and the {:.1}% of the times that are not in the published file, {}",
                100.0 * modelled_share,
                model.accuracy().basis
            ),
            ..model.accuracy().clone()
        };

        // Equal for all batch sizes, since each of them has all rows.
        let layers_missing = |wanted: [bool; 2]| {
            let ids = layers.iter().zip(&blocks[0].missing).filter(move |&(_, missing)| *missing == wanted);
            ids.map(|(&id, _)| network.layer(id).name().to_owned()).collect()
        };
        Ok(ImportedProfile {
            modelled: layers_missing([true, true]),
            modelled_backward: layers_missing([false, true]),
            table: table.with_accuracy(accuracy),
            modelled_share,
        })
    }
}

/// Times at one batch size.
struct Block {
    batch: usize,
    /// Times of each layer.
    times: Vec<BatchTime>,
    /// For each layer, whether its forward and backward times are missing in the file.
    missing: Vec<[bool; 2]>,
    /// Sum of all layers, including the optimiser step.
    whole: LayerTime,
    /// Modelled part of the forward and backward passes.
    modelled: Duration,
}

impl Block {
    fn of(
        network: &LayerGraph,
        rows: &[PublishedRow],
        layers: &[LayerId],
        model: &DeviceModel,
    ) -> Result<Self, ProfileError> {
        let published = PublishedTimes::of(network, rows, model)?;
        let batch = rows[0].batch;
        let mut block = Self {
            batch,
            times: Vec::with_capacity(layers.len()),
            missing: Vec::with_capacity(layers.len()),
            whole: LayerTime::default(),
            modelled: Duration::ZERO,
        };
        for &id in layers {
            let modelled = model.layer_time(network.layer(id), batch);
            let times = published.of_layer(id);
            let missing = times.map(|time| time.is_none());
            let [forward, backward] =
                [times[0].unwrap_or(modelled.forward), times[1].unwrap_or(modelled.backward)];
            for (missing, time) in missing.into_iter().zip([forward, backward]) {
                block.modelled += if missing { time } else { Duration::ZERO };
            }
            let update = update(network, id, model).unwrap_or_default();
            block.whole = block.whole + LayerTime { forward, backward, update };
            block.times.push(BatchTime { batch, forward, backward, spread: None });
            block.missing.push(missing);
        }
        Ok(block)
    }

    /// Returns the modelled share of the forward and backward passes.
    fn modelled_share(&self) -> f64 {
        let passes = self.whole.forward.saturating_add(self.whole.backward);
        self.modelled.as_secs_f64() / passes.as_secs_f64()
    }
}

/// Returns the modelled time of the optimiser step over the parameters that a layer owns.
pub(crate) fn update(network: &LayerGraph, id: LayerId, model: &DeviceModel) -> Option<Duration> {
    (network.own_parameter_count(id) > 0).then(|| model.layer_time(network.layer(id), 0).update)
}
