use serde::Serialize;

use crate::report::Report;

/// What each record repeats, since a CSV has nowhere else to say it.
#[derive(Serialize)]
struct Provenance<'a> {
    simulated: bool,
    device: &'a str,
    link: &'a str,
}

/// The rows as CSV with a header; what has no meaning in a row is empty.
pub(crate) fn csv(report: &Report) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in &report.rows {
        let provenance = Provenance { simulated: true, device: &report.device, link: &report.link };
        writer.serialize((row, provenance))?;
    }
    Ok(writer.into_inner()?)
}
