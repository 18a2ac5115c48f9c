//! All experiments as one page that needs nothing else.

use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use serde::Serialize;

use crate::canvas::Figure;
use crate::part::{Done, command};
use crate::style::Style;

/// What becomes `index.html`.
const TEMPLATE: &str = include_str!("index.html");
/// By its name, what is put into it is escaped.
const NAME: &str = "index.html";

/// An experiment on the page.
#[derive(Debug, Clone, Serialize)]
struct Section {
    name: String,
    title: String,
    /// What makes this experiment alone.
    command: String,
    /// What its rows come to.
    findings: String,
    /// All that is printed on a terminal.
    text: String,
    figures: Vec<Drawn>,
    csv: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// A figure on the page.
#[derive(Debug, Clone, Serialize)]
struct Drawn {
    /// What its files are called.
    stem: String,
    title: String,
    /// What it is from.
    provenance: Vec<String>,
    /// The image, whose marks say their values.
    svg: String,
    /// As it is to be printed.
    paper: String,
}

impl Section {
    fn new(done: &Done) -> anyhow::Result<Self> {
        let outcome = &*done.outcome;
        let csv = outcome.csv()?;
        let mut reader = csv::Reader::from_reader(&csv[..]);
        let fields = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect::<Vec<String>>();
        let columns = fields(reader.headers()?);
        let rows = reader.records().map(|record| Ok(fields(&record?))).collect::<anyhow::Result<_>>()?;
        let figures = outcome.figures(Style::Paper)?.into_iter().map(|figure| drawn(figure, &done.stem));
        Ok(Self {
            name: done.stem.clone(),
            title: outcome.title(),
            command: command(&done.line),
            findings: outcome.findings(),
            text: outcome.text(),
            figures: figures.collect(),
            csv: String::from_utf8(csv)?,
            columns,
            rows,
        })
    }
}

/// The page has title and provenance beside the image: it is drawn without a header.
fn drawn(figure: Figure, stem: &str) -> Drawn {
    Drawn {
        stem: figure.stem(stem),
        svg: figure.with_values(),
        title: figure.title,
        provenance: figure.provenance,
        paper: figure.svg,
    }
}

/// One page of all experiments, with figures, tables and files inside.
pub(crate) fn html(done: &[Done], line: &[String]) -> anyhow::Result<String> {
    let sections = done.iter().map(Section::new).collect::<anyhow::Result<Vec<_>>>()?;
    let mut environment = Environment::new();
    environment.add_template(NAME, TEMPLATE)?;
    let (command, version) = (command(line), env!("CARGO_PKG_VERSION"));
    Ok(environment
        .get_template(NAME)?
        .render(context! { sections => Value::from(Serde(&sections)), command, version })?)
}
