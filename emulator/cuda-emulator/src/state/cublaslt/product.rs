//! Reference computation of products.

use super::{
    Algorithm, Matrix, Operands, Problem,
    matrix::{Element, Order},
    problem::{Activation, Epilogue, GradientOf, Numerics},
};
use half::bf16;
use ptx_emulator::{Memory as DeviceMemory, MemoryError};
use std::ops::Range;

/// Number of columns of D that are accumulated at a time, in registers.
const WIDTH: usize = 16;

/// Computes a product on the memory of a device. `workspace` is the address of the workspace, which
/// is not used if the algorithm has one split.
pub(crate) fn product(
    problem: &Problem,
    operands: &Operands,
    algorithm: Algorithm,
    workspace: u64,
    memory: &mut DeviceMemory,
) -> Result<(), MemoryError> {
    (0..problem.d.batches)
        .try_for_each(|batch| product_of_batch(problem, operands, algorithm, (workspace, batch), memory))
}

fn product_of_batch(
    problem: &Problem,
    operands: &Operands,
    algorithm: Algorithm,
    (workspace, batch): (u64, usize),
    memory: &mut DeviceMemory,
) -> Result<(), MemoryError> {
    let Problem { a, b, c, d, k, .. } = problem;
    let (m, n) = (d.rows, d.columns);
    // op(A) by rows and op(B) by rows.
    let [a, b] = [
        read(a, operands.a, batch, memory)?.by_rows(problem.transposes_a),
        read(b, operands.b, batch, memory)?.by_rows(problem.transposes_b),
    ];
    store_bias_gradient(problem, (&a, &b), batch, memory)?;
    let [a, b] = [a, b].map(|values| rounded(values, problem.numerics));
    let (slab, splits) = (algorithm.slab(), algorithm.splits());
    let sums = if splits == 1 {
        partial_product(&a, &b, (m, n, *k), 0..*k, slab)
    } else {
        let bytes = (4 * m * n) as u64;
        let place = |split: usize| workspace + (batch * splits + split) as u64 * bytes;
        let length = k.div_ceil(splits);
        for split in 0..splits {
            let part = (split * length).min(*k)..((split + 1) * length).min(*k);
            let sums = partial_product(&a, &b, (m, n, *k), part, slab);
            memory.write(place(split), &Element::F32.encode(sums))?;
        }
        let mut sums = vec![0.0; m * n];
        for split in 0..splits {
            let mut part = vec![0; 4 * m * n];
            memory.read(place(split), &mut part)?;
            let part = Element::F32.decode(&part);
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        sums
    };
    let c = if operands.beta == 0.0 { None } else { Some(read(c, operands.c, batch, memory)?) };
    let bias = match problem.epilogue {
        Epilogue { adds_bias: true, .. } => {
            let mut bytes = vec![0; m * d.element.bytes() as usize];
            memory.read(problem.bias_address(batch), &mut bytes)?;
            d.element.decode(&bytes)
        }
        _ => Vec::new(),
    };
    let value = |row: usize, column: usize| {
        let mut value = operands.alpha * sums[row * n + column];
        if let Some(c) = &c {
            value += operands.beta * c.values[c.matrix.offset(row, column)];
        }
        value += bias.get(row).copied().unwrap_or(0.0);
        match problem.epilogue.activation {
            Activation::None => value,
            Activation::Relu => value.max(0.0),
            Activation::Gelu => gelu(value),
        }
    };
    write(d, operands.d, batch, memory, value)
}

/// Returns the sums over the rows of op(B) in `part`, by rows of D. `(m, n, k)` are the dimensions
/// of the whole product. Each `slab` products are summed before the sum is added.
fn partial_product(
    a: &[f32],
    b: &[f32],
    (m, n, k): (usize, usize, usize),
    part: Range<usize>,
    slab: usize,
) -> Vec<f32> {
    let mut sums = vec![0.0; m * n];
    // Rows of op(B) in the columns that are accumulated at a time.
    let mut panel = vec![[0.0_f32; WIDTH]; part.len()];
    for first in (0..n).step_by(WIDTH) {
        let width = WIDTH.min(n - first);
        for (values, inner) in panel.iter_mut().zip(part.clone()) {
            values[..width].copy_from_slice(&b[inner * n + first..][..width]);
        }
        for row in 0..m {
            let mut total = [0.0_f32; WIDTH];
            let factors = &a[row * k..][part.clone()];
            for (factors, values) in factors.chunks(slab).zip(panel.chunks(slab)) {
                let mut of_slab = [0.0_f32; WIDTH];
                for (factor, values) in factors.iter().zip(values) {
                    for (sum, value) in of_slab.iter_mut().zip(values) {
                        *sum += factor * value;
                    }
                }
                for (sum, value) in total.iter_mut().zip(of_slab) {
                    *sum += value;
                }
            }
            sums[row * n + first..][..width].copy_from_slice(&total[..width]);
        }
    }
    sums
}

/// Elements of one matrix, with the gaps between its runs.
struct Values<'m> {
    matrix: &'m Matrix,
    values: Vec<f32>,
}

impl Values<'_> {
    /// Returns the elements of the matrix or its transpose, row by row.
    fn by_rows(&self, transposes: bool) -> Vec<f32> {
        let Matrix { rows, columns, .. } = *self.matrix;
        let at = |row, column| self.values[self.matrix.offset(row, column)];
        if transposes {
            (0..columns)
                .flat_map(|column| (0..rows).map(move |row| (row, column)))
                .map(|(r, c)| at(r, c))
                .collect()
        } else {
            (0..rows)
                .flat_map(|row| (0..columns).map(move |column| (row, column)))
                .map(|(r, c)| at(r, c))
                .collect()
        }
    }
}

fn read<'m>(
    matrix: &'m Matrix,
    start: u64,
    batch: usize,
    memory: &DeviceMemory,
) -> Result<Values<'m>, MemoryError> {
    let mut bytes = vec![0; matrix.extent() * matrix.element.bytes() as usize];
    memory.read(matrix.batch_address(start, batch), &mut bytes)?;
    Ok(Values { matrix, values: matrix.element.decode(&bytes) })
}

/// Writes a matrix, whose elements `value` returns by row and column. The gaps between its runs are
/// not written.
fn write(
    matrix: &Matrix,
    start: u64,
    batch: usize,
    memory: &mut DeviceMemory,
    value: impl Fn(usize, usize) -> f32,
) -> Result<(), MemoryError> {
    let start = matrix.batch_address(start, batch);
    let (inner, outer) = matrix.inner_outer();
    let is_by_rows = matrix.order == Order::Row;
    for run in 0..outer {
        let values = (0..inner).map(|place| if is_by_rows { value(run, place) } else { value(place, run) });
        let offset = (run * matrix.leading_dimension) as u64 * matrix.element.bytes();
        memory.write(start + offset, &matrix.element.encode(values))?;
    }
    Ok(())
}

/// Stores the gradient of the bias, if the epilogue asks for it. `operands` are op(A) and op(B) by
/// rows.
fn store_bias_gradient(
    problem: &Problem,
    operands: (&[f32], &[f32]),
    batch: usize,
    memory: &mut DeviceMemory,
) -> Result<(), MemoryError> {
    let Some(of) = problem.epilogue.bias_gradient else { return Ok(()) };
    let sums: Vec<f32> = match of {
        GradientOf::A => operands.0.chunks_exact(problem.k).map(|row| row.iter().sum()).collect(),
        GradientOf::B => {
            let mut sums = vec![0.0; problem.d.columns];
            for row in operands.1.chunks_exact(problem.d.columns) {
                sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
            sums
        }
    };
    memory.write(problem.bias_address(batch), &problem.d.element.encode(sums))
}

fn rounded(mut values: Vec<f32>, numerics: Numerics) -> Vec<f32> {
    let round: fn(f32) -> f32 = match numerics {
        Numerics::Tf32 => to_tf32,
        Numerics::FastBf16 => |value| bf16::from_f32(value).to_f32(),
        // Elements of 16 bits are exact.
        Numerics::F32 | Numerics::Bf16 | Numerics::F16 => return values,
    };
    for value in &mut values {
        *value = round(*value);
    }
    values
}

/// Rounds to 10 bits of mantissa, to nearest, ties to even.
pub(super) fn to_tf32(value: f32) -> f32 {
    const DROPPED: u32 = 13;
    if !value.is_finite() {
        return value;
    }
    let bits = value.to_bits();
    let odd = bits >> DROPPED & 1;
    f32::from_bits((bits + (1 << (DROPPED - 1)) - 1 + odd) >> DROPPED << DROPPED)
}

/// Returns 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
fn gelu(x: f32) -> f32 {
    const SCALE: f32 = 0.797_884_6;
    0.5 * x * (1.0 + (SCALE * (x + 0.044_715 * x * x * x)).tanh())
}
