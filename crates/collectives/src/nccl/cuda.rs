//! CUDA devices, streams and events. Errors are messages of the CUDA driver, in one line. Addresses
//! are those of device memory.
#![allow(unsafe_code)]

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream, DevicePtr, DriverError, result, sys};

use super::api::RawStream;
use crate::Error;

/// Loads CUDA's driver library and opens the device with number `ordinal` on this host, from 0.
///
/// # Errors
/// [`Error::Unavailable`] if the library or the device is missing.
pub(super) fn open(ordinal: usize) -> crate::Result<Device> {
    let unavailable = |reason| Error::Unavailable { backend: "CUDA", reason };
    emulated_gpus::open().map_err(|error| unavailable(error.to_string()))?;
    // SAFETY: opens the driver's library if it is present, and calls no function of it. Any other
    // first call would panic.
    if !unsafe { sys::is_culib_present() } {
        return Err(unavailable(
            "the library was not found: searched for libcuda.so and libcuda.so.1 on the loader's path; \
             install the NVIDIA driver, or add its folder to LD_LIBRARY_PATH"
                .to_owned(),
        ));
    }
    let count = CudaContext::device_count().map_err(|error| unavailable(driver_message(error)))?;
    if usize::try_from(count).is_ok_and(|count| ordinal < count) {
        let context = CudaContext::new(ordinal).map_err(|error| unavailable(driver_message(error)))?;
        Ok(Device(context))
    } else {
        Err(unavailable(format!(
            "device {ordinal} was requested (LOCAL_RANK) but there are {count} devices: start at most \
             {count} ranks on this host"
        )))
    }
}

/// Object that owns device memory. Dropping it frees the memory.
pub(super) type Owner = Box<dyn Any + Send>;

/// GPU of this host, with its primary context.
#[derive(Debug, Clone)]
pub(super) struct Device(Arc<CudaContext>);

impl Device {
    /// Makes this the current device of the calling thread.
    pub(super) fn bind(&self) -> Result<(), String> {
        self.0.bind_to_thread().map_err(driver_message)
    }

    /// Creates a stream that does not synchronize with others.
    pub(super) fn stream(&self) -> Result<Stream, String> {
        Ok(Stream(self.0.new_stream().map_err(driver_message)?))
    }
}

/// A queue of work that a GPU executes in order.
#[derive(Debug, Clone)]
pub(super) struct Stream(pub(super) Arc<CudaStream>);

impl Stream {
    /// Returns CUDA's handle of the stream, for other libraries.
    pub(super) fn raw(&self) -> RawStream {
        self.0.cu_stream().cast()
    }

    /// Records an event that is complete when all work enqueued so far is.
    pub(super) fn event(&self) -> Result<StreamEvent, String> {
        Ok(StreamEvent(self.0.record_event(None).map_err(driver_message)?))
    }

    /// Waits for all work enqueued so far.
    pub(super) fn synchronize(&self) -> Result<(), String> {
        self.0.synchronize().map_err(driver_message)
    }

    /// Allocates `bytes` bytes of uninitialized device memory, at least 1. Returns the address and
    /// the owner.
    pub(super) fn allocate(&self, bytes: usize) -> Result<(u64, Owner), String> {
        // SAFETY: bytes may have any value.
        let slice: CudaSlice<u8> = unsafe { self.0.alloc(bytes) }.map_err(driver_message)?;
        let pointer = slice.device_ptr(&self.0).0;
        Ok((pointer, Box::new(slice)))
    }

    /// Enqueues a copy of `bytes` bytes from address `from` to address `to` of the device.
    ///
    /// # Safety
    /// Both ranges are device memory that is valid until the copy is complete, and they do not
    /// overlap.
    pub(super) unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), String> {
        self.0.context().bind_to_thread().map_err(driver_message)?;
        // SAFETY: as the caller promises.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.0.cu_stream()) }.map_err(driver_message)
    }

    /// Copies the bytes `from` on the host to address `to` of the device, and waits for the copy.
    ///
    /// # Safety
    /// `to` is device memory of that size.
    pub(super) unsafe fn upload(&self, from: &[u8], to: u64) -> Result<(), String> {
        self.0.context().bind_to_thread().map_err(driver_message)?;
        // SAFETY: as the caller promises; `from` outlives the copy, which is waited for.
        unsafe { result::memcpy_htod_async(to, from, self.0.cu_stream()) }.map_err(driver_message)?;
        self.synchronize()
    }

    /// Copies the bytes at address `from` of the device to the host, and waits for the copy.
    ///
    /// # Safety
    /// `from` is device memory of that size.
    pub(super) unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<(), String> {
        self.0.context().bind_to_thread().map_err(driver_message)?;
        // SAFETY: as the caller promises; `to` outlives the copy, which is waited for.
        unsafe { result::memcpy_dtoh_async(to, from, self.0.cu_stream()) }.map_err(driver_message)?;
        self.synchronize()
    }
}

/// A CUDA event recorded in a stream.
#[derive(Debug)]
pub(super) struct StreamEvent(CudaEvent);

impl StreamEvent {
    /// Returns whether all work before the event is complete. May be called while streams are
    /// captured: a query in the thread's default mode would invalidate captures in other threads.
    pub(super) fn is_complete(&self) -> Result<bool, String> {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` is read and written.
        let relaxed = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result();
        let answer = self.0.try_is_complete();
        if relaxed.is_ok() {
            // SAFETY: as above. The same call has succeeded before.
            let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result();
        }
        query_result(answer)
    }
}

/// Interprets the result of an event query. An interfering capture means "not complete yet".
fn query_result(answer: Result<bool, DriverError>) -> Result<bool, String> {
    use sys::cudaError_enum as code;
    match answer {
        Err(DriverError(
            code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
            | code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
            | code::CUDA_ERROR_STREAM_CAPTURE_MERGE
            | code::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
            | code::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
            | code::CUDA_ERROR_STREAM_CAPTURE_ISOLATION
            | code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
            | code::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
            | code::CUDA_ERROR_CAPTURED_EVENT,
        )) => Ok(false),
        answer => answer.map_err(driver_message),
    }
}

/// Returns the driver's message on one line.
pub(super) fn driver_message(error: DriverError) -> String {
    match (error.error_name(), error.error_string()) {
        (Ok(name), Ok(meaning)) => format!("{}: {}", name.to_string_lossy(), meaning.to_string_lossy()),
        _ => format!("{:?}", error.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interfering_capture_is_no_failure() {
        use sys::cudaError_enum as code;
        assert_eq!(query_result(Ok(true)), Ok(true));
        let in_the_way =
            [code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT];
        for answer in in_the_way {
            assert_eq!(query_result(Err(DriverError(answer))), Ok(false));
        }
        // Without a driver the error's name cannot be queried.
        if unsafe { sys::is_culib_present() } {
            assert!(query_result(Err(DriverError(code::CUDA_ERROR_ILLEGAL_ADDRESS))).is_err());
        }
    }
}
