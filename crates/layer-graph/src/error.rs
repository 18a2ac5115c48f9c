use std::path::PathBuf;

/// What can be wrong with a network or with a file that describes one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// Two layers have the same name.
    #[error("layer `{0}` is defined twice: layer names must be unique")]
    DuplicateName(String),
    /// A layer takes its input from a layer that is not (yet) in the graph.
    #[error("layer `{layer}` takes its input from `{input}`, which is not defined before it")]
    UnknownInput {
        /// The layer that is being added.
        layer: String,
        /// The input that does not exist.
        input: String,
    },
    /// A layer has too few or too many inputs.
    #[error("layer `{layer}` ({kind}) takes {expected}, but got {got} inputs")]
    InputCount {
        /// The layer that is being added.
        layer: String,
        /// Its kind, as in [`LayerKind::label`](crate::LayerKind::label).
        kind: &'static str,
        /// What it takes, in words.
        expected: &'static str,
        /// How many inputs it was given.
        got: usize,
    },
    /// A layer cannot be applied to inputs of these shapes.
    #[error("layer `{layer}`: {problem}")]
    Shape {
        /// The layer that is being added.
        layer: String,
        /// What does not fit, with the shapes in it.
        problem: String,
    },
    /// A layer cannot use another one's parameters.
    #[error("layer `{layer}` cannot use the parameters of layer `{owner}`, {problem}")]
    Tied {
        /// The layer that is being added.
        layer: String,
        /// The layer whose parameters it was to use.
        owner: String,
        /// Why not.
        problem: String,
    },
    /// The zoo has no model of this name.
    #[error("unknown model `{name}`; known models: {}{}", known.join(", "), known_names::hint(name, known.iter().copied()))]
    UnknownModel {
        /// The name that was asked for.
        name: String,
        /// All names that exist.
        known: Vec<&'static str>,
    },
    /// A JSON document is not a graph.
    #[error("not a valid graph: at `{path}`: {problem}")]
    Json {
        /// Where in the document, such as `layers[3].op`.
        path: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// A file could not be read or written.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What went wrong with it.
        problem: String,
    },
}
