//! Capabilities of a device and its driver. Functions that return a `Result` return the error of a
//! failed call of the CUDA driver.

#![allow(unsafe_code)]

use std::ffi::c_uint;

use super::context::Context;
use crate::cuda::error::Result;
use crate::cuda::result::written;
use crate::cuda::sys;

/// Capabilities of a device and its driver that are relevant to sharing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Latest CUDA version that the driver supports, as `cuDriverGetVersion` encodes it: 13000 is
    /// CUDA 13.0.
    pub driver_version: u32,
    /// Major and minor number of the device's compute capability: (9, 0) is Hopper.
    pub architecture: (u32, u32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Number of stream priority levels; 1 if all streams are equal.
    pub priority_levels: u32,
    /// Whether kernels in a graph have priorities (CUDA 11.7 and later).
    pub node_priority: bool,
    /// Whether streams support `cuStreamWriteValue32` and `cuStreamWaitValue32`, with which one
    /// stream waits for a value written by another. CUDA 11.7 and later; before, they had to be
    /// enabled in the kernel module.
    pub stream_memory_operations: bool,
    /// Whether green contexts are available (CUDA 12.4 and later, depending on the device).
    pub green_contexts: bool,
}

impl Context {
    /// Queries the capabilities of the device and its driver.
    pub fn capabilities(&self) -> Result<Capabilities> {
        let driver = self.driver();
        let version = self.driver_version();
        let (greatest, least) = self.priorities()?;
        let functions = driver.functions();
        let memory_operations = functions.stream_wait_value.is_some()
            && functions.stream_write_value.is_some()
            && version >= 11_070;
        Ok(Capabilities {
            driver_version: version,
            architecture: (self.attribute(sys::CAPABILITY_MAJOR)?, self.attribute(sys::CAPABILITY_MINOR)?),
            multiprocessors: self.attribute(sys::MULTIPROCESSORS)?,
            priority_levels: least.abs_diff(greatest) + 1,
            node_priority: self.has_node_priority(),
            stream_memory_operations: memory_operations,
            green_contexts: version >= 12_040 && self.has_green_contexts()?,
        })
    }

    /// Whether kernels in a graph have priorities.
    pub(super) fn has_node_priority(&self) -> bool {
        self.driver_version() >= 11_070 && self.driver().functions().node_set_attribute.is_some()
    }

    fn attribute(&self, attribute: c_uint) -> Result<u32> {
        let device = self.device();
        // SAFETY: the value is written.
        let value = written(|value| unsafe { self.driver().device_attribute(value, attribute, device) })?;
        Ok(value.unsigned_abs())
    }

    /// Returns the driver's numbers of the greatest and the least stream priority of the device. A
    /// smaller number is a greater priority.
    pub(super) fn priorities(&self) -> Result<(i32, i32)> {
        self.bind()?;
        let mut greatest = 0;
        // SAFETY: both numbers are written.
        let least = written(|least| unsafe { self.driver().context_priorities(least, &raw mut greatest) })?;
        Ok((greatest, least))
    }

    fn has_green_contexts(&self) -> Result<bool> {
        let functions = self.driver().functions();
        let all = functions.resource_split.is_some()
            && functions.resource_describe.is_some()
            && functions.green_create.is_some()
            && functions.green_destroy.is_some()
            && functions.green_as_context.is_some()
            && functions.green_stream.is_some();
        match self.multiprocessors_as_resource() {
            Ok(_) => Ok(all),
            Err(error) if error.is_sticky() => Err(error),
            // No green context has been requested yet; `GreenContext::new` reports the reason.
            Err(_) => Ok(false),
        }
    }

    /// Returns the device's multiprocessors as a resource for green contexts.
    pub(super) fn multiprocessors_as_resource(&self) -> Result<sys::CUdevResource> {
        let (device, kind) = (self.device(), sys::RESOURCE_MULTIPROCESSORS);
        // SAFETY: the resource is written.
        written(|resource| unsafe { self.driver().device_resource(device, resource, kind) })
            .map_err(|error| error.unsupported_as(sys::GREEN_CONTEXT))
    }
}
