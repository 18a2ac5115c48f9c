//! The built-in link models against published tables of nccl-tests.

use std::collections::BTreeMap;

#[path = "../published/mod.rs"]
mod tables;

use tables::{FITTED, Row, rows};

/// Returns the median and the ninth decile of magnitudes.
fn median_and_nine_tenths(errors: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut magnitudes: Vec<f64> = errors.map(f64::abs).collect();
    magnitudes.sort_by(f64::total_cmp);
    let at = |part: f64| magnitudes[(part * (magnitudes.len() - 1) as f64).ceil() as usize];
    (at(0.5), at(0.9))
}

/// Returns the number of rows, and the median and ninth decile of their errors.
fn errors(rows: &[&Row]) -> (usize, f64, f64) {
    let (median, nine_tenths) = median_and_nine_tenths(rows.iter().map(|row| row.relative_error()));
    (rows.len(), median, nine_tenths)
}

#[test]
fn held_out_rows_are_within_10_percent_in_the_median_and_25_for_nine_tenths() {
    let Some(rows) = rows() else { return };
    let mut by_machine = BTreeMap::<_, Vec<&Row>>::new();
    for row in &rows {
        let part = match (row.fitted_table(), row.is_faulty()) {
            (Some(_), _) => "fitted",
            (None, false) => "held out",
            (None, true) => "faulty",
        };
        by_machine.entry((part, row.link)).or_default().push(row);
    }
    for ((part, link), of_machine) in &by_machine {
        let (count, median, nine_tenths) = errors(of_machine);
        println!("{part:8} {link:15} {count:3} rows: median {median:.3}, nine tenths {nine_tenths:.3}");
        let max_median = match (*part, *link) {
            ("faulty", _) => continue,
            // One and two rows of issues: an older NCCL, and small messages only.
            ("held out", "aws-p4de" | "dgx-a100-pod") => 0.3,
            _ => 0.1,
        };
        assert!(median <= max_median, "{part} {link}: {median}");
    }
    let held_out: Vec<&Row> =
        rows.iter().filter(|row| row.fitted_table().is_none() && !row.is_faulty()).collect();
    let (count, median, nine_tenths) = errors(&held_out);
    println!("held out: {count} rows: median {median:.3}, nine tenths {nine_tenths:.3}");
    assert!(count > 300, "{count}");
    assert!(median <= 0.1 && nine_tenths <= 0.25, "{median} {nine_tenths}");
}

#[test]
fn every_fitted_table_has_rows() {
    let Some(rows) = rows() else { return };
    for (index, table) in FITTED.iter().enumerate() {
        assert!(rows.iter().filter(|row| row.fitted_table() == Some(index)).count() > 5, "{table:?}");
    }
}
