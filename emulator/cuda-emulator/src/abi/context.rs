//! Contexts. Each thread has a stack of contexts, the last of which is its current context.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::OutPointer;
use crate::state::{Call, CallError, Code, Driver, Handle};

/// Writes the primary context of a device and increments its reference count.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: i32) -> u32 {
    Call::initialised("cuDevicePrimaryCtxRetain").run(|driver| {
        // SAFETY: the caller's promise.
        let context = unsafe { OutPointer::new(context, "pctx")? };
        context.set(driver.retain_primary(device)?);
        Ok(())
    })
}

/// Decrements the reference count of a device's primary context, and destroys the context at 0.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> u32 {
    Call::initialised("cuDevicePrimaryCtxRelease_v2")
        .destroying()
        .run(|driver| driver.release_primary(device))
}

/// Replaces the current context of the calling thread. Null removes it.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxSetCurrent(context: Handle) -> u32 {
    Call::initialised("cuCtxSetCurrent").run(|driver| driver.set_current_context(context))
}

/// Writes the current context of the calling thread, or null if there is none.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxGetCurrent(context: *mut Handle) -> u32 {
    Call::initialised("cuCtxGetCurrent").run(|driver| {
        // SAFETY: the caller's promise.
        let context = unsafe { OutPointer::new(context, "pctx")? };
        context.set(driver.get_current_context());
        Ok(())
    })
}

/// Writes whether the primary context of a device is retained, 0 or 1. The flags are always 0.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: i32,
    flags: *mut u32,
    active: *mut i32,
) -> u32 {
    Call::initialised("cuDevicePrimaryCtxGetState").run(|driver| {
        // SAFETY: the caller's promise.
        let (flags, active) =
            unsafe { (OutPointer::new(flags, "flags")?, OutPointer::new(active, "active")?) };
        flags.set(0);
        active.set(i32::from(driver.primary_is_active(device)?));
        Ok(())
    })
}

/// Creates a context on a device and makes it current. The flags are ignored.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxCreate_v2(context: *mut Handle, _flags: u32, device: i32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { create(Call::initialised("cuCtxCreate_v2"), context, device) }
}

/// Creates a context on a device and makes it current. The flags are ignored. Contexts with
/// parameters (a share of the device, a video encoder) are not emulated.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxCreate_v4(
    context: *mut Handle,
    parameters: *const u8,
    _flags: u32,
    device: i32,
) -> u32 {
    let call = Call::initialised("cuCtxCreate_v4");
    if !parameters.is_null() {
        return call.run(|_| {
            Err(CallError::misuse(Code::NOT_SUPPORTED, "contexts with parameters are not emulated"))
        });
    }
    // SAFETY: the caller's promise.
    unsafe { create(call, context, device) }
}

/// # Safety
/// The pointer is null or valid for a write.
unsafe fn create(call: Call, context: *mut Handle, device: i32) -> u32 {
    call.run(|driver| {
        // SAFETY: the caller's promise.
        let context = unsafe { OutPointer::new(context, "pctx")? };
        context.set(driver.create_context(device)?);
        Ok(())
    })
}

/// Waits for the work of the device, and destroys a context made by `cuCtxCreate`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxDestroy_v2(context: Handle) -> u32 {
    Call::initialised("cuCtxDestroy_v2").destroying().run(|driver| driver.destroy_context(context))
}

/// Adds a context to the stack of the calling thread, where it becomes current.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxPushCurrent_v2(context: Handle) -> u32 {
    Call::initialised("cuCtxPushCurrent_v2").run(|driver| driver.push_context(context))
}

/// Removes the current context from the stack of the calling thread and writes it to `context`,
/// which may be null.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut Handle) -> u32 {
    Call::initialised("cuCtxPopCurrent_v2").run(|driver| {
        let popped = driver.pop_context()?;
        // SAFETY: the caller's promise.
        if let Ok(context) = unsafe { OutPointer::new(context, "") } {
            context.set(popped);
        }
        Ok(())
    })
}

/// Writes 0: kernels cannot use the memory of another device. Copies between devices work.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> u32 {
    Call::initialised("cuDeviceCanAccessPeer").run(|driver| {
        // SAFETY: the caller's promise.
        let can = unsafe { OutPointer::new(can, "canAccessPeer")? };
        driver.check_device(device)?;
        driver.check_device(peer)?;
        can.set(0);
        Ok(())
    })
}

/// Returns `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxEnablePeerAccess(_peer: Handle, _flags: u32) -> u32 {
    Call::with_context("cuCtxEnablePeerAccess").run(|_| Err(CallError::plain(Code::PEER_ACCESS_UNSUPPORTED)))
}

/// Writes the device of the current context.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxGetDevice(device: *mut i32) -> u32 {
    Call::with_context("cuCtxGetDevice").run(|driver| {
        // SAFETY: the caller's promise.
        let device = unsafe { OutPointer::new(device, "device")? };
        device.set(driver.current_device()?);
        Ok(())
    })
}

/// Writes the lowest priority of streams, which is 0, and the highest, which is a setting. A null
/// pointer means that the value is not wanted.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> u32 {
    Call::with_context("cuCtxGetStreamPriorityRange").run(|driver| {
        // SAFETY: the caller's promise. A null pointer means that the value is not wanted.
        let (least, greatest) = unsafe { (OutPointer::new(least, ""), OutPointer::new(greatest, "")) };
        if let Ok(least) = least {
            least.set(0);
        }
        if let Ok(greatest) = greatest {
            greatest.set(driver.settings.greatest_priority as i32);
        }
        Ok(())
    })
}

/// Waits for the work of all streams of the current device.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxSynchronize() -> u32 {
    Call::with_context("cuCtxSynchronize").run(Driver::synchronise_context)
}
