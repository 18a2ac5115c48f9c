//! A node of the file: its name, inputs, outputs and attributes, and errors that name it.

use super::OnnxError;
use super::proto::{AttributeProto, NodeProto};
use crate::GraphError;

/// No dimension, stride or axis of a real network is larger; sums and products of a few stay far from overflow.
const LARGEST: i64 = i32::MAX as i64;

#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    proto: &'a NodeProto,
}

impl<'a> Node<'a> {
    pub(super) fn new(proto: &'a NodeProto) -> Self {
        Self { proto }
    }

    /// The name of the node, or of its output where it has none.
    pub(super) fn name(self) -> &'a str {
        match &*self.proto.name {
            "" => self.proto.output.first().map_or("", String::as_str),
            name => name,
        }
    }

    /// The operator, with its domain where that is not ONNX's own.
    pub(super) fn operator(self) -> String {
        match &*self.proto.domain {
            "" | "ai.onnx" => self.proto.op_type.clone(),
            domain => format!("{domain}.{}", self.proto.op_type),
        }
    }

    /// What the exporter noted of this node under a key.
    pub(super) fn metadata(self, key: &str) -> Option<&'a str> {
        self.proto.metadata_props.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
    }

    /// All inputs that are given.
    pub(super) fn inputs(self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.proto.input.iter().map(String::as_str).filter(|name| !name.is_empty())
    }

    /// All outputs that are wanted.
    pub(super) fn outputs(self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.proto.output.iter().map(String::as_str).filter(|name| !name.is_empty())
    }

    pub(super) fn input(self, position: usize) -> Result<&'a str, OnnxError> {
        let missing = || self.bad(format!("input {position} is missing"));
        self.optional_input(position).ok_or_else(missing)
    }

    pub(super) fn optional_input(self, position: usize) -> Option<&'a str> {
        self.proto.input.get(position).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// The first output, which is the layer's.
    pub(super) fn output(self) -> Result<&'a str, OnnxError> {
        self.outputs().next().ok_or_else(|| self.bad("it has no output"))
    }

    pub(super) fn attribute(self, name: &str) -> Option<&'a AttributeProto> {
        self.proto.attribute.iter().find(|attribute| attribute.name == name)
    }

    pub(super) fn int(self, name: &str, default: i64) -> Result<i64, OnnxError> {
        match self.attribute(name) {
            None => Ok(default),
            Some(attribute) => attribute.i.ok_or_else(|| self.bad(format!("`{name}` is not an integer"))),
        }
    }

    /// A number; see [`shortest_decimal`].
    pub(super) fn float(self, name: &str, default: f64) -> Result<f64, OnnxError> {
        match self.attribute(name) {
            None => Ok(default),
            Some(attribute) => {
                attribute.f.map(shortest_decimal).ok_or_else(|| self.bad(format!("`{name}` is not a number")))
            }
        }
    }

    pub(super) fn text(self, name: &str, default: &'static str) -> Result<&'a str, OnnxError> {
        let Some(attribute) = self.attribute(name) else { return Ok(default) };
        let text = attribute.s.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.ok_or_else(|| self.bad(format!("`{name}` is not a text")))
    }

    pub(super) fn ints(self, name: &str) -> Option<&'a [i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    /// A list of as many sizes, or nothing where the attribute is not given.
    pub(super) fn sizes<const N: usize>(self, name: &str) -> Result<Option<[usize; N]>, OnnxError> {
        let Some(ints) = self.ints(name) else { return Ok(None) };
        let wrong = || self.bad(format!("`{name}` is {ints:?}, not {N} sizes"));
        let sizes = ints.iter().map(|&int| size(int)).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
        Ok(Some(sizes.try_into().map_err(|_| wrong())?))
    }

    /// The error that this node breaks its operator's rules.
    pub(super) fn bad(self, problem: impl Into<String>) -> OnnxError {
        OnnxError::BadNode { operator: self.operator(), node: self.name().into(), problem: problem.into() }
    }

    /// The error that there is no layer for what this node does.
    pub(super) fn unsupported(self, problem: impl Into<String>) -> OnnxError {
        OnnxError::UnsupportedUse {
            operator: self.operator(),
            node: self.name().into(),
            problem: problem.into(),
        }
    }

    /// The error that there is no layer for this operator.
    pub(super) fn unsupported_operator(self) -> OnnxError {
        OnnxError::UnsupportedOperator { operator: self.operator(), nodes: vec![self.name().into()] }
    }

    /// The error that a layer does not fit its inputs.
    pub(super) fn misfit(self, misfit: GraphError) -> OnnxError {
        OnnxError::Graph { operator: self.operator(), node: self.name().into(), misfit }
    }
}

/// A dimension, stride or padding of a sensible size.
pub(super) fn size(value: i64) -> Option<usize> {
    usize::try_from(value).ok().filter(|_| value <= LARGEST)
}

/// An axis as a position among `rank` dimensions; negative ones count from the end.
pub(super) fn axis(value: i64, rank: usize) -> Option<usize> {
    let from_start = if value < 0 { i64::try_from(rank).ok()?.checked_add(value)? } else { value };
    usize::try_from(from_start).ok().filter(|&place| place < rank)
}

/// A single-precision number as the decimal that was written: `1e-5`, and not the float next to it.
pub(super) fn shortest_decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}
