//! The functions of the CUDA driver with `Result`s, and errors that name the call. The functions
//! have the names of the field in `sys` and return [`Error::Call`] if the call fails, or
//! [`Error::Unsupported`] if the driver does not have the function.
#![allow(unsafe_code)]
// The signatures are those of CUDA.
#![allow(clippy::too_many_arguments)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::mem::MaybeUninit;

use super::error::{Error, Result};
use super::sys::{
    Address, CUctx_st, CUdevResource, CUdevResourceDesc_st, CUevent_st, CUfunc_st, CUgraph_st,
    CUgraphExec_st, CUgraphNode_st, CUgreenCtx_st, CUlaunchAttributeValue, CUmod_st, CUstream_st, Code,
    DeviceNumber, Functions, NOT_READY, SUCCESS, for_each_function,
};

/// Opened CUDA driver.
pub(super) struct Driver {
    functions: Functions,
}

macro_rules! results {
    (
        required { $($name:ident = $symbol:literal ($($argument:ident: $type:ty),*);)* }
        asking { $($asked:ident = $asked_symbol:literal ($($asked_argument:ident: $asked_type:ty),*);)* }
        optional { $($maybe:ident = $maybe_symbol:literal ($($maybe_argument:ident: $maybe_type:ty),*);)* }
    ) => {
        /// Each method has the safety conditions of the CUDA function: handles are valid, and
        /// pointers are valid for the data read and written.
        impl Driver {
            $(pub(super) unsafe fn $name(&self, $($argument: $type),*) -> Result<()> {
                // SAFETY: as the caller promises.
                self.check($symbol, unsafe { (self.functions.$name)($($argument),*) })
            })*

            $(pub(super) unsafe fn $asked(&self, $($asked_argument: $asked_type),*) -> Result<bool> {
                // SAFETY: as the caller promises.
                let code = unsafe { (self.functions.$asked)($($asked_argument),*) };
                if code == NOT_READY { Ok(false) } else { self.check($asked_symbol, code).map(|()| true) }
            })*

            $(pub(super) unsafe fn $maybe(&self, $($maybe_argument: $maybe_type),*) -> Result<()> {
                let Some(function) = self.functions.$maybe else {
                    let reason = format!("this driver has no {}", $maybe_symbol);
                    return Err(Error::Unsupported { technique: $maybe_symbol, reason });
                };
                // SAFETY: as the caller promises.
                self.check($maybe_symbol, unsafe { function($($maybe_argument),*) })
            })*
        }
    };
}
for_each_function!(results);

impl Driver {
    /// Creates the driver from the functions found in its library.
    pub(super) fn new(functions: Functions) -> Self {
        Self { functions }
    }

    /// Returns the driver's functions without conversion of their result codes.
    pub(super) fn functions(&self) -> &Functions {
        &self.functions
    }

    fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        let name = words(self.functions.error_name, code).unwrap_or_else(|| "an unknown result".to_owned());
        let text = words(self.functions.error_text, code).unwrap_or_else(|| "no description".to_owned());
        Err(Error::Call { call, code, name, text })
    }
}

/// Returns CUDA's name or description of a result code.
fn words(ask: unsafe extern "C" fn(Code, *mut *const c_char) -> Code, code: Code) -> Option<String> {
    let mut words = std::ptr::null();
    // SAFETY: `words` is set to a static string, or left unchanged for an unknown code.
    let answer = unsafe { ask(code, &raw mut words) };
    if answer != SUCCESS || words.is_null() {
        return None;
    }
    // SAFETY: it is not null and therefore a C string.
    let words = unsafe { CStr::from_ptr(words) }.to_string_lossy();
    Some(words.split_whitespace().collect::<Vec<_>>().join(" "))
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CUDA's driver")
    }
}

/// Type of an output argument of a C function that is valid when nothing is written.
///
/// # Safety
/// All bits zero must be a valid value of the type.
pub(super) unsafe trait Written {}

// SAFETY: numbers, pointers, and plain structures of numbers whose only enumeration has a zero
// value.
unsafe impl Written for c_int {}
unsafe impl Written for c_uint {}
unsafe impl Written for Address {}
unsafe impl Written for usize {}
unsafe impl Written for f32 {}
unsafe impl Written for CUdevResource {}
unsafe impl Written for CUlaunchAttributeValue {}
unsafe impl<T> Written for *mut T {}

/// Calls `call` with a pointer to a zeroed value, and returns the value that it has written.
pub(super) fn written<T: Written>(call: impl FnOnce(*mut T) -> Result<()>) -> Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    call(value.as_mut_ptr())?;
    // SAFETY: if the call wrote nothing, the value is all zero.
    Ok(unsafe { value.assume_init() })
}
