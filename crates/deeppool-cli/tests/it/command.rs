//! Calls of the `deeppool` command in a folder, with arguments separated by spaces.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deeppool"));
    command.current_dir(folder).args(arguments.split_whitespace());
    command
}

pub(crate) fn deeppool(folder: &Path, arguments: &str) -> Output {
    command(folder, arguments).output().unwrap()
}

/// Returns whether a line on standard error counts samples of an epoch that fill no batch, or says
/// which options of training are changed on this machine.
pub(crate) fn is_of_run(line: &str) -> bool {
    ["each epoch leaves out", "each round leaves out", "the ranks share", "left out --policy"]
        .iter()
        .any(|warning| line.strip_prefix("warning: ").is_some_and(|line| line.starts_with(warning)))
}

/// Returns standard output of a call that must succeed without messages on standard error, except
/// that a resumed run may name the settings that differ, and training may say what it leaves out.
pub(crate) fn succeed(folder: &Path, arguments: &str) -> String {
    let output = deeppool(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_difference =
        |line: &str| arguments.contains("--resume") && line.starts_with("resumed with other settings");
    let is_expected = |line: &str| is_difference(line) || is_of_run(line);
    assert!(output.status.success() && errors.lines().all(is_expected), "{arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns standard output and the warnings of a call that must succeed.
pub(crate) fn warned(folder: &Path, arguments: &str) -> (String, Vec<String>) {
    let output = deeppool(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    let warnings: Option<Vec<&str>> = errors.lines().map(|line| line.strip_prefix("warning: ")).collect();
    assert!(output.status.success() && warnings.is_some(), "{arguments}: {errors}");
    let warnings = warnings.unwrap_or_default().into_iter().map(str::to_owned).collect();
    (String::from_utf8(output.stdout).unwrap(), warnings)
}

/// Returns standard output of a measurement, which may print a warning that it was disturbed.
pub(crate) fn measure(folder: &Path, arguments: &str) -> String {
    let output = deeppool(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_noise = |line: &str| line.starts_with("warning: the profile was disturbed");
    assert!(output.status.success() && errors.lines().all(is_noise), "{arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn json(folder: &Path, arguments: &str) -> Value {
    serde_json::from_str(&succeed(folder, arguments)).unwrap()
}

pub(crate) fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Checks that a call fails with exit code 2 and one line on standard error that contains
/// `expected`, without output or changed files. Returns the line.
pub(crate) fn refused(folder: &Path, arguments: &str, expected: &str) -> String {
    let before = files(folder);
    let output = deeppool(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments}: {errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{arguments}: {errors}");
    assert!(errors.contains(expected), "{arguments}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments}");
    assert_eq!(files(folder), before, "{arguments}");
    errors
}

/// Returns the newest complete checkpoint.
pub(crate) fn newest_checkpoint(checkpoints: &Path) -> Option<String> {
    let names = if checkpoints.is_dir() { files(checkpoints) } else { Vec::new() };
    let is_complete = |name: &String| name.starts_with("iteration-") && !name.ends_with("unfinished");
    names.into_iter().filter(is_complete).max()
}

/// Returns the losses in a report of `train --json`.
pub(crate) fn losses(report: &Value) -> Vec<f64> {
    report["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect()
}
