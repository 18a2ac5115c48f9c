//! Errors of importing an ONNX file. A *node* is one use of an operator in the file; a *value* is a
//! named tensor that a node reads or computes.

use super::supported::OPERATORS;
use crate::{GraphError, Shape};

/// Errors of importing an ONNX file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// The bytes are not a complete ONNX model, for the given reason.
    #[error("not an ONNX model: {0}")]
    NotOnnx(String),
    /// The operator set of the file is older than the oldest supported one.
    #[error(
        "operator set {found} is too old: convert the model to at least {oldest} (`onnx.version_converter`)"
    )]
    UnsupportedOpset {
        /// Version of ONNX's operator set in the file.
        found: i64,
        /// Oldest supported version of ONNX's operator set.
        oldest: i64,
    },
    /// The input or the output of the model cannot be that of a network. There must be one of each.
    /// All dimensions of the input except the batch must be fixed, and the output must consist of
    /// class scores that a node computes. The text names the problem.
    #[error("{0}")]
    Signature(String),
    /// No kind of layer corresponds to this operator.
    #[error(
        "operator `{operator}` ({}) is not supported; supported: {}",
        format_nodes(nodes),
        OPERATORS.join(", ")
    )]
    UnsupportedOperator {
        /// Name of the operator, such as `Conv`. An operator of another domain than ONNX's own is
        /// named `domain.operator`.
        operator: String,
        /// Names of all nodes with this operator.
        nodes: Vec<String>,
    },
    /// The operator is supported, but not with the attributes or inputs that this node has.
    #[error("{operator} (node `{node}`) is not supported here: {problem}")]
    UnsupportedUse {
        /// Name of the operator.
        operator: String,
        /// Name of the node that uses it.
        node: String,
        /// Description of the unsupported property.
        problem: String,
    },
    /// A node violates the definition of its operator.
    #[error("{operator} (node `{node}`): {problem}")]
    InvalidNode {
        /// Name of the operator.
        operator: String,
        /// Name of the node that uses it.
        node: String,
        /// Description of the expected and the actual property.
        problem: String,
    },
    /// A node reads a value that no earlier node defines.
    #[error("node `{node}` takes `{value}`, which nothing before it makes")]
    UndefinedValue {
        /// Name of the node that reads the value.
        node: String,
        /// Name of the undefined value.
        value: String,
    },
    /// The layer of a node does not fit its inputs.
    #[error("{operator} (node `{node}`): {problem}")]
    Graph {
        /// Name of the operator.
        operator: String,
        /// Name of the node that uses it.
        node: String,
        /// Error of adding the layer.
        problem: GraphError,
    },
    /// The shape of a value in the file differs from the inferred shape.
    #[error(
        "the file says that `{value}` is of shape {declared} without its batch, but its inferred \
         shape is {inferred}"
    )]
    ShapeMismatch {
        /// Name of the value.
        value: String,
        /// Shape in the file without the batch, such as `64x?x56`; `?` for open dimensions.
        declared: String,
        /// Shape inferred from the layer, without the batch.
        inferred: Shape,
    },
    /// The file has several problems.
    #[error("{} problems: {}", .0.len(), format_problems(.0))]
    Multiple(
        /// Problems in the order of their nodes. A node that depends on an invalid node is only
        /// checked for its operator.
        Vec<OnnxError>,
    ),
}

impl OnnxError {
    /// Returns the error for an invalid model when no single node is at fault,
    /// [`OnnxError::NotOnnx`].
    pub(super) fn not_onnx(problem: impl Into<String>) -> Self {
        Self::NotOnnx(problem.into())
    }

    /// Combines problems into one error, or returns `None` if there are none. Nodes with the same
    /// unsupported operator are merged into one problem.
    pub(super) fn of(problems: Vec<Self>) -> Option<Self> {
        let mut distinct = Vec::<Self>::new();
        for problem in problems {
            let Self::UnsupportedOperator { operator, nodes } = &problem else {
                distinct.push(problem);
                continue;
            };
            let same = distinct.iter_mut().find_map(|earlier| match earlier {
                Self::UnsupportedOperator { operator: theirs, nodes } if theirs == operator => Some(nodes),
                _ => None,
            });
            match same {
                Some(theirs) => theirs.extend_from_slice(nodes),
                None => distinct.push(problem),
            }
        }
        match distinct.len() {
            0 | 1 => distinct.pop(),
            _ => Some(Self::Multiple(distinct)),
        }
    }
}

/// Formats the first nodes by name and the number of the others.
fn format_nodes(nodes: &[String]) -> String {
    let shown: Vec<_> = nodes.iter().take(3).map(|node| format!("`{node}`")).collect();
    let others = nodes.len() - shown.len();
    let noun = if nodes.len() == 1 { "node" } else { "nodes" };
    match others {
        0 => format!("{noun} {}", shown.join(", ")),
        _ => format!("{noun} {} and {others} more", shown.join(", ")),
    }
}

/// Formats several problems on one line, with the supported operators once at the end.
fn format_problems(problems: &[OnnxError]) -> String {
    const SHOWN: usize = 10;
    let short = |problem: &OnnxError| match problem {
        OnnxError::UnsupportedOperator { operator, nodes } => {
            format!("operator `{operator}` ({}) is not supported", format_nodes(nodes))
        }
        other => other.to_string(),
    };
    let mut parts: Vec<String> = problems.iter().take(SHOWN).map(short).collect();
    if problems.len() > SHOWN {
        parts.push(format!("and {} more", problems.len() - SHOWN));
    }
    if problems.iter().any(|problem| matches!(problem, OnnxError::UnsupportedOperator { .. })) {
        parts.push(format!("supported operators: {}", OPERATORS.join(", ")));
    }
    parts.join("; ")
}
