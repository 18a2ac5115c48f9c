//! Tests of the kernels of `mux-bench --device cuda`. They need NVRTC, but no GPU.
//!
//! They are not unit tests, because NVRTC searches CUDA's driver and would find the emulated one
//! that unit tests open.

use cuda::{Error, Nvrtc};

#[test]
fn the_kernels_compile_for_old_and_new_cards() {
    let nvrtc = match Nvrtc::open() {
        Err(Error::Unavailable { reason, .. }) => return println!("SKIPPED: no NVRTC: {reason}"),
        opened => opened.unwrap(),
    };
    for architecture in [80, 90, 100] {
        let source = include_str!("../../src/mux/cuda/kernels.cu");
        let ptx = nvrtc.compile(source, &[&format!("--gpu-architecture=compute_{architecture}")]).unwrap();
        for name in ["mux_compute", "mux_exchange", "mux_nothing"] {
            assert!(ptx.contains(&format!(".entry {name}(")), "{name}");
        }
    }
}
