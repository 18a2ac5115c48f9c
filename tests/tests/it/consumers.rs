//! Library crates can be used outside the workspace, and depend only on the intended crates of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Published crates, and the crates of this workspace that each may depend on.
const CRATES: [(&str, &[&str]); 13] = [
    ("burst-planner", &[]),
    ("cluster-scheduler", &[]),
    // The emulator is for tests only, also in `gpu-mux`.
    ("collectives", &["cuda", "cuda-emulator"]),
    ("command-line", &[]),
    ("cuda", &["cuda-emulator"]),
    (
        "deeppool",
        &[
            "burst-planner",
            "collectives",
            "cuda",
            "cuda-emulator",
            "gpu-mux",
            "layer-engine",
            "layer-graph",
            "layer-profile",
            "time-to-accuracy",
        ],
    ),
    (
        "deeppool-cli",
        &[
            "burst-planner",
            "collectives",
            "command-line",
            "deeppool",
            "gpu-mux",
            "layer-engine",
            "layer-graph",
            "layer-profile",
            "time-to-accuracy",
        ],
    ),
    ("gpu-mux", &["cuda", "cuda-emulator"]),
    ("layer-engine", &["cuda", "cuda-emulator", "layer-graph"]),
    ("layer-graph", &[]),
    ("layer-profile", &["layer-engine", "layer-graph"]),
    ("ptx-emulator", &[]),
    ("time-to-accuracy", &[]),
];

#[test]
fn crates_depend_only_on_the_intended_crates() {
    let actual: Vec<(String, BTreeSet<String>)> = library_dependencies();
    let expected: Vec<(String, BTreeSet<String>)> = CRATES
        .iter()
        .map(|(name, on)| ((*name).to_owned(), on.iter().map(|name| (*name).to_owned()).collect()))
        .collect();
    assert_eq!(actual, expected);
}

#[test]
#[ignore = "builds the crate and its dependencies in another target folder"]
fn burst_planner_stands_alone() {
    run_consumer("burst-planner");
}

#[test]
#[ignore = "builds the crate and its dependencies in another target folder"]
fn cluster_scheduler_stands_alone() {
    run_consumer("cluster-scheduler");
}

#[test]
#[ignore = "builds the crate and its dependencies in another target folder"]
fn collectives_stands_alone() {
    run_consumer("collectives");
}

#[test]
#[ignore = "builds the crate and its dependencies in another target folder"]
fn command_line_stands_alone() {
    run_consumer("command-line");
}

#[test]
#[ignore = "builds the crate and its dependencies in another target folder"]
fn deeppool_stands_alone() {
    let lock = run_consumer("deeppool");
    assert!(!lock.contains("\"clap\""), "the library depends on a dependency of the command");
}

#[test]
#[ignore = "builds the crate and its dependencies in another target folder"]
fn cuda_stands_alone() {
    run_consumer("cuda");
}

#[test]
#[ignore = "builds the crate and its dependencies in another target folder"]
fn gpu_mux_stands_alone() {
    run_consumer("gpu-mux");
}

#[test]
#[ignore = "builds the crate and its dependencies in another target folder"]
fn layer_engine_stands_alone() {
    run_consumer("layer-engine");
}

#[test]
#[ignore = "builds the crate and its dependencies in another target folder"]
fn layer_graph_stands_alone() {
    run_consumer("layer-graph");
}

#[test]
#[ignore = "builds the crate and its dependencies in another target folder"]
fn ptx_emulator_stands_alone() {
    run_consumer("ptx-emulator");
}

#[test]
#[ignore = "builds the crate and its dependencies in another target folder"]
fn time_to_accuracy_stands_alone() {
    run_consumer("time-to-accuracy");
}

#[test]
#[ignore = "builds the crate and its dependencies in another target folder"]
fn layer_profile_stands_alone() {
    let lock = run_consumer("layer-profile");
    assert!(!lock.contains("\"layer-engine\""), "only the feature `measure` needs the engine");
}

/// Builds and runs `tests/consumers/<library>`, and returns its lock file.
///
/// The versions are those of the workspace's lock file, so that no network is needed.
fn run_consumer(library: &str) -> String {
    let consumer = Path::new(env!("CARGO_MANIFEST_DIR")).join("consumers").join(library);
    let lock = consumer.join("Cargo.lock");
    fs::copy(workspace().join("Cargo.lock"), &lock).unwrap();
    let output = cargo()
        .args(["run", "--quiet", "--offline", "--manifest-path"])
        .arg(consumer.join("Cargo.toml"))
        // One target folder for all consumers, so that shared dependencies are built once.
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("consumers"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .output()
        .unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{library}: {}\n{stdout}\n{stderr}", output.status);
    assert!(!stdout.is_empty(), "{library} prints nothing");
    fs::read_to_string(lock).unwrap()
}

/// Returns the published crates of the workspace, with their dependencies in the workspace of any
/// kind and feature.
fn library_dependencies() -> Vec<(String, BTreeSet<String>)> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--offline", "--format-version=1", "--manifest-path"])
        .arg(workspace().join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    // `publish` lists the allowed registries; null allows all.
    let is_published = |package: &Value| package["publish"].as_array().is_none_or(|to| !to.is_empty());
    let is_ours = |dependency: &Value| dependency["path"].is_string();
    let mut libraries: Vec<(String, BTreeSet<String>)> = list(&metadata["packages"])
        .iter()
        .filter(|package| is_published(package))
        .map(|package| {
            (
                name(package),
                // A crate may depend on itself to enable features in its tests.
                list(&package["dependencies"])
                    .iter()
                    .filter(|on| is_ours(on) && name(on) != name(package))
                    .map(name)
                    .collect(),
            )
        })
        .collect();
    libraries.sort();
    libraries
}

fn cargo() -> Command {
    Command::new(env!("CARGO"))
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
