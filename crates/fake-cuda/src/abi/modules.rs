//! Modules and their functions.
#![allow(unsafe_code, non_snake_case)]

use super::places::{Out, string};
use crate::state::{Call, Code, Fault, Handle, Outcome};
use std::ffi::c_char;

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuModuleLoadData(module: *mut Handle, image: *const c_char) -> u32 {
    Call::on("cuModuleLoadData").run(|driver| {
        // SAFETY: the caller's promise.
        let (module, ptx) = unsafe { (Out::new(module, "module")?, text(image)?) };
        module.set(driver.load_module(ptx)?);
        Ok(())
    })
}

/// The text of an image, or None for a binary one.
///
/// # Safety
/// The image is null, begins as an ELF file or a fat binary does, or ends with a zero.
unsafe fn text<'a>(image: *const c_char) -> Outcome<Option<&'a str>> {
    for magic in [*b"\x7fELF", 0xba55_ed50_u32.to_le_bytes()] {
        // SAFETY: the caller's promise. No byte is read after one that differs, and so none after a zero.
        let same = |(index, byte): (usize, u8)| unsafe { image.add(index).cast::<u8>().read() == byte };
        if !image.is_null() && magic.into_iter().enumerate().all(same) {
            return Ok(None);
        }
    }
    // SAFETY: the caller's promise.
    let text = unsafe { string(image, "image")? };
    text.to_str()
        .map(Some)
        .map_err(|_| Fault::misuse(Code::INVALID_PTX, "the image is neither text nor a known binary"))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuModuleUnload(module: Handle) -> u32 {
    Call::initialised("cuModuleUnload").destroying().run(|driver| driver.unload_module(module))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuModuleGetFunction(
    function: *mut Handle,
    module: Handle,
    name: *const c_char,
) -> u32 {
    Call::on("cuModuleGetFunction").run(|driver| {
        // SAFETY: the caller's promise.
        let (function, name) = unsafe { (Out::new(function, "hfunc")?, string(name, "name")?) };
        function.set(driver.get_function(module, name)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuFuncGetName(name: *mut *const c_char, function: Handle) -> u32 {
    Call::initialised("cuFuncGetName").run(|driver| {
        // SAFETY: the caller's promise.
        let name = unsafe { Out::new(name, "name")? };
        name.set(driver.function_name(function)?.as_ptr());
        Ok(())
    })
}
