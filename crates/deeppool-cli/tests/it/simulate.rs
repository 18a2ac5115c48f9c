//! `deeppool simulate` with background jobs: policies, contention, and the workload of one rank.

use deeppool::gpu_mux::Workload;

use crate::command::{json, refused, succeed};

const SIZE: &str =
    "simulate --model vgg16 --device a100 --gpus 8 --batch 32 --background vgg16:8 --iterations 5";

#[test]
fn policies_differ_in_slowdown_and_background_throughput() {
    let folder = tempfile::tempdir().unwrap();
    let figures = |options: &str| {
        let report = json(folder.path(), &format!("{SIZE} {options} --json"));
        ["foreground_slowdown", "background_share_of_idle"].map(|field| report[field].as_f64().unwrap())
    };
    let [ours, share] = figures("");
    assert!((1.0..1.03).contains(&ours) && share > 0.8, "{ours}, {share}");
    assert_eq!(figures("--policy default").map(f64::to_bits), [ours, share].map(f64::to_bits));
    let [naive, _] = figures("--policy naive");
    let [contended, _] = figures("--policy naive --contention");
    assert!(naive > ours && contended > ours, "{naive}, {contended}");
    let said = succeed(folder.path(), &format!("{SIZE} --policy priority"));
    assert!(said.contains("by policy priority"), "{said}");
}

#[test]
fn the_workload_of_a_rank_is_written() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &format!("{SIZE} --rank 3 --workload rank-3.json"));
    let workload = std::fs::read_to_string(folder.path().join("rank-3.json")).unwrap();
    let workload = Workload::from_json(&workload).unwrap();
    assert!(workload.name.contains("rank 3 of 8") && workload.name.contains("vgg16"), "{}", workload.name);
    assert_eq!((workload.foreground.samples, workload.background.samples), (32, 8));
    assert!(workload.foreground.steps.iter().any(|step| step.name == "forward features.0"));
}

#[test]
fn invalid_simulations_are_one_line_errors() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |options: &str, expected| refused(folder.path(), &format!("{SIZE} {options}"), expected);
    refused("--policy rude", "naive, priority, ungated, artifact, deeppool, feedback, default");
    refused("--rank 8 --workload rank-8.json", "no rank 8");
    refused("--workload rank.json", "--rank");
    refused("--rank 1", "--workload");
    refused("--rank 1 --workload no/such/folder.json", "no/such");
}
