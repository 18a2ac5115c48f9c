//! Result of an experiment: the printed text and the content of its files.

use std::path::{Path, PathBuf};

use anyhow::bail;
use serde::Serialize;

use crate::canvas::Figure;
#[cfg(feature = "pdf")]
use crate::pdf::pdf;
use crate::style::Style;

/// Result of an experiment, and its presentations.
pub(crate) trait Outcome {
    /// Returns the title, which says what is compared.
    fn title(&self) -> String;

    /// Returns the printed text: the origin of the numbers, the tables and the findings.
    fn text(&self) -> String;

    /// Returns the findings in sentences, which are also part of [`text`](Self::text).
    fn findings(&self) -> String;

    /// Returns the origin of the numbers (simulated, measured or published, and by which models),
    /// the most important line first.
    fn provenance(&self) -> Vec<String>;

    /// Returns whether the numbers were measured on a machine. Otherwise they are simulated or
    /// modelled.
    fn is_measured(&self) -> bool {
        false
    }

    /// Returns the rows as CSV, with a header.
    ///
    /// # Errors
    /// If a row cannot be written as CSV.
    fn csv(&self) -> anyhow::Result<Vec<u8>>;

    /// Returns further tables as CSV, each with the suffix of its file's stem. Empty if there are
    /// none.
    ///
    /// # Errors
    /// If a row cannot be written as CSV.
    fn more_csv(&self) -> anyhow::Result<Vec<(&'static str, Vec<u8>)>> {
        Ok(Vec::new())
    }

    /// Returns the figures in the given style. Empty if there are none.
    ///
    /// # Errors
    /// If a figure cannot be drawn.
    fn figures(&self, _: Style) -> anyhow::Result<Vec<Figure>> {
        Ok(Vec::new())
    }

    /// Returns a JSON document of the format `deeppool/report/v1`.
    ///
    /// # Errors
    /// If a value cannot be written as JSON.
    fn to_json(&self) -> anyhow::Result<String>;
}

/// Note that `--style paper` wrote no PDF because the program was built without feature `pdf`.
const NO_PDF: &str = "no PDF: that needs `cargo run --release -p experiments --features pdf -- ...`\n";

/// Writes the files of a result (CSV, JSON and figures), each atomically and with a name that
/// begins with `stem`. Returns the text to print, which lists the files.
///
/// # Errors
/// If a figure cannot be drawn, or if a file cannot be written.
pub(crate) fn save(outcome: &dyn Outcome, stem: &str, folder: &Path, style: Style) -> anyhow::Result<String> {
    let mut files = vec![(format!("{stem}.csv"), outcome.csv()?)];
    files.extend(outcome.more_csv()?.into_iter().map(|(suffix, csv)| (format!("{stem}-{suffix}.csv"), csv)));
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

/// Returns rows as CSV with a header. Fields that are `None` are empty.
///
/// # Errors
/// If a row cannot be written as CSV, or if a number in it is not finite.
pub(crate) fn csv<R: Serialize>(rows: impl IntoIterator<Item = R>) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    let csv = writer.into_inner()?;
    check_finite(&csv)?;
    Ok(csv)
}

/// Checks that no field of a CSV is a number that is not finite.
fn check_finite(csv: &[u8]) -> anyhow::Result<()> {
    let mut reader = csv::Reader::from_reader(csv);
    let header = reader.headers()?.clone();
    for (row, record) in (1..).zip(reader.records()) {
        for (field, name) in record?.iter().zip(&header) {
            if matches!(field, "NaN" | "inf" | "-inf") {
                bail!("row {row} of the results: `{name}` is {field}, so no results are written");
            }
        }
    }
    Ok(())
}

/// Returns a value as indented JSON with a final newline.
///
/// # Errors
/// If the value cannot be written as JSON.
pub(crate) fn json(found: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(found)? + "\n")
}
