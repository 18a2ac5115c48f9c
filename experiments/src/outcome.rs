//! What an experiment leaves: its files, and what it prints.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::canvas::Figure;
#[cfg(feature = "pdf")]
use crate::pdf::pdf;
use crate::style::Style;

/// What was found.
pub(crate) trait Outcome {
    /// What was compared, for people.
    fn title(&self) -> String;

    /// For people: what was asked, the numbers, and what they come to.
    fn text(&self) -> String;

    /// What the numbers come to, for people; [`text`](Self::text) has it, too.
    fn findings(&self) -> String;

    /// What the numbers are from, for people: the first line is enough for who reads no further.
    fn provenance(&self) -> Vec<String>;

    /// Whether a machine was timed: all else is simulated.
    fn is_measured(&self) -> bool {
        false
    }

    /// A line a row, below the names of its fields.
    fn csv(&self) -> anyhow::Result<Vec<u8>>;

    /// Its figures, if it has any.
    fn figures(&self, _: Style) -> anyhow::Result<Vec<Figure>> {
        Ok(Vec::new())
    }

    /// A JSON document of the format `deeppool/report/v1`.
    fn to_json(&self) -> anyhow::Result<String>;
}

/// Note on the files of style `paper` of a program that was built without feature `pdf`.
const NO_PDF: &str = "no PDF: that needs `cargo run --release -p experiments --features pdf -- ...`\n";

/// Writes the files of what was found to a folder, each whole or not at all, and gives its text, which says which they are. Their names
/// begin with `stem`.
pub(crate) fn save(outcome: &dyn Outcome, stem: &str, folder: &Path, style: Style) -> anyhow::Result<String> {
    let mut files = vec![(format!("{stem}.csv"), outcome.csv()?)];
    for figure in outcome.figures(style)? {
        let stem = figure.stem(stem);
        #[cfg(feature = "pdf")]
        if style == Style::Paper {
            files.push((format!("{stem}.pdf"), pdf(&figure)?));
        }
        files.push((format!("{stem}.svg"), figure.svg.into_bytes()));
    }
    files.push((format!("{stem}.json"), outcome.to_json()?.into_bytes()));
    let save = |(name, content): (String, Vec<u8>)| -> anyhow::Result<PathBuf> {
        let path = folder.join(name);
        command_line::files::write(&path, content)?;
        Ok(path)
    };
    let files = files.into_iter().map(save).collect::<anyhow::Result<Vec<PathBuf>>>()?;
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let no_pdf = if style == Style::Paper && !cfg!(feature = "pdf") { NO_PDF } else { "" };
    Ok(format!("{}\nwrote {}\n{no_pdf}", outcome.text(), names.join(", ")))
}

/// Rows as CSV with a header; what has no meaning in a row is empty.
pub(crate) fn csv<R: Serialize>(rows: impl IntoIterator<Item = R>) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    Ok(writer.into_inner()?)
}

/// As JSON, for people to read, too.
pub(crate) fn json(found: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(found)? + "\n")
}
