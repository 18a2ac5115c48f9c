//! Tests of the kernels of `mux-bench --device cuda`. They need NVRTC, but no GPU.
//!
//! They are not unit tests, because NVRTC searches CUDA's driver and would find the emulated one
//! that unit tests open.
#![allow(unsafe_code)]

use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts, sys};

#[test]
fn the_kernels_compile_for_old_and_new_cards() {
    // SAFETY: opens NVRTC's library if it is present, and calls no function of it.
    if !unsafe { sys::is_culib_present() } {
        println!("SKIPPED: no NVRTC");
        return;
    }
    for architecture in [80, 90, 100] {
        let options = vec![format!("--gpu-architecture=compute_{architecture}")];
        let options = CompileOptions { options, ..CompileOptions::default() };
        let source = include_str!("../../src/mux/cuda/kernels.cu");
        let ptx = compile_ptx_with_opts(source, options).unwrap().to_src();
        for name in ["mux_compute", "mux_exchange", "mux_nothing"] {
            assert!(ptx.contains(&format!(".entry {name}(")), "{name}");
        }
    }
}
