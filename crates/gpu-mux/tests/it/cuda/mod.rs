//! The CUDA driver, unmodified, against a fake driver (`fake-cuda`): it checks every call, runs kernels in
//! virtual time and says what was left behind.

mod capabilities;
mod device;
mod failures;
mod faults;
mod gate;
mod graphs;
mod kernels;
mod same_figures;
mod scenario;
mod sharing;
mod tasklets;

use fake_cuda::FakeCuda;
use gpu_mux::cuda::{Context, CudaLibrary, Result};

/// Runs a test on a new fake device, and then looks whether it was misused or something was left behind.
fn on_fake_device(test: impl FnOnce(&FakeCuda, &Context) -> Result<()>) {
    let fake = FakeCuda::new().unwrap();
    let context = Context::open(&library(), 0).unwrap();
    let tested = test(&fake, &context);
    tested.and(context.close()).unwrap();
    nothing_amiss(&fake);
}

/// The library that the fake driver is.
fn library() -> CudaLibrary {
    CudaLibrary::open_first_of(&[FakeCuda::library().unwrap()]).unwrap()
}

fn nothing_amiss(fake: &FakeCuda) {
    assert_eq!(fake.misuse(), [""; 0], "misuse, with these calls: {:#?}", fake.log());
    assert_eq!(fake.leaks(), [""; 0], "leaks, with these calls: {:#?}", fake.log());
}
