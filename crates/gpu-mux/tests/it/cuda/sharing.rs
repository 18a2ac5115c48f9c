//! A foreground and a background through the crate's one driver loop.

use fake_cuda::FakeCuda;

use super::library;
use super::scenario::whole;

#[test]
fn everything_that_the_driver_does_is_right_use_of_cuda() {
    let fake = FakeCuda::new().unwrap();
    whole(&library()).unwrap();
    super::nothing_amiss(&fake);
    let background = fake.kernels().into_iter().filter(|kernel| kernel.name == "c_30us");
    assert!(background.count() >= 2);
}
