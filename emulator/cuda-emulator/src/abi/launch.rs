//! Kernel launches.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::{read_array, read_value};
use crate::state::{Arguments, Call, CallError, CallResult, Code, Dimensions, Driver, Handle};

/// Key at the end of the `extra` array.
const END: usize = 0;
/// Key of the `extra` array for the pointer to the buffer of arguments.
const BUFFER_POINTER: usize = 1;
/// Key of the `extra` array for the pointer to the size of the buffer.
const BUFFER_SIZE: usize = 2;

/// `CU_LAUNCH_ATTRIBUTE_IGNORE`.
const IGNORED: u32 = 0;

/// Memory layout of `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct LaunchConfiguration {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: Handle,
    attributes: *const LaunchAttribute,
    count: u32,
}

/// Memory layout of `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LaunchAttribute {
    id: u32,
    padding: u32,
    value: [u64; 8],
}

/// Enqueues a kernel, with a copy of its arguments. `shared_bytes` is the dynamic shared memory of
/// a block.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Handle,
    parameters: *const *const u8,
    extra: *const *const u8,
) -> u32 {
    Call::with_context("cuLaunchKernel").run(|driver| {
        // SAFETY: the caller's promise.
        let arguments = unsafe { copy_arguments(driver, function, parameters, extra)? };
        let dimensions =
            Dimensions { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes };
        let kernel = driver.prepare_launch(function, dimensions, arguments)?;
        driver.launch_kernel(kernel, stream)
    })
}

/// Enqueues a kernel, with a copy of its arguments. Launch attributes are refused.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuLaunchKernelEx(
    configuration: *const LaunchConfiguration,
    function: Handle,
    parameters: *const *const u8,
    extra: *const *const u8,
) -> u32 {
    Call::with_context("cuLaunchKernelEx").run(|driver| {
        // SAFETY: the caller's promise.
        let (configuration, arguments) = unsafe {
            (read_value(configuration, "config")?, copy_arguments(driver, function, parameters, extra)?)
        };
        let LaunchConfiguration { grid, block, shared_bytes, stream, attributes, count } = configuration;
        // SAFETY: the caller's promise.
        let attributes = unsafe { read_array(attributes, count as usize, "attrs")? };
        if let Some(attribute) = attributes.iter().find(|attribute| attribute.id != IGNORED) {
            let text = format!("launch attribute {} is not emulated", attribute.id);
            return Err(CallError::misuse(Code::NOT_SUPPORTED, text));
        }
        let kernel = driver.prepare_launch(function, Dimensions { grid, block, shared_bytes }, arguments)?;
        driver.launch_kernel(kernel, stream)
    })
}

/// Copies the arguments of a launch according to the parameters that the module declares.
///
/// # Safety
/// `parameters` is null or holds the address of each argument. `extra` is null or holds the
/// key-value pairs of `cuda.h` for a buffer with all arguments.
pub(super) unsafe fn copy_arguments(
    driver: &Driver,
    function: Handle,
    parameters: *const *const u8,
    extra: *const *const u8,
) -> CallResult<Arguments> {
    let declared = driver.parameters(function)?;
    // SAFETY: the caller's promise.
    let addresses = unsafe {
        match (parameters.is_null(), extra.is_null()) {
            (false, false) => return Err(CallError::value("kernelParams and extra are mutually exclusive")),
            (true, false) => buffer_addresses(extra, declared)?,
            _ => read_array(parameters, declared.len(), "kernelParams")?,
        }
    };
    let values = addresses.into_iter().zip(declared).map(|(address, &(_, bytes))| {
        let mut words = vec![0_u64; bytes.div_ceil(8)].into_boxed_slice();
        // SAFETY: the caller's promise; null is refused, and there is room for the bytes.
        unsafe {
            read_value(address, "an argument's address")?;
            words.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(address, bytes);
        }
        Ok((words, bytes))
    });
    Ok(Arguments::new(values.collect::<CallResult<_>>()?))
}

/// Returns the addresses of arguments that are packed in one buffer.
///
/// # Safety
/// `extra` holds pairs of a key and a pointer of the key's type, terminated by the end key.
unsafe fn buffer_addresses(
    extra: *const *const u8,
    declared: &[(usize, usize)],
) -> CallResult<Vec<*const u8>> {
    let (mut start, mut bytes, mut place) = (std::ptr::null::<u8>(), 0_usize, extra);
    loop {
        // SAFETY: the caller's promise.
        let (kind, pointer) = unsafe {
            let kind = place.read() as usize;
            if kind == END {
                break;
            }
            (kind, place.add(1).read())
        };
        match kind {
            BUFFER_POINTER => start = pointer,
            // SAFETY: the caller's promise.
            BUFFER_SIZE => bytes = unsafe { read_value(pointer.cast(), "the size of the arguments")? },
            other => {
                return Err(CallError::value(format!("extra has the unknown key {other}")));
            }
        }
        // SAFETY: the caller's promise.
        place = unsafe { place.add(2) };
    }
    let needed = declared.last().map_or(0, |(offset, size)| offset + size);
    if start.is_null() && needed > 0 || bytes < needed {
        return Err(CallError::value(format!("extra holds {bytes} bytes, and the kernel takes {needed}")));
    }
    Ok(declared.iter().map(|(offset, _)| start.wrapping_add(*offset)).collect())
}
