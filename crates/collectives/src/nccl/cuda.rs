//! A device driven by CUDA.
#![allow(unsafe_code)]

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream, DevicePtr, DriverError, result, sys};

use super::api::RawStream;
use crate::Error;

/// Opens CUDA and one of its devices, counted from 0.
pub(super) fn open(ordinal: usize) -> crate::Result<Device> {
    let unavailable = |reason| Error::Unavailable { backend: "CUDA", reason };
    emulated_gpus::open().map_err(|error| unavailable(error.to_string()))?;
    // SAFETY: it opens the driver's library, if there is one, and calls nothing in it. Any other first call would panic.
    if !unsafe { sys::is_culib_present() } {
        return Err(unavailable(
            "the library was not found: looked for libcuda.so and libcuda.so.1 where the loader looks; install the \
             NVIDIA driver, or add its folder to LD_LIBRARY_PATH"
                .to_owned(),
        ));
    }
    let count = CudaContext::device_count().map_err(|error| unavailable(words(error)))?;
    if usize::try_from(count).is_ok_and(|count| ordinal < count) {
        let context = CudaContext::new(ordinal).map_err(|error| unavailable(words(error)))?;
        Ok(Device(context))
    } else {
        Err(unavailable(format!(
            "device {ordinal} was asked for (LOCAL_RANK) and there are {count}: start as many ranks on this host"
        )))
    }
}

/// The owner of memory.
pub(super) type Owner = Box<dyn Any + Send>;

/// A GPU.
#[derive(Debug, Clone)]
pub(super) struct Device(Arc<CudaContext>);

impl Device {
    /// Makes it the calling thread's device.
    pub(super) fn bind(&self) -> Result<(), String> {
        self.0.bind_to_thread().map_err(words)
    }

    /// A stream that runs beside all others.
    pub(super) fn stream(&self) -> Result<Stream, String> {
        Ok(Stream(self.0.new_stream().map_err(words)?))
    }
}

/// Work on a GPU that is done in the order in which it is enqueued.
#[derive(Debug, Clone)]
pub(super) struct Stream(pub(super) Arc<CudaStream>);

impl Stream {
    /// The stream as libraries take it.
    pub(super) fn raw(&self) -> RawStream {
        self.0.cu_stream().cast()
    }

    /// Records an event behind all the work enqueued so far.
    pub(super) fn event(&self) -> Result<StreamEvent, String> {
        Ok(StreamEvent(self.0.record_event(None).map_err(words)?))
    }

    /// Waits for all the work enqueued so far.
    pub(super) fn synchronize(&self) -> Result<(), String> {
        self.0.synchronize().map_err(words)
    }

    /// Memory that was not written yet, never of zero bytes.
    pub(super) fn allocate(&self, bytes: usize) -> Result<(u64, Owner), String> {
        // SAFETY: bytes may have any value.
        let slice: CudaSlice<u8> = unsafe { self.0.alloc(bytes) }.map_err(words)?;
        let pointer = slice.device_ptr(&self.0).0;
        Ok((pointer, Box::new(slice)))
    }

    /// Enqueues a copy within the device.
    ///
    /// # Safety
    /// Both ranges are device memory that stays until the work is done, and do not overlap.
    pub(super) unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), String> {
        self.0.context().bind_to_thread().map_err(words)?;
        // SAFETY: as the caller promises.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.0.cu_stream()) }.map_err(words)
    }

    /// Copies from the host, and waits for it.
    ///
    /// # Safety
    /// `to` is device memory of that size.
    pub(super) unsafe fn upload(&self, from: &[u8], to: u64) -> Result<(), String> {
        self.0.context().bind_to_thread().map_err(words)?;
        // SAFETY: as the caller promises; `from` stays, since the copy is waited for.
        unsafe { result::memcpy_htod_async(to, from, self.0.cu_stream()) }.map_err(words)?;
        self.synchronize()
    }

    /// Copies to the host, and waits for it.
    ///
    /// # Safety
    /// `from` is device memory of that size.
    pub(super) unsafe fn download(&self, from: u64, to: &mut [u8]) -> Result<(), String> {
        self.0.context().bind_to_thread().map_err(words)?;
        // SAFETY: as the caller promises; `to` stays, since the copy is waited for.
        unsafe { result::memcpy_dtoh_async(to, from, self.0.cu_stream()) }.map_err(words)?;
        self.synchronize()
    }
}

/// A CUDA event that was recorded in a stream.
#[derive(Debug)]
pub(super) struct StreamEvent(CudaEvent);

impl StreamEvent {
    /// Whether all the work before it is done. Also while streams are captured: a query in this thread's usual mode would
    /// break captures in other threads.
    pub(super) fn is_complete(&self) -> Result<bool, String> {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` is read, and written with what was in force.
        let relaxed = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result();
        let answer = self.0.try_is_complete();
        if relaxed.is_ok() {
            // SAFETY: as above. It fails no more than the first time.
            let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result();
        }
        passed(answer)
    }
}

/// What the answer to a query says of the work, and not of a capture that is in the way for now.
fn passed(answer: Result<bool, DriverError>) -> Result<bool, String> {
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
        answer => answer.map_err(words),
    }
}

/// What the driver says, on one line.
pub(super) fn words(error: DriverError) -> String {
    match (error.error_name(), error.error_string()) {
        (Ok(name), Ok(meaning)) => format!("{}: {}", name.to_string_lossy(), meaning.to_string_lossy()),
        _ => format!("{:?}", error.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_in_the_way_is_no_failure() {
        use sys::cudaError_enum as code;
        assert_eq!(passed(Ok(true)), Ok(true));
        let in_the_way =
            [code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT];
        for answer in in_the_way {
            assert_eq!(passed(Err(DriverError(answer))), Ok(false));
        }
        // Without a driver the error has no name to ask for.
        if unsafe { sys::is_culib_present() } {
            assert!(passed(Err(DriverError(code::CUDA_ERROR_ILLEGAL_ADDRESS))).is_err());
        }
    }
}
