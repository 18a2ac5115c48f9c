//! Protobuf messages of an ONNX file, restricted to the fields that describe the network.
//!
//! Tags and names are those of `onnx.proto` (proto2). Other fields are skipped by the decoder:
//! documentation, functions, sparse tensors, and the subgraphs of control flow. A *value* is a
//! named tensor that a node reads or computes. Strings and numbers without `Option` are empty or 0
//! if the file omits them.

use prost::Message;
use prost::bytes::Bytes;

/// Supported values of `TensorProto.DataType`.
pub(super) mod data_type {
    /// Single precision.
    pub(in crate::onnx) const FLOAT: i32 = 1;
    /// Signed integers of 32 bits.
    pub(in crate::onnx) const INT32: i32 = 6;
    /// Signed integers of 64 bits.
    pub(in crate::onnx) const INT64: i32 = 7;
    /// Booleans, of a byte each.
    pub(in crate::onnx) const BOOL: i32 = 9;
    /// Double precision.
    pub(in crate::onnx) const DOUBLE: i32 = 11;
}

/// Contents of an ONNX file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ModelProto {
    /// Name of the program that wrote the file.
    #[prost(string, tag = "2")]
    pub(super) producer_name: String,
    /// Version of the program that wrote the file.
    #[prost(string, tag = "3")]
    pub(super) producer_version: String,
    /// Computation of the model. `None` in an invalid file.
    #[prost(message, optional, tag = "7")]
    pub(super) graph: Option<GraphProto>,
    /// Operator sets that the nodes use, one for each domain.
    #[prost(message, repeated, tag = "8")]
    pub(super) opset_import: Vec<OperatorSetIdProto>,
}

/// Version of an operator set.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OperatorSetIdProto {
    /// Name space of the operators. Empty or `ai.onnx` for ONNX's own.
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    /// Version of the operator set. ONNX's own are counted from 1.
    #[prost(int64, tag = "2")]
    pub(super) version: i64,
}

/// Computation of a model: nodes, stored tensors, inputs and outputs.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GraphProto {
    /// Nodes in topological order.
    #[prost(message, repeated, tag = "1")]
    pub(super) node: Vec<NodeProto>,
    /// Tensors stored in the file, such as the weights.
    #[prost(message, repeated, tag = "5")]
    pub(super) initializer: Vec<TensorProto>,
    /// Inputs of the model. Older files list the stored tensors too.
    #[prost(message, repeated, tag = "11")]
    pub(super) input: Vec<ValueInfoProto>,
    /// Outputs of the model.
    #[prost(message, repeated, tag = "12")]
    pub(super) output: Vec<ValueInfoProto>,
    /// Shapes of values that are neither inputs nor outputs of the model. May be incomplete.
    #[prost(message, repeated, tag = "13")]
    pub(super) value_info: Vec<ValueInfoProto>,
}

/// Use of an operator.
#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeProto {
    /// Names of the values that the node reads, in the order of the operator's inputs. Empty for an
    /// omitted optional input.
    #[prost(string, repeated, tag = "1")]
    pub(super) input: Vec<String>,
    /// Names of the values that the node computes, in the order of the operator's outputs. Empty
    /// for an omitted optional output.
    #[prost(string, repeated, tag = "2")]
    pub(super) output: Vec<String>,
    /// Name of the node. Empty if it has none.
    #[prost(string, tag = "3")]
    pub(super) name: String,
    /// Name of the operator within its domain, such as `Conv`.
    #[prost(string, tag = "4")]
    pub(super) op_type: String,
    /// Hyper-parameters of the operator by name.
    #[prost(message, repeated, tag = "5")]
    pub(super) attribute: Vec<AttributeProto>,
    /// Domain of the operator. Empty or `ai.onnx` for ONNX's own.
    #[prost(string, tag = "7")]
    pub(super) domain: String,
    /// Metadata that the exporter added, such as PyTorch's module names.
    #[prost(message, repeated, tag = "9")]
    pub(super) metadata_props: Vec<StringStringEntryProto>,
}

/// Entry of a node's metadata, or of the place of a tensor.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StringStringEntryProto {
    /// Key of the entry, such as `pkg.torch.onnx.name_scopes`.
    #[prost(string, tag = "1")]
    pub(super) key: String,
    /// Value of the entry.
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// Hyper-parameter of a node. Only the field of its type is present.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AttributeProto {
    /// Name of the attribute, such as `strides`.
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Number in single precision; `None` if the attribute has another type.
    #[prost(float, optional, tag = "2")]
    pub(super) f: Option<f32>,
    /// Integer; `None` if the attribute has another type.
    #[prost(int64, optional, tag = "3")]
    pub(super) i: Option<i64>,
    /// String in UTF-8; `None` if the attribute has another type.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(super) s: Option<Bytes>,
    /// Tensor; `None` if the attribute has another type.
    #[prost(message, optional, tag = "5")]
    pub(super) t: Option<TensorProto>,
    /// List of numbers in single precision; empty if the attribute has another type.
    #[prost(float, repeated, tag = "7")]
    pub(super) floats: Vec<f32>,
    /// List of integers; empty if the attribute has another type.
    #[prost(int64, repeated, tag = "8")]
    pub(super) ints: Vec<i64>,
    /// List of strings in UTF-8; empty if the attribute has another type.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub(super) strings: Vec<Bytes>,
}

/// Stored tensor. Its elements are in `raw_data` or in the field of their type, or in another file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorProto {
    /// Dimensions, outermost first. Empty for a scalar.
    #[prost(int64, repeated, tag = "1")]
    pub(super) dims: Vec<i64>,
    /// Type of the elements, a value of `TensorProto.DataType`. The module `data_type` has those
    /// that are read.
    #[prost(int32, tag = "2")]
    pub(super) data_type: i32,
    /// Elements in single precision. Empty if they are stored elsewhere.
    #[prost(float, repeated, tag = "4")]
    pub(super) float_data: Vec<f32>,
    /// Elements of 32-bit integers. Empty if they are stored elsewhere.
    #[prost(int32, repeated, tag = "5")]
    pub(super) int32_data: Vec<i32>,
    /// Elements of 64-bit integers. Empty if they are stored elsewhere.
    #[prost(int64, repeated, tag = "7")]
    pub(super) int64_data: Vec<i64>,
    /// Name of the value that the tensor defines. Empty in an attribute.
    #[prost(string, tag = "8")]
    pub(super) name: String,
    /// Elements as little-endian bytes. Empty if they are stored elsewhere.
    #[prost(bytes = "bytes", tag = "9")]
    pub(super) raw_data: Bytes,
    /// Place of elements in another file: its `location`, `offset` and `length`.
    #[prost(message, repeated, tag = "13")]
    pub(super) external_data: Vec<StringStringEntryProto>,
    /// Place of the elements: 0 in this message, 1 in another file.
    #[prost(int32, tag = "14")]
    pub(super) data_location: i32,
}

/// Name and type of a value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueInfoProto {
    /// Name of the value.
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Type of the value. `None` if the file does not give it.
    #[prost(message, optional, tag = "2")]
    pub(super) r#type: Option<TypeProto>,
}

/// Type of a value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TypeProto {
    /// Type of a tensor. `None` for sequences and other types, which are not read.
    #[prost(message, optional, tag = "1")]
    pub(super) tensor_type: Option<TensorTypeProto>,
}

/// Type of a tensor, of which only the shape is read.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorTypeProto {
    /// Shape of the tensor. `None` if the file does not give it.
    #[prost(message, optional, tag = "2")]
    pub(super) shape: Option<TensorShapeProto>,
}

/// Shape of a tensor, with the batch.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorShapeProto {
    /// Dimensions, outermost first. Empty for a scalar.
    #[prost(message, repeated, tag = "1")]
    pub(super) dim: Vec<DimensionProto>,
}

/// Dimension of a tensor.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DimensionProto {
    /// Size of the dimension. `None` if it is symbolic or unknown.
    #[prost(int64, optional, tag = "1")]
    pub(super) dim_value: Option<i64>,
}

impl ValueInfoProto {
    /// Returns the dimensions including the batch, outermost first, or `None` if the file does not
    /// give a shape. A dimension is `None` if it is open: symbolic, unknown or not positive.
    pub(super) fn dims(&self) -> Option<Vec<Option<i64>>> {
        let shape = self.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref()?;
        // Some exporters write an unknown dimension as 0 or -1.
        Some(shape.dim.iter().map(|dim| dim.dim_value.filter(|&value| value > 0)).collect())
    }
}
