//! All experiments as one page that needs nothing else.

use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use serde::Serialize;

/// What becomes `index.html`.
const TEMPLATE: &str = include_str!("index.html");
/// By its name, what is put into it is escaped.
const NAME: &str = "index.html";

/// An experiment on the page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Section {
    name: &'static str,
    title: String,
    /// What makes this experiment alone.
    command: String,
    /// What its rows come to.
    findings: String,
    /// All that is printed on a terminal.
    text: String,
    /// The figure, whose marks say their values.
    svg: String,
    plain_svg: String,
    csv: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Section {
    pub(crate) fn new(
        name: &'static str,
        title: String,
        (text, findings): (String, String),
        (svg, marks): (String, &[Marks]),
        csv: Vec<u8>,
    ) -> anyhow::Result<Self> {
        let mut reader = csv::Reader::from_reader(&csv[..]);
        let fields = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect::<Vec<String>>();
        let columns = fields(reader.headers()?);
        let rows = reader.records().map(|record| Ok(fields(&record?))).collect::<anyhow::Result<_>>()?;
        Ok(Self {
            name,
            title,
            command: command_of(name),
            findings,
            text,
            svg: with_values(&svg, marks),
            plain_svg: svg,
            csv: String::from_utf8(csv)?,
            columns,
            rows,
        })
    }
}

/// Marks of a figure: elements of one kind and colour, in the order in which they are drawn.
pub(crate) struct Marks {
    /// How their lines begin, such as `<rect`.
    pub(crate) tag: &'static str,
    /// What their lines have in them.
    pub(crate) contains: String,
    /// How many belong to the legend.
    pub(crate) legend: usize,
    /// What each of them is.
    pub(crate) values: Vec<String>,
}

/// The figure with a title in each mark, which browsers show where one points, and screen readers read.
fn with_values(svg: &str, marks: &[Marks]) -> String {
    let mut values: Vec<_> = marks.iter().map(|marks| (marks.legend, marks.values.iter())).collect();
    let line = |line: &str| {
        for (marks, (legend, values)) in marks.iter().zip(&mut values) {
            if line.starts_with(marks.tag) && line.contains(&marks.contains) {
                if *legend > 0 {
                    *legend -= 1;
                } else if let (Some(value), Some(open)) = (values.next(), line.strip_suffix("/>")) {
                    let tag = marks.tag.trim_start_matches('<');
                    return format!("{open}><title>{}</title></{tag}>\n", escaped(value));
                }
                break;
            }
        }
        format!("{line}\n")
    };
    svg.lines().map(line).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The options that `layers` takes of those of `all`.
const OF_LAYERS: [&str; 6] = ["--model", "--onnx", "--batch", "--device", "--link", "--out"];

/// The command as it was given, for another experiment: the options that this takes, each with its value.
fn command_of(experiment: &str) -> String {
    let mut takes = true;
    let is_taken = |option: &str| match experiment {
        "all" => true,
        crate::layers::NAME => OF_LAYERS.contains(&option),
        _ => option != "--full",
    };
    let arguments = std::env::args_os().skip(2).map(|argument| argument.to_string_lossy().into_owned());
    let options = arguments.filter(|argument| {
        if argument.starts_with("--") {
            takes = is_taken(argument.split_once('=').map_or(argument.as_str(), |(option, _)| option));
        }
        takes
    });
    let all =
        ["cargo run --release -p experiments --", experiment].map(str::to_owned).into_iter().chain(options);
    all.collect::<Vec<_>>().join(" ")
}

/// One page of all sections, with figures, tables and files inside.
pub(crate) fn html(sections: &[Section]) -> anyhow::Result<String> {
    let mut environment = Environment::new();
    environment.add_template(NAME, TEMPLATE)?;
    let (command, version) = (command_of("all"), env!("CARGO_PKG_VERSION"));
    Ok(environment
        .get_template(NAME)?
        .render(context! { sections => Value::from(Serde(sections)), command, version })?)
}
