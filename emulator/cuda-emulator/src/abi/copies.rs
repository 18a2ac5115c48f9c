//! Copies and fills.
#![allow(unsafe_code, non_snake_case)]

use crate::host::HostSpan;
use crate::state::{Call, Driver, Fault, Handle, Outcome, Pattern, Place};

/// Stream of the calls that have no stream argument.
const DEFAULT_STREAM: Handle = 0;

/// # Safety
/// As for [`HostSpan::new`], unless the address is null.
unsafe fn span(address: usize, bytes: usize) -> Outcome<Place> {
    if address == 0 {
        return Err(Fault::value("the host's address is null"));
    }
    // SAFETY: the caller's promise.
    Ok(Place::Host(unsafe { HostSpan::new(address, bytes) }))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: usize, bytes: usize) -> u32 {
    Call::on("cuMemcpyHtoD_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let from = unsafe { span(from, bytes)? };
        driver.copy(Place::Device(to), from, bytes, DEFAULT_STREAM, true)
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
        driver.copy(Place::Device(to), from, bytes, stream, false)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyDtoH_v2(to: usize, from: u64, bytes: usize) -> u32 {
    Call::on("cuMemcpyDtoH_v2").run(|driver| {
        // SAFETY: the caller's promise.
        let to = unsafe { span(to, bytes)? };
        driver.copy(to, Place::Device(from), bytes, DEFAULT_STREAM, true)
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
        driver.copy(to, Place::Device(from), bytes, stream, false)
    })
}

/// The host does not wait for copies within or between devices.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> u32 {
    Call::on("cuMemcpyDtoD_v2")
        .run(|driver| driver.copy(Place::Device(to), Place::Device(from), bytes, DEFAULT_STREAM, false))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    to: u64,
    from: u64,
    bytes: usize,
    stream: Handle,
) -> u32 {
    Call::on("cuMemcpyDtoDAsync_v2")
        .run(|driver| driver.copy(Place::Device(to), Place::Device(from), bytes, stream, false))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpy(to: u64, from: u64, bytes: usize) -> u32 {
    Call::on("cuMemcpy").run(|driver| {
        // SAFETY: the caller's promise.
        unsafe { anywhere(driver, to, from, bytes, DEFAULT_STREAM, true) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle) -> u32 {
    Call::on("cuMemcpyAsync").run(|driver| {
        // SAFETY: the caller's promise.
        unsafe { anywhere(driver, to, from, bytes, stream, false) }
    })
}

/// # Safety
/// As for [`HostSpan::new`], for each address that is not device memory.
unsafe fn anywhere(
    driver: &mut Driver,
    to: u64,
    from: u64,
    bytes: usize,
    stream: Handle,
    waits: bool,
) -> Outcome<()> {
    if to == 0 || from == 0 {
        return Err(Fault::value("an address is null"));
    }
    // SAFETY: the caller's promise.
    let [to, from] = [to, from]
        .map(|address| driver.place_of(address, || unsafe { HostSpan::new(address as usize, bytes) }));
    driver.copy(to, from, bytes, stream, waits)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyPeer(
    to: u64,
    to_context: Handle,
    from: u64,
    from_context: Handle,
    bytes: usize,
) -> u32 {
    Call::on("cuMemcpyPeer")
        .run(|driver| peer(driver, (to, to_context), (from, from_context), bytes, DEFAULT_STREAM))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: Handle,
    from: u64,
    from_context: Handle,
    bytes: usize,
    stream: Handle,
) -> u32 {
    Call::on("cuMemcpyPeerAsync")
        .run(|driver| peer(driver, (to, to_context), (from, from_context), bytes, stream))
}

fn peer(
    driver: &mut Driver,
    to: (u64, Handle),
    from: (u64, Handle),
    bytes: usize,
    stream: Handle,
) -> Outcome<()> {
    driver.check_peer(to.0, to.1)?;
    driver.check_peer(from.0, from.1)?;
    driver.copy(Place::Device(to.0), Place::Device(from.0), bytes, stream, false)
}

/// Defines fills of device memory. The host does not wait for them.
macro_rules! fills {
    ($($name:ident, $in_stream:ident: $number:ty;)*) => {$(
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(address: u64, value: $number, times: usize) -> u32 {
            Call::on(stringify!($name)).run(|driver| {
                let pattern = Pattern { value: value.into(), bytes: size_of::<$number>() };
                driver.fill(address, pattern, times, DEFAULT_STREAM)
            })
        }

        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $in_stream(
            address: u64,
            value: $number,
            times: usize,
            stream: Handle,
        ) -> u32 {
            Call::on(stringify!($in_stream)).run(|driver| {
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
