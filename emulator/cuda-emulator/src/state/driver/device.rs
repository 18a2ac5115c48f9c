//! Devices and their attributes. A device is a number from 0.

use super::Driver;
use crate::state::{CallError, CallResult, Code, only_zero};

impl Driver {
    /// Implements `cuInit`. It is an error if the settings have no device, or if the environment
    /// has an invalid setting.
    pub(crate) fn init(&mut self, flags: u32) -> CallResult<()> {
        only_zero(flags, "Flags")?;
        if !self.settings.wrong_variables.is_empty() {
            let text = format!(
                "the environment has {}, which is no setting of the emulated driver or out of its range",
                self.settings.wrong_variables.join(" ")
            );
            eprintln!("emulated CUDA: {text}");
            return Err(CallError::value(text));
        }
        if self.settings.devices == 0 {
            return Err(CallError::plain(Code::NO_DEVICE));
        }
        self.initialised = true;
        Ok(())
    }

    /// Checks that there is a device with this number.
    pub(crate) fn check_device(&self, device: i32) -> CallResult<()> {
        if (0..self.settings.devices).contains(&i64::from(device)) {
            Ok(())
        } else {
            Err(CallError::misuse(Code::INVALID_DEVICE, format!("there is no device {device}")))
        }
    }

    /// Implements `cuDeviceGetAttribute`: returns an attribute of a device, or 0 for attributes
    /// that are not emulated.
    pub(crate) fn device_attribute(&self, attribute: u32, device: i32) -> CallResult<i32> {
        self.check_device(device)?;
        let settings = &self.settings;
        Ok(match attribute {
            1..=3 => 1024,                         // MAX_THREADS_PER_BLOCK, MAX_BLOCK_DIM_X, MAX_BLOCK_DIM_Y
            4 => 64,                               // MAX_BLOCK_DIM_Z
            5 => i32::MAX,                         // MAX_GRID_DIM_X
            6 | 7 => 65535,                        // MAX_GRID_DIM_Y, MAX_GRID_DIM_Z
            8 => 48 << 10,                         // MAX_SHARED_MEMORY_PER_BLOCK
            97 => 227 << 10,                       // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
            81 => 228 << 10,                       // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
            10 => 32,                              // WARP_SIZE
            13 => 1_980_000,                       // CLOCK_RATE, in kHz
            16 => settings.multiprocessors as i32, // MULTIPROCESSOR_COUNT
            31 | 41 | 78 => 1, // CONCURRENT_KERNELS, UNIFIED_ADDRESSING, STREAM_PRIORITIES_SUPPORTED
            39 => 2048,        // MAX_THREADS_PER_MULTIPROCESSOR
            75 => 9,           // COMPUTE_CAPABILITY_MAJOR
            92..=94 | 122 | 123 => settings.stream_memory_operations as i32, // CAN_USE_STREAM_MEM_OPS and kin
            115 => settings.memory_pools as i32, // MEMORY_POOLS_SUPPORTED
            _ => 0,
        })
    }
}
