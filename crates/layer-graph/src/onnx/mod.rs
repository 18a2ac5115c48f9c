//! Networks from ONNX files (feature `onnx`).
//!
//! ```no_run
//! let imported = layer_graph::onnx::import("resnet50.onnx")?;
//! println!("{} parameters", imported.graph.parameter_count());
//! # Ok::<(), layer_graph::onnx::OnnxError>(())
//! ```
//!
//! PyTorch exports for inference unless told otherwise, and folds batch normalisations into the convolutions before them: such a file
//! has fewer layers than training runs. This keeps them, and leaves the batch open:
//!
//! ```python
//! x = torch.randn(2, 3, 224, 224)
//! torch.onnx.export(model.train(), x, "net.onnx", dynamo=False, training=torch.onnx.TrainingMode.TRAINING,
//!                   do_constant_folding=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}})
//! ```
//!
//! [`Imported::warning`] says so of such a file.
//!
//! What comes out is a network to train, or to plan the training of: its layers, shapes and shared weights, but not the values of
//! its parameters. Five things are changed on the way.
//!
//! - The batch is the first dimension everywhere, and is left out: [`Shape`](crate::Shape)s are those of one sample.
//! - A network that ends in class scores ends in [`SoftmaxCrossEntropy`](crate::LayerKind::SoftmaxCrossEntropy), named `loss`;
//!   a softmax at the end becomes part of it, and scores that are an image of one pixel are made a vector first.
//! - A multiplication and an addition of constants by channel after a batch normalisation are its scale and bias, as
//!   conversions from Caffe have it; an addition after a convolution or a matrix product is its bias.
//! - Layers have the names of PyTorch's modules, such as `layer1.0.conv1`, where the file has them, and those of nodes elsewhere.
//! - Nodes that compute nothing for the network's output have no layers, and nothing about them is checked.
//!
//! Layers that use the same stored weight share it. They have to share the bias too, and use the weight the same way around.
//!
//! Operators: convolution, batch, layer and local response normalisation, pooling, activations that have a layer, products with
//! constant matrices, sums, concatenation of channels, dropout, and rearrangements. Another operator, or a use of one that has no
//! layer (such as a dilated convolution), is an error that names the node. Shapes are inferred, and compared with those in the
//! file where it has them.

mod ancestors;
mod constants;
mod dims;
mod error;
mod importer;
mod names;
mod node;
mod operators;
mod proto;

use std::path::Path;

use prost::Message;
use prost::bytes::{Buf, Bytes};

pub use error::OnnxError;

use crate::LayerGraph;
use importer::Importer;
use proto::ModelProto;

/// Before it, broadcasting and batch normalisation meant something else.
const OLDEST_OPERATORS: i64 = 7;

/// A network that was read from an ONNX file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Imported {
    /// The network.
    pub graph: LayerGraph,
    /// The program that wrote the file, with its version, as far as the file says.
    pub producer: String,
    /// The version of ONNX's operators that the file uses.
    pub opset: i64,
    /// Convolutions that PyTorch folded batch normalisations into when it exported the network, which is then trained without them.
    pub folded_batch_norms: usize,
}

impl Imported {
    /// What to tell who wants to train this network, or to plan for it: in which way it is not the one that was exported, and how to
    /// export that.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let count = self.folded_batch_norms;
        (count > 0).then(|| {
            format!(
                "the batch normalisations of {} were folded into {count} of its convolutions when it was exported, and training \
                 has them; export it with torch.onnx.export(model.train(), ..., dynamo=False, \
                 training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)",
                self.graph.name()
            )
        })
    }
}

/// Reads a file. The network has the file's name, without its extension.
///
/// The whole file is read into memory. Weights stored in other files are not read.
///
/// # Errors
/// [`OnnxError::File`] when it cannot be read, [`OnnxError::InFile`] around what [`from_bytes`] says of its contents.
pub fn import(path: impl AsRef<Path>) -> Result<Imported, OnnxError> {
    let path = path.as_ref();
    let bytes = whole_file::read(path).map_err(|problem| OnnxError::File { path: path.into(), problem })?;
    let name = path.file_stem().map_or("onnx".into(), |stem| stem.to_string_lossy());
    decode(&name, Bytes::from(bytes))
        .map_err(|problem| OnnxError::InFile { path: path.into(), problem: Box::new(problem) })
}

/// Reads the contents of an ONNX file as a network of this name.
///
/// # Errors
/// One for each way in which the bytes are not an ONNX model, or one of a network that can be trained layer by layer.
pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Imported, OnnxError> {
    decode(name, bytes)
}

fn decode(name: &str, bytes: impl Buf) -> Result<Imported, OnnxError> {
    let model = ModelProto::decode(bytes).map_err(|error| OnnxError::not_onnx(error.to_string()))?;
    let graph = model.graph.ok_or_else(|| OnnxError::not_onnx("it has no graph"))?;
    let own = model.opset_import.iter().find(|set| matches!(&*set.domain, "" | "ai.onnx"));
    let opset = own.ok_or_else(|| OnnxError::not_onnx("it does not name its operator set"))?.version;
    if opset < OLDEST_OPERATORS {
        return Err(OnnxError::OldOperators { found: opset, oldest: OLDEST_OPERATORS });
    }
    let producer = format!("{} {}", model.producer_name, model.producer_version).trim().to_owned();
    let (graph, folded_batch_norms) = Importer::new(name, &graph, opset)?.run()?;
    Ok(Imported { graph, producer, opset, folded_batch_norms })
}
