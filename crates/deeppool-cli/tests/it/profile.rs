//! `deeppool profile --engine cpu`: output, files, and resuming.

use std::process::Stdio;
use std::time::{Duration, Instant};

use command_line::files::LockedFile;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, measure, refused, succeed};

#[test]
fn measured_profiles_have_spreads_and_conditions() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    // Other tests compute at the same time, which may disturb many attempts.
    let profile = "profile --model digits-cnn --engine cpu --threads 2 --batches 1,8 -o profile.json";
    let shown = measure(path, &format!("{profile} --attempts 50"));
    for part in [
        "digits-cnn on ",
        "2 threads, measured",
        "medians of 10 ±",
        "layer-profile 0.",
        "Each layer alone",
        "conv2_3x3",
        "outliers",
        "The whole network",
        "sum of layers",
        "wrote profile.json",
    ] {
        assert!(shown.contains(part), "`{part}` is not in\n{shown}");
    }
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 1, "the journal is left behind");

    let plan = succeed(path, "plan --model digits-cnn --profile profile.json --gpus 4 --batch 8");
    assert!(plan.contains("measured") && plan.contains("2 threads"), "{plan}");
    assert!(plan.contains(", measured (f32; layer-engine "), "{plan}");
}

#[test]
fn profile_options_are_validated() {
    let folder = TempDir::new().unwrap();
    let profile = "profile --model digits-cnn -o profile.json";
    let cases = [
        (format!("{profile} --engine cpu --repeats 9"), "from 10 to 10000"),
        (format!("{profile} --engine cpu --repeats many"), "from 10 to 10000"),
        (format!("{profile} --engine cpu --threads 0"), "from 1 to 1024"),
        (format!("{profile} --engine cpu --attempts 0"), "from 1 to 100"),
        (format!("{profile} --device a100 --threads 2"), "cannot be used with"),
        (format!("{profile} --device a100 --repeats 20"), "cannot be used with"),
        (format!("{profile} --engine cpu --batches 4,2"), "ascending"),
    ];
    for (arguments, expected) in cases {
        refused(folder.path(), &arguments, expected);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_killed_profile_is_resumed() {
    const PROFILE: &str =
        "profile --model digits-cnn --engine cpu --repeats 60 --batches 1,2,16 --attempts 1 -o profile.json";
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let journal = path.join("profile.json.partial");
    let lines = || std::fs::read_to_string(&journal).map_or(0, |text| text.matches('\n').count());

    let mut child = command(path, PROFILE).stdout(Stdio::null()).spawn().unwrap();
    let patience = Instant::now();
    while lines() < 8 {
        assert!(child.try_wait().unwrap().is_none() && patience.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!path.join("profile.json").exists(), "killed too late to show anything");
    let finished = lines() - 1;
    let killed = std::fs::read_to_string(&journal).unwrap();

    let held = LockedFile::open(&journal).unwrap();
    refused(path, PROFILE, "profile.json.partial: another run is writing this file");
    drop(held);
    refused(path, &PROFILE.replace("60", "61"), "was begun with 60 repeats, not 61");
    refused(path, &PROFILE.replace("1,2,16", "1,2"), "was begun for the batches [1, 2, 16], not [1, 2]");
    refused(path, &PROFILE.replace("cpu", "cpu --threads 2"), "was begun on the device");
    refused(path, &PROFILE.replace("digits-cnn", "vgg11"), "is of the network `digits-cnn`, not `vgg11`");

    let report: Value = serde_json::from_str(&measure(path, &format!("{PROFILE} --json"))).unwrap();
    let layers = report["profile"]["layers"].as_array().unwrap();
    assert_eq!(report["resumed"], finished);
    assert_eq!(report["measured"], (layers.len() + 1) * 3 - finished);
    assert!(!journal.exists());
    let saved: Value = serde_json::from_slice(&std::fs::read(path.join("profile.json")).unwrap()).unwrap();
    assert_eq!(saved, report["profile"]);
    // The measurements of the killed run are in the profile, digit for digit.
    let whole_lines = killed.rfind('\n').unwrap();
    for line in killed[..whole_lines].lines().skip(1) {
        let row: Value = serde_json::from_str(line).unwrap();
        let row = &row["layer"];
        let layer = layers.iter().find(|layer| layer["name"] == row["name"]).unwrap();
        assert!(layer["times"].as_array().unwrap().contains(&row["times"][0]), "{row}");
    }
}

#[test]
fn ranks_are_profiled_planned_and_simulated() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let profile = "profile --model digits-cnn --engine cpu --ranks 2 --batches 4,8 -o profile.json";
    let shown = succeed(path, &format!("{profile} --link-output link.json"));
    for part in ["2 ranks at once", "the slowest rank", "all-reduce", "send", "wrote link.json"] {
        assert!(shown.contains(part), "`{part}` is not in\n{shown}");
    }
    let of_ranks = "--model digits-cnn --profile profile.json --link link.json --gpus 2 --batch 8";
    succeed(path, &format!("plan {of_ranks} --mode dp -o dp.json"));
    let alone = "--model digits-cnn --plan dp.json --profile profile.json --link link.json";
    let beside = "--background digits-cnn:8 --background-profile profile.json";
    let simulated = succeed(path, &format!("simulate {alone} {beside}"));
    assert!(simulated.contains("foreground slowdown"), "{simulated}");
    let run = format!("train {alone} {beside} --data digits --iterations 5 --json");
    let report: Value = serde_json::from_str(&succeed(path, &run)).unwrap();
    assert!(report["simulated_iteration_us"].as_f64().unwrap() > 0.0, "{report}");
    let run = format!("train {alone} --data digits --iterations 5 --explain-difference");
    let shown = succeed(path, &run);
    for part in ["quartiles", "Where simulated and measured", "conv3", "all-reduce", "all parts:"] {
        assert!(shown.contains(part), "`{part}` is not in\n{shown}");
    }
    let report: Value = serde_json::from_str(&succeed(path, &format!("{run} --json"))).unwrap();
    assert!(report["difference"].as_array().unwrap().len() > 10, "{report}");

    let run = format!("train {alone} --data digits --iterations 5 --calibrate machine.json");
    assert!(succeed(path, &run).contains("prediction from 0 earlier runs"));
    let shown = succeed(path, &run);
    for part in ["prediction from 1 earlier runs", "over 1 runs", "next prediction in machine.json: layers"] {
        assert!(shown.contains(part), "`{part}` is not in\n{shown}");
    }
    let report: Value = serde_json::from_str(&succeed(path, &format!("{run} --json"))).unwrap();
    let calibration = &report["calibration"];
    assert_eq!(calibration["errors"]["runs"], 2, "{report}");
    assert_eq!(calibration["run"]["predicted_us"], report["simulated_iteration_us"]);
    assert!(calibration["next"]["layers"].as_f64().unwrap() > 0.0, "{report}");
    succeed(path, &format!("simulate {alone} --calibration machine.json"));
    // One rank has no transfers, so that all of its times are scaled by the factor of the layers.
    let mut doubled: Value =
        serde_json::from_str(&std::fs::read_to_string(path.join("machine.json")).unwrap()).unwrap();
    doubled["runs"].as_array_mut().unwrap().iter_mut().for_each(|run| run["ratios"]["layers"] = 2.0.into());
    std::fs::write(path.join("doubled.json"), doubled.to_string()).unwrap();
    let simulate = |options: &str| -> f64 {
        let one = "--model digits-cnn --device cpu-core --gpus 1 --batch 8 --mode dp";
        let shown = succeed(path, &format!("simulate {one} --json {options}"));
        serde_json::from_str::<Value>(&shown).unwrap()["iteration_us"].as_f64().unwrap()
    };
    let ratio = simulate("--calibration doubled.json") / simulate("");
    assert!((ratio - 2.0).abs() < 1e-3, "{ratio}");
    let unknown = "train --model digits-cnn --plan dp.json --data digits --iterations 2 --calibrate new.json";
    refused(path, unknown, "--profile FILE");
    assert!(!path.join("new.json").exists());
    std::fs::write(path.join("new.json"), "{}").unwrap();
    refused(path, &run.replace("machine.json", "new.json"), "new.json");
    refused(path, &format!("simulate {alone} --calibration missing.json"), "missing.json");

    let torch = "profile --model digits-cnn --engine torch --ranks 2 -o other.json";
    refused(path, torch, "give --engine cpu");
}
