//! Modules and their functions. An image is the code of a module: PTX text or a binary.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::{OutPointer, read_array, read_string, write_text};
use crate::state::{Call, CallError, CallResult, Code, Handle};
use std::{
    ffi::{c_char, c_void},
    ptr,
};

/// Options of `cuModuleLoadDataEx` that are supported: buffers for logs and their sizes.
const INFO_LOG_BUFFER: u32 = 3;
const INFO_LOG_BUFFER_BYTES: u32 = 4;
const ERROR_LOG_BUFFER: u32 = 5;
const ERROR_LOG_BUFFER_BYTES: u32 = 6;

/// Loads a module from an image in memory.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuModuleLoadData(module: *mut Handle, image: *const c_char) -> u32 {
    Call::with_context("cuModuleLoadData").run(|driver| {
        // SAFETY: the caller's promise.
        let (module, ptx) = unsafe { (OutPointer::new(module, "module")?, image_text(image)?) };
        module.set(driver.load_module(ptx, |_| {})?);
        Ok(())
    })
}

/// Loads a module from an image in a file.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuModuleLoad(module: *mut Handle, path: *const c_char) -> u32 {
    Call::with_context("cuModuleLoad").run(|driver| {
        // SAFETY: the caller's promise.
        let (module, path) = unsafe { (OutPointer::new(module, "module")?, read_string(path, "fname")?) };
        let path = path.to_string_lossy();
        let image = std::fs::read(&*path)
            .map_err(|error| CallError::misuse(Code::FILE_NOT_FOUND, format!("{path}: {error}")))?;
        let text = std::str::from_utf8(&image).ok().filter(|text| !text.starts_with("\x7fELF"));
        module.set(driver.load_module(text, |_| {})?);
        Ok(())
    })
}

/// Loads a module from an image in memory. Of the options, those for logs are used; all others are
/// ignored.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_char,
    count: u32,
    options: *const u32,
    values: *mut *mut c_void,
) -> u32 {
    Call::with_context("cuModuleLoadDataEx").run(|driver| {
        // SAFETY: the caller's promise.
        unsafe {
            let (module, ptx) = (OutPointer::new(module, "module")?, image_text(image)?);
            let options = read_array(options, count as usize, "options")?;
            let given = read_array(values.cast_const(), count as usize, "optionValues")?;
            let place = |wanted| options.iter().position(|option| *option == wanted);
            let write_log = |buffer, bytes, text: &str| {
                let (Some(buffer), Some(bytes)) = (place(buffer), place(bytes)) else { return };
                // A size is stored in the value itself, in its lower half.
                let room = given[bytes] as usize & u32::MAX as usize;
                let needed = write_text(text, given[buffer].cast(), room);
                values.add(bytes).write(ptr::without_provenance_mut(needed.min(room)));
            };
            write_log(INFO_LOG_BUFFER, INFO_LOG_BUFFER_BYTES, "");
            write_log(ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_BYTES, "");
            let log = |text: &str| write_log(ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_BYTES, text);
            module.set(driver.load_module(ptx, log)?);
        }
        Ok(())
    })
}

/// Returns the text of an image, or `None` for a binary image.
///
/// # Safety
/// `image` is null, begins with the magic number of an ELF file or fat binary, or is a string that
/// ends with a zero.
unsafe fn image_text<'a>(image: *const c_char) -> CallResult<Option<&'a str>> {
    for magic in [*b"\x7fELF", 0xba55_ed50_u32.to_le_bytes()] {
        // SAFETY: the caller's promise. Reading stops at the first byte that differs, hence at a
        // zero.
        let same = |(index, byte): (usize, u8)| unsafe { image.add(index).cast::<u8>().read() == byte };
        if !image.is_null() && magic.into_iter().enumerate().all(same) {
            return Ok(None);
        }
    }
    // SAFETY: the caller's promise.
    let text = unsafe { read_string(image, "image")? };
    text.to_str()
        .map(Some)
        .map_err(|_| CallError::misuse(Code::INVALID_PTX, "the image is neither text nor a known binary"))
}

/// Waits for the work of the device and unloads a module. Its functions become invalid.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuModuleUnload(module: Handle) -> u32 {
    Call::initialised("cuModuleUnload").destroying().run(|driver| driver.unload_module(module))
}

/// Writes the address and the size in bytes of a variable of a module. A null pointer means that
/// the value is not wanted.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuModuleGetGlobal_v2(
    address: *mut u64,
    bytes: *mut usize,
    module: Handle,
    name: *const c_char,
) -> u32 {
    Call::with_context("cuModuleGetGlobal_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let (address, bytes, name) =
            unsafe { (OutPointer::new(address, ""), OutPointer::new(bytes, ""), read_string(name, "name")?) };
        let found = driver.module_global(module, name)?;
        if let Ok(address) = address {
            address.set(found.0);
        }
        if let Ok(bytes) = bytes {
            bytes.set(found.1);
        }
        Ok(())
    })
}

/// Writes the function with the given name. A repeated call writes the same handle.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuModuleGetFunction(
    function: *mut Handle,
    module: Handle,
    name: *const c_char,
) -> u32 {
    Call::with_context("cuModuleGetFunction").run(|driver| {
        // SAFETY: the caller's promise.
        let (function, name) = unsafe { (OutPointer::new(function, "hfunc")?, read_string(name, "name")?) };
        function.set(driver.get_function(module, name)?);
        Ok(())
    })
}

/// Writes the name of a function, which is valid until the module is unloaded.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuFuncGetName(name: *mut *const c_char, function: Handle) -> u32 {
    Call::initialised("cuFuncGetName").run(|driver| {
        // SAFETY: the caller's promise.
        let name = unsafe { OutPointer::new(name, "name")? };
        name.set(driver.function_name(function)?.as_ptr());
        Ok(())
    })
}

/// Writes an attribute of a function: number of threads, memory or version. Other attributes are
/// refused.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuFuncGetAttribute(value: *mut i32, attribute: u32, function: Handle) -> u32 {
    Call::initialised("cuFuncGetAttribute").run(|driver| {
        // SAFETY: the caller's promise.
        let value = unsafe { OutPointer::new(value, "pi")? };
        value.set(driver.function_attribute(attribute, function)?);
        Ok(())
    })
}

/// Sets the maximum dynamic shared memory of a function. The preferred carveout is ignored, and
/// other attributes are refused.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuFuncSetAttribute(function: Handle, attribute: u32, value: i32) -> u32 {
    Call::initialised("cuFuncSetAttribute")
        .run(|driver| driver.set_function_attribute(function, attribute, value))
}

/// Writes the offset and the size in bytes of parameter `index`, from 0. `bytes` may be null. An
/// index past the last parameter is an error.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuFuncGetParamInfo(
    function: Handle,
    index: usize,
    offset: *mut usize,
    bytes: *mut usize,
) -> u32 {
    Call::initialised("cuFuncGetParamInfo").run(|driver| {
        // SAFETY: the caller's promise. The size is optional.
        let (offset, bytes) =
            unsafe { (OutPointer::new(offset, "paramOffset")?, OutPointer::new(bytes, "")) };
        let parameter = driver.parameters(function)?.get(index).copied();
        // Callers that enumerate the parameters stop at this error.
        let (place, size) = parameter.ok_or_else(|| CallError::plain(Code::INVALID_VALUE))?;
        offset.set(place);
        if let Ok(bytes) = bytes {
            bytes.set(size);
        }
        Ok(())
    })
}
