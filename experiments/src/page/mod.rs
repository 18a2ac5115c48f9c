//! The HTML page of several experiments. Style, figures, tables and downloads are inside the file.

mod section;
mod text;

use std::fmt::Write;

use collectives::LinkModel;

use crate::catalog::command;
use crate::layer_times::LayerTimes;
use crate::part::FinishedPart;
use section::Section;
use text::{Escaped, joined};

/// The page up to its body: title and style.
const HEAD: &str = include_str!("head.html");

/// Returns the page of the given experiments. `line` is the command line that makes the page;
/// `times` and `link` are the models that its introduction describes.
///
/// # Errors
/// If rows cannot be written as CSV, or if a figure cannot be drawn.
pub(crate) fn html(
    done: &[FinishedPart],
    line: &[String],
    times: &LayerTimes,
    link: &LinkModel,
) -> anyhow::Result<String> {
    let sections: anyhow::Result<Vec<_>> = done.iter().map(|done| Section::new(done, times)).collect();
    let sections = sections?;
    let mut page = String::from(HEAD);
    write_header(&mut page, &sections)?;
    write_basis(&mut page, &sections, times, link)?;
    page += "<div id=\"experiments\" tabindex=\"-1\">";
    for section in &sections {
        section.write(&mut page)?;
    }
    write!(
        page,
        "
</div>
</main>
<footer><p>Made by <code>{command}</code> (version {version}).</p></footer>
</body>
</html>",
        command = Escaped(&command(line)),
        version = env!("CARGO_PKG_VERSION"),
    )?;
    Ok(page)
}

/// Writes the title and the links to all sections.
fn write_header(page: &mut String, sections: &[Section]) -> std::fmt::Result {
    let links = joined(sections, "", |section| {
        let name = Escaped(section.name());
        format!("\n<li><a href=\"#{name}\">{name}</a></li>")
    });
    write!(
        page,
        r##"<body>
<a class="skip" href="#experiments">Skip to the experiments</a>
<header>
<h1>Burst-parallel training: experiments</h1>
<p><abbr title="data parallelism">DP</abbr> has every layer on all GPUs,
<abbr title="burst parallelism">BP</abbr> has a GPU count for each layer; +Col adds background jobs on the
same GPUs. FG and BG are the foreground and the background.</p>
<nav aria-label="Sections"><ul>
<li><a href="#rests-on">What these numbers rest on</a></li>{links}
</ul></nav>
</header>
<main>
"##
    )
}

/// Writes the section on measurements, simulation and models.
fn write_basis(
    page: &mut String,
    sections: &[Section],
    times: &LayerTimes,
    link: &LinkModel,
) -> std::fmt::Result {
    let measured = joined(sections.iter().filter(|section| section.is_measured()), ", ", |section| {
        let name = Escaped(section.name());
        format!("<a href=\"#{name}\">{name}</a>")
    });
    let measured = if measured.is_empty() { "no section of this page".into() } else { measured };
    let error = match link.relative_error() {
        Some(error) => format!("known to be up to {:.0}% off", 100.0 * error),
        None => "not checked against measurements".into(),
    };
    write!(
        page,
        r#"<section id="rests-on" aria-labelledby="rests-on-title">
<h2 id="rests-on-title">What these numbers rest on</h2>
<ul>
<li><strong>Measured:</strong> {measured}. Nothing here was run on GPUs.</li>
<li><strong>Simulated:</strong> everything else. The programs that the runtime executes on each rank
run in virtual time, step by step.</li>
<li><strong>Modelled:</strong> layer times, unless they were measured: {layer_times};
and communication, by link model {link}, {error}.
A section with another model says so. A difference smaller than the models' error may be due to it.</li>
<li><strong>Not modelled,</strong> unless a section says otherwise: launch costs, and contention between
communication and computation. Never modelled: loading data,
other users of the links, and GPUs that are slower than others or fail.</li>
</ul>
</section>
"#,
        layer_times = Escaped(&times.about()),
        link = Escaped(link.name()),
    )
}
