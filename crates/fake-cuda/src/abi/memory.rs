//! Memory.
#![allow(unsafe_code, non_snake_case)]

use super::places::Out;
use crate::host::HostSpan;
use crate::state::{Call, Fault, Handle, Outcome, only_zero};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    Call::on("cuMemGetInfo_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let (free, total) = unsafe { (Out::new(free, "free")?, Out::new(total, "total")?) };
        let info = driver.memory_info();
        free.set(info.0);
        total.set(info.1);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32 {
    Call::on("cuMemAlloc_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let address = unsafe { Out::new(address, "dptr")? };
        address.set(driver.allocate(bytes)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    Call::on("cuMemFree_v2").destroying().run(|driver| driver.free(address))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Handle) -> u32 {
    Call::on("cuMemAllocAsync").run(|driver| {
        // SAFETY: the caller's promise.
        let address = unsafe { Out::new(address, "dptr")? };
        address.set(driver.allocate_async(bytes, stream)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemFreeAsync(address: u64, stream: Handle) -> u32 {
    Call::on("cuMemFreeAsync").destroying().run(|driver| driver.free_async(address, stream))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemHostAlloc(address: *mut usize, bytes: usize, flags: u32) -> u32 {
    Call::on("cuMemHostAlloc").run(|driver| {
        // SAFETY: the caller's promise.
        let address = unsafe { Out::new(address, "pp")? };
        address.set(driver.allocate_host(bytes, flags)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemFreeHost(address: usize) -> u32 {
    Call::on("cuMemFreeHost").destroying().run(|driver| driver.free_host(address))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    device: *mut u64,
    address: usize,
    flags: u32,
) -> u32 {
    Call::on("cuMemHostGetDevicePointer_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let device = unsafe { Out::new(device, "pdptr")? };
        only_zero(flags, "Flags")?;
        device.set(driver.device_pointer(address)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: usize,
    bytes: usize,
    stream: Handle,
) -> u32 {
    Call::on("cuMemcpyHtoDAsync_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let from = unsafe { span(from, bytes)? };
        driver.copy_to_device(to, &from, stream)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: usize,
    from: u64,
    bytes: usize,
    stream: Handle,
) -> u32 {
    Call::on("cuMemcpyDtoHAsync_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let to = unsafe { span(to, bytes)? };
        driver.copy_to_host(&to, from, stream)
    })
}

/// # Safety
/// As for [`HostSpan::new`], unless the address is null.
unsafe fn span(address: usize, bytes: usize) -> Outcome<HostSpan> {
    if address == 0 {
        return Err(Fault::value("the host's address is null"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { HostSpan::new(address, bytes) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemsetD32Async(
    address: u64,
    value: u32,
    words: usize,
    stream: Handle,
) -> u32 {
    Call::on("cuMemsetD32Async").run(|driver| driver.fill(address, value, words, stream))
}
