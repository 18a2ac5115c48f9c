//! Measured results beside planned and simulated ones. Times are not asserted, since machines
//! differ.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::rows::number;
use crate::svg::{assert_on_one_scale, centres};

fn experiments(args: &[&str], out: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_experiments")).args(args).arg("--out").arg(out).output().unwrap()
}

/// Returns the records of a CSV file. Cells that parse as numbers are numbers.
fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let records = csv::Reader::from_reader(text.as_bytes()).into_deserialize();
    records.map(|record: Result<serde_json::Map<String, Value>, _>| Value::Object(record.unwrap())).collect()
}

fn assert_close(got: f64, expected: f64, what: &Value) {
    assert!((got / expected - 1.0).abs() < 1e-9, "{got} instead of {expected} in {what}");
}

/// A run on another machine, in the format of this experiment.
const EARLIER: &str = "\
machine,cores,commit,model,batch,gpus,mode,gpu_counts,amplification_limit,amplification,planned_iteration_us,\
predicted_iteration_us,measured_iteration_us,measured_min_us,measured_max_us,predicted_over_measured,\
predicted_background_samples_per_s,background_samples_per_s,iteration_us,foreground_samples_per_s,\
foreground_slowdown,runs,iterations
Another Processor,4,0123456,net,8,2,dp,2x5,,1.5,3000,3000,5000,4900,5100,0.6,0,0,5000,1600,1,5,20
Another Processor,4,0123456,net,8,2,bp,2x4 1x1,1.1,1.1,2000,2000,4000,3900,4100,0.5,0,0,4000,2000,1,5,20
";

#[test]
fn printed_text_figure_and_report_follow_from_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let earlier = folder.path().join("earlier.csv");
    std::fs::write(&earlier, EARLIER).unwrap();
    let options = ["validate", "--quick", "--iterations", "3", "--with", earlier.to_str().unwrap()];
    let output = experiments(&options, folder.path());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let all = records(&folder.path().join("validate.csv"));
    let modes: Vec<&str> = all.iter().map(|row| row["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["dp", "bp", "dp+col", "bp+col", "dp", "bp"]);
    let rows = &all[..4];
    let printed: Vec<&str> = text.lines().filter(|line| line.starts_with(" two-towers ")).collect();
    for (place, row) in rows.iter().enumerate() {
        for field in ["predicted_iteration_us", "measured_min_us", "foreground_samples_per_s"] {
            assert!(number(row, field) > 0.0, "{field} in {row}");
        }
        let measured = number(row, "measured_iteration_us");
        assert!(
            (number(row, "measured_min_us")..=number(row, "measured_max_us")).contains(&measured),
            "{row}"
        );
        assert_eq!(row["planned_iteration_us"].is_number(), place < 2, "{row}");
        if place < 2 {
            // Alone, the simulation agrees with the plan.
            let planned = number(row, "planned_iteration_us");
            assert!((number(row, "predicted_iteration_us") / planned - 1.0).abs() < 1e-3, "{row}");
        }
        let (ratio, slowdown) = (
            number(row, "predicted_iteration_us") / measured,
            measured / number(&rows[place % 2], "measured_iteration_us"),
        );
        assert_close(number(row, "predicted_over_measured"), ratio, row);
        assert_close(number(row, "foreground_slowdown"), slowdown, row);
        assert_close(number(row, "foreground_samples_per_s"), number(row, "batch") / measured * 1e6, row);
        for cell in [format!("{ratio:.2}"), format!("{slowdown:.2}"), format!("{:.2}", measured / 1e3)] {
            assert!(
                printed[place].split_whitespace().any(|printed| printed == cell),
                "no {cell} in {}",
                printed[place]
            );
        }
    }
    let drawn = [("dp", "#56B4E9"), ("dp+col", "#0072B2"), ("bp", "#E69F00"), ("bp+col", "#D55E00")];
    let svg = std::fs::read_to_string(folder.path().join("validate.svg")).unwrap();
    let (mut across, mut up) = (Vec::new(), Vec::new());
    for (mode, color) in drawn {
        let mut drawn = centres(&svg, color);
        // The legend's mark is drawn last.
        drawn.pop();
        let of_mode: Vec<_> = all.iter().filter(|row| row["mode"] == mode).collect();
        assert_eq!(drawn.len(), of_mode.len(), "{mode}");
        for ((x, y), row) in drawn.into_iter().zip(of_mode) {
            across.push((x, number(row, "measured_iteration_us").ln()));
            up.push((y, number(row, "predicted_iteration_us").ln()));
        }
    }
    assert_on_one_scale(&across);
    assert_on_one_scale(&up);
    // The burst plan differs: it has a rank for each branch.
    assert_ne!(rows[0]["gpu_counts"], rows[1]["gpu_counts"]);
    let ratio = |field| number(&rows[0], field) / number(&rows[1], field);
    let said = format!(
        "* two-towers, alone: DP over BP: measured {:.2}, planned {:.2}, simulated {:.2}: ",
        ratio("measured_iteration_us"),
        ratio("planned_iteration_us"),
        ratio("predicted_iteration_us")
    );
    assert!(text.contains(&said), "no {said} in\n{text}");
    let report: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("validate.json")).unwrap()).unwrap();
    assert_eq!(report["rows"].as_array().unwrap().len(), 6);
    assert_close(
        number(&report["findings"][0], "measured_dp_over_bp"),
        ratio("measured_iteration_us"),
        &rows[0],
    );
    // The run of the other machine is shown as well.
    for said in [
        "Another Processor, 4 cores, commit 0123456; 5 runs of 20 iterations",
        "* net, alone: DP over BP: measured 1.25, planned 1.50, simulated 1.50: BP is faster, planned and \
         simulated rightly",
        "The simulation ranks 1 of 1 pairs rightly, 0 wrongly; 0 are too close to tell, 0 are one plan.",
    ] {
        assert!(text.contains(said), "no {said} in\n{text}");
    }
}

#[test]
fn invalid_options_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let (none, other) = (folder.path().join("none.csv"), folder.path().join("other.csv"));
    std::fs::write(&other, "model,batch\nvgg16,32\n").unwrap();
    for (options, says) in [
        (["validate", "--ranks", "1"], "from 2 to"),
        (["validate", "--ranks", "5"], "more than the 4 samples"),
        (["validate", "--runs", "1"], "from 2 to"),
        (["validate", "--model", "digits-cnn"], "--batch N"),
        (["validate", "--batch", "8"], "--model or --onnx"),
        (["validate", "--onnx", "none.onnx"], "none.onnx"),
        (["validate", "--iterations", "x"], "from 2 to"),
        (["validate", "--with", none.to_str().unwrap()], "none.csv"),
        (["validate", "--with", other.to_str().unwrap()], "not rows of"),
        (["search-time", "--runs", "0"], "0"),
        (["search-time", "--model", "vgg16"], "--model"),
    ] {
        let out = folder.path().join("out");
        let output = experiments(&options, &out);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
        assert!(!out.exists(), "nothing is left");
    }
}
