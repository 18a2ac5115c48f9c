//! All experiments as one page that needs nothing else.

mod section;

use collectives::LinkModel;
use layer_profile::DeviceModel;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};

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
    device: &DeviceModel,
    link: &LinkModel,
) -> anyhow::Result<String> {
    let accuracy = device.accuracy().to_string();
    let sections: anyhow::Result<Vec<_>> = done.iter().map(|done| Section::new(done, &accuracy)).collect();
    let mut environment = Environment::new();
    environment.add_template(NAME, TEMPLATE)?;
    Ok(environment.get_template(NAME)?.render(context! {
        sections => Value::from(Serde(&sections?)),
        command => command(line),
        version => env!("CARGO_PKG_VERSION"),
        device => device.name(),
        accuracy,
        link => link.name(),
        link_error => link.relative_error().map(|error| format!("{:.0}%", 100.0 * error)),
    })?)
}
