//! The engine on CUDA, beside the CPU engine: on an emulated GPU, or, with `CUDA_ENGINE_ON_GPU=1`, on the machine's first one.

mod layers;
mod networks;
mod queues;
mod sources;
mod steps;

use cuda_emulator::{Emulator, Setting};
use layer_engine::CudaEngine;

/// Seeds of the order of warps and blocks: results may not depend on it.
const ORDERS: [i64; 3] = [0, 7, 11];

/// How many cases a property is tried on, times this.
fn more() -> u32 {
    std::env::var("CUDA_ENGINE_CASES").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Runs a test on the machine's first GPU if that is asked for, or else on an emulated one, as [`on_emulator`] does.
fn on_device(order: i64, test: impl FnOnce(&CudaEngine)) {
    if on_gpu() { test(&CudaEngine::new(0).unwrap()) } else { on_emulator(order, |engine, _| test(engine)) }
}

fn on_gpu() -> bool {
    std::env::var_os("CUDA_ENGINE_ON_GPU").is_some_and(|value| value == "1")
}

/// Runs a test on an emulated GPU that looks for races, with warps and blocks in an order. Nothing may be left over afterwards, and
/// nothing may have been misused.
fn on_emulator(order: i64, test: impl FnOnce(&CudaEngine, &Emulator)) {
    let Some(emulator) = emulator(order) else { return };
    test(&CudaEngine::new(0).unwrap(), &emulator);
    assert!(emulator.faults().is_empty(), "{:?}", emulator.faults());
    assert!(emulator.misuse().is_empty(), "{:?}", emulator.misuse());
    assert!(emulator.leaks().is_empty(), "{:?}", emulator.leaks());
}

/// None where the engine would open this machine's own driver, or is to.
fn emulator(order: i64) -> Option<Emulator> {
    #![allow(unsafe_code)]
    if on_gpu() {
        println!("SKIPPED: it needs an emulated GPU");
        return None;
    }
    // SAFETY: loading a driver does nothing yet.
    if unsafe { libloading::Library::new("libcuda.so") }.is_ok() {
        println!("SKIPPED: cudarc would open this machine's own libcuda.so");
        return None;
    }
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::RaceCheck, 1);
    emulator.set(Setting::OrderSeed, order);
    Some(emulator)
}
