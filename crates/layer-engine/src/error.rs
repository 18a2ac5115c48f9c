use layer_graph::{Layer, LayerKind};

use crate::{Pass, Precision};

/// What can go wrong when an engine prepares or runs a kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine does not compute in this precision.
    #[error("{engine} does not compute in {precision:?}")]
    Precision {
        /// The engine.
        engine: &'static str,
        /// What was asked for.
        precision: Precision,
    },
    /// A layer has no such pass, or the engine has no kernel for it.
    #[error("{engine} has no {pass:?} kernel for layer `{layer}` ({kind})")]
    Unsupported {
        /// The engine.
        engine: &'static str,
        /// The layer's name.
        layer: String,
        /// The layer's kind.
        kind: &'static str,
        /// The pass that was asked for.
        pass: Pass,
    },
    /// Of a layer nothing but its cost is known.
    #[error(
        "{engine} cannot run layer `{layer}`: of its operation `{op}` only the cost is known. Train the module that the network was made \
         from in its own framework; this network can be planned and simulated"
    )]
    Opaque {
        /// The engine.
        engine: &'static str,
        /// The layer's name.
        layer: String,
        /// What it computes, as its maker calls it.
        op: String,
    },
    /// A kernel was given the wrong number of buffers, or one of the wrong length.
    #[error("{kernel}: operand {operand} has {got} elements, expected {expected}")]
    Operand {
        /// The kernel, named for its layer and pass.
        kernel: String,
        /// Which operand, such as `reads[1]`; `reads` or `writes` for their number.
        operand: String,
        /// Elements (or operands) expected.
        expected: usize,
        /// Elements (or operands) given.
        got: usize,
    },
    /// A label is not a class of the network.
    #[error("label {label} is not one of the {classes} classes of layer `{layer}`")]
    Label {
        /// The loss layer.
        layer: String,
        /// The label found.
        label: f64,
        /// Number of classes.
        classes: usize,
    },
    /// An input of an embedding is not the number of a token.
    #[error("{token} is not one of the {vocabulary} tokens of layer `{layer}`")]
    Token {
        /// The embedding.
        layer: String,
        /// The number found.
        token: f64,
        /// Number of tokens.
        vocabulary: usize,
    },
    /// There is no memory for a buffer.
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
        /// How many were wanted.
        threads: usize,
        /// The operating system's reason.
        problem: String,
    },
    /// A device is not there, or cannot be used.
    #[error("{device} cannot be used: {problem}")]
    Device {
        /// The device.
        device: String,
        /// Why.
        problem: String,
    },
    /// The library that an engine works with failed.
    #[error("{engine}: {problem}")]
    Library {
        /// The engine.
        engine: &'static str,
        /// What the library said.
        problem: String,
    },
}

impl EngineError {
    /// An engine has no kernel for a pass of this layer.
    pub(crate) fn unsupported(engine: &'static str, layer: &Layer, pass: Pass) -> Self {
        match layer.kind() {
            LayerKind::Opaque(opaque) => {
                Self::Opaque { engine, layer: layer.name().into(), op: opaque.op.clone() }
            }
            kind => Self::Unsupported { engine, layer: layer.name().into(), kind: kind.label(), pass },
        }
    }
}
