//! A program that may never end.

use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

/// How long `mpirun` has to end its processes when it is signalled to. It alone can: each is in a process group of its own.
const GRACE: Duration = Duration::from_secs(10);

/// Its output, once it has ended.
///
/// # Errors
/// Where it cannot be started, and where the limit passes; then it is ended.
pub(super) fn run(command: &mut Command, limit: Duration) -> anyhow::Result<Output> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let id = child.id().to_string();
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    if let Ok(output) = ended.recv_timeout(limit) {
        return output.context("its output");
    }
    for signal in ["-TERM", "-KILL"] {
        // A process that has ended since cannot be signalled, which is no error.
        let _ = Command::new("kill").args([signal, &id]).stderr(Stdio::null()).status();
        if ended.recv_timeout(GRACE).is_ok() {
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
    fn a_program_that_hangs_is_ended() {
        let start = Instant::now();
        let error = run(Command::new("sleep").arg("600"), Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("it was ended after"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(60));
        let output = run(Command::new("echo").arg("words"), Duration::from_secs(60)).unwrap();
        assert_eq!(output.stdout, b"words\n");
    }
}
