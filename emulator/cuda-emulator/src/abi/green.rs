//! Green contexts: contexts on a part of a device's multiprocessors. A resource (`CUdevResource`)
//! is a number of multiprocessors.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::{OutPointer, read_array, read_value};
use crate::state::{Call, Handle, Resource};

/// Writes the multiprocessors of a device. Other kinds of resources are refused.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGetDevResource(
    device: i32,
    resource: *mut Resource,
    kind: u32,
) -> u32 {
    Call::initialised("cuDeviceGetDevResource").run(|driver| {
        // SAFETY: the caller's promise.
        let resource = unsafe { OutPointer::new(resource, "resource")? };
        resource.set(driver.device_resource(device, kind)?);
        Ok(())
    })
}

/// Splits a resource into equal groups of at least `min_count` multiprocessors. `groups` is the
/// maximum number of groups before the call and their number after it. With a null `result`, only
/// the number is written. `remainder` may be null. The flags are ignored.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDevSmResourceSplitByCount(
    result: *mut Resource,
    groups: *mut u32,
    input: *const Resource,
    remainder: *mut Resource,
    _flags: u32,
    min_count: u32,
) -> u32 {
    Call::initialised("cuDevSmResourceSplitByCount").run(|_| {
        // SAFETY: the caller's promise.
        let (wanted, groups, input) = unsafe {
            (
                read_value(groups, "nbGroups")?,
                OutPointer::new(groups, "nbGroups")?,
                read_value(input, "input")?,
            )
        };
        let wanted = if result.is_null() { usize::MAX } else { wanted as usize };
        let (parts, rest) = input.split(wanted, min_count)?;
        groups.set(parts.len() as u32);
        if !result.is_null() {
            // SAFETY: the caller's promise: there is room for the number of groups asked for.
            unsafe { result.copy_from(parts.as_ptr(), parts.len()) }
        }
        if !remainder.is_null() {
            // SAFETY: the caller's promise; not null.
            unsafe { remainder.write(rest) }
        }
        Ok(())
    })
}

/// Writes a description of resources, which is never destroyed.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDevResourceGenerateDesc(
    description: *mut Handle,
    resources: *const Resource,
    count: u32,
) -> u32 {
    Call::initialised("cuDevResourceGenerateDesc").run(|driver| {
        // SAFETY: the caller's promise.
        let (description, resources) = unsafe {
            (OutPointer::new(description, "phDesc")?, read_array(resources, count as usize, "resources")?)
        };
        description.set(driver.describe_resources(&resources)?);
        Ok(())
    })
}

/// Creates a green context. The flags must be `CU_GREEN_CTX_DEFAULT_STREAM`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGreenCtxCreate(
    context: *mut Handle,
    description: Handle,
    device: i32,
    flags: u32,
) -> u32 {
    Call::initialised("cuGreenCtxCreate").run(|driver| {
        // SAFETY: the caller's promise.
        let context = unsafe { OutPointer::new(context, "phCtx")? };
        context.set(driver.create_green(description, device, flags)?);
        Ok(())
    })
}

/// Destroys a green context.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGreenCtxDestroy(context: Handle) -> u32 {
    Call::initialised("cuGreenCtxDestroy").destroying().run(|driver| driver.destroy_green(context))
}

/// Creates a stream of a green context. The flags must be `CU_STREAM_NON_BLOCKING`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGreenCtxStreamCreate(
    stream: *mut Handle,
    context: Handle,
    flags: u32,
    priority: i32,
) -> u32 {
    Call::initialised("cuGreenCtxStreamCreate").run(|driver| {
        // SAFETY: the caller's promise.
        let stream = unsafe { OutPointer::new(stream, "phStream")? };
        stream.set(driver.create_green_stream(context, flags, priority)?);
        Ok(())
    })
}

/// Writes the context that belongs to a green context.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxFromGreenCtx(context: *mut Handle, green: Handle) -> u32 {
    Call::initialised("cuCtxFromGreenCtx").run(|driver| {
        // SAFETY: the caller's promise.
        let context = unsafe { OutPointer::new(context, "pContext")? };
        context.set(driver.convert_green(green)?);
        Ok(())
    })
}
