//! `cuInit` and properties of devices. A device is the number from 0 by which `cuDeviceGet` finds
//! it.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::{OutPointer, write_text};
use crate::state::{Call, CallError};

/// Initialises the driver. It is an error if the settings have no device, or if the environment has
/// an invalid setting.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuInit(flags: u32) -> u32 {
    Call::always("cuInit").run(|driver| driver.init(flags))
}

/// Writes the driver version of the settings: 1000 x major + 10 x minor.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDriverGetVersion(version: *mut i32) -> u32 {
    Call::always("cuDriverGetVersion").run(|driver| {
        // SAFETY: the caller's promise.
        let version = unsafe { OutPointer::new(version, "driverVersion")? };
        version.set(driver.settings.driver_version as i32);
        Ok(())
    })
}

/// Writes the number of devices of the settings.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGetCount(count: *mut i32) -> u32 {
    Call::initialised("cuDeviceGetCount").run(|driver| {
        // SAFETY: the caller's promise.
        let count = unsafe { OutPointer::new(count, "count")? };
        count.set(driver.settings.devices as i32);
        Ok(())
    })
}

/// Writes `ordinal` if there is a device with this number.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGet(device: *mut i32, ordinal: i32) -> u32 {
    Call::initialised("cuDeviceGet").run(|driver| {
        // SAFETY: the caller's promise.
        let device = unsafe { OutPointer::new(device, "device")? };
        driver.check_device(ordinal)?;
        device.set(ordinal);
        Ok(())
    })
}

/// Writes the name `Emulated CUDA device`, truncated to `length` bytes with the terminating zero.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGetName(name: *mut u8, length: i32, device: i32) -> u32 {
    Call::initialised("cuDeviceGetName").run(|driver| {
        driver.check_device(device)?;
        let Ok(room @ 1..) = usize::try_from(length) else {
            return Err(CallError::value("there is no room for a name"));
        };
        // SAFETY: the caller's promise.
        unsafe {
            OutPointer::new(name, "name")?;
            write_text("Emulated CUDA device", name, room);
        }
        Ok(())
    })
}

/// Writes an attribute of a device of compute capability 9.0, or 0 if the attribute is not
/// emulated.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGetAttribute(value: *mut i32, attribute: u32, device: i32) -> u32 {
    Call::initialised("cuDeviceGetAttribute").run(|driver| {
        // SAFETY: the caller's promise.
        let value = unsafe { OutPointer::new(value, "pi")? };
        value.set(driver.device_attribute(attribute, device)?);
        Ok(())
    })
}

/// Writes the memory of a device in bytes, which is a setting.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) -> u32 {
    Call::initialised("cuDeviceTotalMem_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { OutPointer::new(bytes, "bytes")? };
        driver.check_device(device)?;
        bytes.set(driver.memory_info(device).1);
        Ok(())
    })
}

/// Writes the compute capability 9.0.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceComputeCapability(
    major: *mut i32,
    minor: *mut i32,
    device: i32,
) -> u32 {
    Call::initialised("cuDeviceComputeCapability").run(|driver| {
        // SAFETY: the caller's promise.
        let (major, minor) = unsafe { (OutPointer::new(major, "major")?, OutPointer::new(minor, "minor")?) };
        major.set(driver.device_attribute(75, device)?);
        minor.set(driver.device_attribute(76, device)?);
        Ok(())
    })
}

/// Writes an identifier whose last byte is the number of the device.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) -> u32 {
    Call::initialised("cuDeviceGetUuid_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let uuid = unsafe { OutPointer::new(uuid, "uuid")? };
        driver.check_device(device)?;
        let mut bytes = *b"emulated--device";
        bytes[15] = device as u8;
        uuid.set(bytes);
        Ok(())
    })
}
