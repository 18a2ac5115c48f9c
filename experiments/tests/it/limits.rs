//! Throughput by amplification limit.

use std::collections::HashMap;

use crate::command::run;
use crate::figures::records;
use crate::svg::{assert_on_one_scale, centres};

#[test]
fn points_match_their_records() {
    type Rate<'a> = &'a dyn Fn(&HashMap<String, String>) -> f64;
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["limits", "--model", "digits-cnn", "--batch", "64", "--gpus", "4"]);
    let svg = std::fs::read_to_string(folder.path().join("limits.svg")).unwrap();
    let records = records(&folder.path().join("limits.csv"));
    let number = |record: &HashMap<String, String>, field: &str| record[field].parse::<f64>().unwrap();
    let foreground = |record: &HashMap<String, String>| number(record, "foreground_samples_per_s");
    let total =
        |record: &HashMap<String, String>| foreground(record) + number(record, "background_samples_per_s");
    let dp = records.iter().find(|record| record["mode"] == "dp").unwrap();
    let (mut across, mut up) = (Vec::new(), Vec::new());
    let lines: [(&str, &str, Rate<'_>); 3] =
        [("bp+col", "#D55E00", &total), ("bp", "#0072B2", &foreground), ("bp+col", "#009E73", &foreground)];
    for (mode, color, rate) in lines {
        let of_mode: Vec<_> = records.iter().filter(|record| record["mode"] == mode).collect();
        // The first mark is in the legend.
        let drawn = centres(&svg, color).split_off(1);
        assert_eq!(drawn.len(), of_mode.len(), "{mode}");
        for ((x, y), record) in drawn.into_iter().zip(of_mode) {
            across.push((x, number(record, "amplification_limit")));
            up.push((y, rate(record) / foreground(dp)));
        }
    }
    assert!(up.len() > 12);
    assert_on_one_scale(&across);
    assert_on_one_scale(&up);
}
