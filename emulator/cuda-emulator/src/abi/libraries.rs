//! Libraries of binary code, which is loaded for all contexts. It is not emulated: its kernels have
//! handles, and cannot be launched.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::{OutPointer, read_string};
use crate::state::{Call, Handle};
use std::ffi::{c_char, c_void};

/// Loads a library. The code and the options are ignored.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuLibraryLoadData(
    library: *mut Handle,
    _code: *const c_void,
    _options: *const u32,
    _values: *const *const c_void,
    _count: u32,
    _library_options: *const u32,
    _library_values: *const *const c_void,
    _library_count: u32,
) -> u32 {
    Call::always("cuLibraryLoadData").run(|driver| {
        // SAFETY: the caller's promise.
        let library = unsafe { OutPointer::new(library, "library")? };
        library.set(driver.load_library());
        Ok(())
    })
}

/// Writes the kernel with the given name. Any name has one.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuLibraryGetKernel(kernel: *mut Handle, library: Handle, name: *const c_char) -> u32 {
    Call::always("cuLibraryGetKernel").run(|driver| {
        // SAFETY: the caller's promise.
        let (kernel, _) = unsafe { (OutPointer::new(kernel, "pKernel")?, read_string(name, "name")?) };
        kernel.set(driver.library_kernel(library)?);
        Ok(())
    })
}

/// Unloads a library.
#[unsafe(no_mangle)]
extern "C" fn cuLibraryUnload(library: Handle) -> u32 {
    Call::always("cuLibraryUnload").destroying().run(|driver| driver.unload_library(library))
}
