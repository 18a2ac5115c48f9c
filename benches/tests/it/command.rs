//! Runs of a command.

use std::process::{Command, Output};

/// One of the commands.
#[derive(Clone, Copy)]
pub(crate) struct Bench(pub(crate) &'static str);

impl Bench {
    pub(crate) fn command(self) -> Command {
        Command::new(self.0)
    }

    pub(crate) fn output(self, arguments: &str) -> Output {
        self.command().args(arguments.split_whitespace()).output().unwrap()
    }

    /// Runs the command and returns its output. Asserts success and an empty standard error,
    /// because there is no terminal.
    #[track_caller]
    pub(crate) fn succeed(self, arguments: &str) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments}: {}", text(&output.stderr));
        assert!(output.stderr.is_empty(), "{arguments}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Returns standard output of a command that succeeds with one warning on standard error, which
    /// begins with `expected`.
    #[track_caller]
    pub(crate) fn succeed_with_warning(self, expected: &str, arguments: &str) -> String {
        let output = self.output(arguments);
        let message = text(&output.stderr);
        assert!(output.status.success(), "{arguments}: {message}");
        assert!(message.starts_with(&format!("warning: {expected}")), "{arguments}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{arguments}: {message}");
        text(&output.stdout)
    }

    /// Asserts that the command ends with exit code 2 and one line that contains `expected`.
    #[track_caller]
    pub(crate) fn refused(self, arguments: &str, expected: &str) {
        let output = self.output(arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
        assert!(message.contains(expected), "{arguments}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{arguments}: {message}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
