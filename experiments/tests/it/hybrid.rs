//! Workers of several GPUs against data parallelism.

use std::process::Command;

use serde_json::Value;

use crate::svg::elements;

#[test]
fn derived_figures_follow_from_the_others() {
    check("inception-v3", 6);
    // These take most of a minute.
    if std::env::var_os("EXPERIMENTS_FULL").is_some() {
        check("gnmt", 6);
        check("big-lstm", 0);
    }
}

/// Checks the results of a network. `gains` is the number of gains over data parallelism, 0 without
/// a public curve of epochs.
fn check(model: &str, gains: usize) {
    let folder = tempfile::tempdir().unwrap();
    let gpus = if gains > 0 { "128" } else { "4" };
    let output = Command::new(env!("CARGO_BIN_EXE_experiments"))
        .args(["hybrid", "--model", model, "--gpus", gpus, "--json", "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |row: &Value, field: &str| row[field].as_f64().unwrap();
    for worker in report["workers"].as_array().unwrap() {
        // The bound covers the forward and backward passes only; the optimizer's steps are divided
        // among the GPUs as well.
        assert!(number(worker, "placed_speedup") <= 1.02 * number(worker, "placed_bound"), "{worker}");
        assert!(number(worker, "list_speedup") <= number(worker, "placed_bound") * (1.0 + 1e-9), "{worker}");
        // A placement of each layer on one GPU is also a burst plan, which the search may miss.
        assert!(number(worker, "burst_speedup") >= number(worker, "placed_speedup") * 0.98, "{worker}");
    }
    let rows = report["rows"].as_array().unwrap();
    let mut with_gains = 0;
    for row in rows {
        let (gpus, workers) = (number(row, "gpus"), number(row, "workers"));
        assert!((gpus - workers * number(row, "gpus_per_worker")).abs() < 1e-9, "{row}");
        let rate = number(row, "batch") / number(row, "iteration_us") * 1e6;
        assert!((number(row, "samples_per_s") / rate - 1.0).abs() < 1e-9, "{row}");
        let data_parallel = rows.iter().find(|other| {
            other["model"] == row["model"] && other["way"] == "data-parallel" && other["gpus"] == row["gpus"]
        });
        let (Some(gain), Some(other)) = (row["gain"].as_f64(), data_parallel) else { continue };
        // The time to the target is the epochs' samples divided by the throughput.
        let time = |row: &Value| number(row, "epochs") / number(row, "samples_per_s");
        assert!((time(other) / time(row) / gain - 1.0).abs() < 1e-9, "{row}");
        with_gains += usize::from(row["way"] != "data-parallel");
        if row["way"] == "data-parallel" {
            assert!((gain - 1.0).abs() < 1e-12, "{row}");
        }
    }
    assert_eq!(with_gains, gains, "{model}");
    for sweep in report["sweeps"].as_array().unwrap() {
        let expected = number(sweep, "worker_speedup") / 2.0 * 2.0_f64.powf(number(sweep, "slope"))
            / number(sweep, "efficiency_ratio");
        assert!((number(sweep, "gain") / expected - 1.0).abs() < 1e-9, "{sweep}");
    }
    // The figure has a point for each gain, and one of each colour in the legend.
    let svg = std::fs::read_to_string(folder.path().join("hybrid-gpus.svg")).unwrap();
    let of_line =
        |row: &&Value| row["way"] == "placed" && row["gpus_per_worker"] == 2 && row["gain"].is_number();
    let expected = rows.iter().filter(of_line).count();
    assert_eq!(elements(&svg, "<circle", "#0072B2").len(), 1 + expected);
}
