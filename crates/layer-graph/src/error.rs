//! Errors of building, reading and looking up networks.

/// Errors of building a network, or of reading one from a document or a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// Two layers have the same name, which is given.
    #[error("layer `{0}` is defined twice: layer names must be unique")]
    DuplicateName(String),
    /// A layer uses the output or the parameters of a layer that is not in the graph yet.
    #[error("layer `{layer}` takes its input from `{input}`, which is not defined before it")]
    UnknownInput {
        /// Name of the layer being added.
        layer: String,
        /// Name of the missing layer in a document, or `#` and the index of its `LayerId`.
        input: String,
    },
    /// A layer has the wrong number of inputs.
    #[error("layer `{layer}` ({kind}) takes {expected}, but got {got} inputs")]
    InputCount {
        /// Name of the layer being added.
        layer: String,
        /// Kind of the layer; see [`LayerKind::label`](crate::LayerKind::label).
        kind: &'static str,
        /// Accepted number of inputs, in words.
        expected: &'static str,
        /// Number of inputs given.
        got: usize,
    },
    /// A layer cannot be applied to inputs of the given shapes.
    #[error("layer `{layer}`: {problem}")]
    Shape {
        /// Name of the layer being added, or of the network if its sequences cannot be split into
        /// the requested chunks.
        layer: String,
        /// Description of the mismatch, with the shapes.
        problem: String,
    },
    /// A layer cannot use the parameters of another one.
    #[error("layer `{layer}` cannot use the parameters of layer `{owner}`, {problem}")]
    Tied {
        /// Name of the layer being added.
        layer: String,
        /// Name of the layer whose parameters were to be used.
        owner: String,
        /// Reason, a relative clause about the owner, such as `which has no parameters of its own`.
        problem: String,
    },
    /// A layer cannot be divided in the requested way.
    #[error("layer `{layer}` cannot {problem}")]
    Split {
        /// Name of the layer.
        layer: String,
        /// Description of the request and of what is possible, after `cannot`.
        problem: String,
    },
    /// There is no split with the given label.
    #[error("unknown split `{name}`; known splits: {}", known.join(", "))]
    UnknownSplit {
        /// Requested label.
        name: String,
        /// Labels of all splits.
        known: Vec<&'static str>,
    },
    /// The zoo has no model with the given name.
    #[error("unknown model `{name}`; known models: {}", known.join(", "))]
    UnknownModel {
        /// Requested name.
        name: String,
        /// Names of all models of the zoo.
        known: Vec<&'static str>,
    },
    /// A configuration of a network is not readable, for the given reason.
    #[error("not a usable configuration of a network: {0}")]
    Config(String),
    /// A JSON document is not a graph.
    #[error("not a valid graph: at `{path}`: {problem}")]
    Json {
        /// Path inside the document, such as `layers[3].op`.
        path: String,
        /// Description of the expected and the actual content.
        problem: String,
    },
}
