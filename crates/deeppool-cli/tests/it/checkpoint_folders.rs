//! Folders of checkpoints: their owners, folders that cannot be written to, and settings that
//! differ in a resumed run.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;

use crate::command::{command, deeppool, files, newest_checkpoint, refused, succeed};

const TRAIN: &str = "train --model digits-cnn --data digits --ranks 2 --batch 32";
/// A run that does not end by itself.
const ENDLESS: &str = "--iterations 1000000 --checkpoint run --checkpoint-every 10 --checkpoint-keep 1000000";

/// Starts a run in the folder `run`, and waits for its first checkpoint.
fn start(folder: &Path) -> Child {
    let mut run = command(folder, &format!("{TRAIN} {ENDLESS} --metrics metrics.jsonl"));
    let child = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while newest_checkpoint(&folder.join("run")).is_none() {
        assert!(started.elapsed() < Duration::from_secs(60), "no checkpoint");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

fn signal(process: &Child, name: &str) {
    let process = process.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &process]).status().unwrap().success());
}

/// Returns the number of iterations of the newest checkpoint.
fn iterations(folder: &Path) -> u64 {
    newest_checkpoint(&folder.join("run")).unwrap().trim_start_matches("iteration-").parse().unwrap()
}

/// Returns an owner on another host, without quotes around `job`.
fn owner(job: &str) -> String {
    format!(
        r#"{{"schema":"deeppool/checkpoint-owner/v1","host":"elsewhere","process_space":"boot space",
            "process":1,"started":5,"job":{job},"run":0}}"#
    )
}

/// Checks that a second run is refused and the first one continues, and that the folder is free as
/// soon as the first run is killed.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_has_one_run_at_a_time() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let mut first = start(path);
    // The list of files is compared before and after.
    signal(&first, "STOP");
    let metrics = fs::read(path.join("metrics.jsonl")).unwrap();
    for second in [TRAIN.to_owned(), format!("{TRAIN} --resume"), format!("{TRAIN} --lr 0.1 --resume")] {
        let line = format!("{second} --iterations 20 --checkpoint run --metrics other.jsonl");
        let error = refused(path, &line, &format!("process {} on host", first.id()));
        assert!(error.contains("checkpoint run: ") && error.contains("--take-over"), "{error}");
        assert!(!path.join("other.jsonl").exists());
    }
    refused(path, &format!("{TRAIN} --iterations 20 --metrics metrics.jsonl"), "metrics.jsonl: ");
    assert_eq!(fs::read(path.join("metrics.jsonl")).unwrap(), metrics);
    signal(&first, "CONT");
    let before = iterations(path);
    let waited = Instant::now();
    while iterations(path) <= before + 20 {
        assert!(waited.elapsed() < Duration::from_secs(60), "the first run has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&first, "KILL");
    first.wait().unwrap();
    assert!(files(&path.join("run")).contains(&"owner.json".to_owned()));
    let end = iterations(path) + 5;
    succeed(path, &format!("{TRAIN} --iterations {end} --checkpoint run --resume"));
    assert_eq!(iterations(path), end);
    assert!(files(&path.join("run")).iter().all(|name| name.starts_with("iteration-")));
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_ends_when_its_folder_is_taken_over() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let first = start(path);
    signal(&first, "STOP");
    let end = iterations(path) + 5;
    succeed(path, &format!("{TRAIN} --iterations {end} --checkpoint run --resume --take-over"));
    signal(&first, "CONT");
    let output = first.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(errors.contains("checkpoint run: ") && errors.contains("taken this folder over"), "{errors}");
    assert_eq!(iterations(path), end, "the first run has written another checkpoint");
}

#[test]
fn owners_on_other_hosts_are_believed_for_two_minutes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let file = path.join("run/owner.json");
    let run = format!("{TRAIN} --iterations 2 --checkpoint run");
    let write = |text: &str| {
        let _ = fs::remove_dir_all(path.join("run"));
        fs::create_dir(path.join("run")).unwrap();
        fs::write(&file, text).unwrap();
    };
    write(&owner("null"));
    refused(path, &run, "process 1 on host `elsewhere` writes its checkpoints here");
    succeed(path, &format!("{run} --take-over"));
    assert_eq!(files(&path.join("run")), ["iteration-0000000002"]);
    write(&owner("null"));
    let long_ago = SystemTime::now() - Duration::from_secs(150);
    File::options().write(true).open(&file).unwrap().set_modified(long_ago).unwrap();
    succeed(path, &run);
    // An incomplete file.
    write("{");
    refused(path, &run, "another run writes its checkpoints here");
    // A requeued job of Slurm.
    write(&owner(r#"{"id":"c/7","requeued":0}"#));
    refused(path, &run, "(Slurm job c/7)");
    let requeued = [("SLURM_JOB_ID", "7"), ("SLURM_CLUSTER_NAME", "c"), ("SLURM_RESTART_COUNT", "1")];
    let output = command(path, &run).envs(requeued).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    refused(path, &format!("{TRAIN} --take-over"), "--checkpoint");
}

#[cfg(target_os = "linux")]
#[test]
fn folders_that_cannot_be_written_to_are_refused_at_once() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    fs::write(path.join("file"), "").unwrap();
    // Nobody can create files in these folders, not even root.
    for (checkpoints, expected) in [
        ("/proc/sys", "cannot write to this folder"),
        ("/proc/sys/none/run", "cannot write to this folder"),
        ("file", "not a folder"),
        ("file/run", "not a folder"),
    ] {
        let started = Instant::now();
        // Planning it takes minutes.
        let run = "train --model digits-cnn --data digits --ranks 31 --batch 32 --iterations 1";
        refused(path, &format!("{run} --checkpoint {checkpoints}"), expected);
        assert!(started.elapsed() < Duration::from_secs(2), "{checkpoints}: {:?}", started.elapsed());
    }
}

#[test]
fn settings_that_differ_in_a_resumed_run_are_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let run = "train --model digits-cnn --batch 32 --device a100 --checkpoint run --resume";
    let mut until = 2;
    let mut said = |options: &str| {
        let data = if options.contains("--data") { "" } else { "--data digits" };
        let output = deeppool(path, &format!("{run} --iterations {until} {data} {options}"));
        until += 2;
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && errors.lines().count() <= 1, "{errors}");
        errors.trim_end().replace("resumed with other settings than before: ", "")
    };
    assert_eq!(said("--ranks 2 --mode dp"), "");
    assert_eq!(said("--ranks 2 --mode dp"), "");
    assert_eq!(
        said("--ranks 2 --mode dp --lr 0.1 --momentum 0.5"),
        "learning rate 0.03 -> 0.1, momentum 0.9 -> 0.5"
    );
    let back = "learning rate 0.1 -> 0.03, momentum 0.5 -> 0.9";
    assert_eq!(said("--ranks 3 --mode dp"), format!("{back}, other plan, ranks 2 -> 3"));
    assert_eq!(
        said("--ranks 3 --mode dp --no-shuffle --weight-decay 0.1 --clip-norm 2"),
        "clipped norm none -> 2, shuffling yes -> no, weight decay 0 -> 0.1"
    );
    let back = "clipped norm 2 -> none, shuffling no -> yes, weight decay 0.1 -> 0";
    let with_background = said("--ranks 3 --mode dp --background digits-cnn:8");
    assert_eq!(with_background, format!("background none -> digits-cnn:8, other background jobs, {back}"));
    let other_data = said("--ranks 3 --mode dp --background digits-cnn:8 --data synthetic");
    assert!(
        other_data.contains("data digits -> synthetic") && other_data.contains("other samples"),
        "{other_data}"
    );
    for (other, expected) in [("--batch 32 --seed 1", "seed `0`"), ("--batch 16", "batch `32`")] {
        let line = format!("{} --data digits --ranks 3 {other}", run.replace("--batch 32", ""));
        let output = deeppool(path, &line);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.contains(expected), "{errors}");
    }
    succeed(path, "export --model digits-cnn --checkpoint run -o weights.safetensors");
    let initial =
        said("--ranks 3 --mode dp --background digits-cnn:8 --data synthetic --init weights.safetensors");
    assert_eq!(initial, "other initial weights");
}
