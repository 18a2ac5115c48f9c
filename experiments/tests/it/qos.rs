//! GPU-sharing presets and techniques. All results are simulated and equal on all machines.

use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;

use crate::command::run;
use crate::rows::{check_row, number};

/// Output of the command and rows of its report.
struct Qos {
    folder: tempfile::TempDir,
    text: String,
    rows: Vec<Value>,
}

/// Runs the experiment once for all tests.
fn qos() -> &'static Qos {
    static QOS: OnceLock<Qos> = OnceLock::new();
    QOS.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let text = run(folder.path(), &["qos"]);
        let report = std::fs::read(folder.path().join("qos.json")).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        Qos { folder, text, rows: report["rows"].as_array().unwrap().clone() }
    })
}

/// Returns the experiment's output folder.
pub(crate) fn folder() -> &'static Path {
    qos().folder.path()
}

/// Returns the foreground's slow-down at the median and the 99th percentile, and the background's
/// share of idle time.
fn figures(setting: &str, policy: &str) -> (f64, f64, f64) {
    let is = |row: &&Value| row["setting"] == setting && row["policy"] == policy;
    let row = qos().rows.iter().find(is).unwrap_or_else(|| panic!("no {policy} in {setting}"));
    let slowdown = |at: &str| number(row, &format!("foreground_slowdown_{at}"));
    (slowdown("median"), slowdown("p99"), number(row, "background_share_of_idle"))
}

/// Under `ungated` nothing withholds the background, under `artifact` all queued communication
/// does, and under `deeppool` only the foreground's current tasklet does.
#[test]
fn presets_use_idle_time_as_their_rules_allow() {
    let of = |policy| {
        let (median, p99, share) = figures("VGG-16", policy);
        println!("{policy}: {:.0}% of idle time, slow-down {median:.3} (p99 {p99:.3})", share * 100.0);
        assert!(median >= 1.0 && p99 >= median, "{policy}");
        (median, share)
    };
    let [ungated, artifact, deeppool, default] = ["ungated", "artifact", "deeppool", "default"].map(of);
    assert!(ungated.1 >= 0.98 && artifact.1 <= 0.4 && deeppool.1 >= 0.8);
    // Work in idle time slows the foreground less than work beside compute. Under `artifact` there
    // is little of either.
    assert!(default.1 > 0.9 && [ungated, deeppool].iter().all(|other| other.0 > default.0 + 0.005));
    assert!(artifact.0 > default.0);
}

#[test]
fn rows_account_for_all_time() {
    for row in &qos().rows {
        check_row(row, 2.0);
        for state in ["computing", "communicating", "idle"] {
            let share = &row[format!("background_share_of_{state}")];
            let time = number(row, &format!("{state}_fraction"));
            let rate = number(row, &format!("background_{state}_samples_per_s"));
            let Some(share) = share.as_f64() else {
                assert!(time == 0.0 && rate == 0.0, "{state} in {row}");
                continue;
            };
            assert!((0.0..=1.0 + 1e-9).contains(&share), "{state} in {row}");
            assert_eq!(share > 0.0, rate > 0.0, "{state} in {row}");
        }
    }
    // The name of a policy has no effect.
    assert_eq!(figures("VGG-16", "priority"), figures("VGG-16", "+ stream priority"));
}

#[test]
fn presets_are_compared_on_any_network() {
    let folder = tempfile::tempdir().unwrap();
    let own = ["qos", "--model", "digits-cnn", "--batch", "64", "--background-batch", "4", "--gpus", "4"];
    // With the links of a DGX A100 the plan uses one GPU.
    let text = run(folder.path(), &[&own[..], &["--link", "shared-memory"]].concat());
    assert!(!text.contains("Techniques"), "{text}");
    let report = std::fs::read(folder.path().join("qos.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let settings: Vec<&[Value]> = rows.chunk_by(|a, b| a["setting"] == b["setting"]).collect();
    assert_eq!(settings.len(), 2);
    for of_setting in settings {
        let policies: Vec<&str> = of_setting.iter().map(|row| row["policy"].as_str().unwrap()).collect();
        assert_eq!(policies, ["naive", "priority", "ungated", "artifact", "deeppool", "feedback", "default"]);
        for row in of_setting {
            check_row(row, 2.0);
        }
    }
}

/// Work in one launch queue keeps its order, and running work is not preempted.
#[test]
fn shared_launch_queue_makes_the_foreground_wait_for_earlier_launches() {
    let slowdown = |setting, policy| figures(setting, policy).0;
    let shared = "VGG-16, one launch queue";
    assert!(slowdown(shared, "ungated") > 5.0 && slowdown("VGG-16", "ungated") < 1.1);
    assert!(slowdown(shared, "+ captured graphs") > 1.3);
    assert!(slowdown(shared, "+ bounded pieces") < 1.1, "short pieces help");
}

/// Compares both lines of each technique in the printed text.
#[test]
fn techniques_change_more_where_they_are_said_to_matter() {
    let text = &qos().text;
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let of = |kind: &str| -> Vec<&str> {
        lines.iter().filter_map(|line| line.strip_prefix(kind).filter(|line| line.contains(" -> "))).collect()
    };
    let (matters, does_not) = (of("matters"), of("does not"));
    assert!(matters.len() == 10 && does_not.len() == 10, "{text}");
    for (matters, does_not) in matters.iter().zip(does_not) {
        let (more, less) = (change(matters), change(does_not));
        assert!(more > 0.1 && more > 1.1 * less, "{more:.3}: {matters}\n{less:.3}: {does_not}");
    }
}

/// Returns the size of a technique's effect: the change of the foreground's slow-down plus the
/// relative change of the background's throughput.
fn change(line: &str) -> f64 {
    let (_, figures) = line.split_once("FG slowdown ").unwrap();
    let of = |side: &str| -> (f64, f64) {
        let (slowdown, rest) = side.split_once(" (").unwrap();
        let (_, rate) = rest.split_once(" with ").unwrap();
        (slowdown.parse().unwrap(), rate.split_once(' ').unwrap().0.parse().unwrap())
    };
    let (without, with) = figures.split_once(" -> ").unwrap();
    let ((slow, rate), (slow_with, rate_with)) = (of(without), of(with));
    (slow - slow_with).abs() + (rate - rate_with).abs() / f64::max(rate, rate_with).max(1.0)
}
