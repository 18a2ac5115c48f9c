//! The one place that calls the `gemm` crate, behind a wrapper that checks every bound.
#![allow(unsafe_code)]

use gemm::Parallelism;

use super::Real;

/// A matrix that lies in a slice, element `(i, j)` at `i * row_stride + j * column_stride`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// A row-major matrix without gaps.
    pub(super) fn new(data: &'a [T], rows: usize, columns: usize) -> Self {
        Self::with_stride(data, rows, columns, columns)
    }

    /// A row-major matrix whose rows start `row_stride` elements apart.
    pub(super) fn with_stride(data: &'a [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        Self { data, rows, columns, row_stride, column_stride: 1 }
    }

    pub(super) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    fn fits(&self) -> bool {
        fits(self.data.len(), (self.rows, self.row_stride), (self.columns, self.column_stride))
    }
}

/// A row-major matrix to write to.
#[derive(Debug)]
pub(super) struct MatrixMut<'a, T> {
    data: &'a mut [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl<'a, T> MatrixMut<'a, T> {
    /// A row-major matrix without gaps.
    pub(super) fn new(data: &'a mut [T], rows: usize, columns: usize) -> Self {
        Self::with_stride(data, rows, columns, columns)
    }

    /// A row-major matrix whose rows start `row_stride` elements apart.
    pub(super) fn with_stride(data: &'a mut [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        Self { data, rows, columns, row_stride }
    }
}

/// Whether the last element of a matrix lies within `length` elements.
fn fits(length: usize, (rows, row_stride): (usize, usize), (columns, column_stride): (usize, usize)) -> bool {
    if rows == 0 || columns == 0 {
        return true;
    }
    let last_row = (rows - 1).checked_mul(row_stride);
    let last_column = (columns - 1).checked_mul(column_stride);
    // Strides go to `gemm` as `isize`; below the length of a slice they fit.
    let strides = isize::try_from(row_stride.max(column_stride)).is_ok();
    let last = last_row.zip(last_column).and_then(|(row, column)| row.checked_add(column));
    strides && last.is_some_and(|last| last < length)
}

/// What a product does to the elements that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Update {
    /// Overwrites them.
    Overwrite,
    /// Adds to them.
    Accumulate,
}

/// `target = left * right`, or `target += left * right`.
///
/// # Panics
/// When the shapes do not fit each other or their slices: a bug of the calling kernel, never of its input.
#[allow(clippy::cast_possible_wrap, reason = "strides that fit their slices fit into `isize`")]
pub(super) fn multiply<T: Real>(
    target: MatrixMut<'_, T>,
    mode: Update,
    left: Matrix<'_, T>,
    right: Matrix<'_, T>,
) {
    let MatrixMut { data, rows: m, columns: n, row_stride } = target;
    let k = left.columns;
    assert!(left.rows == m && right.columns == n && right.rows == k, "shapes of a product");
    assert!(left.fits() && right.fits(), "factors lie within their slices");
    // Rows that overlap would be written twice, by two threads at once.
    assert!(m <= 1 || row_stride >= n, "rows of the target do not overlap");
    assert!(fits(data.len(), (m, row_stride), (n, 1)), "the target lies within its slice");
    // SAFETY: the assertions above keep every element that `gemm` addresses within the slices, and the elements of
    // the target apart from each other. The target is borrowed mutably, so that it overlaps neither factor. `Real` is
    // sealed: `T` is `f32` or `f64`, which `gemm` knows. All elements are initialised.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            data.as_mut_ptr(),
            1,
            row_stride as isize,
            mode == Update::Accumulate,
            left.data.as_ptr(),
            left.column_stride as isize,
            left.row_stride as isize,
            right.data.as_ptr(),
            right.column_stride as isize,
            right.row_stride as isize,
            T::one(),
            T::one(),
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
