//! Run time of the planner. Times are not asserted, since machines differ.

use std::process::Command;

use serde_json::Value;

#[test]
fn searches_are_timed_beside_the_originals() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_experiments"))
        .args(["search-time", "--quick", "--runs", "1", "--json", "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let models: Vec<&str> = rows.iter().map(|row| row["model"].as_str().unwrap()).collect();
    assert_eq!(models, ["vgg16", "wrn-101-2", "inception-v3", "resnet-50"]);
    for row in rows {
        let number = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field} in {row}"));
        assert!(number("seconds") > 0.0 && number("planned_iteration_us") > 0.0, "{row}");
        assert!(number("amplification") <= 2.0 + 1e-9 && number("gap") >= 0.0, "{row}");
        let gap = number("planned_iteration_us") / number("lower_bound_us") - 1.0;
        assert!((number("gap") - gap).abs() < 1e-9, "{row}");
        // There is no record of the original's planner for ResNet-50.
        assert_eq!(row["original_seconds"].is_number(), row["model"] != "resnet-50", "{row}");
        if row["original_seconds"].is_number() {
            let ratio = number("seconds") / number("original_seconds");
            assert!((number("over_original") / ratio - 1.0).abs() < 1e-9, "{row}");
        }
    }
    let csv = std::fs::read_to_string(folder.path().join("search-time.csv")).unwrap();
    assert_eq!(csv::Reader::from_reader(csv.as_bytes()).deserialize::<Value>().count(), rows.len());
}
