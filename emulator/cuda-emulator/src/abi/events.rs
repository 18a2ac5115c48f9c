//! Events, which record the virtual time at which a stream reaches them.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::OutPointer;
use crate::state::{Call, Handle};

/// Creates an event in the current context.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventCreate(event: *mut Handle, flags: u32) -> u32 {
    Call::with_context("cuEventCreate").run(|driver| {
        // SAFETY: the caller's promise.
        let event = unsafe { OutPointer::new(event, "phEvent")? };
        event.set(driver.create_event(flags)?);
        Ok(())
    })
}

/// Destroys an event, which need not be complete.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventDestroy_v2(event: Handle) -> u32 {
    Call::initialised("cuEventDestroy_v2").destroying().run(|driver| driver.destroy_event(event))
}

/// Enqueues a record of an event, or adds it to the capture of the stream.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> u32 {
    Call::with_context("cuEventRecord").run(|driver| driver.record_event(event, stream))
}

/// Advances the virtual clock by the duration of a query, and returns `CUDA_ERROR_NOT_READY` unless
/// the last record of an event is complete.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventQuery(event: Handle) -> u32 {
    Call::with_context("cuEventQuery").run(|driver| driver.query_event(event))
}

/// Waits until the last record of an event is complete.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventSynchronize(event: Handle) -> u32 {
    Call::with_context("cuEventSynchronize").run(|driver| driver.synchronise_event(event))
}

/// Writes the virtual time between the last records of two events, in ms.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuEventElapsedTime(
    milliseconds: *mut f32,
    start: Handle,
    end: Handle,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { elapsed(Call::with_context("cuEventElapsedTime"), milliseconds, start, end) }
}

/// Writes the virtual time between the last records of two events, in ms.
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
