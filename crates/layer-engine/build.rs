//! Sets `cfg(avx512)` if the compiler supports AVX-512 (Rust 1.89 or newer; the processor is
//! checked at run time). With feature `torch`, compiles the C++ part of `TorchEngine`.

#[cfg(feature = "torch")]
#[path = "build/libtorch.rs"]
mod libtorch;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(avx512)");
    println!("cargo::rerun-if-changed=build.rs");
    if rustversion::cfg!(since(1.89)) {
        println!("cargo::rustc-cfg=avx512");
    }
    #[cfg(feature = "torch")]
    if let Err(problem) = libtorch::build() {
        println!("cargo::error={problem}");
    }
}
