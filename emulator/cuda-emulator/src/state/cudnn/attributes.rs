//! Kinds of descriptors and their attributes, with the numbers of `cudnn_graph.h`.

use super::{Finalized, convolution::Pass, nodes::NodeKind};
use crate::state::Handle;
use std::fmt;

/// Kind of a descriptor (`cudnnBackendDescriptorType_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Parameters of a convolution.
    Convolution,
    /// Engine for an operation graph.
    Engine,
    /// Engine with its settings.
    Configuration,
    /// Heuristic that proposes engines.
    Heuristic,
    /// Engine that is ready to be executed.
    Plan,
    /// One of the three convolution operations.
    Operation(Pass),
    /// Parameters of another operation.
    Rule(NodeKind),
    /// Another operation.
    Node(NodeKind),
    /// Graph of operations.
    Graph,
    /// Addresses of the tensors of an execution.
    VariantPack,
    /// Tensor.
    Tensor,
    /// Properties of a device.
    Device,
}

impl Finalized {
    /// Returns the kind of the descriptor.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Finalized::Tensor(_) => Kind::Tensor,
            Finalized::Convolution(_) => Kind::Convolution,
            Finalized::Operation(operation) => Kind::Operation(operation.pass),
            Finalized::Rule(kind, _) => Kind::Rule(*kind),
            Finalized::Node(node) => Kind::Node(node.kind),
            Finalized::Graph(_) => Kind::Graph,
            Finalized::Heuristic(_) => Kind::Heuristic,
            Finalized::Engine(_) => Kind::Engine,
            Finalized::Configuration(_) => Kind::Configuration,
            Finalized::Plan(_) => Kind::Plan,
            Finalized::VariantPack(_) => Kind::VariantPack,
            Finalized::Device(_) => Kind::Device,
        }
    }
}

impl Kind {
    /// Largest number of a kind in cuDNN 9.19.
    const LAST: u32 = 43;

    /// Returns the kind with the given number. The error tells whether cuDNN has such a kind, which
    /// is not emulated.
    pub(crate) fn from_number(number: u32) -> Result<Self, bool> {
        Ok(match number {
            0 => Kind::Rule(NodeKind::Pointwise),
            1 => Kind::Convolution,
            2 => Kind::Engine,
            3 => Kind::Configuration,
            4 => Kind::Heuristic,
            5 => Kind::Plan,
            10 => Kind::Operation(Pass::Forward),
            11 => Kind::Operation(Pass::Filter),
            12 => Kind::Operation(Pass::Data),
            13 => Kind::Node(NodeKind::Pointwise),
            15 => Kind::Graph,
            16 => Kind::VariantPack,
            17 => Kind::Tensor,
            18 => Kind::Rule(NodeKind::Product),
            19 => Kind::Node(NodeKind::Product),
            21 => Kind::Rule(NodeKind::Reduction),
            22 => Kind::Node(NodeKind::Reduction),
            31 => Kind::Node(NodeKind::Reshape),
            38 => Kind::Device,
            _ => return Err(number <= Self::LAST),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Rule(kind) => return write!(f, "parameters of a {kind}"),
            Kind::Node(kind) => return kind.fmt(f),
            Kind::Convolution => "convolution",
            Kind::Engine => "engine",
            Kind::Configuration => "engine configuration",
            Kind::Heuristic => "engine heuristic",
            Kind::Plan => "execution plan",
            Kind::Operation(Pass::Forward) => "forward convolution",
            Kind::Operation(Pass::Data) => "data gradient",
            Kind::Operation(Pass::Filter) => "filter gradient",
            Kind::Graph => "operation graph",
            Kind::VariantPack => "variant pack",
            Kind::Tensor => "tensor",
            Kind::Device => "device properties",
        })
    }
}

/// Types of attributes (`cudnnBackendAttributeType_t`).
mod types {
    pub(super) const HANDLE: u32 = 0;
    pub(super) const DATA_TYPE: u32 = 1;
    pub(super) const BOOLEAN: u32 = 2;
    pub(super) const INT64: u32 = 3;
    pub(super) const FLOAT: u32 = 4;
    pub(super) const DOUBLE: u32 = 5;
    pub(super) const POINTER: u32 = 6;
    pub(super) const CONVOLUTION_MODE: u32 = 7;
    pub(super) const HEURISTIC_MODE: u32 = 8;
    pub(super) const NUMERICAL_NOTE: u32 = 11;
    pub(super) const POINTWISE_MODE: u32 = 14;
    pub(super) const DESCRIPTOR: u32 = 15;
    pub(super) const REDUCTION_OPERATOR: u32 = 18;
    pub(super) const BEHAVIOR_NOTE: u32 = 19;
    pub(super) const INT32: u32 = 23;
    pub(super) const CHAR: u32 = 24;
}

/// Returns the size in bytes of a value of an attribute type. Enumerations have 4 bytes.
pub(crate) fn type_bytes(kind: u32) -> usize {
    match kind {
        types::HANDLE | types::INT64 | types::DOUBLE | types::POINTER | types::DESCRIPTOR => 8,
        types::BOOLEAN | types::CHAR => 1,
        _ => 4,
    }
}

/// Values of an attribute.
#[derive(Clone)]
pub(crate) enum Values {
    /// Numbers, enumerations, addresses, handles and characters.
    Integers(Vec<i64>),
    /// Floating-point numbers.
    Floats(Vec<f64>),
    /// Descriptors, by handle.
    Descriptors(Vec<Handle>),
    /// Copies of descriptors. `None` for those that were not finalised.
    Objects(Vec<Option<Finalized>>),
}

impl Values {
    /// Creates the values of an attribute of type `kind` from their bytes.
    pub(crate) fn from_bytes(kind: u32, bytes: &[u8]) -> Self {
        let size = type_bytes(kind);
        let word = |chunk: &[u8]| {
            let mut word = [0; 8];
            word[..size].copy_from_slice(chunk);
            word
        };
        let words = bytes.chunks_exact(size).map(word);
        match kind {
            types::FLOAT => Values::Floats(
                words.map(|[a, b, c, d, ..]| f64::from(f32::from_le_bytes([a, b, c, d]))).collect(),
            ),
            types::DOUBLE => Values::Floats(words.map(f64::from_le_bytes).collect()),
            types::DESCRIPTOR => {
                Values::Descriptors(words.map(|word| u64::from_le_bytes(word) as Handle).collect())
            }
            _ if size == 4 => Values::Integers(
                words.map(|[a, b, c, d, ..]| i64::from(i32::from_le_bytes([a, b, c, d]))).collect(),
            ),
            _ => Values::Integers(words.map(i64::from_le_bytes).collect()),
        }
    }

    /// Returns the bytes of the values as an attribute of type `kind`. Descriptors have none.
    pub(crate) fn to_bytes(&self, kind: u32) -> Vec<u8> {
        match self {
            Values::Integers(values) => {
                values.iter().flat_map(|value| value.to_le_bytes()[..type_bytes(kind)].to_vec()).collect()
            }
            Values::Floats(values) if kind == types::FLOAT => {
                values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect()
            }
            Values::Floats(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Values::Descriptors(_) | Values::Objects(_) => Vec::new(),
        }
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        match self {
            Values::Integers(values) => values.len(),
            Values::Floats(values) => values.len(),
            Values::Descriptors(values) => values.len(),
            Values::Objects(values) => values.len(),
        }
    }
}

/// Attribute of a kind of descriptors.
#[derive(Clone, Copy)]
pub(crate) struct Attribute {
    /// Number of the attribute (`cudnnBackendAttributeName_t`).
    pub(super) name: u32,
    /// Accepted types of its values.
    pub(super) types: &'static [u32],
    /// Whether it is a list. Otherwise it has one value.
    pub(super) is_list: bool,
    /// Whether it can be set. Otherwise it is a result, which can only be read.
    pub(super) is_input: bool,
    /// Kind of the descriptors that are its values, if it has such.
    pub(crate) objects: Option<Objects>,
}

/// Kind of the descriptors that are the values of an attribute.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Objects {
    /// Descriptors of one kind.
    Of(Kind),
    /// Operations.
    Operations,
}

impl Objects {
    /// Returns whether a descriptor of the given kind can be a value.
    pub(crate) fn accepts(self, kind: Kind) -> bool {
        match self {
            Objects::Of(wanted) => kind == wanted,
            Objects::Operations => matches!(kind, Kind::Operation(_) | Kind::Node(_)),
        }
    }
}

const fn one(name: u32, types: &'static [u32]) -> Attribute {
    Attribute { name, types, is_list: false, is_input: true, objects: None }
}

const fn list(name: u32, types: &'static [u32]) -> Attribute {
    Attribute { is_list: true, ..one(name, types) }
}

const fn object(name: u32, kind: Kind) -> Attribute {
    Attribute { objects: Some(Objects::Of(kind)), ..one(name, &[types::DESCRIPTOR]) }
}

const fn result(attribute: Attribute) -> Attribute {
    Attribute { is_input: false, ..attribute }
}

/// Makes a constant table of attributes.
macro_rules! table {
    ($($attribute:expr),* $(,)?) => {{
        const TABLE: &[Attribute] = &[$($attribute),*];
        TABLE
    }};
}

/// Makes the table of an operation: alpha, beta, convolution, and the three tensors in the order
/// input, filter, output.
macro_rules! operation {
    ($alpha:literal, $beta:literal, $convolution:literal, $($tensor:literal),*) => {
        table![
            one($alpha, &[types::FLOAT, types::DOUBLE]),
            one($beta, &[types::FLOAT, types::DOUBLE]),
            object($convolution, Kind::Convolution),
            $(object($tensor, Kind::Tensor)),*
        ]
    };
}

/// Returns the attributes of a kind of descriptors.
pub(super) fn attributes(kind: Kind) -> &'static [Attribute] {
    match kind {
        Kind::Tensor => table![
            one(900, &[types::INT64]),
            one(901, &[types::DATA_TYPE]),
            list(902, &[types::INT64]),
            list(903, &[types::INT64]),
            one(906, &[types::INT64]),
            one(907, &[types::BOOLEAN]),
            one(908, &[types::BOOLEAN]),
        ],
        Kind::Convolution => table![
            one(100, &[types::DATA_TYPE]),
            one(101, &[types::CONVOLUTION_MODE]),
            list(102, &[types::INT64]),
            list(103, &[types::INT64]),
            list(104, &[types::INT64]),
            list(105, &[types::INT64]),
            one(106, &[types::INT64]),
        ],
        Kind::Operation(Pass::Forward) => operation!(700, 701, 702, 704, 703, 705),
        Kind::Operation(Pass::Data) => operation!(706, 707, 708, 710, 709, 711),
        Kind::Operation(Pass::Filter) => operation!(712, 713, 714, 716, 715, 717),
        Kind::Rule(NodeKind::Pointwise) => {
            table![one(0, &[types::POINTWISE_MODE]), one(1, &[types::DATA_TYPE]), one(9, &[types::INT64]),]
        }
        Kind::Rule(NodeKind::Product) => table![one(1500, &[types::DATA_TYPE])],
        Kind::Rule(NodeKind::Reduction) => {
            table![one(1600, &[types::REDUCTION_OPERATOR]), one(1601, &[types::DATA_TYPE])]
        }
        Kind::Rule(NodeKind::Reshape) => table![],
        Kind::Node(NodeKind::Pointwise) => table![
            object(750, Kind::Rule(NodeKind::Pointwise)),
            object(753, Kind::Tensor),
            object(751, Kind::Tensor),
            object(752, Kind::Tensor),
            object(758, Kind::Tensor),
        ],
        Kind::Node(NodeKind::Product) => table![
            object(1523, Kind::Rule(NodeKind::Product)),
            object(1522, Kind::Tensor),
            object(1520, Kind::Tensor),
            object(1521, Kind::Tensor),
        ],
        Kind::Node(NodeKind::Reduction) => table![
            object(1612, Kind::Rule(NodeKind::Reduction)),
            object(1611, Kind::Tensor),
            object(1610, Kind::Tensor),
        ],
        Kind::Node(NodeKind::Reshape) => table![object(2201, Kind::Tensor), object(2200, Kind::Tensor)],
        Kind::Graph => table![
            one(800, &[types::HANDLE]),
            Attribute { objects: Some(Objects::Operations), ..list(801, &[types::DESCRIPTOR]) },
            result(one(802, &[types::INT64])),
        ],
        Kind::Heuristic => table![
            one(200, &[types::HEURISTIC_MODE]),
            object(201, Kind::Graph),
            result(Attribute { is_list: true, ..object(202, Kind::Configuration) }),
            one(203, &[types::INT32]),
            object(204, Kind::Device),
        ],
        Kind::Configuration => table![object(300, Kind::Engine), result(one(303, &[types::INT64]))],
        Kind::Engine => table![
            object(1300, Kind::Graph),
            one(1301, &[types::INT64]),
            result(list(1303, &[types::NUMERICAL_NOTE])),
            result(list(1305, &[types::BEHAVIOR_NOTE])),
            one(1306, &[types::INT32]),
            object(1307, Kind::Device),
        ],
        Kind::Plan => table![
            one(400, &[types::HANDLE]),
            object(401, Kind::Configuration),
            result(one(402, &[types::INT64])),
            object(407, Kind::Device),
        ],
        Kind::VariantPack => {
            table![list(1000, &[types::INT64]), list(1001, &[types::POINTER]), one(1003, &[types::POINTER]),]
        }
        Kind::Device => {
            table![one(2700, &[types::INT32]), one(2701, &[types::HANDLE]), list(2702, &[types::CHAR]),]
        }
    }
}
