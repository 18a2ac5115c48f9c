//! Sensitivity of the conclusions to uncertain parameters.

use std::process::Command;

use serde_json::Value;

use crate::svg::{assert_on_one_scale, attribute, elements};

#[test]
fn every_ratio_has_a_value_for_every_variation() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_experiments"))
        .args(["sensitivity", "--model", "resnet-18", "--batch", "16", "--gpus", "4", "--json", "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    // The base value, five parameters by half down and up, and launches.
    assert_eq!(rows.len(), 3 * (1 + 5 * 2 + 1));
    let number = |row: &Value, field: &str| row[field].as_f64().unwrap();
    for headline in rows.chunk_by(|a, b| a["headline"] == b["headline"]) {
        assert_eq!(headline.len(), 12);
        assert!(headline[0]["parameter"].is_null());
        for row in headline {
            let (value, base) = (number(row, "value"), number(row, "base"));
            assert!((base - number(&headline[0], "value")).abs() < 1e-12, "{row}");
            assert!(value > 0.0 && value.is_finite(), "{row}");
            // A ratio that is 1 up to rounding is not above 1.
            assert_eq!(row["flips"], (value > 1.001) != (base > 1.001), "{row}");
        }
        // Some variation has an effect.
        assert!(headline.iter().any(|row| (number(row, "value") / number(row, "base") - 1.0).abs() > 1e-3));
    }
    // The foreground alone does not depend on the background's batch.
    let burst_over_dp = rows
        .iter()
        .filter(|row| row["headline"] == "BP over DP, foreground" && row["parameter"] == "background batch");
    for row in burst_over_dp {
        assert!((number(row, "value") / number(row, "base") - 1.0).abs() < 1e-9, "{row}");
    }
    let csv = std::fs::read_to_string(folder.path().join("sensitivity.csv")).unwrap();
    assert_eq!(csv::Reader::from_reader(csv.as_bytes()).deserialize::<Value>().count(), rows.len());
    // Each variation has a bar from the base value to its value, in a panel with its own scale for
    // each ratio. The first bar of each colour is in the legend.
    let svg = std::fs::read_to_string(folder.path().join("sensitivity.svg")).unwrap();
    let [mut down, mut up] =
        ["#0072B2", "#E69F00"].map(|color| elements(&svg, "<rect", color).into_iter().skip(1));
    for headline in rows.chunk_by(|a, b| a["headline"] == b["headline"]) {
        let mut ends = Vec::new();
        for row in headline.iter().filter(|row| row["change"].is_string()) {
            let bar = if row["change"] == "x 0.5" { down.next() } else { up.next() }.unwrap();
            let (left, width) = (attribute(bar, "x"), attribute(bar, "width"));
            let (value, base) = (number(row, "value"), number(row, "base"));
            ends.extend([(left, value.min(base)), (left + width, value.max(base))]);
        }
        assert_eq!(ends.len(), 2 * 11);
        assert_on_one_scale(&ends);
    }
    assert_eq!((down.next(), up.next()), (None, None));
}
