//! Names of errors. These calls are not counted and have no injected failures.
#![allow(unsafe_code, non_snake_case)]

use crate::state::Code;
use std::{
    ffi::{CStr, c_char},
    ptr,
};

/// Writes the name of a `CUresult`, such as `CUDA_ERROR_NOT_READY`, or null for an unknown code.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGetErrorName(error: u32, text: *mut *const c_char) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { write_name(Code(error).describe().map(|(name, _)| name), text) }
}

/// Writes a description of a `CUresult`, or null for an unknown code.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGetErrorString(error: u32, text: *mut *const c_char) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { write_name(Code(error).describe().map(|(_, sentence)| sentence), text) }
}

/// # Safety
/// The pointer is null or valid for a write.
unsafe fn write_name(found: Option<&'static CStr>, place: *mut *const c_char) -> u32 {
    if place.is_null() {
        return Code::INVALID_VALUE.0;
    }
    // SAFETY: the caller's promise; not null.
    unsafe { place.write(found.map_or(ptr::null(), CStr::as_ptr)) };
    if found.is_some() { Code::SUCCESS.0 } else { Code::INVALID_VALUE.0 }
}
