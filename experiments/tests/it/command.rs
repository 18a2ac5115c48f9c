//! The command line as a user calls it.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::page::{SMALL, files_in, shared, write_page};

fn experiments(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_experiments")).args(args).output().unwrap()
}

/// Runs an experiment with the given output folder and returns the text that it prints.
pub(crate) fn run(folder: &Path, args: &[&str]) -> String {
    let output = experiments(&[args, &["--out", folder.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(folder: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&run(folder, &[args, &["--json"]].concat())).unwrap()
}

/// Asserts that the command fails with exit code 2 and one line on stderr that contains `says`.
pub(crate) fn assert_refused(args: &[&str], says: &str) {
    let output = experiments(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains(says), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn list_has_experiments_and_aliases() {
    let list = String::from_utf8(experiments(&["list"]).stdout).unwrap();
    assert!(list.contains("throughput, fig7"), "{list}");
    assert!(list.contains("partition") && list.contains("qos"), "{list}");
    assert!(list.contains("not known"), "{list}");
    let list: Value = serde_json::from_slice(&experiments(&["list", "--json"]).stdout).unwrap();
    assert_eq!(list["experiments"][0]["name"], "layers");
}

#[test]
fn experiment_writes_table_csv_figure_and_report() {
    let folder = tempfile::tempdir().unwrap();
    // The folder does not exist yet.
    let out = folder.path().join("made/here");
    let table = run(&out, &["fig7"]);
    for expected in
        ["simulated", "a100", "dgx-a100", "amplification limit 2", "VGG-16", "BP+Col over DP", "wrote "]
    {
        assert!(table.contains(expected), "no {expected} in\n{table}");
    }

    let csv = std::fs::read_to_string(out.join("throughput.csv")).unwrap();
    let mut records = csv::Reader::from_reader(csv.as_bytes());
    let header = records.headers().unwrap().clone();
    assert!(header.iter().any(|field| field == "foreground_samples_per_s"));
    assert!(header.iter().any(|field| field == "simulated"));
    assert_eq!(records.records().map(Result::unwrap).count(), 30);

    let svg = std::fs::read_to_string(out.join("throughput.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for expected in ["(simulated)", "dgx-a100", "Inception-V3, batch 32", "throughput (samples/s)", "BG only"]
    {
        assert!(svg.contains(expected), "no {expected} in the figure");
    }

    let report = std::fs::read_to_string(out.join("throughput.json")).unwrap();
    assert_eq!(report, run(&out, &["throughput", "--json"]), "printed and written reports are equal");
}

#[test]
fn equal_commands_write_equal_bytes() {
    // CI runs all parts.
    let full: &[&str] = if std::env::var_os("EXPERIMENTS_FULL").is_some() { &["--full"] } else { &[] };
    let first = if full.is_empty() { shared().0.clone() } else { all(full) };
    let second = all(full);
    assert!(first.len() > 10 && first.len() == second.len(), "{:?}", first.keys());
    for (name, content) in first {
        assert!(second[&name] == content, "{name:?}");
    }
}

/// Returns the files of all experiments on a small network, with more options.
fn all(options: &[&str]) -> HashMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    write_page(folder.path(), options);
    files_in(folder.path())
}

#[test]
fn all_reports_every_experiment() {
    let folder = tempfile::tempdir().unwrap();
    let report: Value = serde_json::from_slice(&shared().1).unwrap();
    let reports = report["reports"].as_array().unwrap();
    let names: Vec<&str> = reports.iter().map(|report| report["experiment"].as_str().unwrap()).collect();
    // Experiments with their own networks are left out.
    assert_eq!(names, ["layers", "throughput", "limits", "plans", "partition", "qos"]);
    for experiment in ["throughput", "partition"] {
        let of_all = reports.iter().find(|report| report["experiment"] == experiment).unwrap();
        assert_eq!(&json(folder.path(), &[&[experiment], &SMALL[..]].concat()), of_all);
    }
}

/// Without feature `measure`, experiments that train are refused with the command that runs them.
#[cfg(not(feature = "measure"))]
#[test]
fn training_needs_a_feature() {
    for line in [&["validate", "--quick"][..], &["spb"], &["all", "--full"]] {
        let command = format!("cargo run --release -p experiments --features measure -- {}", line.join(" "));
        assert_refused(line, &command);
    }
}

#[test]
fn invalid_commands_exit_with_code_2_and_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_refused(&["throughput", "--out", file.join("out").to_str().unwrap()], "cannot make this folder");
    assert_refused(&["fig99"], "fig99");
    assert_refused(&["throughput", "--gpus", "0"], "1 to 1024");
    assert_refused(&["throughput", "--amplification", "0.9"], "at least 1");
    assert_refused(&["throughput", "--amplification", "inf"], "at least 1");
    assert_refused(
        &["throughput", "--policy", "rude"],
        "naive, priority, ungated, artifact, deeppool, feedback, default",
    );
}

/// Asserts that two values have the same keys and strings, and numbers within a tolerance.
fn assert_alike(found: &Value, expected: &Value) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
            found.values().zip(expected.values()).for_each(|(found, expected)| assert_alike(found, expected));
        }
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len());
            found.iter().zip(expected).for_each(|(found, expected)| assert_alike(found, expected));
        }
        (Value::Number(found), Value::Number(expected)) => {
            let [found, expected] = [found, expected].map(|number| number.as_f64().unwrap());
            assert!((found - expected).abs() <= 1e-4 * expected.abs().max(1.0), "{found}, not {expected}");
        }
        _ => assert_eq!(found, expected),
    }
}

/// A profile with the times of a device model gives the model's results, up to the file's rounding
/// to nanoseconds.
#[test]
fn profile_file_replaces_the_device_model() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let network = layer_graph::zoo::model("resnet-18").unwrap();
    let model = layer_profile::DeviceModel::named("h100").unwrap();
    let profile = model.profile(&network, &[1, 2, 3, 4, 6, 8, 12, 16]).unwrap();
    std::fs::write(&file, profile.to_json()).unwrap();
    let file = file.to_str().unwrap();
    for experiment in ["throughput", "plans", "layers"] {
        let found = |options: &[&str]| {
            let same = ["--batch", "16", "--gpus", "4", "--link", "dgx-h100"];
            json(folder.path(), &[&[experiment], options, &same[..]].concat())
        };
        assert_alike(&found(&["--profile", file]), &found(&["--device", "h100", "--model", "resnet-18"]));
    }

    assert_refused(&["throughput", "--profile", file, "--batch", "64"], "make one with --batches 1,8,");
    let scale = ["scale", "--profile", file, "--batch", "16", "--gpus", "16"];
    assert_refused(&scale, "has times of 1 to 16 samples, but 32");
    assert_refused(&["limits", "--profile", file, "--model", "vgg16", "--batch", "16"], "resnet-18");
    assert_refused(&["plans", "--profile", file, "--device", "a100"], "--device");
    assert_refused(&["layers", "--profile", "none.json"], "none.json");
}

#[test]
fn network_device_links_and_batches_can_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let own = [
        "--model",
        "resnet-18",
        "--batch",
        "48",
        "--background-batch",
        "4",
        "--device",
        "h100",
        "--gpus",
        "6",
    ];
    let report = json(folder.path(), &[&["throughput", "--link", "ethernet-100g"], &own[..]].concat());
    assert_eq!((&report["device"], &report["link"]), (&"h100".into(), &"ethernet-100g".into()));
    assert_eq!((&report["background_batch"], &report["gpus"]), (&4.into(), &6.into()));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    assert!(rows.iter().all(|row| row["model"] == "resnet-18" && row["batch"] == 48), "{rows:?}");
    assert_refused(&["throughput", "--model", "resnet-18"], "--batch N");
    assert_refused(&["qos", "--model", "resnet-18"], "--batch N");
    assert_refused(&["throughput", "--link", "dgx-a100", "--gpus", "16"], "dgx-a100");
    let out = folder.path().join("refused");
    assert_refused(
        &[
            "throughput",
            "--out",
            out.to_str().unwrap(),
            "--model",
            "gpt2",
            "--batch",
            "16",
            "--background-batch",
            "4096",
        ],
        "background",
    );
}
