//! All experiments as one page that needs nothing else.

mod section;

use collectives::LinkModel;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};

use crate::layer_times::LayerTimes;
use crate::part::{Done, command};
use section::Section;

/// What becomes `index.html`.
const TEMPLATE: &str = include_str!("index.html");
/// By its name, what is put into it is escaped.
const NAME: &str = "index.html";

/// One page of all experiments, with figures, tables and files inside, which says of the models how far off they are known to be.
pub(crate) fn html(
    done: &[Done],
    line: &[String],
    times: &LayerTimes,
    link: &LinkModel,
) -> anyhow::Result<String> {
    let sections: anyhow::Result<Vec<_>> = done.iter().map(|done| Section::new(done, times)).collect();
    let mut environment = Environment::new();
    environment.add_template(NAME, TEMPLATE)?;
    Ok(environment.get_template(NAME)?.render(context! {
        sections => Value::from(Serde(&sections?)),
        command => command(line),
        version => env!("CARGO_PKG_VERSION"),
        layer_times => times.about(),
        link => link.name(),
        link_error => link.relative_error().map(|error| format!("{:.0}%", 100.0 * error)),
    })?)
}
