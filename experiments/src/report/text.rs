//! Reports as text.

use comfy_table::Table;

use super::{Report, sharing_table};
use crate::row::ReportRow;
use crate::text_table::{printed, text_table};

/// Formats a report: title, provenance, table and findings.
pub(super) fn text(report: &Report) -> String {
    let provenance = report.provenance.join("\n");
    let summary = report.summary.join("\n");
    let compares_policies = report.rows.iter().all(|row| row.policy.is_some());
    let table = if compares_policies { sharing_table::table(&report.rows) } else { rows(&report.rows) };
    let rows = printed(&table);
    format!("{} ({})\n{provenance}\n\n{rows}\n\n{summary}\n", report.title, report.header.experiment)
}

fn rows(rows: &[ReportRow]) -> Table {
    let mut table = text_table(
        [
            "model\n",
            "mode\n",
            "simulated\nms/iteration",
            "planned\nms/iteration",
            "above\nbound",
            "amplification\n(limit)",
            "FG\nsamples/s",
            "BG\nsamples/s",
            "FG + BG\nsamples/s",
            "FG slowdown\ncollocated/alone",
            "BG share\nof idle",
            "GPUs\nbusy",
            "FG computes/\ncomm./idle",
            "BG samples/s in\neach of the three",
        ],
        2..,
    );
    for (index, of_model) in rows.chunk_by(|a, b| a.model == b.model).enumerate() {
        if index > 0 {
            table.add_row([""]);
        }
        for (index, row) in of_model.iter().enumerate() {
            let model = match index {
                0 => row.title.clone(),
                1 => format!("batch {}", row.batch),
                _ => String::new(),
            };
            table.add_row(cells(model, row));
        }
    }
    table
}

fn cells(model: String, row: &ReportRow) -> [String; 14] {
    let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "-".into());
    let ms = |us: Option<f64>| or_dash(us.map(|us| format!("{:.2}", us / 1e3)));
    let percent = |part: f64| format!("{:.0}%", part * 100.0);
    let rate = |samples_per_s: f64| format!("{samples_per_s:.0}");
    let limit = match row.amplification_limit {
        None => "none".into(),
        Some(_) if row.limit_is_dp => "DP's".into(),
        Some(limit) => limit.to_string(),
    };
    let parts = [row.computing_fraction, row.communicating_fraction, row.idle_fraction];
    let rates = [
        row.background_computing_samples_per_s,
        row.background_communicating_samples_per_s,
        row.background_idle_samples_per_s,
    ];
    [
        model,
        row.label(),
        ms(row.iteration_us),
        ms(row.planned_iteration_us),
        or_dash(row.gap.map(percent)),
        or_dash(row.amplification.map(|amplification| format!("{amplification:.2} ({limit})"))),
        rate(row.foreground_samples_per_s),
        rate(row.background_samples_per_s),
        rate(row.total_samples_per_s()),
        or_dash(row.foreground_slowdown.map(|slowdown| format!("{slowdown:.3}"))),
        or_dash(row.background_share_of_idle.map(percent)),
        percent(row.gpu_busy_fraction),
        parts.map(|part| format!("{:.0}", part * 100.0)).join("/") + "%",
        rates.map(rate).join("/"),
    ]
}
