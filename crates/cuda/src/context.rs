//! The context of a device, in which all its objects are created. Functions that return a `Result`
//! also return the error of a failed call of the CUDA driver (a *CUDA error*).

#![allow(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUctx_st, CUdevice};

use crate::driver::{Driver, cu, written};
use crate::handle::Raw;
use crate::symbols::one_line;
use crate::{Error, Result};

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
    driver: Driver,
    ordinal: usize,
    device: CUdevice,
    raw: Raw<CUctx_st>,
    driver_version: u32,
    released: bool,
    late: Mutex<Option<Error>>,
}

impl Context {
    /// Opens the device with number `ordinal` on this host, from 0, with the driver that
    /// [`Driver::open`] finds.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no driver; [`Error::NoDevice`] if there is no such
    /// device; CUDA errors.
    pub fn open(ordinal: usize) -> Result<Self> {
        Self::with_driver(&Driver::open()?, ordinal)
    }

    pub(crate) fn with_driver(driver: &Driver, ordinal: usize) -> Result<Self> {
        let devices = driver.devices()?;
        let number = i32::try_from(ordinal).ok().filter(|_| ordinal < devices);
        let number = number.ok_or(Error::NoDevice { ordinal, devices })?;
        let driver_version = driver.version()?;
        // SAFETY: the device is written.
        let device = written(|device| unsafe { cu!(driver, cuDeviceGet(device, number)) })?;
        // SAFETY: the context is written.
        let raw = Raw(written(|context| unsafe { cu!(driver, cuDevicePrimaryCtxRetain(context, device)) })?);
        let (driver, released, late) = (driver.clone(), false, Mutex::new(None));
        let context =
            Self(Arc::new(Primary { driver, ordinal, device, raw, driver_version, released, late }));
        match context.bind() {
            Ok(()) => Ok(context),
            Err(error) => context.close().and(Err(error)),
        }
    }

    /// Returns the number of the device on this host, from 0.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.0.ordinal
    }

    /// Returns the device's name as reported by the driver.
    pub fn device_name(&self) -> Result<String> {
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: at most 255 characters and a terminating zero are written.
        unsafe { cu!(self.driver(), cuDeviceGetName(name.as_mut_ptr(), 256, self.device())) }?;
        name[255] = 0;
        // SAFETY: the string is zero-terminated.
        Ok(unsafe { one_line(name.as_ptr()) })
    }

    /// Returns the `CUcontext` for other libraries, valid as long as this context.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.0.raw.0.cast()
    }

    /// Returns whether the device is an emulated GPU, whose times say nothing about kernels.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.driver().emulator().is_some()
    }

    /// Blocks until all work in this context is complete.
    pub fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: the context is current.
        unsafe { cu!(self.driver(), cuCtxSynchronize()) }
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
    pub(crate) fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// Returns the driver's CUDA version, as `cuDriverGetVersion` encodes it.
    pub(crate) fn driver_version(&self) -> u32 {
        self.0.driver_version
    }

    /// Returns the driver's handle of the device.
    pub(crate) fn device(&self) -> CUdevice {
        self.0.device
    }

    /// Makes this the calling thread's current context, for calls of other libraries. The functions
    /// of this crate do it themselves.
    pub fn bind(&self) -> Result<()> {
        // SAFETY: the context is written.
        let current = written(|current| unsafe { cu!(self.driver(), cuCtxGetCurrent(current)) })?;
        if current == self.0.raw.0 {
            return Ok(());
        }
        // SAFETY: it was retained.
        unsafe { cu!(self.driver(), cuCtxSetCurrent(self.0.raw.0)) }
    }

    /// Calls `destroy`, which destroys an object of this context. An error is stored for
    /// [`check`](Self::check).
    pub(crate) fn destroy(&self, destroy: impl FnOnce() -> Result<()>) {
        // The object is destroyed even if the context could not be made current: most objects know
        // their context.
        let bound = self.bind();
        let destroyed = destroy();
        self.store_error(bound.and(destroyed));
    }

    /// Like [`destroy`](Self::destroy), after all work in this context is complete. If the wait
    /// fails, as while a stream of the context is captured, the object is leaked: work in flight
    /// may use it. After a [sticky](Error::is_sticky) error nothing runs any more.
    pub(crate) fn destroy_when_idle(&self, destroy: impl FnOnce() -> Result<()>) {
        let synchronized = self.synchronize();
        let is_idle = match &synchronized {
            Ok(()) => true,
            // The first wait may have returned the error of earlier work.
            Err(error) => error.is_sticky() || self.synchronize().is_ok(),
        };
        self.store_error(synchronized);
        if is_idle {
            self.destroy(destroy);
        }
    }

    /// Returns whether both are the context of the same device.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0.raw.0 == other.0.raw.0
    }

    /// Checks that `what`, which belongs to the context `other`, can be used in this one.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is the context of another device.
    pub(crate) fn check_same(&self, other: &Self, what: &str) -> Result<()> {
        if self.is_same(other) {
            return Ok(());
        }
        let (device, stream) = (other.ordinal(), self.ordinal());
        Err(Error::Invalid(format!("{what} of device {device} was used in a stream of device {stream}")))
    }

    /// Stores the error of `result`, if there is one, for [`check`](Self::check). The first error
    /// is kept.
    pub fn store_error(&self, result: Result<()>) {
        if let Err(error) = result {
            self.0.late.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

impl Driver {
    /// Opens the device with number `ordinal` on this host, from 0.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no such device; CUDA errors.
    pub fn context(&self, ordinal: usize) -> Result<Context> {
        Context::with_driver(self, ordinal)
    }
}

impl Primary {
    fn release(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.released, true) {
            return Ok(());
        }
        // SAFETY: it was retained once, and no object created in it is left.
        unsafe { cu!(&self.driver, cuDevicePrimaryCtxRelease_v2(self.device)) }
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // There is no caller to return an error to.
        let _ = self.release();
    }
}
