//! Types of elements of buffers.
#![allow(unsafe_code)]

use crate::{Error, Result};

/// Plain number: an element of a [`Buffer`](crate::Buffer).
///
/// # Safety
/// Any bytes are a valid value of the type, and it has no padding.
pub unsafe trait Element: Copy + Send + Sync + 'static {}

macro_rules! elements {
    ($($number:ty)*) => {
        $(
            // SAFETY: a plain number.
            unsafe impl Element for $number {}
        )*
    };
}
elements!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

#[cfg(feature = "half")]
elements!(half::f16 half::bf16);

/// Returns the number of bytes of `len` elements.
///
/// # Errors
/// [`Error::Invalid`] if they exceed any memory.
pub(crate) fn bytes_of<T>(len: usize) -> Result<usize> {
    len.checked_mul(size_of::<T>()).ok_or_else(|| {
        Error::Invalid(format!("{len} elements of {} bytes exceed any memory", size_of::<T>()))
    })
}
