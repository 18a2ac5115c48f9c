//! `deeppool epochs`.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use deeppool::time_to_accuracy::{AccuracyError, EpochCurve, Origin};
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, deeppool, files, json, refused, succeed};

const EPOCHS: &str = "epochs --model digits-cnn --data digits";

#[test]
fn points_equal_training_runs() -> Result<(), AccuracyError> {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let target = 0.9;
    let report =
        json(path, &format!("{EPOCHS} --batches 128,32 --seeds 2 --target {target} -o curve.json --json"));
    assert_eq!(files(path), ["curve.json"], "nothing is left behind");
    let curve = EpochCurve::from_json(&std::fs::read_to_string(path.join("curve.json")).unwrap())?;
    assert_eq!(report["curve"], serde_json::from_str::<Value>(&curve.to_json()).unwrap());
    let document = curve.document();
    assert_eq!((document.origin, document.samples_per_epoch), (Origin::Measured, 1437));
    assert_eq!((curve.range(), report["runs"].as_array().unwrap().len()), ((32, 128), 4));
    assert!(
        document
            .source
            .starts_with("deeppool epochs --model digits-cnn --data digits --batches 32,128 --seeds 2")
    );

    for point in curve.points() {
        // The batch is 4 times as large: the factor is 2 for `sqrt`, and 1 for `none`.
        let rate = if point.batch == 128 { 0.06 } else { 0.03 };
        let epochs = [0, 1].map(|seed| {
            let options =
                format!("--ranks 1 --batch {} --lr {rate} --seed {seed} --epochs 12 --json", point.batch);
            let trained = json(path, &format!("train --model digits-cnn --data digits {options}"));
            let rounds = trained["epochs"].as_array().unwrap();
            let is_there = |epoch: &&Value| epoch["test_accuracy"].as_f64().unwrap() >= target;
            let first = rounds.iter().find(is_there).expect("reached")["epoch"].as_u64().unwrap();
            (first * (1437 / point.batch as u64) * point.batch as u64) as f64 / 1437.0
        });
        let near = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-12;
        assert!(near(Some(point.epochs), f64::midpoint(epochs[0], epochs[1])), "{point:?}: {epochs:?}");
        assert!(
            near(point.epochs_min, epochs[0].min(epochs[1]))
                && near(point.epochs_max, epochs[0].max(epochs[1]))
        );
        assert_eq!((point.runs, point.missed), (Some(2), 0));
    }
    Ok(())
}

#[test]
fn missed_runs_are_counted_and_a_batch_without_reached_runs_fails() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let command = format!("{EPOCHS} --batches 16 --seeds 4 --target 0.97 -o curve.json");
    let output = deeppool(path, &format!("{command} --epochs 1"));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.starts_with("error: none of 4 runs with batch 16 reaches accuracy 0.97: the best one has 0.9"),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert_eq!(files(path), ["curve.json.partial"], "finished runs are kept");

    let output = deeppool(path, &format!("{command} --epochs 2 --json"));
    let errors = String::from_utf8(output.stderr).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let point = &report["curve"]["points"][0];
    let missed = point["missed"].as_u64().unwrap();
    assert_eq!((missed + point["runs"].as_u64().unwrap(), report["resumed"].as_u64()), (4, Some(0)));
    assert!(missed > 0);
    let warnings = errors.lines().filter(|line| line.contains("accuracy 0.97 is not reached in 2 epochs"));
    assert_eq!(warnings.count() as u64, missed, "{errors}");

    let output = deeppool(path, &format!("{EPOCHS} --batches 256 --seeds 1 --target 0.9 --lr 4 -o - "));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("and in 1 the loss was not finite") && output.stdout.is_empty(), "{errors}");
}

#[test]
fn a_stopped_measurement_is_resumed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let (partial, at) = ("curve.json.partial", |name: &str| path.join(name));
    let command = format!("{EPOCHS} --batches 32,64 --seeds 2 --target 0.9 -o curve.json");
    let whole = json(path, &format!("{command} --json"));
    let curve = fs::read(at("curve.json")).unwrap();

    // Three of four runs are complete, and one line is incomplete.
    let runs = whole["runs"].as_array().unwrap();
    let mut lines = vec!["\"digits-cnn on digits to 0.9 with momentum 0.9\"".to_owned()];
    lines.extend(runs[..3].iter().map(Value::to_string));
    let lines = lines.join("\n") + "\n";
    fs::write(at(partial), format!("{lines}{{\"batch\":64,")).unwrap();
    fs::remove_file(at("curve.json")).unwrap();
    let resumed = json(path, &format!("{command} --json"));
    assert_eq!((resumed["resumed"].as_u64(), &resumed["runs"]), (Some(3), &whole["runs"]));
    assert_eq!((fs::read(at("curve.json")).unwrap(), files(path)), (curve, vec!["curve.json".to_owned()]));

    // Runs with other learning rates or fewer epochs are not reused; those with other batches and
    // seeds are.
    for (options, expected) in
        [("--lr 0.04", "0"), ("--epochs 1 --target 0.9", "0"), ("--seeds 1", "2"), ("--batches 32", "2")]
    {
        fs::write(at(partial), &lines).unwrap();
        let output = deeppool(path, &format!("{EPOCHS} {} -o curve.json --json", with(options)));
        let found: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        let count = found.map_or("0".into(), |report| report["resumed"].to_string());
        assert_eq!(count, expected, "{options}");
        fs::remove_file(at(partial)).ok();
    }

    fs::write(at(partial), &lines).unwrap();
    let other = command.replace("0.9 ", "0.91 ");
    refused(
        path,
        &other,
        "curve.json.partial: the unfinished curve of `digits-cnn on digits to 0.9 with momentum 0.9`: finish",
    );
    fs::write(at(partial), format!("{lines}{{\"batch\":64,\n")).unwrap();
    refused(path, &command, "curve.json.partial: damaged at line 5: EOF");
}

#[test]
fn one_measurement_at_a_time_writes_a_curve() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let endless = format!("{EPOCHS} --batches 32 --seeds 1 --target 1 --epochs 1000000 -o curve.json");
    let mut first = command(path, &endless).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !path.join("curve.json.partial").exists() {
        assert!(first.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    let other = format!("{EPOCHS} --batches 64 --seeds 1 --target 0.5 -o curve.json");
    let in_use = "curve.json.partial: another run is writing this file: wait until it ends, or give another";
    refused(path, &other, in_use);
    first.kill().unwrap();
    first.wait().unwrap();
    succeed(path, &other);
    assert_eq!(files(path), ["curve.json"]);
}

/// Returns the options of the curve with replacements.
fn with(options: &str) -> String {
    let mut all = vec![("--batches", "32,64"), ("--seeds", "2"), ("--target", "0.9")];
    let changed: Vec<&str> = options.split(' ').collect();
    for pair in changed.chunks(2) {
        all.retain(|(name, _)| *name != pair[0]);
        all.push((pair[0], pair[1]));
    }
    all.iter().flat_map(|(name, value)| [*name, *value]).collect::<Vec<_>>().join(" ")
}

#[test]
fn invalid_options_fail_before_training() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let cases = [
        ("--batches 16 --target 1.1 -o c.json", "the target accuracy must be above 0, at most 1, got 1.1"),
        ("--batches 16 --target 0 -o c.json", "the target accuracy must be above 0"),
        ("--batches 16 --target nan -o c.json", "the target accuracy must be above 0"),
        ("--batches 16,2000 --target 0.9 -o c.json", "1437 training samples"),
        ("--batches 0 --target 0.9 -o c.json", "from 1 to 1048576"),
        ("--target 0.9 -o c.json", "--batches"),
        ("--batches 16 -o c.json", "--target"),
        ("--batches 16 --target 0.9", "--output"),
        ("--batches 16 --target 0.9 -o no/c.json", "does not exist"),
        ("--batches 16 --target 0.9 -o c.json --lr 0", "the learning rate must be above 0"),
        ("--batches 16 --target 0.9 -o c.json --momentum 1", "the momentum must be in 0..1"),
        ("--batches 16 --target 0.9 -o c.json --seeds 0", "1..=10000"),
        ("--batches 16 --target 0.9 -o - --json", "--json prints to standard output"),
    ];
    for (options, expected) in cases {
        refused(path, &format!("{EPOCHS} {options}"), expected);
    }
    let help = succeed(path, "epochs --help");
    assert!(help.contains("Examples:") && help.contains("FILE.partial"), "{help}");
}
