//! All results of one command, and what it prints beside them.

use std::fmt::Arguments;
use std::io::stdout;
use std::path::{Path, PathBuf};

use crate::target::Target;
use crate::{OutputError, check, reader_may_leave, write_all};

/// Where a command prints: standard output, or standard error where one of its results goes to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Printer {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

impl Printer {
    /// Prints a line. A reader of standard output that goes away before the end, such as `head`, is no error: it has read what it
    /// wanted.
    ///
    /// # Errors
    /// [`OutputError::Write`] when standard output cannot be written to.
    pub fn line(self, line: Arguments<'_>) -> Result<(), OutputError> {
        match self {
            Self::Stdout => {
                let written = write_all(&mut stdout().lock(), format!("{line}\n").as_bytes());
                let failed = |error| OutputError::Write { path: "standard output".into(), error };
                reader_may_leave(written).map_err(failed)
            }
            Self::Stderr => {
                eprintln!("{line}");
                Ok(())
            }
        }
    }
}

/// Checks where all results of a command are to go, before the work, and says where it prints what else it has to say. With
/// `json` it is a JSON object that it prints, which belongs on standard output and mixes with nothing.
///
/// # Errors
/// Those of [`check`]; [`OutputError::Twice`] when two results are one file or both go to standard output, and
/// [`OutputError::BesideJson`] when one goes to standard output where the JSON object is.
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
                PathBuf::from(crate::STDOUT)
            }
            // What others write to as well.
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

/// A parser for clap of an option that says where a result goes, `-` being standard output.
#[cfg(feature = "clap")]
#[must_use]
pub fn argument() -> impl clap::builder::TypedValueParser<Value = PathBuf> {
    use clap::builder::{PathBufValueParser, TypedValueParser};

    let path = |path: PathBuf| if path == Path::new("-") { crate::STDOUT.into() } else { path };
    PathBufValueParser::new().map(path)
}
