//! Calls counted and logged, errors injected, misuse taken down.

use super::Code;
use std::fmt::{Display, Write};

/// What happened since the last reset.
#[derive(Default)]
pub(crate) struct Report {
    calls: u64,
    failing: Option<(u64, Code)>,
    /// The kernel that is to fail, and after how many others of its name.
    failing_kernel: Option<(String, u64)>,
    injecting: bool,
    misuse: Vec<String>,
    faults: Vec<String>,
    log: Vec<String>,
}

impl Report {
    /// How many calls that can fail there were.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Makes the call number `call`, counted from 1 since the last reset, fail with `code`. None for 0.
    pub(crate) fn fail_call(&mut self, call: u64, code: Code) {
        self.failing = (call != 0).then_some((call, code));
    }

    /// Makes the kernel number `number` of this name, counted from 1 from now on, access memory that is none. None for 0.
    pub(crate) fn fail_kernel(&mut self, name: &str, number: u64) {
        self.failing_kernel = number.checked_sub(1).map(|others| (name.to_owned(), others));
    }

    /// Counts a kernel; whether it is the one that is to fail.
    pub(super) fn fails_kernel(&mut self, kernel: &str) -> bool {
        let Some((name, others)) = &mut self.failing_kernel else { return false };
        if name != kernel {
            return false;
        }
        let is_it = *others == 0;
        match others.checked_sub(1) {
            Some(left) => *others = left,
            None => self.failing_kernel = None,
        }
        is_it
    }

    /// Counts a call; the code with which it is to fail, if it is to.
    pub(super) fn count_call(&mut self) -> Option<Code> {
        self.calls += 1;
        let code = self.failing.filter(|(call, _)| *call == self.calls).map(|(_, code)| code);
        self.injecting = code.is_some();
        code
    }

    /// Whether the call that is being done was made to fail.
    pub(crate) fn is_injecting(&self) -> bool {
        self.injecting
    }

    pub(crate) fn misuse(&mut self, text: String) {
        self.misuse.push(text);
    }

    pub(super) fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    /// A line for each kernel that has failed: what it did, by which thread, at which line.
    pub(crate) fn faults_text(&self) -> String {
        lines(&self.faults)
    }

    pub(super) fn log(&mut self, call: &str, code: impl Display, injected: bool) {
        let mark = if injected { " (injected)" } else { "" };
        self.log.push(format!("{} {call}: {code}{mark}", self.calls));
    }

    /// A line for everything that a right caller would not have done.
    pub(crate) fn misuse_text(&self) -> String {
        lines(&self.misuse)
    }

    /// A line for each call: its number, its name, its result.
    pub(crate) fn log_text(&self) -> String {
        lines(&self.log)
    }
}

pub(super) fn lines(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        _ = writeln!(text, "{line}");
        text
    })
}
