//! CSV files of published measurements: named columns, and lines that begin with `#` are comments.

use std::fmt::Display;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, anyhow, bail};
use csv::{ReaderBuilder, StringRecord};
use flate2::read::GzDecoder;

/// Reader of a CSV file, one line at a time. A record is one line. Errors are one line that names
/// the file, the line and the column.
pub(super) struct Sheet {
    /// Path of the file, for errors.
    file: String,
    /// Lines that are not read yet, the next one last.
    lines: Vec<Vec<u8>>,
    /// Number of the current line of the file, from 1.
    line: usize,
    header: StringRecord,
    record: StringRecord,
}

impl Sheet {
    /// Opens the file `name` of a folder, compressed if it ends in `.gz`, and reads its header.
    /// Returns `None` if it does not exist.
    ///
    /// # Errors
    /// If the file or its header cannot be read, or if the header lacks one of `columns`.
    pub(super) fn open(folder: &Path, name: &str, columns: &[&str]) -> anyhow::Result<Option<Self>> {
        let path = folder.join(name);
        let file = path.display().to_string();
        let mut text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context(file),
        };
        if path.extension().is_some_and(|extension| extension == "gz") {
            let compressed = std::mem::take(&mut text);
            GzDecoder::new(&compressed[..]).read_to_end(&mut text).with_context(|| file.clone())?;
        }
        let lines = text.split(|&byte| byte == b'\n').rev().map(<[u8]>::to_vec).collect();
        let (header, record) = (StringRecord::new(), StringRecord::new());
        let mut sheet = Self { file, lines, line: 0, header, record };
        if !sheet.next()? {
            bail!("{}: line 1, column 1: it has no header", sheet.file);
        }
        sheet.header = std::mem::take(&mut sheet.record);
        let missing = columns.iter().find(|&column| sheet.place(column).is_none());
        if let Some(missing) = missing {
            let names = sheet.header.iter().collect::<Vec<_>>().join(",");
            bail!(
                "{}: line {}, column {} (`{missing}`): no such column in the header, which is `{names}`",
                sheet.file,
                sheet.line,
                sheet.header.len() + 1
            );
        }
        Ok(Some(sheet))
    }

    /// Reads the next line that is neither empty nor a comment. Returns `false` at the end of the
    /// file.
    ///
    /// # Errors
    /// If the line is no valid text.
    pub(super) fn next(&mut self) -> anyhow::Result<bool> {
        while let Some(line) = self.lines.pop() {
            self.line += 1;
            if line.starts_with(b"#") || line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let mut reader = ReaderBuilder::new().has_headers(false).from_reader(&line[..]);
            let broken = |_| anyhow!("{}: line {}, column 1: it is no UTF-8 text", self.file, self.line);
            reader.read_record(&mut self.record).map_err(broken)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Returns the number of the current line of the file, from 1.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// Returns the text of a column of the current line, without surrounding spaces.
    ///
    /// # Errors
    /// If the line ends before the column, or if there is no such column.
    pub(super) fn text(&self, column: &str) -> anyhow::Result<&str> {
        let text = self.place(column).and_then(|place| self.record.get(place));
        text.map(str::trim).ok_or_else(|| self.bad(column, "the line ends before it"))
    }

    /// Parses the whole number from 1 in a column of the current line.
    ///
    /// # Errors
    /// As [`text`](Self::text), and if the text is no such number.
    pub(super) fn count(&self, column: &str) -> anyhow::Result<usize> {
        self.parsed(column, "a whole number from 1", |count| *count > 0)
    }

    /// As [`positive`](Self::positive), or `None` for an empty text.
    ///
    /// # Errors
    /// Those of [`positive`](Self::positive).
    pub(super) fn optional_positive(&self, column: &str) -> anyhow::Result<Option<f64>> {
        if self.text(column)?.is_empty() { Ok(None) } else { self.positive(column).map(Some) }
    }

    /// As [`count`](Self::count), or `None` for an empty text.
    ///
    /// # Errors
    /// Those of [`count`](Self::count).
    pub(super) fn optional_count(&self, column: &str) -> anyhow::Result<Option<usize>> {
        if self.text(column)?.is_empty() { Ok(None) } else { self.count(column).map(Some) }
    }

    /// Parses the number above 0 in a column of the current line.
    ///
    /// # Errors
    /// As [`text`](Self::text), and if the text is no such number.
    pub(super) fn positive(&self, column: &str) -> anyhow::Result<f64> {
        self.parsed(column, "a number above 0", |number: &f64| *number > 0.0 && number.is_finite())
    }

    /// Creates the error for a column of the current line.
    pub(super) fn bad(&self, column: &str, reason: impl Display) -> anyhow::Error {
        let (file, line) = (&self.file, self.line());
        let place = self.place(column).map_or(0, |place| place + 1);
        anyhow!("{file}: line {line}, column {place} (`{column}`): {reason}")
    }

    fn parsed<T: FromStr>(
        &self,
        column: &str,
        expected: &str,
        is_good: impl Fn(&T) -> bool,
    ) -> anyhow::Result<T> {
        let text = self.text(column)?;
        let number = text.parse().ok().filter(is_good);
        number.ok_or_else(|| self.bad(column, format!("`{text}`, expected {expected}")))
    }

    fn place(&self, column: &str) -> Option<usize> {
        self.header.iter().position(|name| name.trim() == column)
    }
}
