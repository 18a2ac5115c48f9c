//! Constants of a model: tensors that do not depend on the samples, stored in the file or computed
//! from stored ones.
//!
//! Parameters are initialised again by training, so only their dimensions are kept. Values are kept
//! for short lists of integers (tensors of at most 64), which give shapes and axes, and for single
//! numbers. Those of other tensors are read where they are needed, such as the mask of an
//! attention.

#![expect(clippy::float_cmp, reason = "integers are exact")]

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use prost::bytes::Bytes;

use super::OnnxError;
use super::dims::{BATCH, BATCH_SIZE, permute, reshape, squeeze, unsqueeze};
use super::node::Node;
use super::numbers::{axis, shortest_decimal, size};
use super::proto::{TensorProto, data_type};
use super::table::{self, MAX_ELEMENTS, Table, broadcast};
use crate::PositionEmbedding;

/// Problem of a tensor whose elements must be known and are in another file that is not there, and
/// the way out.
pub(super) const IN_OTHER_FILE: &str = "is stored in another file (external data), which is not there: keep \
                                        it in the folder of the model, or save the model with its small \
                                        tensors inside";
/// Value of `data_location` for tensors whose elements are in another file.
const EXTERNAL: i32 = 1;
/// Maximum length of a list of integers whose values are kept. Longer ones are data.
const MAX_LIST_LENGTH: usize = 64;
/// Maximum number of elements of a file that are decoded or computed, to limit memory.
const MAX_KNOWN_ELEMENTS: usize = 16 * MAX_ELEMENTS;

/// Reader of the files in which a model stores tensors apart: returns the bytes of the file of the
/// given name from an offset on, of the given length. `None` if they cannot be read.
pub(super) type ReadApart<'a> = dyn Fn(&str, u64, usize) -> Option<Vec<u8>> + 'a;

/// Constants of a model by name.
pub(super) struct Constants<'a> {
    by_name: HashMap<String, Constant>,
    /// Number of elements that may still be decoded or computed.
    room: Cell<usize>,
    /// Size of the batch in computed integers.
    batch: usize,
    read_apart: &'a ReadApart<'a>,
    /// Values that nodes make from stored weights and biases of recurrences. They are not computed.
    of_recurrences: HashSet<&'a str>,
}

/// Tensor that does not depend on the samples.
#[derive(Debug, Clone)]
pub(super) struct Constant {
    /// Dimensions of the tensor, outermost first. Empty for a scalar.
    pub(super) dims: Vec<usize>,
    /// Origin and order of its elements, by which layers recognise shared parameters.
    pub(super) source: Source,
    /// Values in row-major order, if the elements are integers and known: for a stored tensor, at
    /// most 64. A single boolean is 0 or 1. `None` otherwise.
    pub(super) ints: Option<Vec<i64>>,
    /// Value, if this is a single number in floating point whose value is known; `None` otherwise.
    pub(super) number: Option<f64>,
    /// Whether the elements are stored in another file.
    pub(super) is_external: bool,
    /// Embedding of positions whose vectors these are, if they are consecutive or equal rows of a
    /// stored matrix. `None` for other constants.
    pub(super) rows_of: Option<PositionEmbedding>,
    /// Names of the stored tensors whose parts it joins, in order, if it is a weight or a bias of a
    /// recurrence. Empty for other constants.
    pub(super) parts: Vec<String>,
    elements: Elements,
}

/// Place of the elements of a constant.
#[derive(Debug, Clone)]
enum Elements {
    Unknown,
    /// Little-endian bytes of the given data type.
    Stored(i32, Bytes),
    /// Bytes of the given data type in another file: its name, offset and length.
    Elsewhere(i32, String, u64, usize),
    /// Values, and whether they are integers.
    Known(Rc<[f64]>, bool),
}

/// Origin and element order of a tensor. Two tensors with equal sources hold the same elements and
/// differ at most in their dimensions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Source {
    /// Name of the stored tensor that holds the elements, or of the value whose node creates them.
    pub(super) origin: String,
    /// Transpositions applied to the stored tensor, as (dimensions, order). Other rearrangements
    /// keep the order of elements.
    transposes: Vec<(Vec<usize>, Vec<usize>)>,
}

impl Source {
    /// Creates the source of a tensor of this name.
    pub(super) fn of(origin: String) -> Self {
        Self { origin, transposes: Vec::new() }
    }

    /// Returns the source after a transposition of a tensor with dimensions `dims`. A transposition
    /// that undoes the previous one removes it.
    fn transposed(mut self, dims: &[usize], order: Vec<usize>) -> Self {
        let is_identity = |order: &[usize]| order.iter().copied().eq(0..order.len());
        if is_identity(&order) {
            return self;
        }
        if let Some((before, last)) = self.transposes.last() {
            let after = last.iter().map(|&axis| before[axis]);
            let both: Option<Vec<_>> = order.iter().map(|&axis| last.get(axis).copied()).collect();
            if after.eq(dims.iter().copied()) && both.is_some_and(|both| is_identity(&both)) {
                self.transposes.pop();
                return self;
            }
        }
        self.transposes.push((dims.to_vec(), order));
        self
    }
}

impl Constant {
    fn unknown(dims: Vec<usize>, origin: impl Into<String>) -> Self {
        let (source, elements) = (Source::of(origin.into()), Elements::Unknown);
        let (rows_of, parts) = (None, Vec::new());
        Self { dims, source, ints: None, number: None, is_external: false, rows_of, parts, elements }
    }

    /// Creates the constant that a node makes of parts of stored tensors. Its dimensions are not
    /// known.
    fn joined(node: Node<'_>, constants: &Constants<'_>) -> Result<Self, OnnxError> {
        let mut constant = Self::unknown(Vec::new(), node.output()?);
        for name in joined_inputs(node) {
            let Some(input) = constants.get(name) else { continue };
            let own = std::slice::from_ref(&input.source.origin);
            for part in if input.parts.is_empty() { own } else { &input.parts } {
                if !constant.parts.contains(part) {
                    constant.parts.push(part.clone());
                }
            }
        }
        Ok(constant)
    }

    /// Creates a constant of known values.
    fn of_table(table: &Table, origin: impl Into<String>) -> Self {
        let mut constant = Self::unknown(table.dims.clone(), origin);
        if table.is_integer && table.values.len() <= MAX_LIST_LENGTH {
            constant.ints = table.values.iter().map(|&value| table::integer(value)).collect();
        } else if let [number] = table.values[..] {
            constant.number = Some(number);
        }
        constant.elements = Elements::Known(Rc::clone(&table.values), table.is_integer);
        constant
    }

    /// Creates a list of integers.
    pub(super) fn list(ints: Vec<i64>, origin: impl Into<String>) -> Self {
        let length = ints.len();
        Self { ints: Some(ints), ..Self::unknown(vec![length], origin) }
    }

    /// Returns whether nodes compute the elements instead of a stored tensor.
    pub(super) fn is_computed(&self) -> bool {
        matches!(self.elements, Elements::Known(..))
    }

    /// Returns whether nodes compute the elements, all of which are 0.
    pub(super) fn is_computed_zero(&self) -> bool {
        matches!(&self.elements, Elements::Known(values, _) if values.iter().all(|&value| value == 0.0))
    }

    /// Returns the source that this constant has after a transposition. The constant is a matrix.
    pub(super) fn transposed_source(&self) -> Source {
        self.source.clone().transposed(&self.dims, vec![1, 0])
    }

    fn read(name: &str, tensor: &TensorProto) -> Result<Self, OnnxError> {
        let dims = dimensions(&tensor.dims).ok_or_else(|| {
            OnnxError::not_onnx(format!("tensor `{name}` has dimensions {:?}", tensor.dims))
        })?;
        let count: usize = dims.iter().product();
        let mut constant = Self::unknown(dims, name);
        constant.is_external = tensor.data_location == EXTERNAL;
        let raw = &tensor.raw_data;
        match tensor.data_type {
            data_type::INT64 if count <= MAX_LIST_LENGTH => {
                let ints = tensor.int64_data.iter().copied().chain(words(raw).map(i64::from_le_bytes));
                constant.ints = Some(ints.collect());
            }
            data_type::INT32 if count <= MAX_LIST_LENGTH => {
                let ints = tensor.int32_data.iter().copied().chain(words(raw).map(i32::from_le_bytes));
                constant.ints = Some(ints.map(i64::from).collect());
            }
            data_type::BOOL if count == 1 => {
                let stored = tensor.int32_data.iter().map(|&value| i64::from(value));
                constant.ints = Some(stored.chain(raw.iter().map(|&value| value.into())).collect());
            }
            data_type::FLOAT if count == 1 => {
                let mut numbers = tensor.float_data.iter().copied().chain(words(raw).map(f32::from_le_bytes));
                constant.number = numbers.next().map(shortest_decimal);
            }
            _ => {}
        }
        // Discard values that are incomplete or stored in another file.
        constant.ints = constant.ints.filter(|values| values.len() == count);
        constant.elements = if constant.is_external {
            let entry = |key: &str| {
                let entry = tensor.external_data.iter().find(|entry| entry.key == key);
                entry.map(|entry| entry.value.as_str())
            };
            let offset = entry("offset").map_or(Some(0), |offset| offset.parse().ok());
            let width = width(tensor.data_type);
            match (entry("location"), offset, width.and_then(|width| count.checked_mul(width))) {
                (Some(file), Some(offset), Some(length)) => {
                    Elements::Elsewhere(tensor.data_type, file.into(), offset, length)
                }
                _ => Elements::Unknown,
            }
        } else if !raw.is_empty() {
            Elements::Stored(tensor.data_type, raw.clone())
        } else if tensor.float_data.len() == count && count <= MAX_ELEMENTS {
            let bytes = tensor.float_data.iter().flat_map(|value| value.to_le_bytes());
            Elements::Stored(data_type::FLOAT, bytes.collect())
        } else {
            Elements::Unknown
        };
        Ok(constant)
    }
}

impl Constants<'_> {
    /// Returns the constant of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Constant> {
        self.by_name.get(name)
    }

    /// Returns whether there is a constant of this name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Adds a constant and returns whether there was none of this name.
    pub(super) fn insert(&mut self, name: &str, constant: Constant) -> bool {
        self.by_name.insert(name.to_owned(), constant).is_none()
    }

    /// Returns the values of a constant. `None` if they are not known or too many.
    pub(super) fn table(&self, constant: &Constant) -> Option<Table> {
        if let Some(ints) = &constant.ints {
            let batch = self.batch as f64;
            let values = ints.iter().map(|&int| if int == BATCH_SIZE { batch } else { int as f64 });
            return Table::new(constant.dims.clone(), values.collect(), true);
        }
        let count: usize = constant.dims.iter().product();
        let (bytes, data_type) = match &constant.elements {
            Elements::Known(values, is_integer) => {
                let (dims, values) = (constant.dims.clone(), Rc::clone(values));
                return (values.len() == count).then_some(Table { dims, values, is_integer: *is_integer });
            }
            Elements::Unknown => {
                return Table::new(constant.dims.clone(), vec![constant.number?], false);
            }
            _ if !self.take_room(count) => return None,
            Elements::Stored(data_type, bytes) => (bytes.clone(), *data_type),
            Elements::Elsewhere(data_type, file, offset, length) => {
                ((self.read_apart)(file, *offset, *length)?.into(), *data_type)
            }
        };
        let is_integer = !matches!(data_type, data_type::FLOAT | data_type::DOUBLE);
        Table::new(constant.dims.clone(), numbers(&bytes, data_type)?, is_integer)
    }

    /// Reserves memory for the given number of elements; returns whether there is room for them.
    fn take_room(&self, count: usize) -> bool {
        let rest = self.room.get().checked_sub(count).filter(|_| count <= MAX_ELEMENTS);
        self.room.set(rest.unwrap_or(self.room.get()));
        rest.is_some()
    }

    /// Evaluates a node whose inputs are constants of known values.
    fn evaluated(&self, node: Node<'_>) -> Option<Constant> {
        let mut inputs = node.inputs().map(|name| self.table(self.get(name)?)).collect::<Option<Vec<_>>>()?;
        if node.operator() == "Range" && self.batch == BATCH {
            // Constants are the same for all samples.
            let one = |table: &Table| Table::new(Vec::new(), vec![1.0], table.is_integer);
            let is_batch = |table: &Table| table.values[..] == [BATCH as f64];
            inputs = inputs
                .into_iter()
                .map(|table| if is_batch(&table) { one(&table) } else { Some(table) })
                .collect::<Option<Vec<_>>>()?;
        }
        let table = table::evaluate(node, &inputs)?;
        self.take_room(table.values.len())
            .then(|| Constant::of_table(&table, node.output().unwrap_or_default()))
    }
}

/// Returns the number of bytes of an element of a data type whose values are read.
fn width(data_type: i32) -> Option<usize> {
    match data_type {
        data_type::FLOAT | data_type::INT32 => Some(4),
        data_type::INT64 | data_type::DOUBLE => Some(8),
        data_type::BOOL => Some(1),
        _ => None,
    }
}

/// Decodes the elements of a tensor.
fn numbers(bytes: &[u8], data_type: i32) -> Option<Vec<f64>> {
    Some(match data_type {
        data_type::FLOAT => words(bytes).map(|word| f64::from(f32::from_le_bytes(word))).collect(),
        data_type::DOUBLE => words(bytes).map(f64::from_le_bytes).collect(),
        data_type::INT32 => words(bytes).map(|word| f64::from(i32::from_le_bytes(word))).collect(),
        data_type::INT64 => words(bytes).map(|word| i64::from_le_bytes(word) as f64).collect(),
        data_type::BOOL => bytes.iter().map(|&byte| f64::from(byte)).collect(),
        _ => return None,
    })
}

/// Splits bytes into words of `N` bytes.
fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.chunks_exact(N).filter_map(|word| word.try_into().ok())
}

/// Returns the dimensions if each is valid and their product does not overflow.
fn dimensions(dims: &[i64]) -> Option<Vec<usize>> {
    let dims = dims.iter().map(|&dim| size(dim)).collect::<Option<Vec<_>>>()?;
    dims.iter().try_fold(1usize, |all, &dim| all.checked_mul(dim)).map(|_| dims)
}

/// Reads the stored tensors and evaluates the constants among the nodes at the positions in
/// `wanted`.
///
/// Returns the constants by name, and the positions of the nodes that compute them. The problem of
/// a constant that cannot be read or evaluated is added to `problems`, with the name of the value.
pub(super) fn constants<'a>(
    tensors: &'a [TensorProto],
    nodes: &[Node<'a>],
    wanted: &HashSet<usize>,
    (batch, read_apart): (usize, &'a ReadApart<'a>),
    problems: &mut Vec<(&'a str, OnnxError)>,
) -> (Constants<'a>, HashSet<usize>) {
    let read: HashSet<&str> = wanted.iter().flat_map(|&i| nodes[i].inputs()).collect();
    let room = Cell::new(MAX_KNOWN_ELEMENTS);
    let of_recurrences = of_recurrences(nodes);
    let mut constants = Constants { by_name: HashMap::new(), room, batch, read_apart, of_recurrences };
    for tensor in tensors.iter().filter(|tensor| read.contains(&*tensor.name)) {
        match Constant::read(&tensor.name, tensor) {
            Ok(constant) => _ = constants.insert(&tensor.name, constant),
            Err(problem) => problems.push((&tensor.name, problem)),
        }
    }
    let mut producers = HashSet::new();
    for (i, &node) in nodes.iter().enumerate().filter(|(i, _)| wanted.contains(i)) {
        if node.inputs().all(|input| constants.contains(input)) {
            let made = node.output().and_then(|value| Ok((value, folded(node, &constants)?)));
            match made {
                Ok((value, Some(constant))) => {
                    constants.insert(value, constant);
                    producers.insert(i);
                }
                Ok((_, None)) => {}
                Err(problem) => {
                    problems.push((node.outputs().next().unwrap_or_default(), problem));
                    producers.insert(i);
                }
            }
        }
    }
    (constants, producers)
}

/// Returns the values that nodes make from weights and biases of recurrences, by joining and
/// rearranging them: exporters change the order of the gates.
fn of_recurrences<'a>(nodes: &[Node<'a>]) -> HashSet<&'a str> {
    let is_recurrent = |node: &&Node<'a>| matches!(node.operator().as_str(), "LSTM" | "GRU");
    let recurrent = nodes.iter().filter(is_recurrent);
    let mut open: Vec<&str> =
        recurrent.flat_map(|node| (1..=3).filter_map(|position| node.optional_input(position))).collect();
    let mut found = HashSet::new();
    if open.is_empty() {
        return found;
    }
    let makers: HashMap<&str, Node<'a>> =
        nodes.iter().flat_map(|&node| node.outputs().map(move |output| (output, node))).collect();
    while let Some(value) = open.pop() {
        let Some((value, &node)) = makers.get_key_value(value) else { continue };
        let operators = ["Concat", "Slice", "Unsqueeze", "Squeeze", "Reshape", "Identity"];
        if operators.contains(&&*node.operator()) && found.insert(*value) {
            open.extend(joined_inputs(node));
        }
    }
    found
}

/// Returns the inputs of a node that have elements of its output.
fn joined_inputs(node: Node<'_>) -> impl Iterator<Item = &str> {
    node.inputs().take(if node.operator() == "Concat" { usize::MAX } else { 1 })
}

/// Evaluates a node whose inputs are constants. Returns `None` if the result is not a known
/// constant.
///
/// # Errors
/// [`OnnxError::InvalidNode`] if the inputs do not fit the operator.
pub(super) fn folded(node: Node<'_>, constants: &Constants<'_>) -> Result<Option<Constant>, OnnxError> {
    let input = |position: usize| node.optional_input(position).and_then(|name| constants.get(name));
    // Newer operator versions take this list as an input, older ones as an attribute.
    let list = |position: usize, attribute: &str| {
        input(position).map_or_else(|| node.ints(attribute), |constant| constant.ints.as_deref())
    };
    let operator = node.operator();
    if operator == "Constant" {
        return stored(node).map(Some);
    }
    let Some(first) = input(0) else { return Ok(None) };
    if constants.of_recurrences.contains(node.output()?) {
        return Constant::joined(node, constants).map(Some);
    }
    let with_dims = |dims: Option<Vec<usize>>, arguments: Option<&[i64]>| {
        let misfit = || {
            node.invalid(format!(
                "{:?} does not fit a constant of {:?}",
                arguments.unwrap_or_default(),
                first.dims
            ))
        };
        dims.map(|dims| Constant { dims, ..first.clone() }).ok_or_else(misfit)
    };
    let unknown = || match input(1) {
        Some(constant) if constant.is_external => node.invalid(format!("its second input {IN_OTHER_FILE}")),
        _ => node.invalid("its second input is not known"),
    };
    match operator.as_str() {
        "Identity" => Ok(first.clone()),
        "ConstantOfShape" => {
            let dims = first.ints.as_deref().and_then(repeated);
            let dims = dims.ok_or_else(|| node.invalid("its shape is not a list of sizes"))?;
            let element = match node.attribute("value").and_then(|attribute| attribute.t.as_ref()) {
                Some(tensor) => constants.table(&Constant::read(node.output()?, tensor)?),
                None => Table::new(vec![1], vec![0.0], false),
            };
            let count: usize = dims.iter().product();
            let table = element.filter(|element| element.values.len() == 1 && constants.take_room(count));
            let values = table
                .and_then(|table| Table::new(dims.clone(), vec![table.values[0]; count], table.is_integer));
            let origin = node.output()?;
            Ok(values
                .map_or_else(|| Constant::unknown(dims, origin), |table| Constant::of_table(&table, origin)))
        }
        "Expand" => {
            let wanted = input(1).and_then(|shape| shape.ints.as_deref()).and_then(repeated);
            let dims = wanted.and_then(|wanted| broadcast(&first.dims, &wanted)).ok_or_else(unknown)?;
            if dims == first.dims {
                return Ok(Some(first.clone()));
            }
            let count = dims.iter().try_fold(1usize, |all, &dim| all.checked_mul(dim));
            let table =
                constants.table(first).filter(|_| count.is_some_and(|count| constants.take_room(count)));
            let source = first.source.clone();
            Ok(match table.and_then(|table| table.expand(&dims)) {
                Some(table) => Constant { source, ..Constant::of_table(&table, "") },
                None => Constant { source, ..Constant::unknown(dims, "") },
            })
        }
        "Reshape" => {
            let wanted = list(1, "shape").ok_or_else(unknown)?;
            let ones: Vec<i64> = wanted.iter().map(one_sample).collect();
            with_dims(reshape(&ones, &first.dims), Some(wanted))
        }
        "Unsqueeze" => {
            let axes = list(1, "axes").ok_or_else(unknown)?;
            with_dims(unsqueeze(axes, &first.dims), Some(axes))
        }
        "Squeeze" => with_dims(squeeze(list(1, "axes"), &first.dims), list(1, "axes")),
        // Stored weights are not read.
        "Transpose" => {
            let axes: Vec<usize> = (0..first.dims.len()).collect();
            let (dims, order) = (permute(node.ints("perm"), &first.dims), permute(node.ints("perm"), &axes));
            let Constant { dims, source, .. } = with_dims(dims, node.ints("perm"))?;
            let source = source.transposed(&first.dims, order.unwrap_or(axes));
            let is_computed = matches!(first.elements, Elements::Known(..)) || first.ints.is_some();
            let table = is_computed.then(|| constants.evaluated(node)).flatten();
            Ok(Constant { source, ..table.unwrap_or_else(|| Constant::unknown(dims, "")) })
        }
        "Shape" => {
            let dims: Vec<i64> = first.dims.iter().copied().map(signed).collect();
            return shape_of(node, &dims).map(Some);
        }
        "Cast" => match (node.int("to", 0)?, &first.ints) {
            (to, Some(_)) if to == i64::from(data_type::INT64) || to == i64::from(data_type::INT32) => {
                Ok(first.clone())
            }
            _ => return Ok(constants.evaluated(node)),
        },
        "Gather" | "Concat" | "Slice" => {
            let list = list_of_lists(node, constants)?;
            return Ok(list.or_else(|| first_rows(node, constants)).or_else(|| constants.evaluated(node)));
        }
        _ => return Ok(constants.evaluated(node)),
    }
    .map(Some)
}

/// Evaluates a `Gather` of consecutive or equal rows of a stored matrix, such as the positions of a
/// sequence. `None` if it gathers others.
fn first_rows(node: Node<'_>, constants: &Constants<'_>) -> Option<Constant> {
    let (matrix, places) = (constants.get(node.input(0).ok()?)?, constants.get(node.input(1).ok()?)?);
    let (&[rows, columns], Elements::Stored(..) | Elements::Elsewhere(..) | Elements::Unknown) =
        (&matrix.dims[..], &matrix.elements)
    else {
        return None;
    };
    let table = constants.table(places)?;
    let length = *table.dims.last()?;
    let first = *table.values.first()?;
    let is_from_first = |step: f64| {
        let expected = |i: usize| first + (i % length) as f64 * step;
        table.values.iter().enumerate().all(|(i, &place)| place == expected(i))
    };
    let repeated = length > 1 && is_from_first(0.0);
    let embedding = PositionEmbedding {
        first: usize::try_from(table::integer(first)?).ok()?,
        repeated,
        ..PositionEmbedding::new(rows)
    };
    let is_gather = node.operator() == "Gather" && node.int("axis", 0).ok()? == 0;
    if !is_gather
        || !(repeated || is_from_first(1.0))
        || embedding.first.checked_add(embedding.used(length))? > rows
    {
        return None;
    }
    let dims = [&table.dims[..], &[columns]].concat();
    let source = matrix.source.clone();
    Some(Constant { source, rows_of: Some(embedding), ..Constant::unknown(dims, "") })
}

/// Returns the sizes of a list, in which that of the batch is 1: constants are the same for all
/// samples.
fn repeated(dims: &[i64]) -> Option<Vec<usize>> {
    dimensions(&dims.iter().map(one_sample).collect::<Vec<_>>())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "it maps iterators")]
fn one_sample(&dim: &i64) -> i64 {
    if dim == BATCH_SIZE || dim == signed(BATCH) { 1 } else { dim }
}

/// Returns the result of a `Shape` node for a value of these dimensions, of which newer operator
/// versions take a part.
///
/// # Errors
/// [`OnnxError::InvalidNode`] if the ends of the part are not integers.
pub(super) fn shape_of(node: Node<'_>, dims: &[i64]) -> Result<Constant, OnnxError> {
    let end = signed(dims.len());
    let (start, end) = (node.int("start", 0)?, node.int("end", end)?);
    Ok(Constant::list(part(dims, start, end).to_vec(), node.output()?))
}

/// Converts a size to ONNX's type of shapes.
pub(super) fn signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Returns the values from `start` to before `end`. Negative ends count from the back, and those
/// outside are clamped.
fn part(values: &[i64], start: i64, end: i64) -> &[i64] {
    let place = |at: i64| {
        let from_front = if at < 0 { at.saturating_add(signed(values.len())) } else { at };
        usize::try_from(from_front).unwrap_or(0).min(values.len())
    };
    values.get(place(start)..place(end)).unwrap_or_default()
}

/// Evaluates a node that joins lists of integers or takes a part of one. Returns `None` if the
/// inputs are no such lists, or the result is not known.
fn list_of_lists(node: Node<'_>, constants: &Constants<'_>) -> Result<Option<Constant>, OnnxError> {
    let input = |position: usize| constants.get(node.optional_input(position)?);
    let ints = |position: usize| input(position)?.ints.as_deref();
    let one = |position: usize| match ints(position)? {
        [number] if *number != BATCH_SIZE => Some(*number),
        _ => None,
    };
    let is_list = |constant: &Constant| constant.dims.len() == 1 && constant.ints.is_some();
    let Some(first) = input(0).filter(|first| is_list(first)) else { return Ok(None) };
    let values = first.ints.as_deref().unwrap_or_default();
    let origin = node.output()?;
    Ok(match node.operator().as_str() {
        "Concat" if matches!(node.int("axis", 0)?, 0 | -1) => {
            let lists: Option<Vec<&Constant>> =
                node.inputs().map(|name| constants.get(name).filter(|list| is_list(list))).collect();
            let lists = lists.into_iter().flatten().filter_map(|list| list.ints.as_deref());
            let joined = lists.flatten().copied().collect::<Vec<_>>();
            (!joined.is_empty() && joined.len() <= MAX_LIST_LENGTH).then(|| Constant::list(joined, origin))
        }
        "Gather" if matches!(node.int("axis", 0)?, 0 | -1) => {
            let Some(places) = input(1).filter(|places| places.ints.is_some()) else { return Ok(None) };
            let value = |&place: &i64| {
                let place = axis(place, values.len());
                let problem = || node.invalid(format!("index {place:?} of a list of {}", values.len()));
                Ok(values[place.ok_or_else(problem)?])
            };
            let taken = places.ints.iter().flatten().map(value).collect::<Result<Vec<i64>, OnnxError>>()?;
            Some(Constant { dims: places.dims.clone(), ..Constant::list(taken, origin) })
        }
        "Slice" => {
            let attribute = |name: &str| match node.ints(name)? {
                [number] => Some(*number),
                _ => None,
            };
            let is_along_list = |axis: Option<i64>| matches!(axis, None | Some(0 | -1));
            let has = |position: usize| node.optional_input(position).is_some();
            let ends = if has(1) {
                let along = if has(3) { one(3).or(Some(1)) } else { None };
                let step = if has(4) { one(4) } else { Some(1) };
                one(1).zip(one(2)).filter(|_| is_along_list(along) && step == Some(1))
            } else {
                let along = node.ints("axes").map(|_| attribute("axes").unwrap_or(1));
                attribute("starts").zip(attribute("ends")).filter(|_| is_along_list(along))
            };
            ends.map(|(start, end)| Constant::list(part(values, start, end).to_vec(), origin))
        }
        _ => None,
    })
}

/// Returns the tensor of a `Constant` node.
fn stored(node: Node<'_>) -> Result<Constant, OnnxError> {
    let name = node.output()?;
    let scalar = Constant::unknown(Vec::new(), name);
    if let Some(tensor) = node.attribute("value").and_then(|attribute| attribute.t.as_ref()) {
        Constant::read(name, tensor)
    } else if let Some(ints) = node.ints("value_ints") {
        Ok(Constant::list(ints.to_vec(), name))
    } else if node.attribute("value_int").is_some() {
        Ok(Constant { ints: Some(vec![node.int("value_int", 0)?]), ..scalar })
    } else if let Some(number) = node.attribute("value_float").and_then(|attribute| attribute.f) {
        Ok(Constant { number: Some(shortest_decimal(number)), ..scalar })
    } else if let Some(floats) = node.attribute("value_floats").map(|attribute| &attribute.floats) {
        let values: Vec<f64> = floats.iter().map(|&number| shortest_decimal(number)).collect();
        let table = Table::new(vec![values.len()], values, false);
        Ok(table.map_or(scalar, |table| Constant::of_table(&table, name)))
    } else {
        Err(node.unsupported("its value is neither a tensor nor numbers"))
    }
}
