//! Log of calls, injected errors and reports of misuse. A misuse is a violation of the rules of the
//! API, which a correct program would not commit; an injected error is one that a test has asked
//! for.

use super::Code;
use std::fmt::{Display, Write};

/// Log and reports since the last reset.
#[derive(Default)]
pub(crate) struct Report {
    calls: u64,
    failing_call: Option<(u64, Code)>,
    /// Name of the kernel that is to fail, and the number of its launches before the failing one.
    failing_kernel: Option<(String, u64)>,
    injecting: bool,
    misuse: Vec<String>,
    faults: Vec<String>,
    log: Vec<String>,
}

impl Report {
    /// Returns the number of calls since the last reset. Functions that only name errors are not
    /// counted.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Makes call number `call`, counted from 1 since the last reset, fail with `code`. A number of
    /// 0 removes the injection.
    pub(crate) fn fail_call(&mut self, call: u64, code: Code) {
        self.failing_call = (call != 0).then_some((call, code));
    }

    /// Makes the `number`-th launch of the named kernel, counted from 1 from now on, fail. A number
    /// of 0 removes the injection.
    pub(crate) fn fail_kernel(&mut self, name: &str, number: u64) {
        self.failing_kernel = number.checked_sub(1).map(|others| (name.to_owned(), others));
    }

    /// Counts the execution of a kernel. Returns whether its failure is injected.
    pub(super) fn count_kernel(&mut self, kernel: &str) -> bool {
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

    /// Counts a call. Returns the code of its injected failure, or `None` to execute it.
    pub(super) fn count_call(&mut self) -> Option<Code> {
        self.calls += 1;
        let code = self.failing_call.filter(|(call, _)| *call == self.calls).map(|(_, code)| code);
        self.injecting = code.is_some();
        code
    }

    /// Returns whether the failure of the current call is injected.
    pub(crate) fn is_injecting(&self) -> bool {
        self.injecting
    }

    /// Adds a description of a misuse to the report.
    pub(crate) fn misuse(&mut self, text: String) {
        self.misuse.push(text);
    }

    /// Adds a description of the fault of a kernel to the report.
    pub(super) fn kernel_fault(&mut self, text: String) {
        self.faults.push(text);
    }

    /// Returns one line for each kernel that failed: the device, the access, the thread and the PTX
    /// line.
    pub(crate) fn faults_text(&self) -> String {
        lines(&self.faults)
    }

    /// Adds the result of the current call to the log. `injected` tells whether its failure was
    /// injected.
    pub(super) fn log(&mut self, call: &str, code: impl Display, injected: bool) {
        let mark = if injected { " (injected)" } else { "" };
        self.log.push(format!("{} {call}: {code}{mark}", self.calls));
    }

    /// Returns one line for each misuse.
    pub(crate) fn misuse_text(&self) -> String {
        lines(&self.misuse)
    }

    /// Returns one line for each call: its number, name and result.
    pub(crate) fn log_text(&self) -> String {
        lines(&self.log)
    }
}

/// Joins lines, each with a line end.
pub(super) fn lines(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        _ = writeln!(text, "{line}");
        text
    })
}
