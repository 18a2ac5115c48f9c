//! Modules and their functions.
//!
//! The image of a module is PTX text, whose kernels are executed. Binary images are accepted if the
//! settings say so. Every function name is found in them, and their kernels do nothing.

use super::Driver;
use crate::state::{
    CallError, CallResult, Code, Handle,
    handles::HandleKind,
    launch_time,
    modules::{Arguments, Function, KernelCode, Module},
    nodes::{Dimensions, KernelNode, NodeWork},
};
use ptx_emulator::{KernelAttributes, LoadError, Module as PtxModule};
use std::{collections::BTreeMap, ffi::CStr, sync::Arc};

/// Maximum shared memory of a block by default, in bytes (compute capability 9.0).
const SHARED_LIMIT: u64 = 48 << 10;
/// Maximum shared memory of a block that a function attribute can request, in bytes (compute
/// capability 9.0).
const SHARED_OPT_IN_LIMIT: u64 = 227 << 10;

impl Driver {
    /// Implements `cuModuleLoadData`: loads a module on the current device. `ptx` is `None` for a
    /// binary image. Errors in the text are passed to `log`.
    pub(crate) fn load_module(&mut self, ptx: Option<&str>, log: impl Fn(&str)) -> CallResult<Handle> {
        self.refuse_unsafe_call("loads a module")?;
        let device = self.current_device()?;
        let ptx = match ptx {
            Some(ptx) => Some(PtxModule::load(ptx, self.device_memory(device)).map_err(|error| {
                let text = error.to_string();
                log(&text);
                load_error(&error, text)
            })?),
            None if self.settings.binary_images != 0 => None,
            None => {
                let text = "the image is binary: only PTX text is executed";
                log(text);
                return Err(CallError::misuse(Code::NO_BINARY_FOR_GPU, text));
            }
        };
        if ptx.as_ref().is_some_and(|ptx| ptx.kernels().next().is_none()) {
            let text = "the image is text without an .entry";
            log(text);
            return Err(CallError::misuse(Code::INVALID_PTX, text));
        }
        let handle = self.handles.create(HandleKind::Module);
        self.modules.alive.insert(handle, Module { device, ptx, function_handles: BTreeMap::new() });
        Ok(handle)
    }

    /// Implements `cuModuleUnload`: waits for all work of the device and unloads the module. The
    /// functions of the module are destroyed.
    pub(crate) fn unload_module(&mut self, handle: Handle) -> CallResult<()> {
        self.handles.check(HandleKind::Module, handle)?;
        self.refuse_unsafe_call("unloads a module")?;
        let device = self.modules.alive.get(&handle).map_or(0, |module| module.device);
        let ended = self.drain(device);
        self.handles.destroy(handle);
        let Some(module) = self.modules.alive.remove(&handle) else { return ended };
        for function in module.function_handles.values() {
            self.handles.destroy(*function);
            self.modules.functions.remove(function);
        }
        if let Some(Err(error)) = module.ptx.map(|ptx| ptx.unload(self.device_memory(device))) {
            self.warn(format!("internal error of the emulator: {error}"));
        }
        ended
    }

    /// Implements `cuModuleGetGlobal`: returns the address and the size in bytes of a variable. The
    /// error is `NOT_FOUND` if there is none.
    pub(crate) fn module_global(&self, handle: Handle, name: &CStr) -> CallResult<(u64, usize)> {
        self.handles.check(HandleKind::Module, handle)?;
        let ptx = self.modules.alive.get(&handle).and_then(|module| module.ptx.as_ref());
        let found = ptx.and_then(|ptx| ptx.global(&name.to_string_lossy()));
        found
            .map(|(address, bytes)| (address, bytes as usize))
            .ok_or_else(|| CallError::plain(Code::NOT_FOUND))
    }

    /// Implements `cuModuleGetFunction`: returns the same handle for the same name. The error is
    /// `NOT_FOUND` if the module has no such kernel.
    pub(crate) fn get_function(&mut self, module: Handle, name: &CStr) -> CallResult<Handle> {
        self.handles.check(HandleKind::Module, module)?;
        let text = name.to_string_lossy().into_owned();
        let Some(content) = self.modules.alive.get_mut(&module) else {
            return Err(CallError::plain(Code::INVALID_HANDLE));
        };
        if let Some(handle) = content.function_handles.get(&text) {
            return Ok(*handle);
        }
        let attributes = match &content.ptx {
            Some(ptx) => Some(ptx.attributes(&text).ok_or_else(|| CallError::plain(Code::NOT_FOUND))?),
            None => None,
        };
        let handle = self.handles.create(HandleKind::Function);
        content.function_handles.insert(text.clone(), handle);
        let shared_bytes = attributes.as_ref().map_or(0, |attributes| attributes.shared_bytes);
        let function = Function {
            name: name.to_owned(),
            display_name: text.into(),
            module,
            device: content.device,
            attributes,
            dynamic_limit: SHARED_LIMIT.saturating_sub(shared_bytes),
        };
        self.modules.functions.insert(handle, function);
        Ok(handle)
    }

    /// Returns the function with a handle. It is an error if the handle is null or unknown or if
    /// its module is unloaded.
    pub(super) fn function(&self, handle: Handle) -> CallResult<&Function> {
        self.handles.check(HandleKind::Function, handle)?;
        self.modules.functions.get(&handle).ok_or_else(|| CallError::plain(Code::INVALID_HANDLE))
    }

    /// Implements `cuFuncGetName`: returns the name of a function, which is valid until its module
    /// is unloaded.
    pub(crate) fn function_name(&self, handle: Handle) -> CallResult<&CStr> {
        Ok(&self.function(handle)?.name)
    }

    /// Returns the offset and the size in bytes of each declared parameter of a kernel. The list is
    /// empty for a binary image.
    pub(crate) fn parameters(&self, handle: Handle) -> CallResult<&[(usize, usize)]> {
        let attributes = self.function(handle)?.attributes.as_ref();
        Ok(attributes.map_or(&[], |attributes| &attributes.parameters))
    }

    /// Implements `cuFuncGetAttribute`: returns an attribute of a function. Attributes that are not
    /// emulated are refused.
    pub(crate) fn function_attribute(&self, attribute: u32, handle: Handle) -> CallResult<i32> {
        let Function { attributes, dynamic_limit, .. } = self.function(handle)?;
        let declared = |value: fn(&KernelAttributes) -> u64| attributes.as_ref().map_or(0, value) as i32;
        Ok(match attribute {
            0 => declared(|kernel| kernel.max_threads.unwrap_or(1024)).min(1024), // MAX_THREADS_PER_BLOCK
            1 => declared(|kernel| kernel.shared_bytes),                          // SHARED_SIZE_BYTES
            3 => declared(|kernel| kernel.local_bytes),                           // LOCAL_SIZE_BYTES
            5 | 6 => 90,                // PTX_VERSION, BINARY_VERSION
            8 => *dynamic_limit as i32, // MAX_DYNAMIC_SHARED_SIZE_BYTES
            other => {
                let text = format!("attribute {other} of functions is not emulated");
                return Err(CallError::misuse(Code::NOT_SUPPORTED, text));
            }
        })
    }

    /// Implements `cuFuncSetAttribute`: sets the maximum dynamic shared memory of a block. The
    /// preferred carveout is ignored, and other attributes are refused.
    pub(crate) fn set_function_attribute(
        &mut self,
        handle: Handle,
        attribute: u32,
        value: i32,
    ) -> CallResult<()> {
        let shared_bytes = self.function_attribute(1, handle)? as u64;
        let limit = SHARED_OPT_IN_LIMIT - shared_bytes;
        match (attribute, u64::try_from(value)) {
            (8, Ok(bytes)) if bytes <= limit => {
                if let Some(function) = self.modules.functions.get_mut(&handle) {
                    function.dynamic_limit = bytes;
                }
                Ok(())
            }
            (8, _) => Err(CallError::value(format!(
                "{value} bytes of dynamic shared memory exceed the maximum of {limit}"
            ))),
            // The preferred shared memory carveout is a hint.
            (9, _) => Ok(()),
            (other, _) => Err(CallError::misuse(
                Code::NOT_SUPPORTED,
                format!("attribute {other} of functions cannot be set"),
            )),
        }
    }

    /// Checks the dimensions of a launch and returns the launch. `handle` is the function.
    pub(crate) fn prepare_launch(
        &self,
        handle: Handle,
        dimensions: Dimensions,
        arguments: Arguments,
    ) -> CallResult<KernelNode> {
        let function = self.function(handle)?;
        if function.module == 0 {
            let text = format!("kernel {} of a library, whose arguments are opaque", function.display_name);
            return Err(CallError::misuse(Code::NOT_SUPPORTED, text));
        }
        if let KernelCode::Ptx(ptx) = self.modules.kernel_code(handle) {
            ptx.check(&function.display_name, dimensions.into())
                .map_err(|error| CallError::value(error.to_string()))?;
        }
        let Dimensions { shared_bytes, .. } = dimensions;
        if u64::from(shared_bytes) > function.dynamic_limit {
            return Err(CallError::value(format!(
                "kernel {} with {shared_bytes} bytes of dynamic shared memory, where \
                 CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES is {}",
                function.display_name, function.dynamic_limit
            )));
        }
        Ok(KernelNode {
            function: handle,
            name: Arc::clone(&function.display_name),
            duration_ns: launch_time().unwrap_or_else(|| self.settings.kernel_time(&function.display_name)),
            dimensions,
            arguments: Arc::new(arguments),
            library_work: None,
            priority: 0,
            context: None,
        })
    }

    /// Implements `cuLaunchKernel`: enqueues a kernel in a stream, which must be of the device that
    /// the module was loaded for.
    pub(crate) fn launch_kernel(&mut self, kernel: KernelNode, stream: Handle) -> CallResult<()> {
        let stream = self.stream(stream)?;
        let device = self.streams.get(&stream).map_or(0, |stream| stream.device);
        let of = self.function(kernel.function)?.device;
        if of != device {
            let text = format!(
                "kernel {} was loaded for device {of}, and {} is of device {device}",
                kernel.name,
                self.handles.name(stream)
            );
            return Err(CallError::misuse(Code::INVALID_HANDLE, text));
        }
        let context = self.streams.get(&stream).map(|stream| stream.context);
        self.submit(stream, NodeWork::Kernel(KernelNode { context, ..kernel }))
    }
}

fn load_error(error: &LoadError, text: String) -> CallError {
    match error {
        LoadError::Unsupported { .. } => CallError::misuse(Code::NOT_SUPPORTED, text),
        LoadError::Memory(_) => CallError::plain(Code::OUT_OF_MEMORY),
        _ => CallError::misuse(Code::INVALID_PTX, text),
    }
}
