//! Capabilities of a device and its driver. Functions that return a `Result` return the error of a
//! failed call of the CUDA driver.

#![allow(unsafe_code)]

use std::ffi::c_int;

use cudarc::driver::sys::{self, CUdevResourceType, CUdevice_attribute};

use crate::driver::{cu, written};
use crate::error::GREEN_CONTEXT;
use crate::{Context, Result};

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
    /// Clock rate of the multiprocessors, in kHz; 0 if the driver does not report it.
    pub clock_khz: u32,
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
        let memory_operations = functions.cuStreamWaitValue32_v2.is_some()
            && functions.cuStreamWriteValue32_v2.is_some()
            && version >= 11_070;
        Ok(Capabilities {
            driver_version: version,
            architecture: (
                self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            clock_khz: self.optional_attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            priority_levels: least.abs_diff(greatest) + 1,
            node_priority: self.has_node_priority(),
            stream_memory_operations: memory_operations,
            green_contexts: version >= 12_040 && self.has_green_contexts()?,
        })
    }

    /// Returns whether kernels in a graph have priorities.
    pub(crate) fn has_node_priority(&self) -> bool {
        self.driver_version() >= 11_070 && self.driver().functions().cuGraphKernelNodeSetAttribute.is_some()
    }

    /// Returns whether the device allocates memory in the order of a stream.
    pub(crate) fn has_memory_pools(&self) -> Result<bool> {
        let functions = self.driver().functions();
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
        Ok(functions.cuMemAllocAsync.is_some()
            && functions.cuMemFreeAsync.is_some()
            && self.attribute(attribute)? > 0)
    }

    /// Returns an attribute, or 0 if the driver does not report it.
    fn optional_attribute(&self, attribute: CUdevice_attribute) -> Result<u32> {
        match self.attribute(attribute) {
            Err(error) if !error.is_sticky() => Ok(0),
            value => value,
        }
    }

    fn attribute(&self, attribute: CUdevice_attribute) -> Result<u32> {
        let (driver, device) = (self.driver(), self.device());
        // SAFETY: the value is written.
        let value: c_int =
            written(|value| unsafe { cu!(driver, cuDeviceGetAttribute(value, attribute, device)) })?;
        Ok(value.unsigned_abs())
    }

    /// Returns the driver's numbers of the greatest and the least stream priority of the device. A
    /// smaller number is a greater priority.
    pub(crate) fn priorities(&self) -> Result<(i32, i32)> {
        self.bind()?;
        let (driver, mut greatest) = (self.driver(), 0);
        // SAFETY: both numbers are written.
        let least =
            written(|least| unsafe { cu!(driver, cuCtxGetStreamPriorityRange(least, &raw mut greatest)) })?;
        Ok((greatest, least))
    }

    fn has_green_contexts(&self) -> Result<bool> {
        let functions = self.driver().functions();
        let all = functions.cuDevSmResourceSplitByCount.is_some()
            && functions.cuDevResourceGenerateDesc.is_some()
            && functions.cuGreenCtxCreate.is_some()
            && functions.cuGreenCtxDestroy.is_some()
            && functions.cuCtxFromGreenCtx.is_some()
            && functions.cuGreenCtxStreamCreate.is_some();
        match self.multiprocessors_as_resource() {
            Ok(_) => Ok(all),
            Err(error) if error.is_sticky() => Err(error),
            // No green context has been requested yet; `GreenContext::new` reports the reason.
            Err(_) => Ok(false),
        }
    }

    /// Returns the device's multiprocessors as a resource for green contexts.
    pub(crate) fn multiprocessors_as_resource(&self) -> Result<sys::CUdevResource> {
        let (driver, device, kind) =
            (self.driver(), self.device(), CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM);
        // SAFETY: the resource is written.
        written(|resource| unsafe { cu!(driver, cuDeviceGetDevResource(device, resource, kind)) })
            .map_err(|error| error.unsupported_as(GREEN_CONTEXT))
    }
}
