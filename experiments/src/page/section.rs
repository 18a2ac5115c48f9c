//! An experiment on the page.

use std::mem::take;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;

use crate::canvas::Figure;
use crate::layer_times::LayerTimes;
use crate::part::{Done, command};
use crate::pdf::pdf;
use crate::style::Style;

/// What the template needs of an experiment.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Section {
    name: String,
    title: String,
    is_measured: bool,
    /// What makes this experiment alone.
    command: String,
    /// What the numbers are from, in a line, and in full.
    origin: String,
    provenance: Vec<String>,
    figures: Vec<Drawn>,
    /// What its rows come to, line by line.
    findings: Vec<String>,
    /// All that is printed on a terminal.
    text: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    downloads: Vec<Download>,
}

/// A figure on the page.
#[derive(Debug, Clone, Serialize)]
struct Drawn {
    title: String,
    /// How it is read: what the section does not say of all its figures.
    notes: Vec<String>,
    /// The image, whose marks say their values.
    svg: String,
}

/// A file inside the page.
#[derive(Debug, Clone, Serialize)]
struct Download {
    name: String,
    /// A `data:` URL.
    href: String,
}

impl Section {
    /// The section of what was run, on a page that says in another place where layer times are from and how far off they are.
    pub(super) fn new(done: &Done, times: &LayerTimes) -> anyhow::Result<Self> {
        let outcome = &*done.outcome;
        let csv = outcome.csv()?;
        let mut reader = csv::Reader::from_reader(&csv[..]);
        let fields = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect::<Vec<String>>();
        let columns = fields(reader.headers()?);
        let rows = reader.records().map(|record| Ok(fields(&record?))).collect::<anyhow::Result<_>>()?;
        let provenance = outcome.provenance();
        let mut downloads = vec![Download::new(format!("{}.csv", done.stem), "text/csv", &csv)];
        let mut figures = Vec::new();
        // The page has title and provenance beside the image.
        for figure in outcome.figures(Style::Paper)? {
            let stem = figure.stem(&done.stem);
            downloads.push(Download::new(format!("{stem}.svg"), "image/svg+xml", figure.svg.as_bytes()));
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
}

impl Drawn {
    fn new(mut figure: Figure, of_section: &[String]) -> Self {
        let mut notes = take(&mut figure.provenance);
        notes.retain(|line| !of_section.contains(line));
        Self { svg: figure.with_values(), title: figure.title, notes }
    }
}

impl Download {
    fn new(name: String, media_type: &'static str, content: &[u8]) -> Self {
        Self { name, href: format!("data:{media_type};base64,{}", BASE64_STANDARD.encode(content)) }
    }
}
