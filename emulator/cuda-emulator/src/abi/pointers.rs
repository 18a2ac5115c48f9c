//! Access to the caller's memory through pointer arguments.
#![allow(unsafe_code)]

use crate::state::{CallError, CallResult};
use std::{ffi::CStr, marker::PhantomData, ptr::NonNull, slice};

/// Pointer argument for a result. It is not null.
pub(super) struct OutPointer<'a, T> {
    place: NonNull<T>,
    caller: PhantomData<&'a mut T>,
}

impl<T> OutPointer<'_, T> {
    /// Creates the pointer. Null is an error, in which `name` is the name of the argument.
    ///
    /// # Safety
    /// `place` is null or valid for writes until the call returns.
    pub(super) unsafe fn new(place: *mut T, name: &str) -> CallResult<Self> {
        match NonNull::new(place) {
            Some(place) => Ok(Self { place, caller: PhantomData }),
            None => Err(CallError::value(format!("{name} is null"))),
        }
    }

    /// Writes a result to the place of the pointer.
    pub(super) fn set(&self, value: T) {
        // SAFETY: not null, and valid for writes by the contract of `new`.
        unsafe { self.place.as_ptr().write(value) }
    }
}

/// Returns the value at a pointer. Null is an error, in which `name` is the name of the argument.
///
/// # Safety
/// `place` is null or holds an initialised value.
pub(super) unsafe fn read_value<T: Copy>(place: *const T, name: &str) -> CallResult<T> {
    // SAFETY: the caller's promise; null is refused.
    unsafe { place.as_ref() }.copied().ok_or_else(|| CallError::value(format!("{name} is null")))
}

/// Returns the values of an array. Null is an error unless `length` is 0. `name` is the name of the
/// argument.
///
/// # Safety
/// `place` is null or holds `length` initialised values.
pub(super) unsafe fn read_array<T: Copy>(place: *const T, length: usize, name: &str) -> CallResult<Vec<T>> {
    match (place.is_null(), length) {
        (_, 0) => Ok(Vec::new()),
        (true, _) => Err(CallError::value(format!("{name} is null, and should hold {length} values"))),
        // SAFETY: the caller's promise; not null.
        (false, _) => Ok(unsafe { slice::from_raw_parts(place, length) }.to_vec()),
    }
}

/// Writes a list as CUDA does. `places` has an array for each part of an item; a null one is not
/// written. `count` is the number of items for which there is room before the call. If all `places`
/// are null, the number of items is written to it. Otherwise the items are written as far as there
/// is room, the rest of the room is filled with zeros, and the number of items written is written
/// to `count`.
///
/// # Safety
/// `count` is null or valid for reads and writes. Each of `places` is null or valid for `*count`
/// writes.
pub(super) unsafe fn write_list<const N: usize>(
    items: &[[usize; N]],
    places: [*mut usize; N],
    count: *mut usize,
) -> CallResult<()> {
    // SAFETY: the caller's promise.
    let (room, out) = unsafe { (read_value(count, "the count")?, OutPointer::new(count, "the count")?) };
    if places.iter().all(|place| place.is_null()) {
        out.set(items.len());
        return Ok(());
    }
    for index in 0..room {
        for (part, place) in places.iter().enumerate().filter(|(_, place)| !place.is_null()) {
            let item = items.get(index).map_or(0, |item| item[part]);
            // SAFETY: the caller's promise: there is room for `room` writes.
            unsafe { place.add(index).write(item) }
        }
    }
    out.set(items.len().min(room));
    Ok(())
}

/// Returns a string argument. Null is an error, in which `name` is the name of the argument.
///
/// # Safety
/// `place` is null or holds a string that ends with a zero and does not change until the call
/// returns.
pub(super) unsafe fn read_string<'a>(place: *const std::ffi::c_char, name: &str) -> CallResult<&'a CStr> {
    if place.is_null() {
        return Err(CallError::value(format!("{name} is null")));
    }
    // SAFETY: the caller's promise; not null.
    Ok(unsafe { CStr::from_ptr(place) })
}

/// Writes a text, truncated to `room` bytes with its terminating zero. Returns the number of bytes
/// that the whole text needs, with the zero. Nothing is written to null.
///
/// # Safety
/// `place` is null or has room for `room` bytes.
pub(super) unsafe fn write_text(text: &str, place: *mut u8, room: usize) -> usize {
    if !place.is_null() && room > 0 {
        let length = text.len().min(room - 1);
        // SAFETY: the caller's promise: `length` and the zero fit into `room`.
        unsafe {
            place.copy_from_nonoverlapping(text.as_ptr(), length);
            place.add(length).write(0);
        }
    }
    text.len() + 1
}
