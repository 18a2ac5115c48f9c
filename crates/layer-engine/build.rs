//! Tells the crate whether the compiler knows AVX-512, which Rust does since 1.89 (the processor is asked at run time); and
//! with the feature `torch`, compiles the C++ half of `TorchEngine`.

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
