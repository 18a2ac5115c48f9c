//! The committed PTX is compiled from its source.

use std::path::Path;
use std::process::Command;

#[test]
fn ptx_matches_its_source() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda/kernels/compile.py");
    if !script.is_file() {
        println!("SKIPPED: compiling the CUDA engine's kernels again: {} is not here", script.display());
        return;
    }
    let python = std::env::var("NVRTC_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    match Command::new(&python).arg(&script).arg("--check").output() {
        Ok(output) if output.status.code() == Some(3) => {
            println!("SKIPPED: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("SKIPPED: {python}: {error}"),
    }
}
