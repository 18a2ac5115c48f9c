//! The crate on an emulated CUDA driver (`cuda-emulator`), which checks every call, executes
//! kernels in virtual time and reports leaks.

mod attention;
mod capabilities;
mod convolutions;
mod copies;
mod faults;
mod gate;
mod graphs;
mod kernels;
mod misuse;
mod ownership;
mod products;
mod readme;
mod scenario;

use cuda::{Context, Driver, Result};
use cuda_emulator::Emulator;

/// Runs a test on a new emulated device and checks for misuse and leaks.
fn on_emulated_device(test: impl FnOnce(&Emulator, &Context) -> Result<()>) {
    let emulator = Emulator::new().unwrap();
    let context = open();
    let tested = test(&emulator, &context);
    tested.and(context.close()).unwrap();
    assert_no_misuse_or_leaks(&emulator);
}

/// Opens the first emulated device.
fn open() -> Context {
    driver().and_then(|driver| driver.context(0)).unwrap()
}

/// Opens the emulated driver.
fn driver() -> Result<Driver> {
    Driver::open_first_of(&[Emulator::library().unwrap()])
}

fn assert_no_misuse_or_leaks(emulator: &Emulator) {
    assert_eq!(emulator.misuse(), [""; 0], "misuse, with these calls: {:#?}", emulator.log());
    assert_eq!(emulator.leaks(), [""; 0], "leaks, with these calls: {:#?}", emulator.log());
}
