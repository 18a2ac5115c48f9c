//! A GPU, its CUDA context, and the functions loaded on it.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{CUdevice_attribute, CUfunction, CUmodule, CUstream};
use cudarc::driver::{CudaContext, DriverError, result};

use super::module::Family;
use super::{DriverHandle, driver_error, library};
use crate::EngineError;

/// A GPU with its primary CUDA context and the PTX modules loaded on it. Clones share both. The
/// modules stay loaded while any object of the engine exists.
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
    /// Opens the device with this number, counted from 0.
    ///
    /// # Errors
    /// [`EngineError::Device`] if there is no CUDA driver or no such device.
    pub(super) fn open(ordinal: usize) -> Result<Self, EngineError> {
        Ok(Self(Arc::new(DeviceState {
            context: library::open(ordinal)?,
            modules: Mutex::default(),
            #[cfg(test)]
            replaced: None,
        })))
    }

    /// Opens device 0 with another PTX text for one family. `code` ends with a NUL.
    ///
    /// # Errors
    /// See `open`.
    #[cfg(test)]
    pub(super) fn with_code(family: Family, code: String) -> Result<Self, EngineError> {
        let (context, replaced) = (library::open(0)?, Some((family, code)));
        Ok(Self(Arc::new(DeviceState { context, modules: Mutex::default(), replaced })))
    }

    /// Returns the primary CUDA context of the device.
    pub(super) fn context(&self) -> &CudaContext {
        &self.0.context
    }

    /// Makes the device's context current for the calling thread. Fails if the context is lost.
    pub(super) fn bind(&self) -> Result<(), DriverError> {
        self.0.context.bind_to_thread()
    }

    /// Returns an attribute of the device, or `None` if the CUDA driver does not report it or it is
    /// negative.
    pub(super) fn attribute(&self, attribute: CUdevice_attribute) -> Option<u32> {
        self.0.context.attribute(attribute).ok().and_then(|value| u32::try_from(value).ok())
    }

    /// Returns the GPU function `name` of a family. Loads the family's module on first use.
    ///
    /// # Errors
    /// [`EngineError::Library`] if the CUDA driver cannot load the module or it has no such
    /// function.
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

/// A loaded GPU function. Its users keep the device alive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function {
    raw: DriverHandle<CUfunction>,
    /// Name of the function in its `.cu` file.
    pub(super) name: &'static str,
}

impl Function {
    /// Launches the function into a stream of the calling thread's current device, with `grid`
    /// blocks along x and y of `threads` threads each. `arguments` has a pointer to the value of
    /// each parameter. Fails if the CUDA driver rejects the launch.
    ///
    /// # Safety
    /// The arguments match the function's parameters. The memory that they point to stays valid
    /// until the function has run, or as long as the graph if the stream is being captured. The
    /// function's device is current.
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
