//! Matrices in device memory, and their elements.

use super::{
    Attributes, CublasResult, CublasStatus,
    attributes::{BATCH_STRIDE, BATCHES, COLUMNS, ELEMENT, LEADING_DIMENSION, ORDER, ROWS},
};
use crate::state::LibraryError;
use half::{bf16, f16};
use std::ops::Range;

/// Maximum number of rows, columns and batches, and maximum leading dimension.
const MAX_DIMENSION: u64 = i32::MAX as u64;
/// Maximum extent of all batches of a matrix, in bytes. Addresses are below it.
pub(super) const MAX_BYTES: u64 = 1 << 47;

/// Type of the elements of a matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Element {
    F32,
    F16,
    Bf16,
}

impl Element {
    /// Returns the type with a `cudaDataType_t`, or `None` if it is not supported.
    pub(crate) fn from_code(code: u64) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            2 => Self::F16,
            14 => Self::Bf16,
            _ => return None,
        })
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(self) -> u64 {
        if self == Self::F32 { 4 } else { 2 }
    }

    /// Returns the values of elements in little-endian bytes.
    pub(crate) fn decode(self, bytes: &[u8]) -> Vec<f32> {
        let halves = || bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        match self {
            Self::F32 => bytes
                .chunks_exact(4)
                .map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                .collect(),
            Self::F16 => halves().map(|bits| f16::from_bits(bits).to_f32()).collect(),
            Self::Bf16 => halves().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
        }
    }

    /// Returns the little-endian bytes of values, rounded to nearest, ties to even.
    pub(crate) fn encode(self, values: impl IntoIterator<Item = f32>) -> Vec<u8> {
        let values = values.into_iter();
        match self {
            Self::F32 => values.flat_map(f32::to_le_bytes).collect(),
            Self::F16 => values.flat_map(|value| f16::from_f32(value).to_le_bytes()).collect(),
            Self::Bf16 => values.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect(),
        }
    }
}

/// Order of the elements of a matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Columns are contiguous.
    Column,
    /// Rows are contiguous.
    Row,
}

/// Layout of a batch of matrices of equal shape. Offsets and strides are in elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Matrix {
    pub(crate) element: Element,
    pub(crate) order: Order,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Distance between the starts of consecutive columns, or rows in row order.
    pub(crate) leading_dimension: usize,
    /// Number of matrices.
    pub(crate) batches: usize,
    /// Distance between the starts of consecutive matrices, 0 for one matrix that all batches use.
    pub(crate) batch_stride: usize,
}

impl Matrix {
    /// Returns the matrix that a layout describes. `name` is the name of the matrix in errors.
    /// Elements other than f32, f16 and bf16, and orders other than by columns and by rows are
    /// refused with `NOT_SUPPORTED`; impossible dimensions with `INVALID_VALUE`.
    pub(crate) fn new(layout: &Attributes, name: char) -> CublasResult<Self> {
        let refused =
            |status, text: String| Err(LibraryError::misuse(status, format!("matrix {name}: {text}")));
        let Some(element) = Element::from_code(layout.get(ELEMENT, 0)) else {
            let text = format!("cudaDataType_t {} is not emulated", layout.get(ELEMENT, 0));
            return refused(CublasStatus::NOT_SUPPORTED, text);
        };
        let order = match layout.get(ORDER, 0) {
            0 => Order::Column,
            1 => Order::Row,
            other => {
                return refused(
                    CublasStatus::NOT_SUPPORTED,
                    format!("cublasLtOrder_t {other} is not emulated"),
                );
            }
        };
        // Planar complex numbers, and batches by pointers or groups.
        layout.only_default(7, 0)?;
        layout.only_default(8, 0)?;
        let [rows, columns, leading_dimension, batches, batch_stride] = [
            layout.get(ROWS, 0),
            layout.get(COLUMNS, 0),
            layout.get(LEADING_DIMENSION, 0),
            layout.get(BATCHES, 1),
            if layout.get(BATCHES, 1) == 1 { 0 } else { layout.get(BATCH_STRIDE, 0) },
        ];
        let dimensions = [rows, columns, leading_dimension, batches];
        if dimensions.iter().any(|dimension| !(1..=MAX_DIMENSION).contains(dimension)) {
            let text = format!(
                "{rows} x {columns} elements, leading dimension {leading_dimension}, {batches} batches"
            );
            return refused(CublasStatus::INVALID_VALUE, text);
        }
        let [rows, columns, leading_dimension, batches] = dimensions.map(|dimension| dimension as usize);
        let matrix = Self {
            element,
            order,
            rows,
            columns,
            leading_dimension,
            batches,
            batch_stride: batch_stride as usize,
        };
        let (inner, _) = matrix.inner_outer();
        if leading_dimension < inner {
            let text =
                format!("leading dimension {leading_dimension}, below the {inner} contiguous elements");
            return refused(CublasStatus::INVALID_VALUE, text);
        }
        let batched = (batches as u64 - 1).checked_mul(batch_stride);
        let end = batched.and_then(|start| start.checked_add(matrix.extent() as u64));
        if end.is_none_or(|end| end > MAX_BYTES / element.bytes()) {
            let text = format!("batch stride {batch_stride}, with which it exceeds the address space");
            return refused(CublasStatus::INVALID_VALUE, text);
        }
        Ok(matrix)
    }

    /// Returns the number of contiguous elements, and the number of runs of them.
    pub(crate) fn inner_outer(&self) -> (usize, usize) {
        match self.order {
            Order::Column => (self.rows, self.columns),
            Order::Row => (self.columns, self.rows),
        }
    }

    /// Returns the number of elements from the first to the last of one matrix, both included.
    pub(crate) fn extent(&self) -> usize {
        let (inner, outer) = self.inner_outer();
        (outer - 1) * self.leading_dimension + inner
    }

    /// Returns the number of bytes from the first to the last of all batches, both included.
    pub(crate) fn bytes(&self) -> u64 {
        ((self.batches - 1) * self.batch_stride + self.extent()) as u64 * self.element.bytes()
    }

    /// Returns the offset in elements of an element from the first element of its matrix.
    pub(crate) fn offset(&self, row: usize, column: usize) -> usize {
        match self.order {
            Order::Column => row + column * self.leading_dimension,
            Order::Row => column + row * self.leading_dimension,
        }
    }

    /// Returns the address of the first element of a matrix of the batch that starts at `start`.
    pub(crate) fn batch_address(&self, start: u64, batch: usize) -> u64 {
        start + (batch * self.batch_stride) as u64 * self.element.bytes()
    }

    /// Returns the address ranges of all elements of the batch that starts at `start`, each of
    /// contiguous elements.
    pub(crate) fn ranges(&self, start: u64) -> Vec<Range<u64>> {
        let (inner, outer) = self.inner_outer();
        let bytes = self.element.bytes();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let batches = if self.batch_stride == 0 { 1 } else { self.batches };
        for batch in 0..batches {
            for run in 0..outer {
                let first = self.batch_address(start, batch) + (run * self.leading_dimension) as u64 * bytes;
                let end = first + inner as u64 * bytes;
                match ranges.last_mut() {
                    Some(last) if last.end == first => last.end = end,
                    _ => ranges.push(first..end),
                }
            }
        }
        ranges
    }
}
