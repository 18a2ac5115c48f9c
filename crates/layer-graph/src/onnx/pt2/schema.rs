//! Fields of the graph in an exported program that describe the network, as `torch/_export/serde`
//! writes them. Others are skipped.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

/// Exported program.
#[derive(Deserialize)]
pub(super) struct Program {
    pub(super) graph_module: GraphModule,
    #[serde(default)]
    pub(super) torch_version: String,
}

#[derive(Deserialize)]
pub(super) struct GraphModule {
    pub(super) graph: Graph,
    pub(super) signature: Signature,
}

/// Nodes in topological order, and the tensors that they read and compute.
#[derive(Deserialize)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) tensor_values: HashMap<String, TensorMeta>,
    #[serde(default)]
    pub(super) sym_int_values: HashMap<String, Size>,
}

/// Call of an operator.
#[derive(Deserialize)]
pub(super) struct Node {
    /// Operator, such as `torch.ops.aten.conv2d.default`.
    pub(super) target: String,
    /// Arguments that differ from their defaults.
    pub(super) inputs: Vec<NamedArgument>,
    pub(super) outputs: Vec<Value>,
    #[serde(default)]
    pub(super) metadata: HashMap<String, String>,
}

/// Argument with the name of the operator's parameter.
#[derive(Deserialize)]
pub(super) struct NamedArgument {
    pub(super) name: String,
    /// Object with one field, which is named after the type of the argument.
    pub(super) arg: Value,
}

/// Type and shape of a tensor.
#[derive(Deserialize, Clone)]
pub(super) struct TensorMeta {
    /// Type of the elements, a number of `ScalarType`.
    pub(super) dtype: i32,
    pub(super) sizes: Vec<Size>,
    #[serde(default)]
    pub(super) strides: Vec<Size>,
    #[serde(default)]
    pub(super) storage_offset: Option<Size>,
}

/// Integer that is known, or an expression of the sizes of the input.
#[derive(Deserialize, Clone)]
#[serde(rename_all = "snake_case")]
pub(super) enum Size {
    AsInt(i64),
    AsExpr(Expression),
}

#[derive(Deserialize, Clone)]
pub(super) struct Expression {
    pub(super) expr_str: String,
}

impl Size {
    /// Returns the integer, if it is known.
    pub(super) fn known(&self) -> Option<i64> {
        match self {
            Self::AsInt(size) => Some(*size),
            Self::AsExpr(expression) => {
                let number = expression.expr_str.strip_prefix("Integer(")?.strip_suffix(')')?;
                number.parse().ok()
            }
        }
    }

    /// Returns whether the size is a symbol alone, such as that of an open batch.
    pub(super) fn is_symbol(&self) -> bool {
        matches!(self, Self::AsExpr(expression) if expression.expr_str.starts_with("Symbol("))
    }
}

/// Meaning of the inputs and outputs of a graph.
#[derive(Deserialize)]
pub(super) struct Signature {
    pub(super) input_specs: Vec<Value>,
    pub(super) output_specs: Vec<Value>,
}

/// Places of stored tensors by their names in the state dictionary.
#[derive(Deserialize)]
pub(super) struct Weights {
    pub(super) config: HashMap<String, Weight>,
}

#[derive(Deserialize)]
pub(super) struct Weight {
    /// Name of the entry in the folder of the list.
    pub(super) path_name: String,
    #[serde(default)]
    pub(super) use_pickle: bool,
    pub(super) tensor_meta: TensorMeta,
}
