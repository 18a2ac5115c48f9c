//! Events.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::OutPointer;
use crate::state::{Call, Handle};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventCreate(event: *mut Handle, flags: u32) -> u32 {
    Call::with_context("cuEventCreate").run(|driver| {
        // SAFETY: the caller's promise.
        let event = unsafe { OutPointer::new(event, "phEvent")? };
        event.set(driver.create_event(flags)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventDestroy_v2(event: Handle) -> u32 {
    Call::initialised("cuEventDestroy_v2").destroying().run(|driver| driver.destroy_event(event))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> u32 {
    Call::with_context("cuEventRecord").run(|driver| driver.record_event(event, stream))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventQuery(event: Handle) -> u32 {
    Call::with_context("cuEventQuery").run(|driver| driver.query_event(event))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventSynchronize(event: Handle) -> u32 {
    Call::with_context("cuEventSynchronize").run(|driver| driver.synchronise_event(event))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    start: Handle,
    end: Handle,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { elapsed(Call::with_context("cuEventElapsedTime"), milliseconds, start, end) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventElapsedTime_v2(
    milliseconds: *mut f32,
    start: Handle,
    end: Handle,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { elapsed(Call::with_context("cuEventElapsedTime_v2"), milliseconds, start, end) }
}

/// # Safety
/// The pointer is null or valid for a write.
unsafe fn elapsed(call: Call, milliseconds: *mut f32, start: Handle, end: Handle) -> u32 {
    call.run(|driver| {
        // SAFETY: the caller's promise.
        let milliseconds = unsafe { OutPointer::new(milliseconds, "pMilliseconds")? };
        milliseconds.set((driver.elapsed(start, end)? / 1e6) as f32);
        Ok(())
    })
}
