//! Comparisons from one GPU to clusters of several hosts.

use std::collections::HashMap;

use serde_json::Value;

use crate::command::{assert_refused, run};
use crate::figures::records;
use crate::svg::{assert_on_one_scale, centres};

#[test]
fn clusters_are_compared_with_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let table = run(folder.path(), &["scale", "--gpus", "16", "--model", "vgg16", "--batch", "32"]);
    for expected in
        ["simulated", "dgx-a100-pod", "vgg16", "limit 2", "ceiling", "scale.csv", "global batch 32: on 1"]
    {
        assert!(table.contains(expected), "no {expected} in\n{table}");
    }
    let report: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("scale.json")).unwrap()).unwrap();
    for row in report["rows"].as_array().unwrap() {
        let figure = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"));
        // Data parallelism on any number of GPUs is also a burst plan.
        assert!(figure("fastest_over_partition") > 0.999, "{row}");
        assert!(figure("total_over_partition_at_its_fastest") > 0.99, "{row}");
        // So are plans whose layers are divided by samples, with more ways.
        let splits = [
            ("split_fastest_over_partition", "fastest_over_partition"),
            ("split_total_over_partition_at_09", "total_over_partition_at_09"),
        ];
        for (split, by_samples) in splits {
            assert!(figure(split) >= figure(by_samples) * (1.0 - 1e-9), "{row}");
        }
        assert!(figure("total_over_dp_at_095") <= figure("ceiling_over_dp_at_095"), "{row}");
    }

    let svg = std::fs::read_to_string(folder.path().join("scale-vgg16.svg")).unwrap();
    let records = records(&folder.path().join("scale.csv"));
    let number = |record: &HashMap<String, String>, field: &str| record[field].parse::<f64>().ok();
    let batch = |record: &HashMap<String, String>| number(record, "batch").unwrap();
    let gpus = |record: &HashMap<String, String>| number(record, "gpus").unwrap();
    // The two panels have different scales of GPUs and the same scale of ratios.
    let mut across = [const { Vec::new() }; 2];
    let mut up = Vec::new();
    for (color, ratio, over) in [
        ("#56B4E9", "split_fastest_over_partition", None),
        ("#E69F00", "split_total_over_partition_at_09", None),
        ("#0072B2", "fastest_over_partition", None),
        ("#D55E00", "total_over_partition_at_09", None),
        ("#787878", "dp_foreground_samples_per_s", Some("partition_foreground_samples_per_s")),
    ] {
        // The first mark is in the legend.
        let mut drawn = centres(&svg, color).into_iter().skip(1);
        for (panel, across) in across.iter_mut().enumerate() {
            let of_panel = |record: &&HashMap<String, String>| {
                let expected = if panel == 0 { 32.0 } else { 2.0 * gpus(record) };
                (batch(record) - expected).abs() < 0.5
            };
            for record in records.iter().filter(of_panel) {
                let Some(ratio) = number(record, ratio) else { continue };
                let (x, y) = drawn.next().unwrap();
                across.push((x, gpus(record).ln()));
                up.push((y, ratio / over.map_or(1.0, |over| number(record, over).unwrap())));
            }
        }
        assert_eq!(drawn.next(), None, "{ratio}");
    }
    for across in across {
        assert_on_one_scale(&across);
    }
    assert!(up.len() >= 40);
    assert_on_one_scale(&up);
}

#[test]
fn invalid_clusters_are_refused_in_one_line() {
    assert_refused(&["scale", "--link", "rope"], "there is no link model");
    assert_refused(&["scale", "--link", "dgx-a100", "--gpus", "16"], "connects 8 ranks, not 16");
}
