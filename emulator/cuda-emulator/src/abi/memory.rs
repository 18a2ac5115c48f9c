//! Allocation of device memory and of page-locked host memory. Sizes are in bytes.
#![allow(unsafe_code, non_snake_case)]

use super::pointers::OutPointer;
use crate::state::{Call, CallError, Code, Handle, only_zero};

/// Writes the free and total memory of the current device.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    Call::with_context("cuMemGetInfo_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let (free, total) = unsafe { (OutPointer::new(free, "free")?, OutPointer::new(total, "total")?) };
        let info = driver.memory_info(driver.current_device()?);
        free.set(info.0);
        total.set(info.1);
        Ok(())
    })
}

/// Allocates memory of the current device.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32 {
    Call::with_context("cuMemAlloc_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let address = unsafe { OutPointer::new(address, "dptr")? };
        address.set(driver.allocate(bytes)?);
        Ok(())
    })
}

/// Waits for the work of the device and frees an allocation.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    Call::with_context("cuMemFree_v2").destroying().run(|driver| driver.free(address))
}

/// Allocates memory in stream order. The address is valid at once.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Handle) -> u32 {
    Call::with_context("cuMemAllocAsync").run(|driver| {
        // SAFETY: the caller's promise.
        let address = unsafe { OutPointer::new(address, "dptr")? };
        address.set(driver.allocate_async(bytes, stream)?);
        Ok(())
    })
}

/// Enqueues that an allocation is freed.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemFreeAsync(address: u64, stream: Handle) -> u32 {
    Call::with_context("cuMemFreeAsync").destroying().run(|driver| driver.free_async(address, stream))
}

/// Allocates page-locked host memory, which has the same address on the host and the devices.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemHostAlloc(address: *mut usize, bytes: usize, flags: u32) -> u32 {
    Call::with_context("cuMemHostAlloc").run(|driver| {
        // SAFETY: the caller's promise.
        let address = unsafe { OutPointer::new(address, "pp")? };
        address.set(driver.allocate_host(bytes, flags)?);
        Ok(())
    })
}

/// Waits for the work of the current device and frees page-locked memory.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemFreeHost(address: usize) -> u32 {
    Call::with_context("cuMemFreeHost").destroying().run(|driver| driver.free_host(address))
}

/// Writes the address of page-locked memory on the devices, which is that on the host.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    device: *mut u64,
    address: usize,
    flags: u32,
) -> u32 {
    Call::with_context("cuMemHostGetDevicePointer_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let device = unsafe { OutPointer::new(device, "pdptr")? };
        only_zero(flags, "Flags")?;
        device.set(driver.device_pointer(address)?);
        Ok(())
    })
}

/// Writes an attribute of an address: memory type, device pointer, device, or start or size of its
/// allocation. Other attributes are refused.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuPointerGetAttribute(place: *mut u8, attribute: u32, address: u64) -> u32 {
    Call::initialised("cuPointerGetAttribute").run(|driver| {
        // SAFETY: the caller's promise: `place` has the size of the attribute.
        unsafe {
            OutPointer::new(place, "data")?;
            let (start, bytes) = driver.allocation(address)?;
            let device = driver.device_at(address);
            match attribute {
                // MEMORY_TYPE: host or device.
                2 => OutPointer::new(place.cast(), "data")?.set(if device.is_some() { 2_u32 } else { 1 }),
                // DEVICE_POINTER
                3 => OutPointer::new(place.cast(), "data")?.set(address),
                // DEVICE_ORDINAL
                9 => OutPointer::new(place.cast(), "data")?.set(device.unwrap_or(0)),
                // RANGE_START_ADDR and RANGE_SIZE
                11 => OutPointer::new(place.cast(), "data")?.set(start),
                12 => OutPointer::new(place.cast(), "data")?.set(bytes as usize),
                other => {
                    let text = format!("attribute {other} of pointers is not emulated");
                    return Err(CallError::misuse(Code::NOT_SUPPORTED, text));
                }
            }
        }
        Ok(())
    })
}

/// Writes the first address and the size of the allocation that contains an address. A null pointer
/// means that the value is not wanted.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemGetAddressRange_v2(
    start: *mut u64,
    bytes: *mut usize,
    address: u64,
) -> u32 {
    Call::with_context("cuMemGetAddressRange_v2").run(|driver| {
        // SAFETY: the caller's promise. A null pointer means that the value is not wanted.
        let (start, bytes) = unsafe { (OutPointer::new(start, ""), OutPointer::new(bytes, "")) };
        let found = driver.allocation(address)?;
        if let Ok(start) = start {
            start.set(found.0);
        }
        if let Ok(bytes) = bytes {
            bytes.set(found.1 as usize);
        }
        Ok(())
    })
}
