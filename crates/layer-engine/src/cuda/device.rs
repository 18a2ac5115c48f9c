#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{CUdevice_attribute, CUfunction, CUmodule, CUstream};
use cudarc::driver::{CudaContext, DriverError, result};

use super::module::Family;
use super::{DriverHandle, driver_error, library};
use crate::EngineError;

/// A GPU and the modules loaded on it. The modules stay loaded while any object of the engine
/// exists.
#[derive(Debug, Clone)]
pub(super) struct Device(Arc<DeviceState>);

#[derive(Debug)]
struct DeviceState {
    context: Arc<CudaContext>,
    modules: Mutex<BTreeMap<Family, DriverHandle<CUmodule>>>,
    /// A family whose PTX is replaced. The text ends with a NUL.
    #[cfg(test)]
    replaced: Option<(Family, String)>,
}

impl DeviceState {
    /// Returns the PTX of a family, which ends with a NUL.
    #[cfg_attr(not(test), allow(clippy::unused_self, reason = "only tests have other code"))]
    fn code(&self, family: Family) -> &str {
        #[cfg(test)]
        if let Some((_, code)) = self.replaced.as_ref().filter(|(replaced, _)| *replaced == family) {
            return code;
        }
        family.ptx()
    }
}

impl Device {
    pub(super) fn open(ordinal: usize) -> Result<Self, EngineError> {
        Ok(Self(Arc::new(DeviceState {
            context: library::open(ordinal)?,
            modules: Mutex::default(),
            #[cfg(test)]
            replaced: None,
        })))
    }

    /// Opens the device with a replaced PTX for one family.
    #[cfg(test)]
    pub(super) fn with_code(family: Family, code: String) -> Result<Self, EngineError> {
        let (context, replaced) = (library::open(0)?, Some((family, code)));
        Ok(Self(Arc::new(DeviceState { context, modules: Mutex::default(), replaced })))
    }

    pub(super) fn context(&self) -> &CudaContext {
        &self.0.context
    }

    /// Makes this the current device of the calling thread.
    pub(super) fn bind(&self) -> Result<(), DriverError> {
        self.0.context.bind_to_thread()
    }

    pub(super) fn attribute(&self, attribute: CUdevice_attribute) -> Option<u32> {
        self.0.context.attribute(attribute).ok().and_then(|value| u32::try_from(value).ok())
    }

    /// Returns a kernel. Loads its family on first use.
    pub(super) fn function(&self, family: Family, name: &'static str) -> Result<Function, EngineError> {
        let load = || -> Result<CUfunction, DriverError> {
            self.bind()?;
            let mut modules = self.0.modules.lock().unwrap_or_else(PoisonError::into_inner);
            let module = if let Some(module) = modules.get(&family) {
                module.0
            } else {
                // SAFETY: the text ends with a NUL and is read before the call returns.
                let module = unsafe { result::module::load_data(self.0.code(family).as_ptr().cast()) }?;
                modules.insert(family, DriverHandle(module));
                module
            };
            let name = CString::new(name).unwrap_or_default();
            // SAFETY: the module is loaded.
            unsafe { result::module::get_function(module, name) }
        };
        let raw = load().map_err(|error| driver_error(&format!("load kernel {name}"), error))?;
        Ok(Function { raw: DriverHandle(raw), name })
    }
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        let modules = std::mem::take(self.modules.get_mut().unwrap_or_else(PoisonError::into_inner));
        // If the context is lost, its modules are too.
        let _ = self.context.bind_to_thread();
        for module in modules.into_values() {
            // SAFETY: the module is unloaded once; users of its functions have kept this value
            // alive until now.
            let _ = unsafe { result::module::unload(module.0) };
        }
    }
}

/// A loaded kernel. Its users keep the device alive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function {
    raw: DriverHandle<CUfunction>,
    pub(super) name: &'static str,
}

impl Function {
    /// Launches the kernel into a stream of the calling thread's current device.
    ///
    /// # Safety
    /// The arguments match the kernel's parameters. The memory that they point to stays valid until
    /// the kernel has run, or as long as the graph if the stream is being captured. The kernel's
    /// device is current.
    pub(super) unsafe fn launch(
        &self,
        grid: [u32; 2],
        threads: u32,
        stream: CUstream,
        arguments: &mut [*mut std::ffi::c_void],
    ) -> Result<(), DriverError> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            result::launch_kernel(self.raw.0, (grid[0], grid[1], 1), (threads, 1, 1), 0, stream, arguments)
        }
    }
}
