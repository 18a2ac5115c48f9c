//! Measures what a background job costs a foreground job, and what it gets, by policy.

use std::process::ExitCode;

fn main() -> ExitCode {
    benches::mux::main()
}
