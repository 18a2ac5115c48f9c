//! Burst plans with split layers.

use std::collections::HashMap;

use layer_graph::Split;

use crate::command::{assert_refused, run};
use crate::figures::records;
use crate::svg::{assert_on_one_scale, centres};

type Record = HashMap<String, String>;

fn number(record: &Record, field: &str) -> f64 {
    record[field].parse().unwrap_or_else(|_| panic!("{field} is no number in {record:?}"))
}

#[test]
fn plans_with_more_ways_are_compared_with_those_by_samples() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["splits", "--model", "vgg16", "--gpus", "8,3", "--batch", "32"];
    let text = run(folder.path(), &options);
    for expected in ["simulated", "dgx-a100-pod", "limit 2", "(vgg16 on 8)", "modelled, not measured"] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
    let labels = Split::ALL.map(Split::label);
    let ways: Vec<&str> = std::iter::once("samples").chain(labels).chain(["all"]).collect();
    let records = records(&folder.path().join("splits.csv"));
    let cases: Vec<&[Record]> = records.chunk_by(|a, b| a["gpus"] == b["gpus"]).collect();
    assert_eq!(cases.len(), 2);
    let mut drawn_at = Vec::new();
    let svg = std::fs::read_to_string(folder.path().join("splits.svg")).unwrap();
    for (case, gpus) in cases.into_iter().zip(["3", "8"]) {
        assert_eq!(case.len(), 1 + 2 * ways.len());
        let (dp, plans) = case.split_first().unwrap();
        assert_eq!((dp["mode"].as_str(), dp["gpus"].as_str()), ("dp", gpus));
        for plans in plans.chunks(ways.len()) {
            let time = |record: &Record| number(record, "iteration_us");
            for (record, name) in plans.iter().zip(&ways) {
                assert_eq!((record["splits"].as_str(), record["mode"].as_str()), (*name, "bp"));
                let limit = record["amplification_limit"].parse().unwrap_or(f64::INFINITY);
                assert!(number(record, "amplification") <= limit * (1.0 + 1e-9), "{record:?}");
                for (field, other) in [("times_as_fast_as_dp", dp), ("times_as_fast_as_samples", &plans[0])] {
                    let ratio = number(record, field) * time(record) / time(other);
                    assert!((ratio - 1.0).abs() < 1e-9, "{field} of {record:?}");
                }
                // Layers are split in the given way only.
                let is_expected = |part: &str| *name == "all" || part.ends_with(name);
                let split_layers = &record["split_layers"];
                assert!(split_layers.is_empty() || split_layers.split(", ").all(is_expected), "{record:?}");
                assert!(time(record) <= time(&plans[0]) * (1.0 + 1e-9), "{record:?}");
            }
            // The linear layers of VGG-16 are split by features or inputs.
            assert!(gpus == "3" || time(&plans[0]) > 1.2 * time(plans.last().unwrap()), "{plans:?}");
        }
        drawn_at.push(&plans[..ways.len()]);
    }
    let colors = ["#0072B2", "#56B4E9", "#E69F00", "#009E73", "#CC79A7"];
    let colors: Vec<&str> = colors[..=labels.len()].iter().copied().chain(["#D55E00"]).collect();
    let mut panels = [const { Vec::new() }; 2];
    for (index, color) in colors.into_iter().enumerate() {
        // The first mark is in the legend.
        let drawn = centres(&svg, color).split_off(1);
        assert_eq!(drawn.len(), 2, "{}", ways[index]);
        for ((panel, (x, _)), plans) in panels.iter_mut().zip(drawn).zip(&drawn_at) {
            panel.push((x, number(&plans[index], "times_as_fast_as_dp")));
        }
    }
    for panel in &panels {
        assert_on_one_scale(panel);
    }
}

#[test]
fn more_gpus_than_links_connect_are_refused_in_one_line() {
    assert_refused(&["splits", "--link", "dgx-a100", "--gpus", "8,16"], "dgx-a100");
    assert_refused(&["splits", "--gpus", "1,2,3,4,5,6,7,8,9"], "at most 8");
}
