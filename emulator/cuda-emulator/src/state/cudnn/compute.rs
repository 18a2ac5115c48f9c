//! Convolutions, computed as engines compute them.

use super::{
    convolution::{Pass, Problem, TensorLayout},
    engines::Engine,
    rounding::{DataType, tf32},
};
use ptx_emulator::{Memory as DeviceMemory, MemoryError};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of runs of nondeterministic engines so far, which seeds the next.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Computes a convolution of the tensors at the given addresses: input, filter and output.
///
/// Products are added in `f32`, in an order that depends on the engine. Tensor cores round operands
/// of `f32` to TF32. The results of nondeterministic engines move by up to one unit in the last
/// place, differently in each run.
///
/// # Errors
/// A tensor is not inside the memory.
pub(super) fn compute(
    problem: &Problem,
    engine: &Engine,
    addresses: [u64; 3],
    memory: &mut DeviceMemory,
) -> Result<(), MemoryError> {
    let output = problem.output();
    let mut tensors = [const { Vec::new() }; 3];
    for (index, layout) in problem.tensors.iter().enumerate() {
        if index == output {
            tensors[index] = vec![0.0; layout.dimensions.iter().product()];
            continue;
        }
        let mut bytes = vec![0; layout.bytes as usize];
        memory.read(addresses[index], &mut bytes)?;
        tensors[index] = gather(layout, problem.data_type, &bytes);
        if engine.uses_tensor_cores() && problem.data_type == DataType::F32 {
            tensors[index].iter_mut().for_each(|value| *value = tf32(*value));
        }
    }
    convolve(problem, engine.index as usize, &mut tensors);
    let layout = &problem.tensors[output];
    let mut bytes = vec![0; layout.bytes as usize];
    memory.read(addresses[output], &mut bytes)?;
    let seed = if engine.is_nondeterministic() { next_seed() } else { 0 };
    let factors = [problem.alpha, problem.beta];
    scatter(layout, problem.data_type, factors, &tensors[output], seed, &mut bytes);
    memory.write(addresses[output], &bytes)
}

/// Returns the seed of the next run of a nondeterministic engine.
pub(super) fn next_seed() -> u64 {
    RUNS.fetch_add(1, Ordering::Relaxed) + 1
}

/// Returns the byte offset of the first element of each row of a tensor, in the order of its
/// dimensions.
fn row_offsets(layout: &TensorLayout, data_type: DataType) -> impl Iterator<Item = usize> {
    let ([a, b, c, _], [outer, middle, inner, _]) = (layout.dimensions, layout.strides);
    (0..a * b * c).map(move |row| {
        let (i, j, k) = (row / (b * c), row / c % b, row % c);
        (i * outer + j * middle + k * inner) * data_type.bytes()
    })
}

/// Returns the elements of a tensor in the order of its dimensions.
pub(super) fn gather(layout: &TensorLayout, data_type: DataType, bytes: &[u8]) -> Vec<f32> {
    let (columns, step) = (layout.dimensions[3], layout.strides[3] * data_type.bytes());
    let mut elements = Vec::with_capacity(layout.dimensions.iter().product());
    for start in row_offsets(layout, data_type) {
        elements.extend((0..columns).map(|column| data_type.read(&bytes[start + column * step..])));
    }
    elements
}

/// Writes the results times the first factor, added to the previous contents times the second. A
/// seed other than 0 moves them.
pub(super) fn scatter(
    layout: &TensorLayout,
    data_type: DataType,
    [alpha, beta]: [f32; 2],
    results: &[f32],
    seed: u64,
    bytes: &mut [u8],
) {
    let (columns, step) = (layout.dimensions[3], layout.strides[3] * data_type.bytes());
    for (row, start) in row_offsets(layout, data_type).enumerate() {
        for column in 0..columns {
            let index = row * columns + column;
            let place = &mut bytes[start + column * step..];
            let mut value = alpha * results[index];
            if beta != 0.0 {
                value += beta * data_type.read(place);
            }
            let steps = if seed == 0 { 0 } else { noise(seed, index as u64) };
            data_type.write(value, steps, place);
        }
    }
}

/// Returns -1, 0 or 1, depending on the seed and the index (the finaliser of `MurmurHash3`).
fn noise(seed: u64, index: u64) -> i32 {
    let mut hash = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index;
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (hash >> 33) as i32 % 3 - 1
}

/// Adds the products of a convolution to the tensor that is computed. All tensors are contiguous in
/// the order of their dimensions. `order` rotates the order of the additions.
fn convolve(problem: &Problem, order: usize, tensors: &mut [Vec<f32>; 3]) {
    let [input, filter, output] = tensors;
    let step = problem.stride[1];
    match problem.pass {
        Pass::Forward => for_each_row(problem, order, |x, w, y, count| {
            let (weight, sums) = (filter[w], &mut output[y..y + count]);
            for (sum, value) in sums.iter_mut().zip(input[x..].iter().step_by(step)) {
                *sum += weight * value;
            }
        }),
        Pass::Data => for_each_row(problem, order, |x, w, y, count| {
            let (weight, values) = (filter[w], &output[y..y + count]);
            for (sum, value) in input[x..].iter_mut().step_by(step).zip(values) {
                *sum += weight * value;
            }
        }),
        Pass::Filter => for_each_row(problem, order, |x, w, y, count| {
            let pairs = input[x..].iter().step_by(step).zip(&output[y..y + count]);
            filter[w] += pairs.map(|(a, b)| a * b).sum::<f32>();
        }),
    }
}

/// Calls `visit` for each row of the output and each weight: with the indices of the first element
/// of the input, of the weight and of the first element of the output, and the number of elements
/// of the output that the weight contributes to. Consecutive elements of the input are one
/// horizontal stride apart.
fn for_each_row(problem: &Problem, order: usize, mut visit: impl FnMut(usize, usize, usize, usize)) {
    let [[batch, channels, height, width], [filters, depth, rows, columns], [.., out_height, out_width]] =
        problem.tensors.each_ref().map(|tensor| tensor.dimensions);
    let group_filters = filters / problem.groups;
    let rotated = |size: usize| (0..size).map(move |index| (index + order) % size);
    for sample in rotated(batch) {
        for filter in (0..problem.groups)
            .flat_map(|group| rotated(group_filters).map(move |filter| group * group_filters + filter))
        {
            for channel in rotated(depth) {
                let plane = (sample * channels + filter / group_filters * depth + channel) * height;
                let out_plane = (sample * filters + filter) * out_height;
                for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                    let (vertical, horizontal) =
                        if problem.flipped { (rows - 1 - row, columns - 1 - column) } else { (row, column) };
                    let weight = ((filter * depth + channel) * rows + row) * columns + column;
                    let (first, count) = inside(problem, 1, horizontal, width, out_width);
                    if count == 0 {
                        continue;
                    }
                    let left =
                        first * problem.stride[1] + horizontal * problem.dilation[1] - problem.padding[1];
                    let (top, lines) = inside(problem, 0, vertical, height, out_height);
                    for line in top..top + lines {
                        let above = line * problem.stride[0] + vertical * problem.dilation[0];
                        let x = (plane + above - problem.padding[0]) * width + left;
                        visit(x, weight, (out_plane + line) * out_width + first, count);
                    }
                }
            }
        }
    }
}

/// Returns the first output position along an axis whose input is not padding, for the element
/// `tap` of the window, and the number of these positions. `size` and `out` are the sizes of input
/// and output.
fn inside(problem: &Problem, axis: usize, tap: usize, size: usize, out: usize) -> (usize, usize) {
    let (shift, padding, stride) =
        (tap * problem.dilation[axis], problem.padding[axis], problem.stride[axis]);
    let first = padding.saturating_sub(shift).div_ceil(stride);
    let end = (size + padding).saturating_sub(shift).div_ceil(stride).min(out);
    (first, end.saturating_sub(first))
}
