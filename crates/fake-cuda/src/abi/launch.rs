//! Launches of kernels.
#![allow(unsafe_code, non_snake_case)]

use super::places::{array, value};
use crate::state::{Arguments, Call, Code, Dimensions, Driver, Fault, Handle, Outcome};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Handle,
    parameters: *const *const u8,
    extra: *const *const u8,
) -> u32 {
    Call::on("cuLaunchKernel").run(|driver| {
        if !extra.is_null() {
            return Err(Fault::misuse(
                Code::NOT_SUPPORTED,
                "kernels with `extra` arguments are not emulated",
            ));
        }
        // SAFETY: the caller's promise.
        let arguments = unsafe { arguments(driver, function, parameters)? };
        let dimensions =
            Dimensions { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes };
        let kernel = driver.kernel(function, dimensions, arguments)?;
        driver.launch_kernel(kernel, stream)
    })
}

/// Copies a launch's arguments, as far as the function's module declares them.
///
/// # Safety
/// The place is null, or holds the address of each of the function's arguments.
pub(super) unsafe fn arguments(
    driver: &Driver,
    function: Handle,
    place: *const *const u8,
) -> Outcome<Arguments> {
    let sizes = driver.parameter_bytes(function)?.unwrap_or_default();
    // SAFETY: the caller's promise.
    let addresses = unsafe { array(place, sizes.len(), "kernelParams")? };
    let values = addresses.into_iter().zip(sizes).map(|(address, &bytes)| {
        let mut words = vec![0_u64; bytes.div_ceil(8)].into_boxed_slice();
        // SAFETY: the caller's promise; null is refused, and there is room for the bytes.
        unsafe {
            value(address, "an argument's address")?;
            words.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(address, bytes);
        }
        Ok(words)
    });
    Ok(Arguments::new(values.collect::<Outcome<_>>()?))
}
