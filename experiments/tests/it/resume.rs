//! Resuming a command that was stopped.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use command_line::files::LockedFile;

const FILE: &str = ".sensitivity.unfinished";

fn command(out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_experiments"));
    command.args(["sensitivity", "--model", "resnet-18", "--batch", "32", "--out"]).arg(out);
    command
}

/// Returns the number of complete results in the journal.
fn kept(out: &Path) -> usize {
    let text = std::fs::read_to_string(out.join(FILE)).unwrap_or_default();
    text.lines().filter(|line| line.starts_with("{\"key\"") && line.ends_with('}')).count()
}

/// Kills the command when its journal has a few results.
fn kill_after_some(out: &Path) {
    let mut child = command(out).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while kept(out) < 3 && child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(120), "no results");
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    child.wait().unwrap();
}

fn report(out: &Path) -> Vec<u8> {
    std::fs::read(out.join("sensitivity.json")).unwrap()
}

#[test]
fn resumed_command_writes_the_same_bytes() {
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let output = command(whole.path()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    kill_after_some(killed.path());
    let results = kept(killed.path());
    assert!(results >= 3 && !killed.path().join("sensitivity.json").exists(), "killed too late");
    // An incomplete line is no result.
    let path = killed.path().join(FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.trim_end().rsplit_once(']').unwrap().0).unwrap();
    let output = command(killed.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with(&format!("resuming with {} results", results - 1)), "{stderr}");
    assert_eq!(report(whole.path()), report(killed.path()));
    assert!(!path.exists(), "the journal is removed");
}

#[test]
fn other_command_starts_from_scratch() {
    let killed = tempfile::tempdir().unwrap();
    kill_after_some(killed.path());
    let discarded = format!(".unfinished: discarded {} results that another command", kept(killed.path()));
    let output = command(killed.path()).args(["--gpus", "4"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.starts_with("warning: ") && stderr.contains(&discarded), "{stderr}");
    let report: serde_json::Value = serde_json::from_slice(&report(killed.path())).unwrap();
    assert_eq!(report["gpus"], 4);
}

#[test]
fn one_run_at_a_time_writes_to_a_folder() {
    let out = tempfile::tempdir().unwrap();
    let held = LockedFile::open(out.path().join(FILE)).unwrap();
    let output = command(out.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains(".unfinished: another run is writing this file"), "{stderr}");
    held.remove().unwrap();
    drop(held);
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}
