//! Access to a node of the file: name, inputs, outputs, attributes, and errors that name it. A
//! *node* is one use of an operator; its inputs and outputs are the names of *values*, the tensors
//! of the file.

use super::OnnxError;
use super::numbers::{shortest_decimal, size};
use super::proto::{AttributeProto, NodeProto};
use crate::GraphError;

/// Node of the file, a reference to its message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    proto: &'a NodeProto,
}

impl<'a> Node<'a> {
    /// Creates the accessor of a node's message.
    pub(super) fn new(proto: &'a NodeProto) -> Self {
        Self { proto }
    }

    /// Returns the name of the node, or of its first output if it has none. Empty if it has
    /// neither.
    pub(super) fn name(self) -> &'a str {
        match &*self.proto.name {
            "" => self.proto.output.first().map_or("", String::as_str),
            name => name,
        }
    }

    /// Returns the name of the operator, such as `Conv`, prefixed by its domain and a dot unless
    /// that is ONNX's own.
    pub(super) fn operator(self) -> String {
        match &*self.proto.domain {
            "" | "ai.onnx" => self.proto.op_type.clone(),
            domain => format!("{domain}.{}", self.proto.op_type),
        }
    }

    /// Returns the value that the exporter stored under a key in the node's metadata; `None` if it
    /// stored none.
    pub(super) fn metadata(self, key: &str) -> Option<&'a str> {
        self.proto.metadata_props.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
    }

    /// Returns the names of the values that the node reads, without omitted optional ones.
    pub(super) fn inputs(self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.proto.input.iter().map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Returns the names of the values that the node computes, without omitted optional ones.
    pub(super) fn outputs(self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.proto.output.iter().map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Returns the number of outputs, with omitted optional ones.
    pub(super) fn output_count(self) -> usize {
        self.proto.output.len()
    }

    /// Returns the names of the outputs in order. That of an omitted optional one is empty.
    pub(super) fn outputs_in_order(self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.proto.output.iter().map(String::as_str)
    }

    /// Returns the name of the input at a position, from 0.
    ///
    /// # Errors
    /// [`OnnxError::InvalidNode`] if it is absent or its name is empty.
    pub(super) fn input(self, position: usize) -> Result<&'a str, OnnxError> {
        let missing = || self.invalid(format!("input {position} is missing"));
        self.optional_input(position).ok_or_else(missing)
    }

    /// Returns the name of the input at a position, from 0. `None` if it is absent or its name is
    /// empty.
    pub(super) fn optional_input(self, position: usize) -> Option<&'a str> {
        self.proto.input.get(position).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Returns the name of the first output.
    ///
    /// # Errors
    /// [`OnnxError::InvalidNode`] if the node has no output.
    pub(super) fn output(self) -> Result<&'a str, OnnxError> {
        self.outputs().next().ok_or_else(|| self.invalid("it has no output"))
    }

    /// Returns the attribute of this name. `None` if it is absent.
    pub(super) fn attribute(self, name: &str) -> Option<&'a AttributeProto> {
        self.proto.attribute.iter().find(|attribute| attribute.name == name)
    }

    /// Returns the integer attribute of this name, or `default` if it is absent.
    ///
    /// # Errors
    /// [`OnnxError::InvalidNode`] if the attribute has another type.
    pub(super) fn int(self, name: &str, default: i64) -> Result<i64, OnnxError> {
        match self.attribute(name) {
            None => Ok(default),
            Some(attribute) => attribute.i.ok_or_else(|| self.invalid(format!("`{name}` is not an integer"))),
        }
    }

    /// Returns the floating-point attribute of this name, or `default` if it is absent. Its decimal
    /// is the shortest one that denotes the stored single-precision number.
    ///
    /// # Errors
    /// [`OnnxError::InvalidNode`] if the attribute has another type.
    pub(super) fn float(self, name: &str, default: f64) -> Result<f64, OnnxError> {
        match self.attribute(name) {
            None => Ok(default),
            Some(attribute) => attribute
                .f
                .map(shortest_decimal)
                .ok_or_else(|| self.invalid(format!("`{name}` is not a number"))),
        }
    }

    /// Returns the string attribute of this name, or `default` if it is absent.
    ///
    /// # Errors
    /// [`OnnxError::InvalidNode`] if the attribute has another type or is not UTF-8.
    pub(super) fn text(self, name: &str, default: &'static str) -> Result<&'a str, OnnxError> {
        let Some(attribute) = self.attribute(name) else { return Ok(default) };
        let text = attribute.s.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.ok_or_else(|| self.invalid(format!("`{name}` is not a text")))
    }

    /// Returns the list of integers in the attribute of this name, empty if it has another type.
    /// `None` if it is absent.
    pub(super) fn ints(self, name: &str) -> Option<&'a [i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    /// Returns the list of texts in the attribute of this name, empty if it is absent or has
    /// another type.
    pub(super) fn texts(self, name: &str) -> Vec<&'a [u8]> {
        self.attribute(name).map_or_else(Vec::new, |list| list.strings.iter().map(|text| &**text).collect())
    }

    /// Returns the attribute of this name as a list of `N` sizes (such as strides or paddings), or
    /// `None` if it is absent.
    ///
    /// # Errors
    /// [`OnnxError::InvalidNode`] if it is not a list of `N` integers, or one is negative or
    /// exceeds `i32::MAX`.
    pub(super) fn sizes<const N: usize>(self, name: &str) -> Result<Option<[usize; N]>, OnnxError> {
        let Some(ints) = self.ints(name) else { return Ok(None) };
        let invalid = || self.invalid(format!("`{name}` is {ints:?}, not {N} sizes"));
        let sizes = ints.iter().map(|&int| size(int)).collect::<Option<Vec<_>>>().ok_or_else(invalid)?;
        Ok(Some(sizes.try_into().map_err(|_| invalid())?))
    }

    /// Returns an [`OnnxError::InvalidNode`] for this node, which violates the definition of its
    /// operator.
    pub(super) fn invalid(self, problem: impl Into<String>) -> OnnxError {
        OnnxError::InvalidNode {
            operator: self.operator(),
            node: self.name().into(),
            problem: problem.into(),
        }
    }

    /// Returns an [`OnnxError::UnsupportedUse`] for this node, whose operator is supported, but not
    /// this use of it.
    pub(super) fn unsupported(self, problem: impl Into<String>) -> OnnxError {
        OnnxError::UnsupportedUse {
            operator: self.operator(),
            node: self.name().into(),
            problem: problem.into(),
        }
    }

    /// Returns an [`OnnxError::UnsupportedOperator`] for this node.
    pub(super) fn unsupported_operator(self) -> OnnxError {
        OnnxError::UnsupportedOperator { operator: self.operator(), nodes: vec![self.name().into()] }
    }

    /// Returns an [`OnnxError::Graph`] for this node, whose layer does not fit its inputs.
    pub(super) fn layer_error(self, problem: GraphError) -> OnnxError {
        OnnxError::Graph { operator: self.operator(), node: self.name().into(), problem }
    }
}
