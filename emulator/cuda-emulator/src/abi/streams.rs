//! Streams. Null stands for the default stream of the current context.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::OutPointer;
use crate::state::{Call, Handle};

/// Creates a stream of priority 0 in the current context.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamCreate(stream: *mut Handle, flags: u32) -> u32 {
    Call::with_context("cuStreamCreate").run(|driver| {
        // SAFETY: the caller's promise.
        let stream = unsafe { OutPointer::new(stream, "phStream")? };
        stream.set(driver.create_stream(flags, 0)?);
        Ok(())
    })
}

/// Creates a stream in the current context, with its priority clamped to the supported range.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: *mut Handle,
    flags: u32,
    priority: i32,
) -> u32 {
    Call::with_context("cuStreamCreateWithPriority").run(|driver| {
        // SAFETY: the caller's promise.
        let stream = unsafe { OutPointer::new(stream, "phStream")? };
        stream.set(driver.create_stream(flags, priority)?);
        Ok(())
    })
}

/// Writes the priority of a stream.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamGetPriority(stream: Handle, priority: *mut i32) -> u32 {
    Call::with_context("cuStreamGetPriority").run(|driver| {
        // SAFETY: the caller's promise.
        let priority = unsafe { OutPointer::new(priority, "priority")? };
        priority.set(driver.stream_priority(stream)?);
        Ok(())
    })
}

/// Writes the context of a stream.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamGetCtx(stream: Handle, context: *mut Handle) -> u32 {
    Call::with_context("cuStreamGetCtx").run(|driver| {
        // SAFETY: the caller's promise.
        let context = unsafe { OutPointer::new(context, "pctx")? };
        context.set(driver.context_of_stream(stream)?);
        Ok(())
    })
}

/// Destroys a stream. Its work still completes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamDestroy_v2(stream: Handle) -> u32 {
    Call::initialised("cuStreamDestroy_v2").destroying().run(|driver| driver.destroy_stream(stream))
}

/// Advances the virtual clock by the duration of a query, and returns `CUDA_ERROR_NOT_READY` unless
/// the work of a stream is complete.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamQuery(stream: Handle) -> u32 {
    Call::with_context("cuStreamQuery").run(|driver| driver.query_stream(stream))
}

/// Waits for the work of a stream.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamSynchronize(stream: Handle) -> u32 {
    Call::with_context("cuStreamSynchronize").run(|driver| driver.synchronise_stream(stream))
}

/// Enqueues a wait for the last record of an event, or joins the stream to the capture in which the
/// event was recorded. The flags must be 0.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) -> u32 {
    Call::with_context("cuStreamWaitEvent").run(|driver| driver.wait_event(stream, event, flags))
}

/// Enqueues a wait until the 32-bit word at an address satisfies the comparison with `value` that
/// `flags` (`CUstreamWaitValue_flags`) name.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamWaitValue32_v2(
    stream: Handle,
    address: u64,
    value: u32,
    flags: u32,
) -> u32 {
    Call::with_context("cuStreamWaitValue32_v2")
        .run(|driver| driver.wait_value(stream, address, value, flags))
}

/// Enqueues a write of `value` to the 32-bit word at an address. The flags have no effect.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamWriteValue32_v2(
    stream: Handle,
    address: u64,
    value: u32,
    flags: u32,
) -> u32 {
    Call::with_context("cuStreamWriteValue32_v2")
        .run(|driver| driver.write_value(stream, address, value, flags))
}
