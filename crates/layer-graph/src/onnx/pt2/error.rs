//! Errors of importing a `.pt2` file.

use crate::onnx::OnnxError;

/// Errors of importing a `.pt2` file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Pt2Error {
    /// The file is no complete archive of an exported program, for the given reason.
    #[error("not a .pt2 file of torch.export.save: {0}")]
    NotPt2(String),
    /// The format of the exported program is of another version than that of PyTorch 2.11.
    #[error(
        "the program was saved by PyTorch {torch} in format {major}.{minor}, but format 8 (PyTorch 2.11) \
         is read: export it with that version"
    )]
    UnsupportedVersion {
        /// Version of PyTorch that saved the program; `?` if it is not given.
        torch: String,
        /// Major version of the format.
        major: u64,
        /// Minor version of the format.
        minor: u64,
    },
    /// No kind of layer corresponds to these operators.
    #[error("no layer for {}", format_operators(.0))]
    UnsupportedOperators(
        /// Operators, such as `torch.ops.aten.celu.default`, with the names of the modules that
        /// call them, or of their nodes.
        Vec<(String, Vec<String>)>,
    ),
    /// A node is not as its operator defines it, or is used in a way without a layer.
    #[error("{operator} (node `{node}`): {problem}")]
    Node {
        /// Operator of the node.
        operator: String,
        /// Name of the node's first output.
        node: String,
        /// Description of the problem.
        problem: String,
    },
    /// The program cannot be expressed as a network of layers that ends in class scores. Operators
    /// are named as those of ONNX, to which they are translated, and nodes as in the program.
    #[error(transparent)]
    Network(#[from] OnnxError),
}

/// Formats operators with the first modules that call them.
fn format_operators(operators: &[(String, Vec<String>)]) -> String {
    const SHOWN: usize = 3;
    let one = |(operator, modules): &(String, Vec<String>)| {
        let shown: Vec<_> = modules.iter().take(SHOWN).map(|module| format!("`{module}`")).collect();
        let others = modules.len() - shown.len();
        let more = if others > 0 { format!(" and {others} more") } else { String::new() };
        format!("{operator} (in {}{more})", shown.join(", "))
    };
    let shown: Vec<_> = operators.iter().take(10).map(one).collect();
    let others = operators.len() - shown.len();
    let more = if others > 0 { format!(" and {others} other operators") } else { String::new() };
    format!("{}{more}", shown.join("; "))
}
