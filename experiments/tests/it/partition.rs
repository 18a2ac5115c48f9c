//! Sharing GPUs against static partitions.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::Value;

use crate::command::run;
use crate::figures::records;
use crate::rows::{Report, find, find_split, number, quoted_table};
use crate::svg::{assert_on_one_scale, centres};

const OPTIONS: [&[&str]; 3] = [
    &[],
    &["--model", "vgg16", "--batch", "16", "--gpus", "16", "--link", "a100-100gbe"],
    &["--model", "digits-cnn", "--batch", "12", "--gpus", "3"],
];

/// Result of a command: its folder, its text and its records.
struct Found {
    folder: tempfile::TempDir,
    text: String,
    records: Vec<HashMap<String, String>>,
}

/// Runs the experiment for all options, once for all tests.
fn found() -> &'static [Found] {
    static FOUND: OnceLock<Vec<Found>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let of = |options: &[&str]| {
            let folder = tempfile::tempdir().unwrap();
            let text = run(folder.path(), &[&["partition"], options].concat());
            let records = records(&folder.path().join("partition.csv"));
            Found { folder, text, records }
        };
        OPTIONS.into_iter().map(of).collect()
    })
}

/// Returns whether layers of a record's plan may be split in all ways.
fn has_all_splits(record: &HashMap<String, String>) -> bool {
    record["all_splits"] == "true"
}

/// Returns the maximum total throughput of points of `ways`, alone or two in turns, with a
/// foreground of at least `speed`.
fn oracle(records: &[&HashMap<String, String>], ways: &[&str], speed: f64) -> Option<f64> {
    let speed = speed * (1.0 - 1e-9);
    let point = |record: &&&HashMap<String, String>| {
        let number = |field: &str| record[field].parse::<f64>().unwrap();
        let foreground = number("foreground_samples_per_s");
        (foreground, foreground + number("background_samples_per_s"))
    };
    let is_of_ways = |record: &&&HashMap<String, String>| ways.contains(&record["mode"].as_str());
    let points: Vec<(f64, f64)> = records.iter().filter(is_of_ways).map(|record| point(&record)).collect();
    let fast = points.iter().filter(|point| point.0 >= speed);
    let in_turns = fast.clone().flat_map(|fast| {
        let slow = points.iter().filter(|point| point.0 < speed);
        slow.map(|slow| slow.1 + (fast.1 - slow.1) * (speed - slow.0) / (fast.0 - slow.0))
    });
    fast.clone().map(|point| point.1).chain(in_turns).reduce(f64::max)
}

#[test]
fn totals_match_the_oracle_and_sharing_is_at_least_its_parts() {
    for Found { folder, text, records } in found() {
        let report = std::fs::read(folder.path().join("partition.json")).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        for network in report["networks"].as_array().unwrap() {
            let of_network: Vec<_> = records
                .iter()
                .filter(|record| record["model"] == network["model"].as_str().unwrap())
                .collect();
            assert_eq!(of_network.len(), network["rows"].as_array().unwrap().len());
            let dp = of_network.iter().find(|record| record["mode"] == "dp").unwrap();
            let dp: f64 = dp["foreground_samples_per_s"].parse().unwrap();
            let totals = network["totals"].as_array().unwrap();
            assert_eq!(totals.len(), 4);
            for at in totals {
                let speed = number(at, "foreground_samples_per_s");
                assert!((speed - dp * number(at, "foreground_over_dp")).abs() < 1e-6 * dp);
                let by_samples: Vec<_> =
                    of_network.iter().copied().filter(|record| !has_all_splits(record)).collect();
                let of = |ways: &[&str]| oracle(&by_samples, ways, speed);
                let sharing = ["dp", "dp+col", "bp", "bp+col", "bg"];
                for (field, expected) in [
                    ("shared_samples_per_s", of(&sharing)),
                    ("split_shared_samples_per_s", oracle(&of_network, &sharing, speed)),
                    ("partition_samples_per_s", of(&["partition", "bg"])),
                ] {
                    let expected = expected.unwrap();
                    assert!((number(at, field) / expected - 1.0).abs() < 1e-9, "{field} of {at}: {expected}");
                }
                for shared in ["shared", "split_shared"] {
                    let total = number(at, &format!("{shared}_samples_per_s"));
                    let over = total / number(at, "partition_samples_per_s");
                    assert!((number(at, &format!("{shared}_over_partition")) - over).abs() < 1e-12, "{at}");
                    let part = at["foreground_over_dp"].as_f64().unwrap();
                    assert!(text.contains(&format!("{over:.2} at {part}")), "{shared}: {at}");
                }
                // Over all limits, BP+Col with its parts is at least as good as each part.
                for way in ["dp", "dp+col", "bp"] {
                    let alone = of(&[way]).unwrap_or(0.0);
                    assert!(
                        of(&["bp+col", "dp+col", "bp", "dp", "bg"]).unwrap() >= alone * (1.0 - 1e-9),
                        "{way}: {at}"
                    );
                }
            }
        }
    }
}

#[test]
fn table_of_docs_clusters_equals_the_report() {
    let report = std::fs::read(found()[0].folder.path().join("partition.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let of_network = |network: &Value| {
        ["shared_over_partition", "split_shared_over_partition"].map(|field| {
            let over = network["totals"].as_array().unwrap().iter();
            over.map(|at| format!("{:.2}", number(at, field))).collect::<Vec<_>>()
        })
    };
    let expected = report["networks"].as_array().unwrap().iter().flat_map(of_network);
    let quoted = quoted_table(include_str!("../../../docs/clusters.md"), "partition");
    let quoted = quoted.into_iter().map(|row| row[2..].to_vec());
    assert_eq!(quoted.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

/// Compares each burst plan with background jobs to the same plan without.
#[test]
fn background_work_adds_to_the_total_at_every_limit() {
    for Found { records, .. } in found() {
        let total = |record: &HashMap<String, String>| record["total_samples_per_s"].parse::<f64>().unwrap();
        for alone in records.iter().filter(|record| record["mode"] == "bp") {
            let same = |record: &&HashMap<String, String>| {
                ["model", "all_splits", "amplification", "foreground_gpus"]
                    .iter()
                    .all(|field| record[*field] == alone[*field])
                    && record["mode"] == "bp+col"
            };
            let max = records.iter().filter(same).map(total).reduce(f64::max).unwrap();
            // The policy may slow the foreground down slightly.
            assert!(max >= total(alone) * 0.99, "{max} of {alone:?}");
        }
    }
}

#[test]
fn partition_agrees_with_throughput() {
    let throughput = Report::of("throughput", &[]);
    let records = &found()[0].records;
    for rows in throughput.by_model() {
        let by_samples = ["dp", "dp+col", "bp", "bp+col", "bg"].map(|mode| (mode, false));
        for (mode, all_splits) in by_samples.into_iter().chain([("bp", true), ("bp+col", true)]) {
            let row = match (mode, all_splits) {
                ("bg", _) => &rows[9],
                (mode, true) => find_split(rows, mode),
                (mode, false) => find(rows, mode, true),
            };
            let is_same = |record: &&HashMap<String, String>| {
                let same = |field: &str| {
                    (record[field].parse::<f64>().unwrap() / number(row, field) - 1.0).abs() < 1e-9
                        || number(row, field) == 0.0 && record[field].parse::<f64>().unwrap() == 0.0
                };
                record["mode"] == mode
                    && has_all_splits(record) == all_splits
                    && record["model"] == row["model"].as_str().unwrap()
                    && ["foreground_samples_per_s", "background_samples_per_s"]
                        .iter()
                        .all(|field| same(field))
            };
            assert!(records.iter().any(|record| is_same(&record)), "{mode}: {row}");
        }
    }
}

/// Circles lie at foreground and total throughput on linear scales, in the order of each way's
/// records.
#[test]
fn points_match_their_records() {
    let folder = tempfile::tempdir().unwrap();
    let paper = ["partition", "--model", "digits-cnn", "--batch", "64", "--style", "paper"];
    run(folder.path(), &paper);
    let svg = std::fs::read_to_string(folder.path().join("partition-digits-cnn.svg")).unwrap();
    let records = records(&folder.path().join("partition.csv"));
    let colors = [
        ("bp", true, "#009E73"),
        ("bp+col", true, "#CC79A7"),
        ("bp", false, "#E69F00"),
        ("bp+col", false, "#D55E00"),
        ("dp", false, "#56B4E9"),
        ("dp+col", false, "#0072B2"),
        ("partition", false, "#000000"),
        ("bg", false, "#787878"),
    ];
    let (mut across, mut up) = (Vec::new(), Vec::new());
    for (way, all_splits, color) in colors {
        let mut drawn = centres(&svg, color);
        // The legend's mark is drawn last.
        drawn.pop();
        let is_of_way =
            |record: &&HashMap<String, String>| record["mode"] == way && has_all_splits(record) == all_splits;
        let of_way: Vec<_> = records.iter().filter(is_of_way).collect();
        assert_eq!(drawn.len(), of_way.len(), "{way}");
        for ((x, y), record) in drawn.into_iter().zip(of_way) {
            let number = |field: &str| record[field].parse::<f64>().unwrap();
            across.push((x, number("foreground_samples_per_s")));
            up.push((y, number("foreground_samples_per_s") + number("background_samples_per_s")));
        }
    }
    assert!(up.len() > 12);
    assert_on_one_scale(&across);
    assert_on_one_scale(&up);
}
