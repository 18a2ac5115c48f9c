//! Importer of ONNX files (feature `onnx`).
//!
//! ```no_run
//! let imported = layer_graph::onnx::from_vec("resnet50", std::fs::read("resnet50.onnx")?)?;
//! println!("{} parameters", imported.graph.parameter_count());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! PyTorch optimises exported networks for inference by default: it folds each batch normalisation
//! into the convolution before it, computes sums and transposes of parameters and stores these
//! instead. Such a file has fewer layers than training runs, which [`Imported::warning`] reports,
//! fewer positions, and no shared weights. To keep the layers and an open batch, export with:
//!
//! ```python
//! x = torch.randn(2, 3, 224, 224)
//! torch.onnx.export(model.train(), (x,), "net.onnx", dynamo=True, optimize=False,
//!                   dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
//! ```
//!
//! or with the older exporter, which lacks operators of newer networks:
//!
//! ```python
//! torch.onnx.export(model.train(), x, "net.onnx", dynamo=False,
//!                   training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
//!                   input_names=["x"], dynamic_axes={"x": {0: "batch"}})
//! ```
//!
//! The result is a network to train or to plan: its layers, shapes and shared weights, without the
//! values of its parameters. It differs from the file as follows.
//!
//! - The batch is the first dimension of every value and is removed: a [`Shape`](crate::Shape) is
//!   that of one sample.
//! - A [`SoftmaxCrossEntropy`](crate::LayerKind::SoftmaxCrossEntropy) layer named `loss` is added
//!   after the class scores. A final softmax becomes part of it, and scores that are an image of
//!   one pixel are flattened first.
//! - A multiplication and an addition of per-channel constants after a batch normalisation become
//!   its scale and bias, as models converted from Caffe have them. An addition after a convolution
//!   or a matrix product becomes its bias.
//! - Shapes, masks and tables that do not depend on the samples are evaluated, such as the shape of
//!   `x.view(x.size(0), -1)`. Tensors in other files are read for it if [`from_vec_in`] has the
//!   folder.
//! - Batch normalisations normalise by the batch, also those that do not in the file;
//!   [`Imported::warning`] reports them. The same holds for dropouts.
//! - Layers are named after PyTorch modules, such as `layer1.0.conv1`, if the file has these names,
//!   and after nodes otherwise.
//! - Nodes that the output does not depend on are removed without being checked;
//!   [`Imported::warning`] counts them.
//!
//! Layers that use the same stored weight share it. They must have the same bias and use the weight
//! in the same orientation.
//!
//! Supported operators: convolution, also transposed, and of signals; batch, layer, group,
//! root-mean-square and local response normalisation; pooling, padding and upsampling; activations
//! with a layer kind; products with constant matrices; sums and products of layers; concatenation
//! of channels or features; slices of channels; embeddings and positions; LSTMs and GRUs from a
//! state of zeros; dropout; rearrangements. Activations, normalisations, rotary embeddings of whole
//! heads and attentions, causal, with a window or without a mask, are recognised if they are
//! written in several nodes. Other operators, and unsupported uses such as a dilated pooling, are
//! errors that name the node. Shapes are inferred and checked against those in the file.

mod ancestors;
mod attention;
mod builder;
mod constants;
mod deferred;
mod dims;
mod error;
mod function;
mod importer;
mod names;
mod node;
mod numbers;
mod operators;
mod proto;
pub mod pt2;
mod scores;
mod signature;
mod supported;
mod table;
mod view;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

use prost::Message;
use prost::bytes::{Buf, Bytes};

pub use error::OnnxError;

use crate::LayerGraph;
use constants::ReadApart;
use importer::import_graph;
use proto::ModelProto;

/// Oldest supported operator set. Earlier ones define broadcasting and batch normalisation
/// differently.
const MIN_OPSET: i64 = 7;

/// Network imported from an ONNX file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Imported {
    /// Imported network.
    pub graph: LayerGraph,
    /// Name and version of the program that wrote the file, separated by a space; empty if the file
    /// has neither.
    pub producer: String,
    /// Version of ONNX's operator set in the file.
    pub opset: i64,
    /// Number of convolutions into which PyTorch folded batch normalisations at export. The network
    /// has lost these layers.
    pub folded_batch_norms: usize,
    /// Number of batch normalisations that are layers of the network.
    pub batch_norms: usize,
    /// Number of those that normalise by their running statistics in the file (`training_mode` 0),
    /// as exported for inference or because they are frozen. The network normalises by the batch.
    pub frozen_batch_norms: usize,
    /// Number of dropouts.
    pub dropouts: usize,
    /// Number of dropouts that drop nothing in the file (`training_mode` false), as exported for
    /// inference. Those of the network drop.
    pub frozen_dropouts: usize,
    /// Number of nodes that the output does not depend on. The network has no layers for them.
    pub left_out_nodes: usize,
}

impl Imported {
    /// Returns a warning that this network differs from the one in the file, or from the one that
    /// training runs: batch normalisations were folded into convolutions at export, or normalise by
    /// their running statistics, dropouts drop nothing, or nodes are left out. It says how to
    /// export the network unchanged. `None` if there are no such nodes.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let warnings: Vec<String> = [
            self.folded_warning(),
            self.frozen_warning(),
            self.frozen_dropout_warning(),
            self.left_out_warning(),
        ]
        .into_iter()
        .flatten()
        .collect();
        (!warnings.is_empty()).then(|| warnings.join("; "))
    }

    fn frozen_warning(&self) -> Option<String> {
        let (frozen, all) = (self.frozen_batch_norms, self.batch_norms);
        (frozen > 0).then(|| {
            format!(
                "{frozen} of {all} batch normalisations of {} are frozen in the file (training_mode 0, as \
                 PyTorch exports for inference, and with dynamo=True in training too): here they \
                 normalise by the batch and are trained",
                self.graph.name()
            )
        })
    }

    fn frozen_dropout_warning(&self) -> Option<String> {
        let (frozen, all) = (self.frozen_dropouts, self.dropouts);
        (frozen > 0).then(|| {
            format!(
                "{frozen} of {all} dropouts of {} drop nothing in the file (training_mode false, as exported \
                 for inference): here they drop; a network in training is exported with \
                 training=torch.onnx.TrainingMode.TRAINING",
                self.graph.name()
            )
        })
    }

    fn left_out_warning(&self) -> Option<String> {
        let count = self.left_out_nodes;
        (count > 0).then(|| {
            format!(
                "{count} nodes of {} are left out, because its output does not depend on them: an export of \
                 the output alone has none",
                self.graph.name()
            )
        })
    }

    fn folded_warning(&self) -> Option<String> {
        let count = self.folded_batch_norms;
        (count > 0).then(|| {
            format!(
                "the batch normalisations of {} were folded into {count} of its convolutions when it was \
                 exported, and training has them; export it with \
                 torch.onnx.export(model.train(), ..., dynamo=True, optimize=False), or with \
                 dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False",
                self.graph.name()
            )
        })
    }
}

/// Imports the contents of an ONNX file in a folder, as [`from_vec`] does. Tensors that the file
/// stores in other files of the folder (external data) are read where their values are needed, such
/// as the mask of an attention. Those of weights are not, and their files may be absent.
///
/// # Errors
/// Those of [`from_bytes`].
pub fn from_vec_in(name: &str, bytes: Vec<u8>, folder: &Path) -> Result<Imported, OnnxError> {
    decode(name, Bytes::from(bytes), &|file, offset, length| read_apart(folder, file, offset, length))
}

/// Reads a part of a file in a folder. `None` if it has no such part, or the name is not that of a
/// file in the folder.
fn read_apart(folder: &Path, file: &str, offset: u64, length: usize) -> Option<Vec<u8>> {
    let is_inside = Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
    let mut opened = File::open(folder.join(Some(file).filter(|_| is_inside)?)).ok()?;
    if opened.metadata().ok()?.len() < offset.checked_add(length as u64)? {
        return None;
    }
    opened.seek(SeekFrom::Start(offset)).ok()?;
    let mut bytes = vec![0; length];
    opened.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// Imports the contents of an ONNX file as a network with the given name. Tensors stored in other
/// files are not read.
///
/// # Errors
/// - [`OnnxError::NotOnnx`] or [`OnnxError::UnsupportedOpset`] if the bytes are not an ONNX model
///   of operator set 7 or newer.
/// - Another [`OnnxError`] if the model cannot be expressed as a network of layers that ends in
///   class scores.
pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Imported, OnnxError> {
    decode(name, bytes, &|_, _, _| None)
}

/// Imports the contents of an ONNX file as [`from_bytes`] does, without copying the weights while
/// decoding.
///
/// # Errors
/// Those of [`from_bytes`].
pub fn from_vec(name: &str, bytes: Vec<u8>) -> Result<Imported, OnnxError> {
    decode(name, Bytes::from(bytes), &|_, _, _| None)
}

fn decode(name: &str, bytes: impl Buf, read_apart: &ReadApart<'_>) -> Result<Imported, OnnxError> {
    let model = ModelProto::decode(bytes).map_err(|error| OnnxError::not_onnx(error.to_string()))?;
    let graph = model.graph.ok_or_else(|| OnnxError::not_onnx("it has no graph"))?;
    let own = model.opset_import.iter().find(|set| matches!(&*set.domain, "" | "ai.onnx"));
    let opset = own.ok_or_else(|| OnnxError::not_onnx("it does not name its operator set"))?.version;
    if opset < MIN_OPSET {
        return Err(OnnxError::UnsupportedOpset { found: opset, oldest: MIN_OPSET });
    }
    let producer = format!("{} {}", model.producer_name, model.producer_version).trim().to_owned();
    let (graph, counts) = import_graph(name, &graph, opset, read_apart)?;
    Ok(Imported {
        graph,
        producer,
        opset,
        folded_batch_norms: counts.folded,
        batch_norms: counts.batch_norms,
        frozen_batch_norms: counts.frozen,
        dropouts: counts.dropouts,
        frozen_dropouts: counts.frozen_dropouts,
        left_out_nodes: counts.left_out,
    })
}
