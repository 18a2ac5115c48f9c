//! Rows of earlier invocations of this experiment, on this machine or others.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::row::ValidateRow;

/// Reads the rows of CSV files that this experiment wrote. The rows of each file get the number of
/// the file, from 1, as number of their invocation.
///
/// # Errors
/// If a file cannot be read, or has no rows of this experiment.
pub(super) fn rows(paths: &[PathBuf]) -> anyhow::Result<Vec<ValidateRow>> {
    let mut rows = Vec::new();
    for (run, path) in (1..).zip(paths) {
        rows.extend(rows_of(path)?.into_iter().map(|row| ValidateRow { run, ..row }));
    }
    Ok(rows)
}

fn rows_of(path: &Path) -> anyhow::Result<Vec<ValidateRow>> {
    let name = || path.display().to_string();
    let content = command_line::files::read(path).with_context(name)?;
    let rows: Result<Vec<ValidateRow>, csv::Error> =
        csv::Reader::from_reader(&content[..]).deserialize().collect();
    let rows = rows.context("these are not rows of `experiments validate`").with_context(name)?;
    if rows.is_empty() {
        bail!("{}: the file has no rows", name());
    }
    Ok(rows)
}
