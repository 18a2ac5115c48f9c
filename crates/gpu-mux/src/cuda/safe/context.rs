#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use super::Raw;
use crate::cuda::error::{Error, Result};
use crate::cuda::library::CudaLibrary;
use crate::cuda::result::{Driver, written};
use crate::cuda::sys::{ContextOf, DeviceNumber};

/// A device's primary context: the one that libraries on CUDA's runtime (libtorch, NCCL) use too, so that streams,
/// events and memory can be shared with them.
///
/// A clone is another handle to the same context. What is made in a context keeps it; it is released with the last of
/// them.
///
/// An error in a drop cannot be returned. It is kept here, and returned by the next [`check`](Self::check) or by
/// [`close`](Self::close).
#[derive(Debug, Clone)]
pub struct Context(Arc<Primary>);

#[derive(Debug)]
struct Primary {
    driver: Arc<Driver>,
    device: DeviceNumber,
    raw: Raw<ContextOf>,
    driver_version: u32,
    released: bool,
    late: Mutex<Option<Error>>,
}

impl Context {
    /// Opens a device, counted from 0.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such device; what CUDA reports.
    pub fn open(library: &CudaLibrary, ordinal: usize) -> Result<Self> {
        let driver = Arc::clone(&library.driver);
        let devices = library.devices()?;
        let number = i32::try_from(ordinal).ok().filter(|_| ordinal < devices);
        let number = number.ok_or_else(|| {
            Error::Invalid(format!("device {ordinal} was asked for and there are {devices}, counted from 0"))
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

    /// The device's name, as NVIDIA gives it.
    pub fn device_name(&self) -> Result<String> {
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the name is written with at most 255 characters and a zero.
        unsafe { self.driver().device_name(name.as_mut_ptr(), 256, self.device()) }?;
        name[255] = 0;
        // SAFETY: it ends with a zero.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// CUDA's `CUcontext`, for other libraries. It lives as long as this.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.0.raw.0.cast()
    }

    /// Waits until all work in this context is complete. It blocks.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the context is current.
        unsafe { self.driver().context_synchronize() }
    }

    /// The first error of a drop since the last call.
    pub fn check(&self) -> Result<()> {
        let late = self.0.late.lock().unwrap_or_else(PoisonError::into_inner).take();
        late.map_or(Ok(()), Err)
    }

    /// Releases the context, and says what went wrong in a drop.
    ///
    /// # Errors
    /// [`Error::StillInUse`] if something that was made in the context, or another handle to it, is still there; it
    /// is then released with the last of them. An error of an earlier drop; what CUDA reports to the release.
    pub fn close(self) -> Result<()> {
        let late = self.check();
        let owners = Arc::strong_count(&self.0) - 1;
        let Some(mut primary) = Arc::into_inner(self.0) else {
            return late.and(Err(Error::StillInUse { owners }));
        };
        late.and(primary.release())
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// The driver's release, as CUDA writes it.
    pub(super) fn driver_version(&self) -> u32 {
        self.0.driver_version
    }

    pub(super) fn device(&self) -> DeviceNumber {
        self.0.device
    }

    /// Makes it this thread's current context, which most of CUDA's functions work in.
    pub(super) fn bind(&self) -> Result<()> {
        // SAFETY: the context is written.
        let current = written(|current| unsafe { self.driver().context_current(current) })?;
        if current == self.0.raw.0 {
            return Ok(());
        }
        // SAFETY: it was retained.
        unsafe { self.driver().context_set_current(self.0.raw.0) }
    }

    /// Destroys something that was made in it; an error is kept for later.
    pub(super) fn destroy(&self, destroy: impl FnOnce() -> Result<()>) {
        // Also when the context could not be made current: most objects know their own.
        let bound = self.bind();
        let destroyed = destroy();
        self.keep(bound.and(destroyed));
    }

    /// Keeps the error of a drop, if it is the first.
    pub(in crate::cuda) fn keep(&self, result: Result<()>) {
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
        // SAFETY: it was retained once, and nothing is left that was made in it.
        unsafe { self.driver.primary_release(self.device) }
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // There is no caller to return an error to.
        let _ = self.release();
    }
}
