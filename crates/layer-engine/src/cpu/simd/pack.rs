//! Packing: copies the operands of a product into the order in which they are read.
#![allow(unsafe_code)]

use super::vector::Vector;

/// A run of elements that are equally spaced in the source and neighbours in a row of a panel.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Segment {
    /// Index in the source of the first element, before the offset of the panel's row is added.
    pub(in super::super) from: usize,
    /// Index of the first element in the row of the panel.
    pub(in super::super) to: usize,
    /// Number of elements.
    pub(in super::super) length: usize,
}

/// Gathers the rows of a panel, which start `width` elements apart. Row `k` holds the elements of
/// all segments, shifted by `offsets[k]` in the source. Neighbouring elements of a segment are
/// `spacing` elements apart in the source.
///
/// # Safety
/// The processor supports the vector's instruction set. All elements of the source and of the panel
/// are valid, and no other thread accesses the panel.
#[inline(always)]
pub(super) unsafe fn gather<V: Vector>(
    (source, spacing): (*const V::Scalar, usize),
    offsets: &[usize],
    segments: &[Segment],
    (panel, width): (*mut V::Scalar, usize),
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut row = panel;
        for &offset in offsets {
            let source = source.add(offset);
            for segment in segments {
                let (from, to) = (source.add(segment.from), row.add(segment.to));
                if spacing == 1 {
                    copy::<V>(from, to, segment.length);
                } else {
                    for index in 0..segment.length {
                        *to.add(index) = *from.add(index * spacing);
                    }
                }
            }
            row = row.wrapping_add(width);
        }
    }
}

#[inline(always)]
unsafe fn copy<V: Vector>(from: *const V::Scalar, to: *mut V::Scalar, length: usize) {
    // SAFETY: the caller guarantees `length` elements at both pointers.
    unsafe {
        let mut index = 0;
        while index + V::LANES <= length {
            V::load(from.add(index)).store(to.add(index));
            index += V::LANES;
        }
        if index < length {
            V::load_part(from.add(index), length - index).store_part(to.add(index), length - index);
        }
    }
}

/// Transposes a matrix of `rows x columns`: element `row * from_stride + column` of `from` becomes
/// element `column * to_stride + row` of `to`. Strides are in elements.
///
/// # Safety
/// As for [`gather`].
#[inline(always)]
pub(super) unsafe fn transpose<V: Vector>(
    (from, from_stride): (*const V::Scalar, usize),
    (to, to_stride): (*mut V::Scalar, usize),
    [rows, columns]: [usize; 2],
) {
    let [whole_rows, whole_columns] = [rows, columns].map(|count| count / V::LANES * V::LANES);
    // SAFETY: the caller guarantees that all rows and columns are valid.
    unsafe {
        for row in (0..whole_rows).step_by(V::LANES) {
            for column in (0..whole_columns).step_by(V::LANES) {
                let (from, to) = (from.add(row * from_stride + column), to.add(column * to_stride + row));
                V::transpose(from, from_stride, to, to_stride);
            }
        }
        for row in 0..rows {
            let first = if row < whole_rows { whole_columns } else { 0 };
            for column in first..columns {
                *to.add(column * to_stride + row) = *from.add(row * from_stride + column);
            }
        }
    }
}
