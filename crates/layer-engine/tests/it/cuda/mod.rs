//! CUDA engine, compared with the CPU engine. Runs on an emulated GPU, or with
//! `CUDA_ENGINE_ON_GPU=1` on the machine's first GPU.

mod chains;
mod choice;
mod errors;
mod graphs;
mod half_steps;
mod layers;
mod networks;
mod queues;
mod sources;
mod steps;
mod traffic;

use cuda::{Context, Driver};
use cuda_emulator::{Emulator, Setting};
use layer_engine::CudaEngine;

/// Seeds of the order of warps and blocks. Results must not depend on it.
const ORDERS: [i64; 3] = [0, 7, 11];

/// Factor of the number of cases of each property test.
fn case_factor() -> u32 {
    std::env::var("CUDA_ENGINE_CASES").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Runs a test on the machine's first GPU if requested, else on an emulated one by [`on_emulator`].
fn on_device(order: i64, test: impl FnOnce(&CudaEngine)) {
    if on_gpu() { test(&CudaEngine::new(0).unwrap()) } else { on_emulator(order, |engine, _| test(engine)) }
}

fn on_gpu() -> bool {
    std::env::var_os("CUDA_ENGINE_ON_GPU").is_some_and(|value| value == "1")
}

/// Runs a test on an emulated GPU with race detection, with warps and blocks in the given order.
/// Asserts that there are no faults, no misuse and no leaks afterwards.
fn on_emulator(order: i64, test: impl FnOnce(&CudaEngine, &Emulator)) {
    let Some(emulator) = emulator(order) else { return };
    test(&CudaEngine::on(&emulated_gpu().unwrap()), &emulator);
    assert!(emulator.faults().is_empty(), "{:?}", emulator.faults());
    assert!(emulator.misuse().is_empty(), "{:?}", emulator.misuse());
    assert!(emulator.leaks().is_empty(), "{:?}", emulator.leaks());
}

/// Returns `None` if the tests run on a GPU.
fn emulator(order: i64) -> Option<Emulator> {
    if on_gpu() {
        println!("SKIPPED: it needs an emulated GPU");
        return None;
    }
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::RaceCheck, 1);
    emulator.set(Setting::OrderSeed, order);
    Some(emulator)
}

/// Opens the first emulated GPU.
fn emulated_gpu() -> cuda::Result<Context> {
    Driver::open_first_of(&[Emulator::library().unwrap()])?.context(0)
}
