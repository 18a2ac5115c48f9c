//! Background jobs on several GPUs, and several jobs on one network.

use std::collections::HashMap;

use serde_json::Value;

use crate::command::{assert_refused, run};
use crate::figures::records;
use crate::svg::{assert_on_one_scale, centres};

type Record = HashMap<String, String>;

fn number(record: &Record, field: &str) -> f64 {
    record[field].parse().unwrap_or_else(|_| panic!("{field} is no number in {record:?}"))
}

#[test]
fn jobs_of_several_gpus_are_compared_with_partitions_and_placements_with_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["sharing", "--model", "vgg16", "--gpus", "8", "--links", "a100-100gbe"];
    let text = run(folder.path(), &options);
    for expected in ["simulated", "VGG-16", "never meet", "not needed", "none", "sharing-placements.csv"] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
    let rows = records(&folder.path().join("sharing.csv"));
    let sizes: Vec<&str> = rows.iter().map(|row| row["gpus_per_job"].as_str()).collect();
    assert_eq!(sizes, ["1", "2", "4", "8"]);
    for row in &rows {
        assert_eq!((row["mode"].as_str(), row["simulated"].as_str()), ("bp+col", "true"));
        assert!(number(row, "foreground_slowdown_median") <= 1.015, "{row:?}");
        assert!(number(row, "foreground_slowdown_p99") <= 1.03, "{row:?}");
        let total = number(row, "foreground_samples_per_s") + number(row, "background_samples_per_s");
        assert!((number(row, "total_samples_per_s") / total - 1.0).abs() < 1e-9, "{row:?}");
        let over = total / number(row, "partition_samples_per_s");
        assert!((number(row, "total_over_partition") / over - 1.0).abs() < 1e-9, "{row:?}");
        let count = |field: &str| row[field].parse::<usize>().unwrap();
        assert_eq!(count("gpus_per_job") * count("jobs"), count("gpus"));
    }
    // Jobs of more GPUs have fewer common windows. All 8 GPUs are never idle together.
    assert!(rows.windows(2).all(|pair| {
        number(&pair[0], "background_samples_per_s") > number(&pair[1], "background_samples_per_s")
    }));
    assert_eq!(rows[0]["jobs_with_windows"], "");
    assert_eq!((rows[3]["jobs_with_windows"].as_str(), rows[3]["used_share_of_windows"].as_str()), ("0", ""));

    let report: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("sharing.json")).unwrap()).unwrap();
    assert_eq!(report["schema"], "deeppool/report/v1");
    assert!(report["rows"][3]["used_share_of_windows"].is_null());
    assert_eq!(report["placements"].as_array().map(Vec::len), Some(6));

    let placements = records(&folder.path().join("sharing-placements.csv"));
    for of_jobs in placements.chunks(3) {
        let [packed, spread, by_host] = of_jobs else { panic!("{of_jobs:?}") };
        assert_eq!(by_host["placement"], "by-host");
        // Jobs on hosts of their own share no link.
        assert!((number(by_host, "max_slowdown") - 1.0).abs() < 1e-9, "{by_host:?}");
        assert!(number(packed, "slowdown") > 1.1, "{packed:?}");
        assert!(number(spread, "slowdown") >= number(packed, "slowdown"), "{spread:?}");
        for row in of_jobs {
            let slowdown = number(row, "iteration_us") / number(row, "alone_iteration_us");
            assert!((slowdown / number(row, "slowdown") - 1.0).abs() < 0.01, "{row:?}");
        }
    }

    let svg = std::fs::read_to_string(folder.path().join("sharing.svg")).unwrap();
    // The first mark is in the legend.
    let drawn = centres(&svg, "#0072B2").split_off(1);
    assert_eq!(drawn.len(), rows.len());
    let up = drawn.iter().zip(&rows).map(|((_, y), row)| (*y, number(row, "total_over_partition")));
    assert_on_one_scale(&up.collect::<Vec<_>>());
    let across = drawn.iter().zip(&rows).map(|((x, _), row)| (*x, number(row, "gpus_per_job").ln()));
    assert_on_one_scale(&across.collect::<Vec<_>>());
}

#[test]
fn invalid_sizes_and_links_are_refused_in_one_line() {
    assert_refused(&["sharing", "--gpus", "4", "--job-gpus", "8"], "--job-gpus 8 exceeds --gpus 4");
    assert_refused(&["sharing", "--links", "dgx-a100"], "connects 8 ranks, not 64");
    assert_refused(&["sharing", "--samples-per-gpu", "1000000"], "exceeds 1048576");
    assert_refused(&["sharing", "--links", "rope"], "there is no link model");
}
