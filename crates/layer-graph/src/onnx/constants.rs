//! Constants of a model: tensors that do not depend on the samples, stored in the file or computed
//! from stored ones.
//!
//! Parameters are initialised again by training, so only their dimensions are kept. Values are kept
//! for short lists of integers (tensors of at most 64), which give shapes and axes, and for single
//! numbers.

use std::collections::{HashMap, HashSet};

use super::OnnxError;
use super::dims::{permute, reshape, squeeze, unsqueeze};
use super::node::Node;
use super::numbers::{shortest_decimal, size};
use super::proto::{TensorProto, data_type};

/// Maximum length of a list of integers whose values are kept. Longer ones are data.
const MAX_LIST_LENGTH: usize = 64;

/// Tensor that does not depend on the samples.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Constant {
    /// Dimensions of the tensor, outermost first. Empty for a scalar.
    pub(super) dims: Vec<usize>,
    /// Origin and order of its elements, by which layers recognise shared parameters.
    pub(super) source: Source,
    /// Values in row-major order, if the elements are integers and known: for a stored tensor, at
    /// most 64. `None` otherwise.
    pub(super) ints: Option<Vec<i64>>,
    /// Value, if this is a single number in floating point whose value is known; `None` otherwise.
    pub(super) number: Option<f64>,
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
        let source = Source { origin: origin.into(), transposes: Vec::new() };
        Self { dims, source, ints: None, number: None }
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
            data_type::FLOAT if count == 1 => {
                let mut numbers = tensor.float_data.iter().copied().chain(words(raw).map(f32::from_le_bytes));
                constant.number = numbers.next().map(shortest_decimal);
            }
            _ => {}
        }
        // Discard values that are incomplete or stored in another file.
        constant.ints = constant.ints.filter(|values| values.len() == count);
        Ok(constant)
    }
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
    problems: &mut Vec<(&'a str, OnnxError)>,
) -> (HashMap<String, Constant>, HashSet<usize>) {
    let read: HashSet<&str> = wanted.iter().flat_map(|&i| nodes[i].inputs()).collect();
    let mut constants = HashMap::new();
    for tensor in tensors.iter().filter(|tensor| read.contains(&*tensor.name)) {
        match Constant::read(&tensor.name, tensor) {
            Ok(constant) => _ = constants.insert(tensor.name.clone(), constant),
            Err(problem) => problems.push((&tensor.name, problem)),
        }
    }
    let mut producers = HashSet::new();
    for (i, &node) in nodes.iter().enumerate().filter(|(i, _)| wanted.contains(i)) {
        if node.inputs().all(|input| constants.contains_key(input)) {
            let made = node.output().and_then(|value| Ok((value, folded(node, &constants)?)));
            match made {
                Ok((value, Some(constant))) => {
                    constants.insert(value.to_owned(), constant);
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

/// Evaluates a node whose inputs are constants. Returns `None` if the result is not a known
/// constant.
fn folded(node: Node<'_>, constants: &HashMap<String, Constant>) -> Result<Option<Constant>, OnnxError> {
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
    let unknown = || node.invalid("its second input is not known");
    match operator.as_str() {
        "Identity" => Ok(first.clone()),
        "ConstantOfShape" => {
            let dims = first.ints.as_deref().and_then(dimensions);
            let dims = dims.ok_or_else(|| node.invalid("its shape is not a list of sizes"))?;
            Ok(Constant::unknown(dims, node.output()?))
        }
        "Reshape" => {
            let wanted = list(1, "shape").ok_or_else(unknown)?;
            with_dims(reshape(wanted, &first.dims), Some(wanted))
        }
        "Unsqueeze" => {
            let axes = list(1, "axes").ok_or_else(unknown)?;
            with_dims(unsqueeze(axes, &first.dims), Some(axes))
        }
        "Squeeze" => with_dims(squeeze(list(1, "axes"), &first.dims), list(1, "axes")),
        // Only matrices are stored transposed; their values are not kept.
        "Transpose" => {
            let axes: Vec<usize> = (0..first.dims.len()).collect();
            let (dims, order) = (permute(node.ints("perm"), &first.dims), permute(node.ints("perm"), &axes));
            let Constant { dims, source, .. } = with_dims(dims, node.ints("perm"))?;
            let source = source.transposed(&first.dims, order.unwrap_or(axes));
            Ok(Constant { dims, source, ints: None, number: None })
        }
        _ => return Ok(None),
    }
    .map(Some)
}

/// Returns the tensor of a `Constant` node.
fn stored(node: Node<'_>) -> Result<Constant, OnnxError> {
    let name = node.output()?;
    let scalar = Constant::unknown(Vec::new(), name);
    if let Some(tensor) = node.attribute("value").and_then(|attribute| attribute.t.as_ref()) {
        Constant::read(name, tensor)
    } else if let Some(ints) = node.ints("value_ints") {
        Ok(Constant { dims: vec![ints.len()], ints: Some(ints.to_vec()), ..scalar })
    } else if node.attribute("value_int").is_some() {
        Ok(Constant { ints: Some(vec![node.int("value_int", 0)?]), ..scalar })
    } else if let Some(number) = node.attribute("value_float").and_then(|attribute| attribute.f) {
        Ok(Constant { number: Some(shortest_decimal(number)), ..scalar })
    } else {
        Err(node.unsupported("its value is neither a tensor nor an integer, integers or a number"))
    }
}
