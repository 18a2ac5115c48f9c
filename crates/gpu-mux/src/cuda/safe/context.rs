//! The context of a device, in which all its objects are created. Functions that return a `Result`
//! also return the error of a failed call of the CUDA driver (a *CUDA error*).

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use super::Raw;
use crate::cuda::error::{Error, Result};
use crate::cuda::library::CudaLibrary;
use crate::cuda::result::{Driver, written};
use crate::cuda::sys::{CUctx_st, DeviceNumber};

/// Primary context of a device, shared with libraries on the CUDA runtime (libtorch, NCCL), so that
/// streams, events and memory can be exchanged with them.
///
/// A clone is another handle to the same context. Objects created in a context hold a reference to
/// it; it is released with the last reference.
///
/// An error in a destructor cannot be returned. It is stored and returned by the next
/// [`check`](Self::check) or by [`close`](Self::close).
#[derive(Debug, Clone)]
pub struct Context(Arc<Primary>);

#[derive(Debug)]
struct Primary {
    driver: Arc<Driver>,
    device: DeviceNumber,
    raw: Raw<CUctx_st>,
    driver_version: u32,
    released: bool,
    late: Mutex<Option<Error>>,
}

impl Context {
    /// Opens the device with number `ordinal` on this host, from 0.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such device; CUDA errors.
    pub fn open(library: &CudaLibrary, ordinal: usize) -> Result<Self> {
        let driver = Arc::clone(&library.driver);
        let devices = library.devices()?;
        let number = i32::try_from(ordinal).ok().filter(|_| ordinal < devices);
        let number = number.ok_or_else(|| {
            Error::Invalid(format!("device {ordinal} was requested and there are {devices}, counted from 0"))
        })?;
        let driver_version = library.version()?;
        // SAFETY: the device is written.
        let device = written(|device| unsafe { driver.device(device, number) })?;
        // SAFETY: the context is written.
        let raw = Raw(written(|context| unsafe { driver.primary_retain(context, device) })?);
        let (released, late) = (false, Mutex::new(None));
        let context = Self(Arc::new(Primary { driver, device, raw, driver_version, released, late }));
        match context.bind() {
            Ok(()) => Ok(context),
            Err(error) => context.close().and(Err(error)),
        }
    }

    /// Returns the device's name as reported by the driver.
    pub fn device_name(&self) -> Result<String> {
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: at most 255 characters and a terminating zero are written.
        unsafe { self.driver().device_name(name.as_mut_ptr(), 256, self.device()) }?;
        name[255] = 0;
        // SAFETY: the string is zero-terminated.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// Returns the `CUcontext` for other libraries, valid as long as this context.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.0.raw.0.cast()
    }

    /// Blocks until all work in this context is complete.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the context is current.
        unsafe { self.driver().context_synchronize() }
    }

    /// Returns the first error of a destructor since the last call, as an error.
    pub fn check(&self) -> Result<()> {
        let late = self.0.late.lock().unwrap_or_else(PoisonError::into_inner).take();
        late.map_or(Ok(()), Err)
    }

    /// Releases the context. Returns an earlier error of a destructor, if there is one.
    ///
    /// # Errors
    /// [`Error::StillInUse`] if another handle to the context or an object created in it still
    /// exists (the context is then released with the last of them); an earlier destructor error;
    /// CUDA errors of the release.
    pub fn close(self) -> Result<()> {
        let late = self.check();
        let owners = Arc::strong_count(&self.0) - 1;
        let Some(mut primary) = Arc::into_inner(self.0) else {
            return late.and(Err(Error::StillInUse { owners }));
        };
        late.and(primary.release())
    }

    /// Returns the functions of the CUDA driver.
    pub(super) fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// Returns the driver's CUDA version, as `cuDriverGetVersion` encodes it.
    pub(super) fn driver_version(&self) -> u32 {
        self.0.driver_version
    }

    /// Returns the driver's handle of the device.
    pub(super) fn device(&self) -> DeviceNumber {
        self.0.device
    }

    /// Makes this the calling thread's current context.
    pub(super) fn bind(&self) -> Result<()> {
        // SAFETY: the context is written.
        let current = written(|current| unsafe { self.driver().context_current(current) })?;
        if current == self.0.raw.0 {
            return Ok(());
        }
        // SAFETY: it was retained.
        unsafe { self.driver().context_set_current(self.0.raw.0) }
    }

    /// Calls `destroy`, which destroys an object of this context. An error is stored for
    /// [`check`](Self::check).
    pub(super) fn destroy(&self, destroy: impl FnOnce() -> Result<()>) {
        // The object is destroyed even if the context could not be made current: most objects know
        // their context.
        let bound = self.bind();
        let destroyed = destroy();
        self.store_error(bound.and(destroyed));
    }

    /// Stores the error of `result`, if there is one, for [`check`](Self::check). The first error
    /// is kept.
    pub(in crate::cuda) fn store_error(&self, result: Result<()>) {
        if let Err(error) = result {
            self.0.late.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

impl Primary {
    fn release(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.released, true) {
            return Ok(());
        }
        // SAFETY: it was retained once, and no object created in it is left.
        unsafe { self.driver.primary_release(self.device) }
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // There is no caller to return an error to.
        let _ = self.release();
    }
}
