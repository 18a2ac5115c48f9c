//! Table of rows that compare GPU-sharing policies.

use comfy_table::Table;

use crate::row::ReportRow;
use crate::text_table::text_table;

/// Returns a table with a line for each row, that is, each policy in each setting. Rows of a
/// setting are consecutive.
pub(super) fn table(rows: &[ReportRow]) -> Table {
    let mut table = text_table(
        [
            "setting\n",
            "policy\n",
            "FG\nms/iteration",
            "FG slowdown\nmedian",
            "\np99",
            "FG computes/\ncomm./idle",
            "FG\nsamples/s",
            "BG\nsamples/s",
            "BG on the GPU while FG\ncomputes/comm./idle",
            "BG samples/s in\neach of the three",
        ],
        2..,
    );
    for (index, of_setting) in rows.chunk_by(|a, b| a.setting == b.setting).enumerate() {
        if index > 0 {
            table.add_row([""]);
        }
        for (index, row) in of_setting.iter().enumerate() {
            let setting = row.setting.as_deref().filter(|_| index == 0).unwrap_or_default();
            table.add_row(cells(setting, row));
        }
    }
    table
}

fn cells(setting: &str, row: &ReportRow) -> [String; 10] {
    let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "-".into());
    let slowdown = |figure: Option<f64>| or_dash(figure.map(|figure| format!("{figure:.3}")));
    let percent = |part: f64| format!("{:.0}", part * 100.0);
    let percents = |parts: [Option<f64>; 3]| parts.map(|part| or_dash(part.map(percent))).join("/") + "%";
    let time = [row.computing_fraction, row.communicating_fraction, row.idle_fraction];
    let shares = [
        row.background_share_of_computing,
        row.background_share_of_communicating,
        row.background_share_of_idle,
    ];
    let rates = [
        row.background_computing_samples_per_s,
        row.background_communicating_samples_per_s,
        row.background_idle_samples_per_s,
    ];
    let rate = |samples_per_s: f64| format!("{samples_per_s:.0}");
    [
        setting.to_owned(),
        row.label(),
        or_dash(row.iteration_us.map(|us| format!("{:.2}", us / 1e3))),
        slowdown(row.foreground_slowdown_median),
        slowdown(row.foreground_slowdown_p99),
        percents(time.map(Some)),
        rate(row.foreground_samples_per_s),
        rate(row.background_samples_per_s),
        percents(shares),
        rates.map(rate).join("/"),
    ]
}
