//! Graph under construction: nodes and constants in the form that the ONNX importer reads.

use prost::bytes::Bytes;

use crate::onnx::proto::{
    AttributeProto, GraphProto, NodeProto, StringStringEntryProto, TensorProto, data_type,
};

/// Value of `data_location` for elements in another file, here an entry of the archive.
const EXTERNAL: i32 = 1;

/// Attribute of a node.
pub(super) enum Attribute<'a> {
    Int(&'static str, i64),
    Float(&'static str, f64),
    Ints(&'static str, &'a [i64]),
    Text(&'static str, &'a str),
}

impl Attribute<'_> {
    fn message(&self) -> AttributeProto {
        let empty = AttributeProto::default();
        match *self {
            Self::Int(name, value) => AttributeProto { name: name.into(), i: Some(value), ..empty },
            Self::Float(name, value) => AttributeProto { name: name.into(), f: Some(value as f32), ..empty },
            Self::Ints(name, values) => AttributeProto { name: name.into(), ints: values.into(), ..empty },
            Self::Text(name, text) => {
                let text = Bytes::copy_from_slice(text.as_bytes());
                AttributeProto { name: name.into(), s: Some(text), ..empty }
            }
        }
    }
}

/// Builder of the graph.
#[derive(Default)]
pub(super) struct Builder {
    pub(super) graph: GraphProto,
    /// Name of the nodes added next, and the modules that they belong to.
    pub(super) name: String,
    pub(super) scopes: String,
    values: usize,
}

impl Builder {
    /// Adds a node with one output.
    pub(super) fn node(
        &mut self,
        operator: &str,
        inputs: &[&str],
        output: &str,
        attributes: &[Attribute<'_>],
    ) {
        self.node_of(operator, inputs, &[output.to_owned()], attributes);
    }

    /// Adds a node.
    pub(super) fn node_of(
        &mut self,
        operator: &str,
        inputs: &[&str],
        outputs: &[String],
        attributes: &[Attribute<'_>],
    ) {
        let scopes =
            StringStringEntryProto { key: "pkg.torch.onnx.name_scopes".into(), value: self.scopes.clone() };
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(|&input| input.into()).collect(),
            output: outputs.to_vec(),
            name: self.name.clone(),
            op_type: operator.into(),
            attribute: attributes.iter().map(Attribute::message).collect(),
            domain: String::new(),
            metadata_props: vec![scopes],
        });
    }

    /// Adds a node whose output gets a name of its own, and returns this name.
    pub(super) fn inner(&mut self, operator: &str, inputs: &[&str], attributes: &[Attribute<'_>]) -> String {
        let output = self.fresh();
        self.node(operator, inputs, &output, attributes);
        output
    }

    /// Returns a name that no value of the program has.
    pub(super) fn fresh(&mut self) -> String {
        self.values += 1;
        format!("value {}", self.values)
    }

    /// Adds a constant list of integers and returns its name.
    pub(super) fn list(&mut self, values: &[i64]) -> String {
        let dims = vec![i64::try_from(values.len()).unwrap_or(i64::MAX)];
        self.tensor(dims, data_type::INT64, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// Adds a constant integer and returns its name.
    pub(super) fn int(&mut self, value: i64) -> String {
        self.tensor(Vec::new(), data_type::INT64, value.to_le_bytes().to_vec())
    }

    /// Adds a constant number and returns its name.
    pub(super) fn float(&mut self, value: f64) -> String {
        self.tensor(Vec::new(), data_type::FLOAT, (value as f32).to_le_bytes().to_vec())
    }

    /// Adds a constant boolean and returns its name.
    pub(super) fn boolean(&mut self, value: bool) -> String {
        self.tensor(Vec::new(), data_type::BOOL, vec![u8::from(value)])
    }

    fn tensor(&mut self, dims: Vec<i64>, data_type: i32, bytes: Vec<u8>) -> String {
        let name = self.fresh();
        let tensor =
            TensorProto { dims, data_type, name: name.clone(), raw_data: bytes.into(), ..Default::default() };
        self.graph.initializer.push(tensor);
        name
    }

    /// Adds a stored tensor, whose elements are an entry of the archive from an offset on. `None`
    /// for elements that are not read.
    pub(super) fn stored(
        &mut self,
        name: &str,
        dims: Vec<i64>,
        data_type: i32,
        place: Option<(String, i64)>,
    ) {
        let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
        let external_data = place.map_or_else(Vec::new, |(file, offset)| {
            vec![entry("location", file), entry("offset", offset.to_string())]
        });
        self.graph.initializer.push(TensorProto {
            dims,
            data_type,
            name: name.into(),
            external_data,
            data_location: EXTERNAL,
            ..Default::default()
        });
    }
}
