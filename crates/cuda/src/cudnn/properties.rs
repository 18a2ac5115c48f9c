//! Properties of devices.

use std::ffi::CString;
use std::sync::Arc;

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind,
};

use super::descriptor::{Descriptor, Owner};
use crate::Result;

/// Properties of a device. With them, engines are searched without a GPU.
#[derive(Debug, Clone)]
pub struct DeviceProperties {
    json: CString,
}

impl DeviceProperties {
    /// Returns the properties of an H100 with 80 GB (SXM).
    #[must_use]
    pub fn h100() -> Self {
        let json = cr#"{"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
            "regsPerBlock": 65536, "multiProcessorCount": 132, "warpSize": 32,
            "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
            "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
            "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
            "supportCoopLaunch": 1, "totalGlobalMem": 85899345920, "smClockRateKHz": 1980000,
            "memClockRateKHz": 2619000, "l2CacheSize": 52428800, "cudaDeviceId": 0, "deviceVer": 900,
            "driverVer": 13000, "deviceName": "NVIDIA H100 80GB HBM3"}"#;
        Self { json: json.to_owned() }
    }

    /// Returns the finalized descriptor of the properties.
    pub(super) fn descriptor(&self, owner: &Arc<Owner>) -> Result<Descriptor> {
        let descriptor = Descriptor::new(owner, Kind::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
        let json = self.json.as_bytes_with_nul();
        descriptor.set(Name::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, Type::CUDNN_TYPE_CHAR, json)?;
        descriptor.finalize()?;
        Ok(descriptor)
    }
}
