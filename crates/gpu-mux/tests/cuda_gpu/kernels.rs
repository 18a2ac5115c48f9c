//! The kernels of `mux-bench --device cuda`, where there is NVRTC, which needs no card. (It looks for CUDA's driver too.)

use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts, sys};

#[test]
fn the_kernels_compile_for_old_and_new_cards() {
    // SAFETY: it opens NVRTC's library, if there is one, and calls nothing in it.
    if !unsafe { sys::is_culib_present() } {
        println!("SKIPPED: no NVRTC");
        return;
    }
    for architecture in [80, 90, 100] {
        let options = vec![format!("--gpu-architecture=compute_{architecture}")];
        let options = CompileOptions { options, ..CompileOptions::default() };
        let source = include_str!("../../src/bin/mux-bench/cuda/kernels.cu");
        let ptx = compile_ptx_with_opts(source, options).unwrap().to_src();
        for name in ["mux_compute", "mux_exchange", "mux_nothing"] {
            assert!(ptx.contains(&format!(".entry {name}(")), "{name}");
        }
    }
}
