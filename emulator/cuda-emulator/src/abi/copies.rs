//! Copies and fills. Sizes are in bytes. Pageable host memory is all host memory that was not
//! allocated by `cuMemHostAlloc`.
#![allow(unsafe_code, non_snake_case)]

use crate::host::HostSpan;
use crate::state::{
    Call, CallError, CallResult, Code, CopiedRows, CopyOperand, Driver, Handle, Pattern, RowPlaces,
};

/// Stream of the calls that have no stream argument.
const DEFAULT_STREAM: Handle = 0;

/// # Safety
/// As for [`HostSpan::new`], unless the address is null.
unsafe fn host_operand(address: usize, bytes: usize) -> CallResult<CopyOperand> {
    if address == 0 {
        return Err(CallError::value("the host's address is null"));
    }
    // SAFETY: the caller's promise.
    Ok(CopyOperand::Host(unsafe { HostSpan::new(address, bytes) }))
}

/// Copies from the host to a device in the default stream, and waits for the copy.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: usize, bytes: usize) -> u32 {
    Call::with_context("cuMemcpyHtoD_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let from = unsafe { host_operand(from, bytes)? };
        driver.copy(CopyOperand::Device(to), from, bytes, DEFAULT_STREAM, true)
    })
}

/// Enqueues a copy from the host to a device. Pageable host memory is read during the call.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: usize,
    bytes: usize,
    stream: Handle,
) -> u32 {
    Call::with_context("cuMemcpyHtoDAsync_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let from = unsafe { host_operand(from, bytes)? };
        driver.copy(CopyOperand::Device(to), from, bytes, stream, false)
    })
}

/// Copies from a device to the host in the default stream, and waits for the copy.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyDtoH_v2(to: usize, from: u64, bytes: usize) -> u32 {
    Call::with_context("cuMemcpyDtoH_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let to = unsafe { host_operand(to, bytes)? };
        driver.copy(to, CopyOperand::Device(from), bytes, DEFAULT_STREAM, true)
    })
}

/// Enqueues a copy from a device to the host, and waits for it if the host memory is pageable.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: usize,
    from: u64,
    bytes: usize,
    stream: Handle,
) -> u32 {
    Call::with_context("cuMemcpyDtoHAsync_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let to = unsafe { host_operand(to, bytes)? };
        driver.copy(to, CopyOperand::Device(from), bytes, stream, false)
    })
}

/// Enqueues a copy within or between devices in the default stream. The host does not wait.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> u32 {
    Call::with_context("cuMemcpyDtoD_v2").run(|driver| {
        driver.copy(CopyOperand::Device(to), CopyOperand::Device(from), bytes, DEFAULT_STREAM, false)
    })
}

/// Enqueues a copy within or between devices.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    to: u64,
    from: u64,
    bytes: usize,
    stream: Handle,
) -> u32 {
    Call::with_context("cuMemcpyDtoDAsync_v2")
        .run(|driver| driver.copy(CopyOperand::Device(to), CopyOperand::Device(from), bytes, stream, false))
}

/// Copies between any two addresses in the default stream, and waits for the copy. An address in no
/// allocation is one of pageable host memory.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpy(to: u64, from: u64, bytes: usize) -> u32 {
    Call::with_context("cuMemcpy").run(|driver| {
        // SAFETY: the caller's promise.
        unsafe { copy_unified(driver, to, from, bytes, DEFAULT_STREAM, true) }
    })
}

/// Enqueues a copy between any two addresses. An address in no allocation is one of pageable host
/// memory. Waits for the copy if the destination is pageable.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle) -> u32 {
    Call::with_context("cuMemcpyAsync").run(|driver| {
        // SAFETY: the caller's promise.
        unsafe { copy_unified(driver, to, from, bytes, stream, false) }
    })
}

/// # Safety
/// As for [`HostSpan::new`], for each address that is not device memory.
unsafe fn copy_unified(
    driver: &mut Driver,
    to: u64,
    from: u64,
    bytes: usize,
    stream: Handle,
    waits: bool,
) -> CallResult<()> {
    if to == 0 || from == 0 {
        return Err(CallError::value("an address is null"));
    }
    // SAFETY: the caller's promise.
    let [to, from] = [to, from]
        .map(|address| driver.operand_at(address, || unsafe { HostSpan::new(address as usize, bytes) }));
    driver.copy(to, from, bytes, stream, waits)
}

/// Enqueues a copy between the devices of two contexts in the default stream. The host does not
/// wait. Each address must be in the memory of the device of its context.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyPeer(
    to: u64,
    to_context: Handle,
    from: u64,
    from_context: Handle,
    bytes: usize,
) -> u32 {
    Call::with_context("cuMemcpyPeer")
        .run(|driver| copy_peer(driver, (to, to_context), (from, from_context), bytes, DEFAULT_STREAM))
}

/// Enqueues a copy between the devices of two contexts. Each address must be in the memory of the
/// device of its context.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: Handle,
    from: u64,
    from_context: Handle,
    bytes: usize,
    stream: Handle,
) -> u32 {
    Call::with_context("cuMemcpyPeerAsync")
        .run(|driver| copy_peer(driver, (to, to_context), (from, from_context), bytes, stream))
}

fn copy_peer(
    driver: &mut Driver,
    to: (u64, Handle),
    from: (u64, Handle),
    bytes: usize,
    stream: Handle,
) -> CallResult<()> {
    driver.check_peer(to.0, to.1)?;
    driver.check_peer(from.0, from.1)?;
    driver.copy(CopyOperand::Device(to.0), CopyOperand::Device(from.0), bytes, stream, false)
}

/// Enqueues copies of rows at regular distances, `CUDA_MEMCPY3D`. Only memory of devices is
/// supported.
///
/// # Safety
/// `copy` is null or points to the parameters.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpy3DAsync_v2(copy: *const Memcpy3D, stream: Handle) -> u32 {
    Call::with_context("cuMemcpy3DAsync_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let copy = unsafe { copy.as_ref() }.ok_or_else(|| CallError::value("the parameters are null"))?;
        driver.copy_rows(copy.rows()?, stream)
    })
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
pub(super) struct Memcpy3D {
    from: Memcpy3DEnd,
    to: Memcpy3DEnd,
    width_bytes: usize,
    height: usize,
    depth: usize,
}

/// Source or destination in a `CUDA_MEMCPY3D`.
#[repr(C)]
struct Memcpy3DEnd {
    x_bytes: usize,
    y: usize,
    z: usize,
    level_of_detail: usize,
    memory_type: u32,
    host: usize,
    device: u64,
    array: usize,
    reserved: usize,
    pitch: usize,
    height: usize,
}

impl Memcpy3D {
    fn rows(&self) -> CallResult<CopiedRows> {
        let counts = [self.depth, self.height];
        let [to, from] = [&self.to, &self.from].map(|end| end.rows(self.width_bytes, counts));
        Ok(CopiedRows { to: to?, from: from?, counts, bytes: self.width_bytes })
    }
}

impl Memcpy3DEnd {
    /// Returns the address of the first row, and the distances of slices and rows.
    fn rows(&self, width: usize, [depth, height]: [usize; 2]) -> CallResult<RowPlaces> {
        /// `CU_MEMORYTYPE_DEVICE`.
        const DEVICE: u32 = 2;
        if self.memory_type != DEVICE || self.level_of_detail != 0 {
            return Err(CallError::plain(Code::NOT_SUPPORTED));
        }
        if (height > 1 || depth > 1) && self.pitch < self.x_bytes.saturating_add(width) {
            return Err(CallError::value(format!("rows of {width} bytes have a pitch of {}", self.pitch)));
        }
        if depth > 1 && self.height < self.y.saturating_add(height) {
            return Err(CallError::value(format!(
                "slices of {height} rows have a height of {}",
                self.height
            )));
        }
        let slice = self.pitch.saturating_mul(self.height);
        let skipped = self.z.saturating_mul(slice).saturating_add(self.y.saturating_mul(self.pitch));
        let first = self.device.saturating_add(skipped.saturating_add(self.x_bytes) as u64);
        Ok(RowPlaces { first, distances: [slice as u64, self.pitch as u64] })
    }
}

/// Defines fills of device memory. The host does not wait for them.
macro_rules! fills {
    ($($name:ident, $in_stream:ident: $number:ty;)*) => {$(
        /// Enqueues a fill in the default stream: writes `value` `times` times from `address` on.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(address: u64, value: $number, times: usize) -> u32 {
            Call::with_context(stringify!($name)).run(|driver| {
                let pattern = Pattern { value: value.into(), bytes: size_of::<$number>() };
                driver.fill(address, pattern, times, DEFAULT_STREAM)
            })
        }

        /// Enqueues a fill in a stream: writes `value` `times` times from `address` on.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $in_stream(
            address: u64,
            value: $number,
            times: usize,
            stream: Handle,
        ) -> u32 {
            Call::with_context(stringify!($in_stream)).run(|driver| {
                let pattern = Pattern { value: value.into(), bytes: size_of::<$number>() };
                driver.fill(address, pattern, times, stream)
            })
        }
    )*};
}

fills! {
    cuMemsetD8_v2, cuMemsetD8Async: u8;
    cuMemsetD16_v2, cuMemsetD16Async: u16;
    cuMemsetD32_v2, cuMemsetD32Async: u32;
}
