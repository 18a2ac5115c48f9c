//! Bounds-checked wrapper of the crates `gemm-f32` and `gemm-f64`, and their only caller. Their
//! facade `gemm` is not used: it compiles kernels of complex numbers, too.
#![allow(unsafe_code)]

use gemm_common::Parallelism;
use num_traits::One;

/// Function that computes `dst = alpha * dst + beta * lhs * rhs` with `m` rows, `n` columns and `k`
/// terms. Strides are in elements.
///
/// Parameters: `m`, `n`, `k`; pointer, column stride and row stride of `dst`; whether the former
/// content of `dst` is read; pointer, column stride and row stride of `lhs` and of `rhs`; `alpha`,
/// `beta`; whether to conjugate each matrix, without effect on real numbers; parallelism.
pub(super) type Product<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    Parallelism,
);

/// Scalar for which the `gemm` crates have a matrix product.
pub trait Multiply: Sized {
    /// Returns the function of the `gemm` crates that is the fastest on this processor.
    fn product() -> Product<Self>;
}

impl Multiply for f32 {
    fn product() -> Product<Self> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }
}

impl Multiply for f64 {
    fn product() -> Product<Self> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }
}

/// A matrix in a slice. Element `(i, j)` is at `i * row_stride + j * column_stride`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// Creates a row-major matrix without gaps between rows.
    pub(super) fn new(data: &'a [T], rows: usize, columns: usize) -> Self {
        Self::with_stride(data, rows, columns, columns)
    }

    /// Creates a row-major matrix whose rows start `row_stride` elements apart.
    pub(super) fn with_stride(data: &'a [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        Self { data, rows, columns, row_stride, column_stride: 1 }
    }

    /// Returns the transpose, without a copy.
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

/// A row-major matrix that is written.
#[derive(Debug)]
pub(super) struct MatrixMut<'a, T> {
    data: &'a mut [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl<'a, T> MatrixMut<'a, T> {
    /// Creates a row-major matrix without gaps between rows.
    pub(super) fn new(data: &'a mut [T], rows: usize, columns: usize) -> Self {
        Self::with_stride(data, rows, columns, columns)
    }

    /// Creates a row-major matrix whose rows start `row_stride` elements apart.
    pub(super) fn with_stride(data: &'a mut [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        Self { data, rows, columns, row_stride }
    }
}

/// Returns whether the last element of a matrix lies within `length` elements.
fn fits(length: usize, (rows, row_stride): (usize, usize), (columns, column_stride): (usize, usize)) -> bool {
    if rows == 0 || columns == 0 {
        return true;
    }
    let last_row = (rows - 1).checked_mul(row_stride);
    let last_column = (columns - 1).checked_mul(column_stride);
    // Strides are passed to the product as `isize`; strides below the length of a slice fit.
    let strides = isize::try_from(row_stride.max(column_stride)).is_ok();
    let last = last_row.zip(last_column).and_then(|(row, column)| row.checked_add(column));
    strides && last.is_some_and(|last| last < length)
}

/// Treatment of the previous content of a product's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Update {
    /// Overwrites the target.
    Overwrite,
    /// Adds to the target.
    Accumulate,
}

/// Computes `target = left * right`, or `target += left * right`.
///
/// # Panics
/// If the shapes do not match each other or their slices. This is a bug of the calling kernel;
/// input data cannot cause it.
#[allow(clippy::cast_possible_wrap, reason = "strides that fit their slices fit into `isize`")]
pub(super) fn multiply<T: Multiply + One + Copy>(
    target: MatrixMut<'_, T>,
    mode: Update,
    left: Matrix<'_, T>,
    right: Matrix<'_, T>,
) {
    let MatrixMut { data, rows: m, columns: n, row_stride } = target;
    let k = left.columns;
    assert!(
        left.rows == m && right.columns == n && right.rows == k,
        "the shapes of the factors and the target differ"
    );
    assert!(left.fits() && right.fits(), "a factor exceeds its slice");
    // Overlapping rows would be written twice, possibly by two threads at once.
    assert!(m <= 1 || row_stride >= n, "rows of the target overlap");
    assert!(fits(data.len(), (m, row_stride), (n, 1)), "the target exceeds its slice");
    // The kernels are made for column-major targets. A row-major target is computed as
    // `right^T * left^T`, stored as its transpose.
    let (m, n, row_stride, column_stride, left, right) = if row_stride > 1 {
        (n, m, 1, row_stride, right.transposed(), left.transposed())
    } else {
        (m, n, row_stride, 1, left, right)
    };
    // SAFETY: the assertions above keep every element that the product addresses within the slices,
    // and the elements of the target disjoint. The target is borrowed mutably, so it overlaps
    // neither factor. All elements are initialised.
    unsafe {
        T::product()(
            m,
            n,
            k,
            data.as_mut_ptr(),
            column_stride as isize,
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
