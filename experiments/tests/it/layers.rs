//! Speed-up of single layers.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::figures::records;
use crate::rows::number;
use crate::svg::{assert_on_one_scale, centres};

fn layers(folder: &Path, options: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_experiments"))
        .args(["layers", "--json", "--out", folder.to_str().unwrap()])
        .args(options)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // GPUs that are asked for and cannot be used are counted.
    let asked = options.iter().skip_while(|option| **option != "--gpus").nth(1);
    let asked = asked.map_or(0, |gpus| gpus.parse().unwrap());
    let left_out = asked - report["batch"].as_u64().unwrap().min(asked);
    let warning = format!("warning: left out {left_out} of {asked} GPUs: ");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let is_expected = if left_out > 0 { stderr.starts_with(&warning) } else { stderr.is_empty() };
    assert!(is_expected, "{options:?}: {stderr}");
    report
}

#[test]
fn speedups_follow_from_the_times() {
    let folder = tempfile::tempdir().unwrap();
    for (options, counts) in [
        (&[][..], &[1, 2, 4, 8, 16, 32, 64][..]),
        (
            &["--model", "inception-v3", "--batch", "12", "--gpus", "64", "--device", "h100"],
            &[1, 2, 4, 8, 12],
        ),
        (&["--model", "gpt2", "--gpus", "6", "--link", "ethernet-25g"], &[1, 2, 4, 6]),
    ] {
        let report = layers(folder.path(), options);
        let batch = report["batch"].as_u64().unwrap();
        for rows in report["rows"].as_array().unwrap().chunk_by(|a, b| a["layer"] == b["layer"]) {
            let gpus: Vec<u64> = rows.iter().map(|row| row["gpus"].as_u64().unwrap()).collect();
            assert_eq!(gpus, counts);
            let time =
                |row: &Value| ["forward_us", "backward_us", "update_us"].map(|field| number(row, field));
            let time = |row: &Value| time(row).iter().sum::<f64>();
            for (row, gpus) in rows.iter().zip(gpus) {
                assert_eq!(row["samples"], batch.div_ceil(gpus));
                let speedup = time(&rows[0]) / time(row);
                let summed = time(&rows[0]) / (time(row) + number(row, "all_reduce_us"));
                for (field, expected) in [
                    ("speedup", speedup),
                    ("speedup_with_all_reduce", summed),
                    ("amplification", gpus as f64 / speedup),
                ] {
                    assert!((number(row, field) / expected - 1.0).abs() < 1e-9, "{field} of {row}");
                }
                // Fewer samples take no longer, and the speed-up is at most the number of GPUs.
                assert!(speedup > 1.0 - 1e-9 && speedup < gpus as f64 * (1.0 + 1e-9), "{row}");
            }
        }
        let records = records(&folder.path().join("layers.csv"));
        assert_eq!(records.len(), report["rows"].as_array().unwrap().len());
        let svg = std::fs::read_to_string(folder.path().join("layers.svg")).unwrap();
        assert!(svg.contains("Speed-up of each layer of ") && svg.contains("(modelled"), "{svg}");
        // The figure has a circle for each record, on logarithmic scales.
        let drawn = centres(&svg, "");
        assert_eq!(drawn.len(), records.len());
        let on_scale = |field: &str, pixel: fn(&(f64, f64)) -> f64| {
            let value = |record: &HashMap<String, String>| record[field].parse::<f64>().unwrap().ln();
            let points = drawn.iter().zip(&records).map(|(at, record)| (pixel(at), value(record)));
            assert_on_one_scale(&points.collect::<Vec<_>>());
        };
        on_scale("gpus", |at| at.0);
        on_scale("speedup", |at| at.1);
    }
}

#[test]
fn invalid_options_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for (options, says) in [
        (["--model", "vgg"], "vgg16"),
        (["--onnx", "none.onnx"], "none.onnx"),
        (["--batch", "0"], "from 1 to"),
        (["--device", "b200"], "a100"),
        (["--link", "no.json"], "no.json"),
    ] {
        let out = folder.path().join("out");
        let output = Command::new(env!("CARGO_BIN_EXE_experiments"))
            .args(["layers", "--out", out.to_str().unwrap()])
            .args(options)
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
        assert!(!out.exists(), "nothing is left");
    }
}
