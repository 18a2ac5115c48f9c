//! Green contexts.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::{OutPointer, read_array, read_value};
use crate::state::{Call, Handle, Resource};

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

/// A null `result` asks for the number of groups. `remainder` may be null.
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
        description.set(driver.describe(&resources)?);
        Ok(())
    })
}

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

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuGreenCtxDestroy(context: Handle) -> u32 {
    Call::initialised("cuGreenCtxDestroy").destroying().run(|driver| driver.destroy_green(context))
}

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

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxFromGreenCtx(context: *mut Handle, green: Handle) -> u32 {
    Call::initialised("cuCtxFromGreenCtx").run(|driver| {
        // SAFETY: the caller's promise.
        let context = unsafe { OutPointer::new(context, "pContext")? };
        context.set(driver.convert_green(green)?);
        Ok(())
    })
}
