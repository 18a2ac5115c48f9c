//! Products that descriptors describe, and their checks.

use super::{
    Attributes, CublasResult, CublasStatus, Matrix,
    attributes::{
        BIAS_BATCH_STRIDE, BIAS_POINTER, BIAS_TYPE, COMPUTE_TYPE, EPILOGUE, FILL_MODE, MULTIPROCESSORS,
        POINTER_MODE, SCALE_TYPE, TRANSPOSE_A, TRANSPOSE_B, TRANSPOSE_C,
    },
    matrix::{Element, MAX_BYTES, Order},
};
use crate::state::{CallResult, LibraryError};
use std::ops::Range;

/// `cudaDataType_t` of f32.
const R_32F: u64 = 0;
/// Values of a pointer and of the data type of the bias that are not set.
const NO_TYPE: u64 = u32::MAX as u64;
/// `CUBLAS_FILL_MODE_FULL`.
const FULL: u64 = 2;
/// Attributes of products whose values other than 0 are not emulated: alpha vectors, scales of
/// 8-bit floats, largest values, and emulation by other types. Auxiliary outputs are not among
/// them, because they have no effect without an epilogue that uses them.
const UNSUPPORTED: [u32; 13] = [14, 17, 18, 19, 20, 21, 31, 32, 33, 34, 36, 37, 38];

/// Precision to which the elements of A and B are rounded before they are multiplied. Products are
/// summed in f32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Numerics {
    /// Elements of type f32, not rounded.
    F32,
    /// Elements of type f32, rounded to 10 bits of mantissa.
    Tf32,
    /// Elements of type f32, rounded to bf16.
    FastBf16,
    /// Elements of type bf16.
    Bf16,
    /// Elements of type f16.
    F16,
}

/// Operation on the elements of alpha x op(A) x op(B) + beta x C, a `cublasLtEpilogue_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Epilogue {
    /// Whether a bias for each row of D is added.
    pub(crate) adds_bias: bool,
    /// Activation after the bias.
    pub(crate) activation: Activation,
    /// Gradient of a bias that is computed from A or B and stored in place of the bias.
    pub(crate) bias_gradient: Option<GradientOf>,
}

/// Activation of an epilogue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Activation {
    #[default]
    None,
    Relu,
    /// GELU by its approximation with the hyperbolic tangent.
    Gelu,
}

/// Matrix whose sum over the reduced dimension is the gradient of a bias.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GradientOf {
    /// Sum of the columns of op(A), one element for each row of D.
    A,
    /// Sum of the rows of op(B), one element for each column of D.
    B,
}

impl Epilogue {
    fn new(code: u64) -> Option<Self> {
        let none = Self::default();
        Some(match code {
            1 => none,
            2 => Self { activation: Activation::Relu, ..none },
            4 => Self { adds_bias: true, ..none },
            6 => Self { adds_bias: true, activation: Activation::Relu, ..none },
            32 => Self { activation: Activation::Gelu, ..none },
            36 => Self { adds_bias: true, activation: Activation::Gelu, ..none },
            256 => Self { bias_gradient: Some(GradientOf::A), ..none },
            512 => Self { bias_gradient: Some(GradientOf::B), ..none },
            _ => return None,
        })
    }
}

/// Product D = epilogue(alpha x op(A) x op(B) + beta x C) of matrices of checked shapes. All
/// matrices have the same number of batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem {
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    pub(crate) c: Matrix,
    pub(crate) d: Matrix,
    /// Whether op(A) is the transpose of A.
    pub(crate) transposes_a: bool,
    /// Whether op(B) is the transpose of B.
    pub(crate) transposes_b: bool,
    /// Number of columns of op(A) and of rows of op(B).
    pub(crate) k: usize,
    pub(crate) numerics: Numerics,
    pub(crate) epilogue: Epilogue,
    /// Address of the bias or its gradient, 0 if it is not set.
    pub(crate) bias: u64,
    /// Distance between the biases of consecutive batches, in elements.
    pub(crate) bias_stride: usize,
    /// Number of multiprocessors that the product is to use, or 0 for all.
    pub(crate) multiprocessors: usize,
}

/// Addresses and factors of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    pub(crate) a: u64,
    pub(crate) b: u64,
    /// Address of C, which is not used if `beta` is 0.
    pub(crate) c: u64,
    pub(crate) d: u64,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
}

fn invalid<T>(text: String) -> CublasResult<T> {
    Err(LibraryError::misuse(CublasStatus::INVALID_VALUE, text))
}

fn unsupported<T>(text: String) -> CublasResult<T> {
    Err(LibraryError::misuse(CublasStatus::NOT_SUPPORTED, text))
}

impl Problem {
    /// Returns the product with the given description and the layouts of A, B, C and D. Shapes that
    /// disagree are refused with `INVALID_VALUE`; types, modes and epilogues that are not emulated
    /// with `NOT_SUPPORTED`.
    pub(crate) fn new(description: &Attributes, layouts: [&Attributes; 4]) -> CublasResult<Self> {
        let [a, b, c, d] = layouts;
        let [a, b, c, d] =
            [Matrix::new(a, 'A')?, Matrix::new(b, 'B')?, Matrix::new(c, 'C')?, Matrix::new(d, 'D')?];
        description.only_default(POINTER_MODE, 0)?;
        description.only_default(SCALE_TYPE, R_32F)?;
        description.only_default(TRANSPOSE_C, 0)?;
        description.only_default(FILL_MODE, FULL)?;
        UNSUPPORTED.into_iter().try_for_each(|attribute| description.only_default(attribute, 0))?;
        let [transposes_a, transposes_b] = [
            transposition(description.get(TRANSPOSE_A, 0))?,
            transposition(description.get(TRANSPOSE_B, 0))?,
        ];
        let (m, k) = if transposes_a { (a.columns, a.rows) } else { (a.rows, a.columns) };
        let (k_of_b, n) = if transposes_b { (b.columns, b.rows) } else { (b.rows, b.columns) };
        if k != k_of_b {
            return invalid(format!("op(A) has {k} columns and op(B) {k_of_b} rows"));
        }
        for (matrix, name) in [(c, 'C'), (d, 'D')] {
            if (matrix.rows, matrix.columns) != (m, n) {
                let Matrix { rows, columns, .. } = matrix;
                return invalid(format!("{name} has {rows} x {columns} elements, and the product {m} x {n}"));
            }
        }
        if [b, c, d].iter().any(|matrix| matrix.batches != a.batches) {
            let [a, b, c, d] = [a, b, c, d].map(|matrix| matrix.batches);
            return invalid(format!("A, B, C and D have {a}, {b}, {c} and {d} batches"));
        }
        if d.batches > 1 && d.batch_stride < d.extent() && !is_interleaved(&d) {
            return invalid(format!("batch stride {} of D, whose matrices overlap", d.batch_stride));
        }
        let numerics = numerics(description.get(COMPUTE_TYPE, 0), [a, b, c, d].map(|matrix| matrix.element))?;
        let code = description.get(EPILOGUE, 1);
        let Some(epilogue) = Epilogue::new(code) else {
            return unsupported(format!("cublasLtEpilogue_t {code} is not emulated"));
        };
        if epilogue != Epilogue::default() && d.order != Order::Column {
            return unsupported("an epilogue with D in row order".to_owned());
        }
        let bias_type = description.get(BIAS_TYPE, NO_TYPE);
        if bias_type != NO_TYPE && Element::from_code(bias_type) != Some(d.element) {
            return unsupported(format!("a bias of cudaDataType_t {bias_type}, other than that of D"));
        }
        let bias_stride = description.get(BIAS_BATCH_STRIDE, 0);
        if bias_stride.checked_mul(d.batches as u64).is_none_or(|end| end > MAX_BYTES / 4) {
            return invalid(format!("batch stride {bias_stride} of the bias"));
        }
        Ok(Self {
            a,
            b,
            c,
            d,
            transposes_a,
            transposes_b,
            k,
            numerics,
            epilogue,
            bias: description.get(BIAS_POINTER, 0),
            bias_stride: bias_stride as usize,
            multiprocessors: description.get(MULTIPROCESSORS, 0) as usize,
        })
    }

    /// Returns the number of elements of the bias or its gradient, or `None` if there is neither.
    pub(crate) fn bias_length(&self) -> Option<usize> {
        match self.epilogue {
            Epilogue { bias_gradient: Some(GradientOf::B), .. } => Some(self.d.columns),
            Epilogue { bias_gradient: Some(GradientOf::A), .. } | Epilogue { adds_bias: true, .. } => {
                Some(self.d.rows)
            }
            _ => None,
        }
    }

    /// Returns the address of the bias of a batch, or of its gradient.
    pub(crate) fn bias_address(&self, batch: usize) -> u64 {
        self.bias + (batch * self.bias_stride) as u64 * self.d.element.bytes()
    }

    /// Returns the address ranges that are read and those that are written.
    pub(crate) fn ranges(&self, operands: &Operands) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
        let mut reads = self.a.ranges(operands.a);
        reads.extend(self.b.ranges(operands.b));
        if operands.beta != 0.0 {
            reads.extend(self.c.ranges(operands.c));
        }
        let mut writes = self.d.ranges(operands.d);
        if let Some(length) = self.bias_length() {
            let to = if self.epilogue.adds_bias { &mut reads } else { &mut writes };
            let batches = if self.bias_stride == 0 { 1 } else { self.d.batches };
            to.extend((0..batches).map(|batch| {
                let start = self.bias_address(batch);
                start..start + length as u64 * self.d.element.bytes()
            }));
        }
        (reads, writes)
    }

    /// Checks the addresses of a product. Null pointers, addresses that are not aligned to their
    /// elements, operands that exceed their allocations, and outputs that overlap inputs are
    /// refused with `INVALID_VALUE`; C and D may be the same matrix. `is_inside` checks that a
    /// number of bytes at an address is inside one allocation.
    pub(crate) fn check(
        &self,
        operands: &Operands,
        is_inside: impl Fn(u64, usize) -> CallResult<()>,
    ) -> CublasResult<()> {
        let operand = |name, address, matrix: &Matrix| Some((name, address, matrix.element, matrix.bytes()));
        let c = operand("C", operands.c, &self.c).filter(|_| operands.beta != 0.0);
        let bias = self.bias_length().map(|length| {
            let elements = (self.d.batches - 1) * self.bias_stride + length;
            ("the bias", self.bias, self.d.element, elements as u64 * self.d.element.bytes())
        });
        let [a, b, d] = [("A", operands.a, &self.a), ("B", operands.b, &self.b), ("D", operands.d, &self.d)]
            .map(|(name, address, matrix)| operand(name, address, matrix));
        for (name, address, element, bytes) in [a, b, c, d, bias].into_iter().flatten() {
            if address == 0 || address % element.bytes() != 0 {
                return invalid(format!("{name} at {address:#x}"));
            }
            if let Err(error) = is_inside(address, bytes as usize) {
                return invalid(format!("{name}: {}", error.misuse.unwrap_or_default()));
            }
        }
        let is_in_place = operands.c == operands.d;
        if c.is_some() && is_in_place && self.c != self.d {
            return invalid("C and D at the same address with different layouts".to_owned());
        }
        let mut outputs = self.d.ranges(operands.d);
        outputs.sort_unstable_by_key(|range| range.start);
        let overlaps = |matrix: &Matrix, start| {
            matrix.ranges(start).iter().any(|input| {
                let next = outputs.partition_point(|output| output.end <= input.start);
                outputs.get(next).is_some_and(|output| output.start < input.end)
            })
        };
        let inputs = [("A", &self.a, operands.a), ("B", &self.b, operands.b), ("C", &self.c, operands.c)];
        let used = inputs.iter().filter(|(name, ..)| *name != "C" || c.is_some() && !is_in_place);
        for &(name, matrix, start) in used {
            if overlaps(matrix, start) {
                return invalid(format!("D overlaps {name}"));
            }
        }
        Ok(())
    }
}

/// Returns whether the matrices of a batch lie between the runs of each other without overlap.
fn is_interleaved(matrix: &Matrix) -> bool {
    let (inner, _) = matrix.inner_outer();
    let last = (matrix.batches - 1) * matrix.batch_stride;
    matrix.batch_stride >= inner && last + inner <= matrix.leading_dimension
}

fn transposition(code: u64) -> CublasResult<bool> {
    match code {
        0 => Ok(false),
        // The conjugate transpose of real numbers is the transpose.
        1 | 2 => Ok(true),
        other => invalid(format!("cublasOperation_t {other}")),
    }
}

/// Returns the numerics of a `cublasComputeType_t` with the elements of A, B, C and D, if cuBLASLt
/// documents the combination for scale factors of type f32.
fn numerics(compute: u64, elements: [Element; 4]) -> CublasResult<Numerics> {
    let [a, b, c, d] = elements;
    let all_f32 = elements == [Element::F32; 4];
    let found = match compute {
        // CUBLAS_COMPUTE_32F and its pedantic form.
        68 | 69 if all_f32 => Some(Numerics::F32),
        68 | 69 if a == b && c == d && (c == a || c == Element::F32) => match a {
            Element::Bf16 => Some(Numerics::Bf16),
            Element::F16 => Some(Numerics::F16),
            Element::F32 => None,
        },
        75 if all_f32 => Some(Numerics::FastBf16),
        77 if all_f32 => Some(Numerics::Tf32),
        _ => None,
    };
    match found {
        Some(numerics) => Ok(numerics),
        None => unsupported(format!("cublasComputeType_t {compute} with elements of types {elements:?}")),
    }
}
