//! Measures collectives in the style of the OSU micro-benchmarks.

use std::process::ExitCode;

fn main() -> ExitCode {
    benches::coll::main()
}
