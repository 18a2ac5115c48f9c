//! Child processes with a time limit.

use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

/// Time after a signal in which `mpirun` may end its processes. Only `mpirun` can end them, because
/// each is in another process group.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a program and returns its output.
///
/// # Errors
/// If the program cannot be started, or if it exceeds the limit; then it is terminated. A program
/// that ends with an exit code other than 0 is no error.
pub(super) fn run(command: &mut Command, limit: Duration) -> anyhow::Result<Output> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let id = child.id().to_string();
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    if let Ok(output) = ended.recv_timeout(limit) {
        return output.context("its output");
    }
    for signal in ["-TERM", "-KILL"] {
        // Signalling a process that has ended meanwhile fails, which is no error.
        let _ = Command::new("kill").args([signal, &id]).stderr(Stdio::null()).status();
        if ended.recv_timeout(SIGNAL_TIMEOUT).is_ok() {
            break;
        }
    }
    bail!("it was ended after {} s", limit.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_hanging_program_is_ended() {
        let start = Instant::now();
        let error = run(Command::new("sleep").arg("600"), Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("it was ended after"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(60));
        let output = run(Command::new("echo").arg("words"), Duration::from_secs(60)).unwrap();
        assert_eq!(output.stdout, b"words\n");
    }
}
