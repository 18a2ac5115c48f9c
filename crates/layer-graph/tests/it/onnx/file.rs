//! Writer of ONNX files: the subset of protobuf and of ONNX's messages that the tests need.

/// A protobuf message.
#[derive(Clone, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn int(mut self, field: u64, value: i64) -> Self {
        self.varint(field << 3);
        self.varint(value as u64);
        self
    }

    fn float(mut self, field: u64, value: f32) -> Self {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: impl AsRef<[u8]>) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.as_ref().len() as u64);
        self.0.extend(value.as_ref());
        self
    }
}

/// Builder of a model.
pub(crate) struct Model {
    graph: Message,
    opset: i64,
    nodes: usize,
}

/// Attribute of a node.
#[derive(Clone, Copy)]
pub(crate) enum Attribute<'a> {
    Int(&'a str, i64),
    Ints(&'a str, &'a [i64]),
    Float(&'a str, f32),
    Text(&'a str, &'a str),
}

impl Model {
    /// Creates a model with input `x` and output `y` of the given dimensions. Negative dimensions
    /// are open.
    pub(crate) fn new(opset: i64, x: &[i64], y: &[i64]) -> Self {
        let graph = Message::default().bytes(11, value("x", x).0).bytes(12, value("y", y).0);
        Self { graph, opset, nodes: 0 }
    }

    /// Adds an input.
    pub(crate) fn input(mut self, name: &str, dims: &[i64]) -> Self {
        self.graph = self.graph.bytes(11, value(name, dims).0);
        self
    }

    pub(crate) fn output(mut self, name: &str, dims: &[i64]) -> Self {
        self.graph = self.graph.bytes(12, value(name, dims).0);
        self
    }

    /// Declares the shape of a value.
    pub(crate) fn declare(mut self, name: &str, dims: &[i64]) -> Self {
        self.graph = self.graph.bytes(13, value(name, dims).0);
        self
    }

    /// Adds a stored tensor of floats without its values.
    pub(crate) fn weight(mut self, name: &str, dims: &[i64]) -> Self {
        self.graph = self.graph.bytes(5, tensor(name, dims, 1).0);
        self
    }

    /// Adds a stored list of integers.
    pub(crate) fn list(mut self, name: &str, values: &[i64]) -> Self {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.graph = self.graph.bytes(5, tensor(name, &[values.iter().map(|_| 1).sum()], 7).bytes(9, raw).0);
        self
    }

    /// Adds a list of integers whose values are in another file.
    pub(crate) fn external_list(mut self, name: &str, length: i64) -> Self {
        self.graph = self.graph.bytes(5, tensor(name, &[length], 7).int(14, 1).0);
        self
    }

    /// Adds a stored tensor of numbers.
    pub(crate) fn table(mut self, name: &str, dims: &[i64], values: &[f32]) -> Self {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.graph = self.graph.bytes(5, tensor(name, dims, 1).bytes(9, raw).0);
        self
    }

    /// Adds a tensor of numbers in another file, from an offset on.
    pub(crate) fn external_table(mut self, name: &str, dims: &[i64], file: &str, offset: usize) -> Self {
        let entry = |key: &str, value: &str| Message::default().bytes(1, key).bytes(2, value).0;
        let stored = tensor(name, dims, 1).bytes(13, entry("location", file));
        let stored = stored.bytes(13, entry("offset", &offset.to_string())).int(14, 1);
        self.graph = self.graph.bytes(5, stored.0);
        self
    }

    /// Adds a stored number.
    pub(crate) fn number(mut self, name: &str, value: f32) -> Self {
        self.graph = self.graph.bytes(5, tensor(name, &[], 1).bytes(9, value.to_le_bytes()).0);
        self
    }

    /// Adds a stored boolean.
    pub(crate) fn boolean(mut self, name: &str, value: bool) -> Self {
        self.graph = self.graph.bytes(5, tensor(name, &[], 9).bytes(9, [u8::from(value)]).0);
        self
    }

    /// Adds a weight whose values are in another file.
    pub(crate) fn external_weight(mut self, name: &str, dims: &[i64]) -> Self {
        self.graph = self.graph.bytes(5, tensor(name, dims, 1).int(14, 1).0);
        self
    }

    /// Adds a node named `node1`, `node2` and so on. Inputs and outputs are separated by spaces.
    pub(crate) fn node(
        self,
        operator: &str,
        inputs: &str,
        outputs: &str,
        attributes: &[Attribute<'_>],
    ) -> Self {
        let name = format!("node{}", self.nodes + 1);
        self.named_node(&name, "", operator, inputs, outputs, attributes)
    }

    /// Adds a node with the given name and the scopes written by PyTorch's newer exporter.
    pub(crate) fn named_node(
        mut self,
        name: &str,
        scopes: &str,
        operator: &str,
        inputs: &str,
        outputs: &str,
        attributes: &[Attribute<'_>],
    ) -> Self {
        self.nodes += 1;
        let mut node = Message::default();
        node = inputs.split(' ').fold(node, |node, input| node.bytes(1, input.trim_matches('_')));
        node = outputs.split(' ').fold(node, |node, output| node.bytes(2, output));
        node = node.bytes(3, name).bytes(4, operator);
        if !scopes.is_empty() {
            node =
                node.bytes(9, Message::default().bytes(1, "pkg.torch.onnx.name_scopes").bytes(2, scopes).0);
        }
        for attribute in attributes {
            let message = match *attribute {
                Attribute::Int(name, value) => Message::default().bytes(1, name).int(3, value),
                Attribute::Ints(name, values) => {
                    values.iter().fold(Message::default().bytes(1, name), |message, &int| message.int(8, int))
                }
                Attribute::Float(name, value) => Message::default().bytes(1, name).float(2, value),
                Attribute::Text(name, text) => Message::default().bytes(1, name).bytes(4, text),
            };
            node = node.bytes(5, message.0);
        }
        self.graph = self.graph.bytes(1, node.0);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let opset = Message::default().bytes(1, "").int(2, self.opset);
        let model = Message::default().int(1, 8).bytes(2, "a test").bytes(7, &self.graph.0).bytes(8, opset.0);
        model.0
    }
}

fn tensor(name: &str, dims: &[i64], data_type: i64) -> Message {
    dims.iter().fold(Message::default(), |message, &dim| message.int(1, dim)).int(2, data_type).bytes(8, name)
}

fn value(name: &str, dims: &[i64]) -> Message {
    let shape = dims.iter().fold(Message::default(), |shape, &dim| {
        let dimension = Message::default();
        shape.bytes(1, if dim < 0 { dimension.bytes(2, "open") } else { dimension.int(1, dim) }.0)
    });
    let tensor = Message::default().int(1, 1).bytes(2, shape.0);
    Message::default().bytes(1, name).bytes(2, Message::default().bytes(1, tensor.0).0)
}
