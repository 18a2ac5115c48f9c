//! A foreground and a background in the crate's driver loop.

use cuda_emulator::Emulator;

use super::scenario::run_scenario;

#[test]
fn scenario_uses_cuda_correctly() {
    let emulator = Emulator::new().unwrap();
    run_scenario().unwrap();
    super::assert_no_misuse_or_leaks(&emulator);
    let background = emulator.kernels().into_iter().filter(|kernel| kernel.name == "c_30us");
    assert!(background.count() >= 2);
}
