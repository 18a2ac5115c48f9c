//! All results of a command together, and the stream for everything else that it prints.

use std::fmt::Arguments;
use std::io::stdout;
use std::path::{Path, PathBuf};

use super::error::OutputError;
use super::target::Target;
use super::write::{check, write_all};

/// Path by which results refer to standard output.
pub const STDOUT: &str = "/dev/stdout";

/// Stream that a command prints to: standard output, or standard error if one of its results goes
/// to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Printer {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

impl Printer {
    /// Prints a line. A reader of standard output that closes it before the end, such as `head`, is
    /// no error.
    ///
    /// # Errors
    /// [`OutputError::Write`] if standard output cannot be written to.
    pub fn line(self, line: Arguments<'_>) -> Result<(), OutputError> {
        match self {
            Self::Stdout => {
                let written = write_all(&mut stdout().lock(), format!("{line}\n").as_bytes());
                written.map_err(|error| OutputError::Write { path: "standard output".into(), error })
            }
            Self::Stderr => {
                eprintln!("{line}");
                Ok(())
            }
        }
    }
}

/// Checks the paths of all results of a command before its work, and returns the stream that
/// everything else is printed to.
///
/// With `json` the command prints a JSON object on standard output, which no result may share.
///
/// # Errors
/// Those of [`check`], [`OutputError::Twice`] if two results are one file or both go to standard
/// output, and [`OutputError::BesideJson`] if a result goes to standard output beside the JSON
/// object.
pub fn check_all<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
    json: bool,
) -> Result<Printer, OutputError> {
    let mut seen = Vec::new();
    let mut printer = Printer::Stdout;
    for path in paths {
        let path = path.as_ref();
        check(path)?;
        let place = match Target::of(path)? {
            Target::Stdout if json => return Err(OutputError::BesideJson { path: path.into() }),
            Target::Stdout => {
                printer = Printer::Stderr;
                PathBuf::from(STDOUT)
            }
            // Several results may go to the same device or pipe.
            Target::Special => continue,
            Target::File(file) => file.resolved(),
        };
        if seen.contains(&place) {
            return Err(OutputError::Twice { path: path.into() });
        }
        seen.push(place);
    }
    Ok(printer)
}

/// Returns a clap value parser for the path of a result. It replaces `-` by [`STDOUT`].
#[cfg(feature = "clap")]
#[must_use]
pub fn argument() -> impl clap::builder::TypedValueParser<Value = PathBuf> {
    use clap::builder::{PathBufValueParser, TypedValueParser};

    let path = |path: PathBuf| if path == Path::new("-") { STDOUT.into() } else { path };
    PathBufValueParser::new().map(path)
}
