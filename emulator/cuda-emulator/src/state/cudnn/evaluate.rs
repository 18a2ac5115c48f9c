//! Attention, computed operation by operation.

use super::{
    attention::Attention,
    compute::{gather, next_seed, scatter},
    convolution::{Tensor, TensorLayout},
    nodes::{Node, NodeKind, mode, reduction},
    rounding::DataType,
};
use ptx_emulator::{Memory as DeviceMemory, MemoryError};
use std::collections::{BTreeMap, btree_map::Entry};

/// Elements of a tensor.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// At an address of the device.
    Device(u64),
    /// A number that the program passed.
    Number(f32),
}

/// Computes attention of tensors, which are given by their ids.
///
/// Operations are computed in `f32` in the order of the graph, and their results are rounded to the
/// element types of their tensors. Atomic sums move by up to one unit in the last place,
/// differently in each run.
///
/// # Errors
/// A tensor is not inside the memory.
pub(super) fn compute(
    attention: &Attention,
    places: &BTreeMap<i64, Place>,
    memory: &mut DeviceMemory,
) -> Result<(), MemoryError> {
    // Elements in the order of the dimensions. Indices and truth values are numbers, too.
    let mut known: BTreeMap<i64, Vec<f32>> = BTreeMap::new();
    for node in &attention.nodes {
        for input in &node.inputs {
            if let Entry::Vacant(unknown) = known.entry(input.id) {
                unknown.insert(read(input, places, memory)?);
            }
        }
        let inputs: Vec<&[f32]> = node.inputs.iter().map(|input| known[&input.id].as_slice()).collect();
        let mut result = evaluate(node, &inputs);
        let data_type = DataType::from_number(node.output.data_type).unwrap_or(DataType::F32);
        let mut element = [0; 4];
        for value in &mut result {
            data_type.write(*value, 0, &mut element);
            *value = data_type.read(&element);
        }
        if let Some(Place::Device(address)) = places.get(&node.output.id) {
            let layout = layout(&node.output, data_type);
            let mut bytes = vec![0; layout.bytes as usize];
            memory.read(*address, &mut bytes)?;
            // Graphs with atomic sums copy them to the result.
            let is_sum = node.kind == NodeKind::Pointwise && node.mode == mode::IDENTITY;
            let seed = if is_sum { next_seed() } else { 0 };
            scatter(&layout, data_type, [1.0, 0.0], &result, seed, &mut bytes);
            memory.write(*address, &bytes)?;
            result = gather(&layout, data_type, &bytes);
        }
        known.insert(node.output.id, result);
    }
    Ok(())
}

fn layout(tensor: &Tensor, data_type: DataType) -> TensorLayout {
    TensorLayout {
        dimensions: std::array::from_fn(|axis| tensor.dimensions[axis] as usize),
        strides: std::array::from_fn(|axis| tensor.strides[axis] as usize),
        bytes: tensor.span(data_type),
    }
}

/// Returns the elements of a tensor of the program.
fn read(
    tensor: &Tensor,
    places: &BTreeMap<i64, Place>,
    memory: &mut DeviceMemory,
) -> Result<Vec<f32>, MemoryError> {
    let data_type = DataType::from_number(tensor.data_type).unwrap_or(DataType::F32);
    match places.get(&tensor.id) {
        Some(Place::Device(address)) => {
            let layout = layout(tensor, data_type);
            let mut bytes = vec![0; layout.bytes as usize];
            memory.read(*address, &mut bytes)?;
            Ok(gather(&layout, data_type, &bytes))
        }
        Some(Place::Number(number)) => Ok(vec![*number]),
        None => Ok(vec![0.0; tensor.dimensions.iter().product::<i64>() as usize]),
    }
}

/// Returns the result of an operation, in the order of its dimensions.
fn evaluate(node: &Node, inputs: &[&[f32]]) -> Vec<f32> {
    let sizes = sizes(&node.output);
    match node.kind {
        NodeKind::Product => product(node, inputs),
        NodeKind::Pointwise => {
            let sources: Vec<_> = node.inputs.iter().map(|input| self::sizes(input)).collect();
            let value = |position: [usize; 4]| {
                let of = |input: usize| inputs[input][index(sources[input], position)];
                match node.mode {
                    mode::ADD => of(0) + of(1),
                    mode::MULTIPLY => of(0) * of(1),
                    mode::DIVIDE => of(0) / of(1),
                    mode::SUBTRACT => of(0) - of(1),
                    mode::EXPONENTIAL => of(0).exp(),
                    mode::LOGARITHM => of(0).ln(),
                    mode::AT_LEAST => f32::from(u8::from(of(0) >= of(1))),
                    mode::INDEX => position[node.axis as usize % 4] as f32,
                    mode::SELECT => of(usize::from(of(2) == 0.0)),
                    _ => of(0),
                }
            };
            positions(sizes).map(value).collect()
        }
        NodeKind::Reduction => {
            let (first, combine): (f32, fn(f32, f32) -> f32) = match node.mode {
                reduction::MAXIMUM => (f32::NEG_INFINITY, f32::max),
                _ => (0.0, |sum, value| sum + value),
            };
            let mut result = vec![first; sizes.iter().product()];
            for (position, value) in positions(self::sizes(&node.inputs[0])).zip(inputs[0]) {
                let place = &mut result[index(sizes, position)];
                *place = combine(*place, *value);
            }
            result
        }
        NodeKind::Reshape => {
            // Both are views of the same memory.
            let [from, to] = [&node.inputs[0], &node.output];
            let last = |tensor: &Tensor| offset(tensor, self::sizes(tensor).map(|size| size - 1));
            let mut memory = vec![0.0; last(from).max(last(to)) + 1];
            for (position, value) in positions(self::sizes(from)).zip(inputs[0]) {
                memory[offset(from, position)] = *value;
            }
            positions(sizes).map(|position| memory[offset(to, position)]).collect()
        }
    }
}

fn product(node: &Node, inputs: &[&[f32]]) -> Vec<f32> {
    let [[_, _, rows, depth], [.., columns]] = [&node.inputs[0], &node.inputs[1]].map(|input| sizes(input));
    let mut result = vec![0.0; sizes(&node.output).iter().product()];
    for (matrix, c) in result.chunks_exact_mut(rows * columns).enumerate() {
        let a = &inputs[0][matrix * rows * depth..][..rows * depth];
        let b = &inputs[1][matrix * depth * columns..][..depth * columns];
        for (a, c) in a.chunks_exact(depth).zip(c.chunks_exact_mut(columns)) {
            for (a, b) in a.iter().zip(b.chunks_exact(columns)) {
                c.iter_mut().zip(b).for_each(|(c, b)| *c += a * b);
            }
        }
    }
    result
}

fn sizes(tensor: &Tensor) -> [usize; 4] {
    std::array::from_fn(|axis| tensor.dimensions[axis] as usize)
}

/// Returns all positions of a tensor in the order of its dimensions.
fn positions([a, b, c, d]: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    (0..a * b * c * d).map(move |index| [index / (b * c * d), index / (c * d) % b, index / d % c, index % d])
}

/// Returns the index of a position in a tensor, whose dimensions of 1 are repeated.
fn index(sizes: [usize; 4], position: [usize; 4]) -> usize {
    sizes
        .iter()
        .zip(position)
        .fold(0, |index, (size, place)| index * size + if *size == 1 { 0 } else { place })
}

/// Returns the distance of a position from the first element in memory.
fn offset(tensor: &Tensor, position: [usize; 4]) -> usize {
    position.iter().zip(&tensor.strides).map(|(place, stride)| place * *stride as usize).sum()
}
