//! CSV files with named columns, in which lines that begin with `#` are comments. Columns are given
//! by their indices among the requested ones. Errors are [`Error::BadTrace`] with the line and
//! column.

use std::fmt::Display;
use std::io::Read;
use std::str::FromStr;

use csv::{Reader, ReaderBuilder, StringRecord};

use crate::Error;

/// Reader of a CSV file that gives access to the requested columns of one line at a time.
pub(super) struct Sheet<R> {
    file: String,
    reader: Reader<R>,
    /// Name and index of each requested column.
    columns: Vec<(String, usize)>,
    record: StringRecord,
}

impl<R: Read> Sheet<R> {
    /// Opens a CSV that has each of the requested `columns`, under one of the names listed for it.
    /// `file` is the name in errors.
    ///
    /// # Errors
    /// `Error::BadTrace` if the header cannot be read or lacks a requested column.
    pub(super) fn open(file: &str, input: R, columns: &[&[&str]]) -> Result<Self, Error> {
        let mut reader = ReaderBuilder::new().comment(Some(b'#')).flexible(true).from_reader(input);
        let header = reader.headers().map_err(|error| broken(file, &error))?.clone();
        let line = reader.headers().ok().and_then(StringRecord::position).map_or(1, csv::Position::line);
        let find = |names: &&[&str]| {
            let at = header.iter().position(|name| names.contains(&name.trim()));
            at.map(|at| (header[at].trim().to_owned(), at)).ok_or_else(|| Error::BadTrace {
                file: file.to_owned(),
                line,
                column: header.len() + 1,
                name: names.join("` or `"),
                reason: format!(
                    "no such column in the header, which is `{}`",
                    header.iter().collect::<Vec<_>>().join(",")
                ),
            })
        };
        let columns = columns.iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self { file: file.to_owned(), reader, columns, record: StringRecord::new() })
    }

    /// Reads the next line. Returns `false` at the end of the file.
    ///
    /// # Errors
    /// `Error::BadTrace` if the line cannot be read.
    pub(super) fn next(&mut self) -> Result<bool, Error> {
        self.reader.read_record(&mut self.record).map_err(|error| broken(&self.file, &error))
    }

    /// Returns the text of a column of the current line, without surrounding spaces.
    ///
    /// # Errors
    /// `Error::BadTrace` if the line ends before the column.
    pub(super) fn text(&self, column: usize) -> Result<&str, Error> {
        let (_, at) = self.columns[column];
        self.record.get(at).map(str::trim).ok_or_else(|| self.bad(column, "the line ends before it"))
    }

    /// Parses the number in a column of the current line.
    ///
    /// # Errors
    /// `Error::BadTrace` if the line ends before the column, the text is no number, or `is_good` is
    /// false for the number. `expected` describes the valid numbers in the message.
    pub(super) fn number<T: FromStr>(
        &self,
        column: usize,
        expected: &str,
        is_good: impl Fn(&T) -> bool,
    ) -> Result<T, Error> {
        let text = self.text(column)?;
        let number = text.parse::<T>().ok().filter(is_good);
        number.ok_or_else(|| self.bad(column, format!("`{text}`, expected {expected}")))
    }

    /// Creates the error for a column of the current line, with its file, line and column.
    pub(super) fn bad(&self, column: usize, reason: impl Display) -> Error {
        let (name, at) = &self.columns[column];
        Error::BadTrace {
            file: self.file.clone(),
            line: self.record.position().map_or(0, csv::Position::line),
            column: at + 1,
            name: name.clone(),
            reason: reason.to_string(),
        }
    }
}

/// Converts an error of the CSV reader.
fn broken(file: &str, error: &csv::Error) -> Error {
    let line = error.position().map_or(0, csv::Position::line);
    Error::BadTrace { file: file.to_owned(), line, column: 1, name: "line".into(), reason: error.to_string() }
}
