//! Layer times that were published with DeepPool (Park et al., MLSys 2022), `profile/A100_vgg.prof` and its like.

mod assign;
mod row;
mod share;

use std::path::Path;
use std::time::Duration;

use layer_graph::{LayerGraph, LayerId};

use crate::{
    BatchTime, DeviceModel, LayerProfile, LayerTime, ModelAccuracy, NetworkTime, Origin, ProfileError,
    ProfileTable, structure,
};
use assign::Times;
use row::{Row, parse};

/// A profile in the text format of the original DeepPool, of one network at several batch sizes.
///
/// # Format
/// A line holds the layer's kind, its parameters as JSON, the batch size, the shape of an input sample, and three times: all in
/// milliseconds, forward and backward in microseconds.
///
/// ```text
/// conv2d{"in_channels":3,"kernel_size":3,"out_channels":64,"padding":1,"stride":1}[64][3,224,224]   2.157   2157     6
/// ReLU2d{"inplace":true,"kernel_size":1,"padding":0,"stride":1}[64][64,224,224]                     4.936   1205  3730
/// ```
///
/// The rows of a batch size stand together in the order of the layers; lines such as `SUM(avg)  103.081` end them. Files of
/// percentiles, which do not tell forward from backward, are refused.
///
/// # What the rows mean
/// - Rows belong to layers by position: equal layers have equal texts, and their times differ.
/// - In a file with rows of activations, a convolution's or linear layer's backward was measured with the ReLU after it. The two
///   layers share the sum of both rows' backward times as a device model shares it. A last linear layer, with no ReLU after it,
///   has no backward time in the file.
/// - A `ResnetBottleneck` is a row of a whole block, which its layers share likewise.
/// - Kinds of layers without any row in the file are not in its times: the original's networks have no dropout and no loss, and
///   VGG-16 there has no pooling of 7x7 to 7x7, WRN-101-2 no normalisation after its first convolution, and Inception-V3
///   convolutions and pooling alone.
///
/// What is not in the file is modelled: those layers, and the optimiser's step.
///
/// # Which files fit which networks
/// `A100_vgg.prof` fits `vgg16`, `A100_wrn.prof` `wrn-101-2`, and `A100_inception.prof` `inception-v3`. With any other network, the
/// first row that differs is named.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedProfile {
    /// The rows of each batch size, ascending.
    blocks: Vec<Vec<Row>>,
}

/// A profile for a network of ours, made from a published one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ImportedProfile {
    /// The times of all layers.
    pub table: ProfileTable,
    /// The layers that are not in the file: their times are a model's.
    pub modelled: Vec<String>,
    /// The layers of which the file has no backward time: it is a model's.
    pub modelled_backward: Vec<String>,
    /// The largest share, over the batch sizes, that the model has in forward and backward together.
    pub modelled_share: f64,
}

impl PublishedProfile {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`ProfileError::Published`], which names the line.
    pub fn from_text(text: &str) -> Result<Self, ProfileError> {
        Ok(Self { blocks: parse(text)? })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`ProfileError::File`] that names the file and what is wrong in it.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ProfileError> {
        let path = path.as_ref();
        let in_file = |problem: String| ProfileError::File { path: path.into(), problem };
        let text = whole_file::read_to_string(path).map_err(|error| in_file(error.to_string()))?;
        Self::from_text(&text).map_err(|error| in_file(error.to_string()))
    }

    /// The batch sizes, ascending.
    pub fn batches(&self) -> impl Iterator<Item = usize> {
        self.blocks.iter().map(|rows| rows[0].batch)
    }

    /// The times of a network's layers. `model` shares rows that several layers have together, and stands in for what is not in
    /// the file; the table is of its device.
    ///
    /// # Errors
    /// [`ProfileError::Published`] that names the first row that differs from the network, or the layer without a row.
    pub fn for_network(
        &self,
        network: &LayerGraph,
        model: &DeviceModel,
    ) -> Result<ImportedProfile, ProfileError> {
        let layers: Vec<LayerId> = network.layers().skip(1).map(|(id, _)| id).collect();
        let blocks = self.blocks.iter().map(|rows| Block::of(network, rows, &layers, model));
        let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
        let modelled_share = blocks.iter().map(Block::modelled_share).fold(0.0, f64::max);

        let profiles = layers.iter().enumerate().map(|(i, &id)| LayerProfile {
            name: network.layer(id).name().into(),
            kind: network.layer(id).kind().label().into(),
            structure: Some(structure::of(network, id)),
            update: update(network, id, model),
            update_spread: None,
            times: blocks.iter().map(|block| block.times[i]).collect(),
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

        // The same for all batch sizes, since each of them has all rows.
        let lacking = |wanted: [bool; 2]| {
            let ids = layers.iter().zip(&blocks[0].lacks).filter(move |&(_, lacks)| *lacks == wanted);
            ids.map(|(&id, _)| network.layer(id).name().to_owned()).collect()
        };
        Ok(ImportedProfile {
            modelled: lacking([true, true]),
            modelled_backward: lacking([false, true]),
            table: table.with_accuracy(accuracy),
            modelled_share,
        })
    }
}

/// All times at one batch size.
struct Block {
    batch: usize,
    /// Of each layer.
    times: Vec<BatchTime>,
    /// Whether a layer's forward and backward times were not published.
    lacks: Vec<[bool; 2]>,
    /// All layers, with the optimiser's step.
    whole: LayerTime,
    /// What of the passes is the model's.
    modelled: Duration,
}

impl Block {
    fn of(
        network: &LayerGraph,
        rows: &[Row],
        layers: &[LayerId],
        model: &DeviceModel,
    ) -> Result<Self, ProfileError> {
        let published = Times::of(network, rows, model)?;
        let batch = rows[0].batch;
        let mut block = Self {
            batch,
            times: Vec::with_capacity(layers.len()),
            lacks: Vec::with_capacity(layers.len()),
            whole: LayerTime::default(),
            modelled: Duration::ZERO,
        };
        for &id in layers {
            let modelled = model.layer_time(network.layer(id), batch);
            let times = published.of_layer(id);
            let lacks = times.map(|time| time.is_none());
            let [forward, backward] =
                [times[0].unwrap_or(modelled.forward), times[1].unwrap_or(modelled.backward)];
            for (lacks, time) in lacks.into_iter().zip([forward, backward]) {
                block.modelled += if lacks { time } else { Duration::ZERO };
            }
            let update = update(network, id, model).unwrap_or_default();
            block.whole = block.whole + LayerTime { forward, backward, update };
            block.times.push(BatchTime { batch, forward, backward, spread: None });
            block.lacks.push(lacks);
        }
        Ok(block)
    }

    /// The model's share of forward and backward together.
    fn modelled_share(&self) -> f64 {
        let passes = self.whole.forward.saturating_add(self.whole.backward);
        self.modelled.as_secs_f64() / passes.as_secs_f64()
    }
}

/// The optimiser's step over the parameters that a layer brings with it.
fn update(network: &LayerGraph, id: LayerId, model: &DeviceModel) -> Option<Duration> {
    (network.own_parameter_count(id) > 0).then(|| model.layer_time(network.layer(id), 0).update)
}
