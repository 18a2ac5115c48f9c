//! Section of one experiment on the page.

use std::fmt::{self, Write};
use std::mem::take;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::text::{Escaped, joined};
use crate::canvas::Figure;
use crate::catalog::command;
use crate::layer_times::LayerTimes;
use crate::part::FinishedPart;
#[cfg(feature = "pdf")]
use crate::pdf::pdf;
use crate::style::Style;

/// Content of one experiment's section.
#[derive(Debug, Clone)]
pub(super) struct Section {
    name: String,
    title: String,
    is_measured: bool,
    /// Command that runs this experiment alone.
    command: String,
    /// First line of the provenance, shortened.
    origin: String,
    provenance: Vec<String>,
    figures: Vec<Drawn>,
    findings: Vec<String>,
    /// Text that the experiment prints on a terminal.
    text: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    downloads: Vec<Download>,
}

/// A figure on the page.
#[derive(Debug, Clone)]
struct Drawn {
    title: String,
    /// Provenance of this figure that differs from the section's.
    notes: Vec<String>,
    /// The image, with a title in each mark.
    svg: String,
}

/// A file inside the page.
#[derive(Debug, Clone)]
struct Download {
    name: String,
    /// A `data:` URL.
    href: String,
}

impl Section {
    /// Creates the section of an experiment. The layer times are given by name only, since the
    /// page's introduction describes them.
    ///
    /// # Errors
    /// If rows cannot be written as CSV, or if a figure cannot be drawn.
    pub(super) fn new(done: &FinishedPart, times: &LayerTimes) -> anyhow::Result<Self> {
        let outcome = &*done.outcome;
        let csv = outcome.csv()?;
        let mut reader = csv::Reader::from_reader(&csv[..]);
        let fields = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect::<Vec<String>>();
        let columns = fields(reader.headers()?);
        let rows = reader.records().map(|record| Ok(fields(&record?))).collect::<anyhow::Result<_>>()?;
        let provenance = outcome.provenance();
        let mut downloads = vec![Download::new(format!("{}.csv", done.stem), "text/csv", &csv)];
        for (suffix, csv) in outcome.more_csv()? {
            downloads.push(Download::new(format!("{}-{suffix}.csv", done.stem), "text/csv", &csv));
        }
        let mut figures = Vec::new();
        // The page has title and provenance beside the image.
        for figure in outcome.figures(Style::Paper)? {
            let stem = figure.stem(&done.stem);
            downloads.push(Download::new(format!("{stem}.svg"), "image/svg+xml", figure.svg.as_bytes()));
            #[cfg(feature = "pdf")]
            downloads.push(Download::new(format!("{stem}.pdf"), "application/pdf", &pdf(&figure)?));
            figures.push(Drawn::new(figure, &provenance));
        }
        Ok(Self {
            name: done.stem.clone(),
            title: outcome.title(),
            is_measured: outcome.is_measured(),
            command: command(&done.line),
            origin: provenance
                .first()
                .map(|line| line.replace(&times.about(), &times.name()))
                .unwrap_or_default(),
            provenance,
            figures,
            findings: outcome.findings().lines().map(str::to_owned).collect(),
            text: outcome.text(),
            columns,
            rows,
            downloads,
        })
    }

    /// Returns the stem of the experiment's file names, which is also the section's `id` in the
    /// page.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the numbers were measured on a machine. Otherwise they are simulated or
    /// modelled.
    pub(super) fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// Appends the section as HTML to the page.
    pub(super) fn write(&self, page: &mut String) -> fmt::Result {
        let (name, title) = (Escaped(&self.name), Escaped(&self.title));
        write!(
            page,
            r#"
<section id="{name}" aria-labelledby="{name}-title">
<h2 id="{name}-title">{title}</h2>
<p>From: {origin}.</p>
<p>Command: <code>{command}</code></p>{figures}
<h3>Findings</h3>
<div class="findings">{findings}</div>
<h3>Numbers</h3>
<details><summary>Assumptions, and the table in short</summary>
<ul>{provenance}</ul>
<pre tabindex="0" role="group" aria-label="Terminal output of {name}">{text}</pre></details>
<details><summary>All {count} rows of the CSV</summary>
<div class="numbers" role="group" tabindex="0" aria-label="Rows of {name}"><table><caption>{title}</caption>
<thead><tr>{columns}</tr></thead>
<tbody>{rows}
</tbody></table></div></details>
<h3>Downloads</h3>
<ul class="downloads">{downloads}
</ul>
</section>"#,
            origin = Escaped(&self.origin),
            command = Escaped(&self.command),
            figures = joined(&self.figures, "", Drawn::html),
            findings = joined(&self.findings, "", |line| format!("<p>{}</p>", Escaped(line))),
            provenance = joined(&self.provenance, "", |line| format!("<li>{}</li>", Escaped(line))),
            text = Escaped(&self.text),
            count = self.rows.len(),
            columns =
                joined(&self.columns, "", |column| format!("<th scope=\"col\">{}</th>", Escaped(column))),
            rows = joined(&self.rows, "", |row| format!("\n<tr>{}</tr>", cells(row))),
            downloads = joined(&self.downloads, "", Download::html),
        )
    }
}

/// Returns the cells of a row; the first is its header.
fn cells(row: &[String]) -> String {
    joined(row.iter().enumerate(), "", |(index, cell)| match index {
        0 => format!("<th scope=\"row\">{}</th>", Escaped(cell)),
        _ => format!("<td>{}</td>", Escaped(cell)),
    })
}

impl Drawn {
    fn new(mut figure: Figure, of_section: &[String]) -> Self {
        let mut notes = take(&mut figure.provenance);
        notes.retain(|line| !of_section.contains(line));
        Self { svg: figure.svg_with_tooltips(), title: figure.title, notes }
    }

    fn html(&self) -> String {
        let Self { title, notes, svg } = self;
        let title = Escaped(title);
        let notes = joined(notes, "", |note| format!("<small>{}</small>", Escaped(note)));
        format!(
            r#"
<figure>
<figcaption>{title}{notes}</figcaption>
<div class="figure" role="group" tabindex="0" aria-label="Figure: {title}">
<div role="img" aria-label="{title}: the numbers are in the table below">
{svg}
</div></div>
</figure>"#
        )
    }
}

impl Download {
    fn new(name: String, media_type: &'static str, content: &[u8]) -> Self {
        Self { name, href: format!("data:{media_type};base64,{}", BASE64_STANDARD.encode(content)) }
    }

    fn html(&self) -> String {
        let Self { name, href } = self;
        let name = Escaped(name);
        format!("\n<li><a download=\"{name}\" href=\"{href}\">{name}</a></li>")
    }
}
