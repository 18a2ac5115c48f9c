//! Contexts.
#![allow(unsafe_code, non_snake_case)]

use super::places::Out;
use crate::state::{Call, Driver, Handle};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: i32) -> u32 {
    Call::initialised("cuDevicePrimaryCtxRetain").run(|driver| {
        // SAFETY: the caller's promise.
        let context = unsafe { Out::new(context, "pctx")? };
        context.set(driver.retain_primary(device)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> u32 {
    Call::initialised("cuDevicePrimaryCtxRelease_v2")
        .destroying()
        .run(|driver| driver.release_primary(device))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxSetCurrent(context: Handle) -> u32 {
    Call::initialised("cuCtxSetCurrent").run(|driver| driver.set_current_context(context))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxGetCurrent(context: *mut Handle) -> u32 {
    Call::initialised("cuCtxGetCurrent").run(|driver| {
        // SAFETY: the caller's promise.
        let context = unsafe { Out::new(context, "pctx")? };
        context.set(driver.get_current_context());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxGetDevice(device: *mut i32) -> u32 {
    Call::on("cuCtxGetDevice").run(|driver| {
        // SAFETY: the caller's promise.
        let device = unsafe { Out::new(device, "device")? };
        device.set(driver.current_device()?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> u32 {
    Call::on("cuCtxGetStreamPriorityRange").run(|driver| {
        // SAFETY: the caller's promise. Null is for a number that is not asked for.
        let (least, greatest) = unsafe { (Out::new(least, ""), Out::new(greatest, "")) };
        if let Ok(least) = least {
            least.set(0);
        }
        if let Ok(greatest) = greatest {
            greatest.set(driver.settings.greatest_priority as i32);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuCtxSynchronize() -> u32 {
    Call::on("cuCtxSynchronize").run(Driver::synchronise_context)
}
