//! What scripts of the tests set up, and take down.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Something that a script has set up. The script takes it down when this value ends, or this process.
pub(crate) struct Setup {
    process: Child,
    /// The script ends when this does.
    alive: Option<ChildStdin>,
}

impl Setup {
    /// Starts a script of `tests/`, which says `ready`, or why the machine forbids it. `None` where it does, which is said, too.
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

    /// The script's process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Has it taken down, and waits until it is.
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
