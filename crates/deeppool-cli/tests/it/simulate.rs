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
fn background_jobs_on_several_gpus_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let line = |jobs: &str| format!("{} --iterations 18", SIZE.replace("vgg16:8 --iterations 5", jobs));
    let report =
        json(folder.path(), &format!("{} --trace t.json --json", line("vgg16:32@4,vgg16:8@1,vgg16:4")));
    let jobs = report["background_jobs"].as_array().unwrap();
    assert_eq!(jobs.iter().map(|job| job["ranks"].as_array().unwrap().len()).collect::<Vec<_>>(), [4, 1]);
    assert!(jobs[0]["windows_met"] == true && jobs[0]["collectives"].as_u64().unwrap() > 0, "{}", jobs[0]);
    assert!(jobs.iter().all(|job| job["samples_per_s"].as_f64().unwrap() > 0.0), "{jobs:?}");
    assert!(report["foreground_slowdown"].as_f64().unwrap() < 1.03);
    let trace = std::fs::read_to_string(folder.path().join("t.json")).unwrap();
    assert!(trace.contains("background communication"), "the timeline has the job's collectives");
    let never = succeed(folder.path(), &line("vgg16:64@8"));
    assert!(never.contains("no window of all its GPUs was long enough"), "{never}");
    refused(folder.path(), &line("vgg16:64@9"), "more than the 8 of the plan");
    refused(folder.path(), &line("vgg16:8,vgg16:4"), "would both run on every GPU");
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

/// Writes a link model with this bandwidth and startup time.
fn link(folder: &std::path::Path, bandwidth: &str, startup_us: &str) {
    let levels = format!(
        r#"[{{"bandwidth_bytes_per_s": {bandwidth}, "startup_us": {startup_us}, "latency_us": 1.5}}]"#
    );
    let text = format!(r#"{{"schema": "deeppool/link/v1", "name": "mistaken", "levels": {levels}}}"#);
    std::fs::write(folder.join("link.json"), text).unwrap();
}

#[test]
fn implausible_units_are_refused_before_the_simulation() {
    let folder = tempfile::tempdir().unwrap();
    for (bandwidth, startup_us, expected) in [
        ("25", "10", "2.5e1 bytes/s: gigabytes?"),
        ("1e-30", "10", "1e-30 bytes/s: gigabytes?"),
        ("1e300", "10", "1e300 bytes/s: bits, or a factor too many?"),
        // Plausible on its own, but not beside a background whose iteration takes 10 ms.
        ("25e9", "1e9", "the number of background iterations in one of the foreground"),
    ] {
        link(folder.path(), bandwidth, startup_us);
        let options = format!("{SIZE} --mode dp --link link.json");
        let start = std::time::Instant::now();
        refused(folder.path(), &options, expected);
        assert!(start.elapsed().as_secs() < 10, "{bandwidth} {startup_us}");
    }
}

#[test]
fn simulations_cost_events_and_not_virtual_time() {
    let folder = tempfile::tempdir().unwrap();
    link(folder.path(), "25e9", "1e9");
    let alone = "simulate --model vgg16 --device a100 --gpus 8 --batch 32 --mode dp --link link.json --json";
    let report = json(folder.path(), alone);
    assert!(report["iteration_us"].as_f64().unwrap() > 1e9, "{report}");
    // A slow link with a background job is simulated.
    link(folder.path(), "1e7", "10");
    let beside = json(folder.path(), &format!("{SIZE} --mode dp --link link.json --json"));
    assert!(beside["background_samples_per_s"].as_f64().unwrap() > 0.0);
}
