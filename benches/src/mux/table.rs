//! Results for people.

use comfy_table::Table;

use crate::mux::{MuxReport, MuxRow};
use crate::table::aligned;

pub(crate) fn shown(report: &MuxReport) -> String {
    let origin = if report.modelled { "modelled, in virtual time" } else { "measured" };
    let mut lines =
        vec![format!("# mux-bench: {}", report.workload), format!("# {}; {origin}", report.device)];
    if let Some(row) = report.rows.first() {
        lines.push(format!(
            "# alone: foreground {} an iteration (99th percentile {}), background {:.0} samples/s; n = {} iterations a policy",
            milliseconds(row.foreground_alone_us),
            milliseconds(row.foreground_alone_p99_us),
            row.background_alone_samples_per_s,
            row.iterations,
        ));
    }
    if let Some(drift) = report.rows.iter().filter_map(|row| row.foreground_alone_drift).reduce(furthest) {
        lines.push(format!(
            "# the foreground alone, before and after each policy: at most {} apart, each of as many iterations",
            percent(drift.abs())
        ));
    }
    if let Some(off) = report.calibration.as_ref().and_then(|calibration| calibration.kernels_off) {
        lines.push(format!(
            "# kernels stand in for the workload's to within {} of their time; the farthest, of {:.1} us, to within {}",
            percent(off.together),
            off.farthest_us,
            percent(off.farthest)
        ));
    }
    if let Some(sharing) = report.calibration.as_ref().and_then(|calibration| calibration.sharing) {
        lines.push(format!(
            "# two kernels of {:.0}% of the bandwidth take {:.2} times as long beside each other; a kernel behind others of \
             1 ms each comes {:.0} us late, with priority {:.0} us",
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
FG, p99    foreground's iteration beside the background by alone: median, 99th percentile
idle       time of an iteration in which the foreground has nothing to compute and transfers nothing
waiting    part of it in which a communication of the foreground waits for its partners
BG/idle    part of the idle time in which a background tasklet was on the device
transfer   time of an iteration in which the foreground has nothing to compute and transfers data
BG         background's throughput, and as a part of what it has alone
over-long  background pieces that took longer than the policy's bound; on a card those that take longer alone";

/// What is further from 0.
fn furthest(one: f64, other: f64) -> f64 {
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
