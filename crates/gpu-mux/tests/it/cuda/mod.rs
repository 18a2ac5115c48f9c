//! CUDA devices on an emulated CUDA driver (`cuda-emulator`), which checks every call, runs kernels
//! in virtual time and reports leaks.

mod capabilities;
mod device;
mod failures;
// The fault injection and the kernels of the tests of `cuda`, for the scenario below.
#[path = "../../../../cuda/tests/it/faults.rs"]
mod faults;
mod gate;
#[path = "../../../../cuda/tests/it/kernels.rs"]
mod kernels;
mod scenario;
mod sharing;
mod tasklets;
mod virtual_device_agreement;

use cuda::{Context, Driver, Result};
use cuda_emulator::Emulator;

/// Runs a test on a new emulated device and checks for misuse and leaks.
fn on_emulated_device(test: impl FnOnce(&Emulator, &Context) -> Result<()>) {
    let emulator = Emulator::new().unwrap();
    let context = open().unwrap();
    let tested = test(&emulator, &context);
    tested.and(context.close()).unwrap();
    assert_no_misuse_or_leaks(&emulator);
}

/// Opens the first emulated device.
fn open() -> Result<Context> {
    Driver::open_first_of(&[Emulator::library().unwrap()])?.context(0)
}

fn assert_no_misuse_or_leaks(emulator: &Emulator) {
    assert_eq!(emulator.misuse(), [""; 0], "misuse, with these calls: {:#?}", emulator.log());
    assert_eq!(emulator.leaks(), [""; 0], "leaks, with these calls: {:#?}", emulator.log());
}
