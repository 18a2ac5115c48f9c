//! Ranks that are processes, under Open MPI.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, deeppool, files, json, losses, newest_checkpoint};
use crate::comparison::{distance, plan_of_workers, random_plan, random_split_plan};

const TRAIN: &str = "train --model digits-cnn --data digits --batch 32";

/// Number of iterations whose losses are compared.
pub(crate) fn iterations() -> u64 {
    std::env::var("DEEPPOOL_ITERATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(30)
}

/// Returns a working folder, or `None` without `mpirun`.
fn folder() -> Option<TempDir> {
    if Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: there is no mpirun on the PATH");
        return None;
    }
    Some(TempDir::new().unwrap())
}

/// Sleeps until there is a newer checkpoint and a condition is true.
pub(crate) fn wait_for_newer(checkpoints: &Path, before: Option<&String>, is_ready: impl Fn() -> bool) {
    let patience = Instant::now();
    while newest_checkpoint(checkpoints).as_ref() == before || !is_ready() {
        assert!(patience.elapsed() < Duration::from_secs(60), "no checkpoint");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a command for one host with more ranks than cores.
fn mpirun(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new("mpirun");
    command.current_dir(folder).args(arguments.split_whitespace()).stdin(Stdio::null());
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.envs([("OMPI_MCA_rmaps_base_oversubscribe", "1"), ("OMPI_MCA_mpi_yield_when_idle", "1")]);
    command.output().unwrap()
}

/// Returns the error lines.
fn errors(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().filter(|line| line.starts_with("error: ")).map(str::to_owned).collect()
}

#[test]
fn process_losses_match_thread_losses() {
    let Some(folder) = folder() else { return };
    let path = folder.path();
    let run = format!("{TRAIN} --iterations {} --json", iterations());
    random_plan(path, 3);
    random_plan(path, 4);
    random_split_plan(path, 2);
    random_split_plan(path, 4);
    plan_of_workers(path);
    for (ranks, options) in [
        (1, ""),
        (2, "--mode dp"),
        (3, "--amplification 1.15"),
        (3, "--plan random3.json"),
        (4, "--amplification 2 --background digits-cnn:8"),
        (4, "--plan random4.json --background digits-cnn:8"),
        (2, "--plan splits2.json"),
        (4, "--plan splits4.json --background digits-cnn:8"),
        (4, "--mode dp --spb 4"),
        (4, "--plan workers.json"),
        (4, "--worker-gpus 2 --gpu-counts 2"),
    ] {
        // Splits are compared with one rank, which has none.
        let threads = if options.contains("splits") {
            json(path, &format!("{run} --ranks 1"))
        } else {
            json(path, &format!("{run} --ranks {ranks} {options}"))
        };
        let processes = json(path, &format!("launch --ranks {ranks} -- {run} {options}"));
        let distance = distance(&losses(&threads), &losses(&processes));
        println!("{ranks} ranks {options}: {distance:.1e}");
        assert!(distance <= 1e-4, "{ranks} ranks {options}: {distance:.1e}");
        if !options.contains("splits") {
            assert_eq!(threads["plan"], processes["plan"]);
        }
        assert_eq!(
            threads["epochs"].as_array().unwrap().len(),
            processes["epochs"].as_array().unwrap().len()
        );
        assert_eq!(
            processes["background_samples_per_s"].as_f64().unwrap() > 0.0,
            options.contains("background")
        );
    }
}

#[test]
fn processes_are_profiled() {
    let Some(folder) = folder() else { return };
    let path = folder.path();
    let profile =
        "profile --model digits-cnn --ranks 2 --batches 4,8 -o profile.json --link-output link.json";
    let report = json(path, &format!("launch --ranks 2 -- {profile} --json"));
    assert!(report["profile"]["contended"]["ranks"] == 2, "{report}");
    assert_eq!(
        json(
            path,
            "plan --model digits-cnn --profile profile.json --link link.json --gpus 2 --batch 8 --json"
        )["gpus"],
        2
    );
    let wrong = deeppool(path, &format!("launch --ranks 3 -- {profile}"));
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert!(errors(&wrong)[0].contains("give --ranks 3"), "{wrong:?}");
}

#[test]
fn ranks_with_other_options_are_named() {
    let Some(folder) = folder() else { return };
    let path = folder.path();
    let deeppool_path = env!("CARGO_BIN_EXE_deeppool");
    let usual = format!("{deeppool_path} {TRAIN} --iterations 1");
    for (other, what) in [
        (usual.clone() + " --seed 1", "options"),
        (usual.clone() + " --no-overlap", "plan"),
        (usual.replace("--data digits", "--data synthetic"), "data"),
        (usual.clone() + " --background digits-cnn:8", "background job"),
    ] {
        let output = mpirun(path, &format!("--quiet -n 1 {usual} : -n 1 {other}"));
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(errors.len() == 1 && errors[0].contains(what), "{errors:?}");
    }
    for (command, says) in [
        (
            "launch --ranks 2 -- train --model digits-cnn --data digits --batch 32 --ranks 4",
            "for 4 ranks, and there are 2",
        ),
        ("launch --ranks 2 -- train --model digits-cnn --data digits", "--batch"),
        ("launch --ranks 2 -- train --model digits-cnn --data nowhere --batch 32", "unknown data set"),
        ("launch --ranks 2 -- plan --model vgg16", "only `train`"),
        (
            "launch --ranks 2 --restarts 1 -- train --model digits-cnn --data digits --batch 32",
            "--checkpoint DIR",
        ),
    ] {
        let output = deeppool(path, command);
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{command}: {output:?}");
        assert!(errors.len() == 1 && errors[0].contains(says), "{command}: {errors:?}");
    }
    let nested = mpirun(path, &format!("--quiet -n 1 {deeppool_path} launch --ranks 2 -- {TRAIN}"));
    assert!(nested.status.code() == Some(2) && errors(&nested)[0].contains("has started this already"));
    assert!(files(path).is_empty());
}

/// Returns the processes that train into this folder.
pub(crate) fn ranks_of(checkpoints: &Path) -> Vec<u32> {
    let of_process = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        let arguments: Vec<&[u8]> = command.split(|&byte| byte == 0).collect();
        let trains = arguments.get(1) == Some(&&b"train"[..]);
        (trains && arguments.contains(&checkpoints.as_os_str().as_encoded_bytes())).then_some(number)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter_map(of_process).collect()
}

#[test]
fn a_killed_rank_ends_all_and_restarts_resume() {
    let Some(folder) = folder() else { return };
    let path = folder.path();
    let checkpoints = path.join("run");
    let run = format!("{TRAIN} --iterations 400");
    let kept = format!("{run} --checkpoint {} --checkpoint-every 20 --json", checkpoints.display());
    for restarts in [0, 2] {
        let mut launch = command(path, &format!("launch --ranks 3 --restarts {restarts} -- {kept} --resume"));
        let launched = launch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let before = newest_checkpoint(&checkpoints);
        wait_for_newer(&checkpoints, before.as_ref(), || ranks_of(&checkpoints).len() == 3);
        let ranks = ranks_of(&checkpoints);
        Command::new("kill").args(["-9", &ranks[ranks.len() / 2].to_string()]).status().unwrap();
        let killed = Instant::now();
        let output = launched.wait_with_output().unwrap();
        assert!(ranks_of(&checkpoints).is_empty(), "a rank is left behind");
        if restarts == 0 {
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(killed.elapsed() < Duration::from_secs(10));
            continue;
        }
        assert!(output.status.success(), "{output:?}");
        let after: Value = serde_json::from_slice(&output.stdout).unwrap();
        let whole = losses(&json(path, &format!("{run} --ranks 3 --json")));
        let first = after["first_iteration"].as_u64().unwrap() as usize;
        assert!(first > 0 && distance(&losses(&after), &whole[first..]) <= 1e-4);
    }
}

#[test]
fn elastic_launches_resume_with_fewer_ranks() {
    let Some(folder) = folder() else { return };
    let path = folder.path();
    let checkpoints = path.join("run");
    let run = format!("{TRAIN} --iterations 150");
    let kept = format!("{run} --checkpoint {} --checkpoint-every 2 --json", checkpoints.display());
    let mut launch = command(path, &format!("launch --ranks 3 --restarts 2 --elastic -- {kept}"));
    let launched = launch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_newer(&checkpoints, None, || ranks_of(&checkpoints).len() == 3);
    Command::new("kill").args(["-9", &ranks_of(&checkpoints)[1].to_string()]).status().unwrap();
    let output = launched.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("on 2 of 3 ranks"), "{output:?}");
    let after: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&after["ranks"], &after["plan"]["gpus"]), (&2.into(), &2.into()));
    let whole = losses(&json(path, &format!("{run} --ranks 3 --json")));
    let first = after["first_iteration"].as_u64().unwrap() as usize;
    assert!(first > 0 && distance(&losses(&after), &whole[first..]) <= 1e-4);

    let planned = deeppool(path, &format!("launch --ranks 2 --restarts 1 --elastic -- {kept} --plan p.json"));
    assert!(
        planned.status.code() == Some(2) && errors(&planned)[0].contains("leave --plan out"),
        "{planned:?}"
    );
}

/// The plan has different numbers of ranks for its layers. Runs alone and with a background job.
#[test]
fn four_processes_reach_the_accuracy_on_digits() {
    let Some(folder) = folder() else { return };
    let path = folder.path();
    for background in ["", " --background digits-cnn:8"] {
        let accuracies: Vec<f64> = (0..5)
            .map(|seed| {
                let run = format!(
                    "{TRAIN} --epochs 25 --lr 0.01 --amplification 1.2 --seed {seed} --json{background}"
                );
                let report = json(path, &format!("launch --ranks 4 -- {run}"));
                let layers = report["plan"]["layers"].as_array().unwrap();
                assert!(layers.iter().any(|layer| layer["ranks"] != layers[0]["ranks"]), "{layers:?}");
                assert_eq!(report["background_samples_per_s"].as_f64() > Some(0.0), !background.is_empty());
                report["epochs"][24]["test_accuracy"].as_f64().unwrap()
            })
            .collect();
        println!("test accuracy by seed{background}: {accuracies:.4?}");
        assert!(accuracies.iter().all(|&accuracy| accuracy >= 0.98), "{accuracies:?}");
    }
}

#[test]
fn signals_to_launch_end_its_ranks() {
    let Some(folder) = folder() else { return };
    let checkpoints = folder.path().join("run");
    let run =
        format!("{TRAIN} --iterations 1000000 --checkpoint {} --checkpoint-every 20", checkpoints.display());
    let mut launch = command(folder.path(), &format!("launch --ranks 2 --restarts 3 -- {run}"));
    let launched = launch.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_newer(&checkpoints, None, || true);
    Command::new("kill").args(["-TERM", &launched.id().to_string()]).status().unwrap();
    let told = Instant::now();
    let output = launched.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(told.elapsed() < Duration::from_secs(20) && ranks_of(&checkpoints).is_empty());
}

/// The other ranks wait in a collective when one rank fails.
#[test]
fn an_error_of_one_rank_ends_all_ranks() {
    let Some(folder) = folder() else { return };
    let begun = Instant::now();
    // Only the rank with the loss detects that it is not finite.
    let output = deeppool(folder.path(), &format!("launch --ranks 3 -- {TRAIN} --iterations 50 --lr 1e30"));
    let errors = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(errors.len() == 1 && errors[0].contains("the loss is"), "{errors:?}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}
