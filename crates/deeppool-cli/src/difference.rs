//! Table of the differences between simulated and measured iterations.

use deeppool::machine::{DifferenceRow, IterationPart};
use serde_json::{Value, json};

use super::output::{print_message, table, time};

/// Maximum number of rows that are printed.
const ROWS: usize = 20;

/// Prints the rows with the largest differences, and the sum of the others.
pub(crate) fn show_difference(rows: &[DifferenceRow]) {
    if rows.is_empty() {
        print_message!("\nno difference to explain: without layer times, nothing was simulated");
        return;
    }
    let columns = ["part", "of", "simulated", "measured", "quartiles", "difference"];
    let mut shown = table(&columns);
    let ms = |seconds: f64| format!("{:+.3} ms", seconds * 1e3);
    for row in rows.iter().take(ROWS) {
        let (first, third) = row.quartiles;
        shown.add_row([
            part(row.part).to_owned(),
            row.name.clone(),
            time(row.simulated),
            time(row.measured),
            format!("{} to {}", time(first), time(third)),
            ms(row.seconds()),
        ]);
    }
    print_message!("\nWhere simulated and measured iterations differ, on the median rank\n{shown}");
    if let Some(others) = rows.get(ROWS..).filter(|others| !others.is_empty()) {
        let sum: f64 = others.iter().map(DifferenceRow::seconds).sum();
        print_message!("{} further parts: {}", others.len(), ms(sum));
    }
    let sum: f64 = rows.iter().map(DifferenceRow::seconds).sum();
    print_message!("all parts: {}", ms(sum));
}

/// Returns a row as JSON, with times in microseconds.
pub(crate) fn difference_json(row: &DifferenceRow) -> Value {
    let us = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    json!({
        "part": part(row.part), "of": row.name, "simulated_us": us(row.simulated),
        "measured_us": us(row.measured),
        "measured_quartiles_us": [us(row.quartiles.0), us(row.quartiles.1)],
    })
}

fn part(part: IterationPart) -> &'static str {
    match part {
        IterationPart::Layer => "layer",
        IterationPart::Transfer => "transfer",
        IterationPart::Wait => "wait",
    }
}
