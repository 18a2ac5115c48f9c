//! What an experiment leaves: its files, and what it prints.

use std::path::{Path, PathBuf};

use deeppool::files::write_atomically;
use serde::Serialize;

/// What was found. As JSON, a document of the format `deeppool/report/v1`.
pub(crate) trait Outcome: Serialize + Sized {
    /// What the experiment is called: the name of its files.
    fn name(&self) -> &'static str;

    /// For people.
    fn text(&self) -> String;

    /// A line a row, below the names of its fields.
    fn csv(&self) -> anyhow::Result<Vec<u8>>;

    /// Its figure, if it has one.
    fn svg(&self) -> anyhow::Result<Option<String>> {
        Ok(None)
    }

    fn to_json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Writes its files to a folder, each whole or not at all, and gives its text, which says which they are.
    fn save(&self, folder: &Path) -> anyhow::Result<String> {
        let mut files = vec![("csv", self.csv()?)];
        files.extend(self.svg()?.map(|svg| ("svg", svg.into_bytes())));
        files.push(("json", self.to_json()?.into_bytes()));
        let save = |(extension, content): (&str, Vec<u8>)| -> anyhow::Result<PathBuf> {
            let path = folder.join(self.name()).with_extension(extension);
            write_atomically(&path, &content)?;
            Ok(path)
        };
        let files = files.into_iter().map(save).collect::<anyhow::Result<Vec<PathBuf>>>()?;
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        Ok(format!("{}\nwrote {}\n", self.text(), names.join(", ")))
    }

    /// Writes its files to a folder, and gives what is to be printed: its text, or its JSON.
    fn saved(&self, folder: &Path, json: bool) -> anyhow::Result<String> {
        let text = self.save(folder)?;
        if json { self.to_json() } else { Ok(text) }
    }
}

/// Rows as CSV with a header; what has no meaning in a row is empty.
pub(crate) fn csv<R: Serialize>(rows: impl IntoIterator<Item = R>) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    Ok(writer.into_inner()?)
}
