//! A foreground and a background in the crate's driver loop.

use cuda_emulator::Emulator;

use super::library;
use super::scenario::whole;

#[test]
fn everything_that_the_driver_does_is_right_use_of_cuda() {
    let emulator = Emulator::new().unwrap();
    whole(&library()).unwrap();
    super::nothing_amiss(&emulator);
    let background = emulator.kernels().into_iter().filter(|kernel| kernel.name == "c_30us");
    assert!(background.count() >= 2);
}
