//! Laws of planned and simulated times, on a small part of the sweep.

use std::process::Command;

use serde_json::Value;

fn sweep(arguments: &[&str]) -> (std::process::Output, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_experiments"))
        .args(["sweep", "--quick", "--out", folder.path().to_str().unwrap()])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "a bar is for terminals: {output:?}");
    (output, folder)
}

#[test]
fn simulated_times_agree_with_plans_and_obey_monotonicity() {
    let (output, folder) = sweep(&["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "deeppool/report/v1");
    assert_eq!(report["experiment"], "sweep");
    let findings = &report["findings"];
    // Two networks, two links, three limits and two GPU counts.
    assert_eq!(findings["pairs"], 24);
    assert!(findings["disagreements"]["worst"].as_f64().unwrap() <= 1e-3, "{findings}");
    for law in ["disagreements", "looser_slower", "more_gpus_slower", "slower_than_dp"] {
        assert_eq!(findings[law]["pairs"], 0, "{law} in {findings}");
        assert!(findings[law]["of"].as_u64().unwrap() > 0, "{law} was never checked: {findings}");
    }
    let written = std::fs::read(folder.path().join("sweep.json")).unwrap();
    assert_eq!(output.stdout, written, "printed and written reports are equal");
    let csv = std::fs::read_to_string(folder.path().join("sweep.csv")).unwrap();
    assert_eq!(csv.lines().count(), 25, "{csv}");
    for row in report["rows"].as_array().unwrap() {
        let number = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field} in {row}"));
        assert!(number("amplification") <= number("amplification_limit") * (1.0 + 1e-9), "{row}");
        assert!(number("lower_bound_us") <= number("planned_iteration_us"), "{row}");
    }
}

#[test]
fn sample_has_one_limit_for_each_search() {
    let (output, _folder) = sweep(&["--sample", "--prove", "off", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8, "two networks, two links and two GPU counts");
    assert!(rows.iter().all(|row| row["lower_bound_us"].is_null()), "{report}");
    let limits: Vec<&Value> = rows.iter().map(|row| &row["amplification_limit"]).collect();
    assert!(limits.iter().any(|limit| *limit != limits[0]), "{limits:?}");
}
