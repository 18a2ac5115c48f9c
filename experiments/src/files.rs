//! The files that experiments leave.

use std::path::{Path, PathBuf};

use deeppool::files::write_atomically;
use serde::Serialize;

/// Writes files of one name to a folder, by their extensions, each whole or not at all.
pub(crate) fn save(folder: &Path, name: &str, files: &[(&str, Vec<u8>)]) -> anyhow::Result<Vec<PathBuf>> {
    let save = |(extension, content): &(&str, Vec<u8>)| {
        let path = folder.join(name).with_extension(extension);
        write_atomically(&path, content)?;
        Ok(path)
    };
    files.iter().map(save).collect()
}

/// A line a row, below the names of its fields.
pub(crate) fn csv<R: Serialize>(rows: &[R]) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    Ok(writer.into_inner()?)
}

pub(crate) fn json<T: Serialize>(value: &T) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}
