//! Times every kernel of a network's training iteration on a GPU.

use std::process::ExitCode;

#[cfg(feature = "cuda")]
fn main() -> ExitCode {
    benches::ops::main()
}

#[cfg(not(feature = "cuda"))]
fn main() -> ExitCode {
    eprintln!(
        "error: this op-bench was built without CUDA: build it with `cargo build --release -p benches \
         --features cuda`"
    );
    ExitCode::from(2)
}
