use std::path::PathBuf;

use super::operators::SUPPORTED;
use crate::{GraphError, Shape};

/// Why an ONNX file cannot be read as a network.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// The file could not be read.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        problem: std::io::Error,
    },
    /// What is in the file cannot be read.
    #[error("{}: {problem}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        problem: Box<OnnxError>,
    },
    /// These bytes are not an ONNX model, or are not all of one.
    #[error("not an ONNX model: {0}")]
    NotOnnx(String),
    /// The file uses operators of a version that differs too much from those that are known.
    #[error(
        "operator set {found} is too old: convert the model to at least {oldest} (`onnx.version_converter`)"
    )]
    OldOperators {
        /// The version that the file asks for.
        found: i64,
        /// The oldest version that is read.
        oldest: i64,
    },
    /// A network has to have one input and one output, with shapes that are fixed but for the batch.
    #[error("{0}")]
    Signature(String),
    /// There is no layer for this operator.
    #[error("operator `{operator}` ({}) is not supported; supported: {}", listed(nodes), SUPPORTED.join(", "))]
    UnsupportedOperator {
        /// The operator, with its domain where it is not ONNX's own.
        operator: String,
        /// The nodes that use it.
        nodes: Vec<String>,
    },
    /// The operator is known, but what this node does with it has no layer.
    #[error("{operator} (node `{node}`) is not supported here: {problem}")]
    UnsupportedUse {
        /// The operator.
        operator: String,
        /// The node that uses it.
        node: String,
        /// What has no layer.
        problem: String,
    },
    /// A node breaks the rules of its operator.
    #[error("{operator} (node `{node}`): {problem}")]
    BadNode {
        /// The operator.
        operator: String,
        /// The node that uses it.
        node: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// A node takes a value that no node before it makes.
    #[error("node `{node}` takes `{value}`, which nothing before it makes")]
    UndefinedValue {
        /// The node.
        node: String,
        /// The value that does not exist.
        value: String,
    },
    /// A layer does not fit its inputs.
    #[error("{operator} (node `{node}`): {misfit}")]
    Graph {
        /// The operator.
        operator: String,
        /// The node that uses it.
        node: String,
        /// What does not fit.
        misfit: GraphError,
    },
    /// The file says that a value has another shape than what follows from its node.
    #[error(
        "the file says that `{value}` is of shape {declared} without its batch, but its inferred shape is {inferred}"
    )]
    OtherShape {
        /// The value.
        value: String,
        /// The shape in the file, `?` for what is left open.
        declared: String,
        /// The shape that was inferred.
        inferred: Shape,
    },
    /// The file has several problems.
    #[error("{} problems: {}", .0.len(), all(.0))]
    Several(
        /// All that can be seen at once, in the order of the nodes: a node that takes what a wrong node makes is only looked at
        /// for its operator.
        Vec<OnnxError>,
    ),
}

impl OnnxError {
    /// An invalid model, where no single node is at fault.
    pub(super) fn not_onnx(problem: impl Into<String>) -> Self {
        Self::NotOnnx(problem.into())
    }

    /// These problems as one error. Nodes with the same unknown operator are one problem.
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
            _ => Some(Self::Several(distinct)),
        }
    }
}

/// The first of some nodes by name, and how many others there are.
fn listed(nodes: &[String]) -> String {
    let shown: Vec<_> = nodes.iter().take(3).map(|node| format!("`{node}`")).collect();
    let others = nodes.len() - shown.len();
    let what = if nodes.len() == 1 { "node" } else { "nodes" };
    match others {
        0 => format!("{what} {}", shown.join(", ")),
        _ => format!("{what} {} and {others} more", shown.join(", ")),
    }
}

/// Several problems in one line. What is supported stands at the end, once.
fn all(problems: &[OnnxError]) -> String {
    const SHOWN: usize = 10;
    let short = |problem: &OnnxError| match problem {
        OnnxError::UnsupportedOperator { operator, nodes } => {
            format!("operator `{operator}` ({}) is not supported", listed(nodes))
        }
        other => other.to_string(),
    };
    let mut parts: Vec<String> = problems.iter().take(SHOWN).map(short).collect();
    if problems.len() > SHOWN {
        parts.push(format!("and {} more", problems.len() - SHOWN));
    }
    if problems.iter().any(|problem| matches!(problem, OnnxError::UnsupportedOperator { .. })) {
        parts.push(format!("supported operators: {}", SUPPORTED.join(", ")));
    }
    parts.join("; ")
}
