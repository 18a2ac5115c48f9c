//! Tells the crate whether the compiler knows AVX-512, which Rust does since 1.89. The processor is asked at run time.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(avx512)");
    println!("cargo::rerun-if-changed=build.rs");
    if rustversion::cfg!(since(1.89)) {
        println!("cargo::rustc-cfg=avx512");
    }
}
