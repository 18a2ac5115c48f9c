//! Tests that train on emulated GPUs. Each runs in its own process, whose environment requests
//! them.

use std::process::Command;

use cuda_emulator::{Emulator, Setting};
use tempfile::TempDir;

/// Variable that is set in the process of such a test.
const CHILD: &str = "DEEPPOOL_TEST_ON_EMULATED_GPUS";

/// Runs the test called `name` in another process with the given number of emulated GPUs.
pub(crate) fn on_emulated_gpus(name: &str, gpus: usize, test: impl FnOnce(&Emulator)) {
    if std::env::var_os(CHILD).is_some() {
        let emulator = Emulator::new().unwrap();
        emulator.set(Setting::Devices, i64::try_from(gpus).unwrap());
        return test(&emulator);
    }
    let this = std::env::current_exe().unwrap();
    // Choices of kernels are not shared with other runs.
    let caches = TempDir::new().unwrap();
    let mut child = Command::new(this);
    child
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .env("DEEPPOOL_EMULATED_GPUS", gpus.to_string())
        .env("XDG_CACHE_HOME", caches.path());
    let ended = child.output().unwrap();
    let (printed, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    println!("{printed}");
    assert!(ended.status.success() && printed.contains("1 passed"), "{printed}\n{errors}");
}
