//! Stream captures, which add the work of streams to a graph instead of executing it.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::{OutPointer, read_value};
use crate::state::{Call, Handle};

/// Begins a capture in a stream, which must not be a default stream. `mode` is a
/// `CUstreamCaptureMode`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) -> u32 {
    Call::with_context("cuStreamBeginCapture_v2").run(|driver| driver.begin_capture(stream, mode))
}

/// Ends the capture of a stream and writes its graph, or null if the call fails. An injected
/// failure still ends the capture, as in the real driver.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> u32 {
    Call::with_context("cuStreamEndCapture").destroying().run(|driver| {
        // SAFETY: the caller's promise.
        let graph = unsafe { OutPointer::new(graph, "phGraph")? };
        graph.set(0);
        let captured = driver.end_capture(stream)?;
        if driver.report.is_injecting() {
            return driver.destroy_graph(captured);
        }
        graph.set(captured);
        Ok(())
    })
}

/// Writes a `CUstreamCaptureStatus`: 0 without a capture, 1 in an active and 2 in an invalidated
/// capture.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuStreamIsCapturing(stream: Handle, status: *mut u32) -> u32 {
    Call::with_context("cuStreamIsCapturing").run(|driver| {
        // SAFETY: the caller's promise.
        let status = unsafe { OutPointer::new(status, "captureStatus")? };
        status.set(driver.capture_status(stream)?);
        Ok(())
    })
}

/// Sets the capture mode of the calling thread and writes the previous mode to the same place.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) -> u32 {
    Call::initialised("cuThreadExchangeStreamCaptureMode").run(|driver| {
        // SAFETY: the caller's promise.
        let (wanted, mode) = unsafe { (read_value(mode, "mode")?, OutPointer::new(mode, "mode")?) };
        mode.set(driver.exchange_capture_mode(wanted)?);
        Ok(())
    })
}
