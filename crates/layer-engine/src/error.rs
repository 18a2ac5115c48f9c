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
        /// The engine.
        engine: &'static str,
        /// The requested precision.
        precision: Precision,
    },
    /// The layer has no such pass, or the engine has no kernel for it.
    #[error("{engine} has no {pass:?} kernel for layer `{layer}` ({kind})")]
    Unsupported {
        /// The engine.
        engine: &'static str,
        /// The layer's name.
        layer: String,
        /// The layer's kind.
        kind: &'static str,
        /// The requested pass.
        pass: Pass,
    },
    /// The layer is opaque: only its cost is known.
    #[error(
        "{engine} cannot run layer `{layer}`: only the cost of its operation `{op}` is known. Train the \
         original module in its own framework; this network can be planned and simulated"
    )]
    Opaque {
        /// The engine.
        engine: &'static str,
        /// The layer's name.
        layer: String,
        /// Name of the operation, as given by the program that described the layer.
        op: String,
    },
    /// The number of operands, or the length of one, does not match the kernel.
    #[error("{kernel}: operand {operand} has {got} elements, expected {expected}")]
    Operand {
        /// Name of the kernel: its layer and pass.
        kernel: String,
        /// The operand, such as `reads[1]`, or `reads` or `writes` if their number is wrong.
        operand: String,
        /// Expected number of elements, or of operands.
        expected: usize,
        /// Given number of elements, or of operands.
        got: usize,
    },
    /// A label is not the number of a class.
    #[error("label {label} is not one of the {classes} classes of layer `{layer}`")]
    Label {
        /// Name of the loss layer.
        layer: String,
        /// The invalid label.
        label: f64,
        /// Number of classes.
        classes: usize,
    },
    /// An input of an embedding is not the number of a token.
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
        /// The engine.
        engine: &'static str,
        /// Elements of the buffer.
        elements: usize,
    },
    /// The worker threads could not be started.
    #[error("cannot start {threads} worker threads: {problem}")]
    Threads {
        /// Number of requested threads.
        threads: usize,
        /// Reason given by the operating system.
        problem: String,
    },
    /// The device does not exist or cannot be used.
    #[error("{device} cannot be used: {problem}")]
    Device {
        /// The device.
        device: String,
        /// The reason.
        problem: String,
    },
    /// A library that the engine uses failed.
    #[error("{engine}: {problem}")]
    Library {
        /// The engine.
        engine: &'static str,
        /// Message of the library.
        problem: String,
    },
}

impl EngineError {
    /// Returns the error for a layer pass that an engine has no kernel for.
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
