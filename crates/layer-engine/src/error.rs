//! Errors of all engines. A field `engine` holds the engine's name, such as `the CPU engine`.

#[cfg(feature = "cpu")]
use layer_graph::{Layer, LayerKind};

use crate::{Pass, Precision};

/// Errors of preparing or running a kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine does not compute in this precision.
    #[error("{engine} does not compute in {precision:?}")]
    Precision {
        /// Name of the engine.
        engine: &'static str,
        /// The requested precision.
        precision: Precision,
    },
    /// The layer has no such pass, or the engine has no kernel for it.
    #[error("{engine} has no {pass:?} kernel for layer `{layer}` ({kind})")]
    Unsupported {
        /// Name of the engine.
        engine: &'static str,
        /// Name of the layer.
        layer: String,
        /// Kind of the layer, as in `LayerKind::label`.
        kind: &'static str,
        /// The requested pass.
        pass: Pass,
    },
    /// The engine has no kernel for the layer with channels last. It may have one with channels
    /// first.
    #[error("{engine} cannot compute layer `{layer}` ({kind}) with channels last: {problem}")]
    ChannelsLast {
        /// Name of the engine.
        engine: &'static str,
        /// Name of the layer.
        layer: String,
        /// Kind of the layer, as in `LayerKind::label`.
        kind: &'static str,
        /// The reason, for the error message.
        problem: String,
    },
    /// The layer is opaque: only its cost is known.
    #[error(
        "{engine} cannot run layer `{layer}`: only the cost of its operation `{op}` is known. Train the \
         original module in its own framework; this network can be planned and simulated"
    )]
    Opaque {
        /// Name of the engine.
        engine: &'static str,
        /// Name of the layer.
        layer: String,
        /// Name of the operation in the framework that the layer comes from, such as `silu`.
        op: String,
    },
    /// The number of operands, or the length of one, does not match the kernel.
    #[error("{kernel}: operand {operand} has length {got}, expected {expected}")]
    Operand {
        /// Name of the kernel: its layer and pass.
        kernel: String,
        /// The operand, such as `reads[1]`; `reads` or `writes` if their number is wrong; `buffer`
        /// for a copy between host and device.
        operand: String,
        /// Expected number of scalars of the engine, each of which may hold two elements, or of
        /// operands if `operand` is `reads` or `writes`.
        expected: usize,
        /// Given number of scalars, or of operands.
        got: usize,
    },
    /// A label is not an integer in `0..classes`.
    #[error("label {label} is not one of the {classes} classes of layer `{layer}`")]
    Label {
        /// Name of the loss layer.
        layer: String,
        /// The invalid label.
        label: f64,
        /// Number of classes of the layer.
        classes: usize,
    },
    /// An input of an embedding is not an integer in `0..vocabulary`.
    #[error("{token} is not one of the {vocabulary} tokens of layer `{layer}`")]
    Token {
        /// Name of the embedding layer.
        layer: String,
        /// The invalid input.
        token: f64,
        /// Number of tokens in the vocabulary.
        vocabulary: usize,
    },
    /// Allocation of a buffer failed.
    #[error("{engine} has no memory for a buffer of {elements} elements")]
    OutOfMemory {
        /// Name of the engine.
        engine: &'static str,
        /// Number of elements of the buffer.
        elements: usize,
    },
    /// The worker threads could not be started.
    #[error("cannot start {threads} worker threads: {problem}")]
    Threads {
        /// Requested number of threads.
        threads: usize,
        /// Reason, as given by the operating system or the library.
        problem: String,
    },
    /// The device does not exist or cannot be used.
    #[error("{device} cannot be used: {problem}")]
    Device {
        /// Name of the device, such as `CUDA device 0`.
        device: String,
        /// The reason, for the error message.
        problem: String,
    },
    /// A library that the engine uses failed.
    #[error("{engine}: {problem}")]
    Library {
        /// Name of the engine.
        engine: &'static str,
        /// Description of the failure, with the message of the library.
        problem: String,
    },
    /// CUDA failed.
    #[cfg(feature = "cuda")]
    #[error("the CUDA engine: {action}: {source}")]
    Cuda {
        /// The action that failed. For a wait, it has the names of the last kernels.
        action: String,
        /// The error of CUDA.
        source: Box<cuda::Error>,
    },
}

impl EngineError {
    /// Returns the error for a layer that an engine has no kernel for with channels last.
    #[cfg(feature = "cuda")]
    pub(crate) fn channels_last(engine: &'static str, layer: &Layer, problem: impl Into<String>) -> Self {
        let (layer, kind) = (layer.name().into(), layer.kind().label());
        Self::ChannelsLast { engine, layer, kind, problem: problem.into() }
    }

    /// Returns the error for a pass of a layer that an engine has no kernel for: `Opaque` for an
    /// opaque layer, else `Unsupported`.
    #[cfg(feature = "cpu")]
    pub(crate) fn unsupported(engine: &'static str, layer: &Layer, pass: Pass) -> Self {
        match layer.kind() {
            LayerKind::Opaque(opaque) => {
                Self::Opaque { engine, layer: layer.name().into(), op: opaque.op.clone() }
            }
            kind => Self::Unsupported { engine, layer: layer.name().into(), kind: kind.label(), pass },
        }
    }
}
