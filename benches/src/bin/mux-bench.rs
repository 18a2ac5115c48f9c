//! Measures a foreground and a background job on one device, by policy.

use std::process::ExitCode;

fn main() -> ExitCode {
    benches::mux::main()
}
