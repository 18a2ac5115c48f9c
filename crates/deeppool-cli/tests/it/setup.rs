//! Scripts that set up clusters and hosts for tests.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Running script, which takes down what it has set up when this value is dropped or this process
/// ends.
pub(crate) struct Setup {
    process: Child,
    /// Standard input of the script, which ends when it is closed.
    alive: Option<ChildStdin>,
}

impl Setup {
    /// Starts a script in `tests/`, which prints `ready`, or the reason why the machine does not
    /// allow it. Prints the reason and returns `None` then.
    pub(crate) fn start(what: &str, script: &str, arguments: &[&Path]) -> Option<Self> {
        let mut process = Command::new(format!("{}/tests/{script}", env!("CARGO_MANIFEST_DIR")))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said.trim() != "ready" {
            let status = process.wait().unwrap();
            assert_eq!(status.code(), Some(77), "{script} does not start: {said}");
            println!("SKIPPED: {what}: {}", said.trim());
            return None;
        }
        let alive = process.stdin.take();
        Some(Self { process, alive })
    }

    /// Returns the process number of the script.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends the script, and waits for it.
    pub(crate) fn end(&mut self) {
        drop(self.alive.take());
        self.process.wait().unwrap();
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.end();
    }
}
