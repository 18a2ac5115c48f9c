//! Text table of a report.

use comfy_table::Table;

use crate::mux::{MuxReport, MuxRow};
use crate::table::aligned;

/// Formats the heading, a line for each policy, and a legend.
pub(crate) fn format(report: &MuxReport) -> String {
    let origin = if report.modelled { "modelled, in virtual time" } else { "measured" };
    let mut lines =
        vec![format!("# mux-bench: {}", report.workload), format!("# {}; {origin}", report.device)];
    if let Some(row) = report.rows.first() {
        lines.push(format!(
            "# alone: foreground {} an iteration (99th percentile {}), background {:.0} samples/s; \
             n = {} iterations a policy",
            milliseconds(row.foreground_alone_us),
            milliseconds(row.foreground_alone_p99_us),
            row.background_alone_samples_per_s,
            row.iterations,
        ));
    }
    let drifts = report.rows.iter().filter_map(|row| row.foreground_alone_drift);
    if let Some(drift) = drifts.reduce(larger_magnitude) {
        lines.push(format!(
            "# foreground alone, before and after each policy: medians differ by at most {}",
            percent(drift.abs())
        ));
    }
    if let Some(off) = report.calibration.as_ref().and_then(|calibration| calibration.kernel_time_errors) {
        lines.push(format!(
            "# durations of the replacement kernels: error {} in total; maximum, for {:.1} us, {}",
            percent(off.total),
            off.max_kernel_us,
            percent(off.max)
        ));
    }
    if let Some(sharing) = report.calibration.as_ref().and_then(|calibration| calibration.sharing) {
        lines.push(format!(
            "# two kernels that use {:.0}% of the bandwidth: {:.2} times as long beside each other; \
             delay of a kernel after others of 1 ms each: {:.0} us, with priority {:.0} us",
            sharing.memory_demand * 100.0,
            sharing.memory_slowdown,
            sharing.delay_us,
            sharing.delay_with_priority_us,
        ));
    }
    lines.push(table(&report.rows));
    lines.push(LEGEND.to_owned());
    lines.join("\n")
}

const LEGEND: &str = "
FG, p99    foreground iteration beside the background / alone: median, 99th percentile
idle       time of an iteration in which the foreground neither computes nor transfers
waiting    part of it in which a communication of the foreground waits for its partners
BG/idle    fraction of the idle time with a background tasklet on the device
transfer   time of an iteration in which the foreground transfers and does not compute
BG         throughput of the background, and its fraction of the throughput alone
over-long  background pieces that exceeded the policy's bound (on a GPU: pieces that exceed it alone)";

/// Returns the value of the larger magnitude.
fn larger_magnitude(one: f64, other: f64) -> f64 {
    if other.abs() > one.abs() { other } else { one }
}

fn table(rows: &[MuxRow]) -> String {
    let mut table = Table::new();
    table.set_header([
        "policy",
        "FG",
        "p99",
        "idle",
        "waiting",
        "BG/idle",
        "transfer",
        "BG/transfer",
        "BG",
        "BG/alone",
        "pieces",
        "over-long",
    ]);
    for row in rows {
        table.add_row([
            row.policy.clone(),
            format!("{:.3}", row.foreground_slowdown),
            format!("{:.3}", row.foreground_slowdown_p99),
            milliseconds(row.idle_us),
            row.waiting_us.map_or_else(|| "-".to_owned(), milliseconds),
            percent(row.background_share_of_idle),
            row.transfer_us.map_or_else(|| "-".to_owned(), milliseconds),
            row.background_share_of_transfer.map_or_else(|| "-".to_owned(), percent),
            format!("{:.0}/s", row.background_samples_per_s),
            percent(row.background_samples_per_s / row.background_alone_samples_per_s),
            row.background_pieces.to_string(),
            row.over_long_pieces.to_string(),
        ]);
    }
    aligned(table, 0..=0)
}

fn milliseconds(us: f64) -> String {
    format!("{:.3} ms", us / 1e3)
}

fn percent(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}
