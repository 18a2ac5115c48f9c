//! `deeppool simulate --jobs`: several jobs that share the links of a cluster.

use std::path::Path;

use serde_json::{Value, json as value};

use crate::command::{json, refused, succeed};
use crate::pages::read;

/// Writes a file of jobs.
fn write(folder: &Path, link: &str, gpus: usize, jobs: &Value) {
    let file = value!({"schema": "deeppool/cluster-jobs/v1", "link": link, "gpus": gpus, "jobs": jobs});
    std::fs::write(folder.join("jobs.json"), file.to_string()).unwrap();
}

#[test]
fn one_job_takes_the_time_of_its_simulation() {
    let folder = tempfile::tempdir().unwrap();
    let job = value!({"name": "one", "model": "vgg16", "device": "a100", "batch": 64, "gpus": 16});
    write(folder.path(), "dgx-a100-pod", 32, &value!([job]));
    let shared = json(folder.path(), "simulate --jobs jobs.json --json");
    let options = "--device a100 --gpus 16 --batch 64 --link dgx-a100-pod --json";
    let alone = json(folder.path(), &format!("simulate --model vgg16 {options}"));
    let one = &shared["jobs"][0];
    for (got, expected) in [
        ("iteration_us", "iteration_us"),
        ("iteration_alone_us", "iteration_us"),
        ("foreground_samples_per_s", "foreground_samples_per_s"),
        ("batch", "batch"),
        ("model", "model"),
    ] {
        assert_eq!(one[got], alone[expected], "{got}");
    }
    assert_eq!((&one["slowdown"], &one["iterations"]), (&value!(1.0), &value!(15)));
}

#[test]
fn the_example_is_simulated_with_a_timeline() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["cluster-jobs.json", "leaf-spine.json"] {
        std::fs::write(folder.path().join(file), read(&format!("docs/examples/{file}"))).unwrap();
    }
    let call = "simulate --jobs cluster-jobs.json --iterations 4";
    let report = json(folder.path(), &format!("{call} --json"));
    let jobs = report["jobs"].as_array().unwrap();
    let names: Vec<&str> = jobs.iter().filter_map(|job| job["name"].as_str()).collect();
    assert_eq!(names, ["vgg-1", "vgg-2", "resnet", "inception"]);
    let slowdowns: Vec<f64> = jobs.iter().filter_map(|job| job["slowdown"].as_f64()).collect();
    assert!(slowdowns.iter().all(|&slowdown| slowdown > 0.999) && slowdowns[0] > 1.05, "{slowdowns:?}");
    assert_eq!(jobs[0]["on_gpus"].as_array().unwrap().len(), 16);
    let levels = report["levels"].as_array().unwrap();
    assert_eq!(levels.len(), 3);
    assert!(
        levels.iter().all(|level| level["max_busy"].as_f64().is_some_and(|busy| busy > 0.0 && busy <= 1.0))
    );

    let said = succeed(folder.path(), &format!("{call} --trace timeline.json"));
    assert!(said.contains("vgg-2") && said.contains("between racks") && said.contains("wrote"), "{said}");
    let trace = std::fs::read_to_string(folder.path().join("timeline.json")).unwrap();
    let trace: Value = serde_json::from_str(&trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let processes = events.iter().filter(|event| event["name"] == "process_name");
    assert_eq!(processes.count(), 4);
}

#[test]
fn a_plan_file_is_simulated_with_its_batch_and_gpus() {
    let folder = tempfile::tempdir().unwrap();
    let plan = "plan --model digits-cnn --device cpu-core --gpus 4 --batch 32 --mode dp -o plan.json";
    succeed(folder.path(), plan);
    let job = value!({"name": "planned", "model": "digits-cnn", "plan": "plan.json", "placement": "by-host"});
    write(folder.path(), "ethernet-10g", 8, &value!([job]));
    let report = json(folder.path(), "simulate --jobs jobs.json --json");
    let job = &report["jobs"][0];
    assert_eq!((&job["gpus"], &job["batch"], &job["mode"]), (&value!(4), &value!(32), &value!("dp")));
}

#[test]
fn errors_name_the_file_and_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let job = |more: Value| {
        let mut job = value!({"name": "one", "model": "vgg16", "device": "a100", "batch": 32, "gpus": 8});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    for (link, jobs, expected) in [
        ("dgx-a100", value!([job(value!({"placement": "near"}))]), "jobs[0].placement"),
        ("dgx-a100", value!([job(value!({"model": "vgg61"}))]), "jobs[0]: unknown model `vgg61`"),
        ("dgx-a100", value!([job(value!({})), job(value!({"name": "two"}))]), "8 for job `two`"),
        ("dgx-b100", value!([job(value!({}))]), "link: "),
        ("dgx-a100", value!([job(value!({"gpus": 9}))]), "jobs[0]: "),
        ("dgx-a100", value!([job(value!({"plan": "missing.json"}))]), "missing.json"),
    ] {
        write(folder.path(), link, 8, &jobs);
        refused(folder.path(), "simulate --jobs jobs.json", expected);
    }
    refused(folder.path(), "simulate --jobs jobs.json --model vgg16", "--model");
    refused(folder.path(), "simulate --jobs jobs.json --background vgg16:8", "--background");
    refused(folder.path(), "simulate --jobs absent.json", "absent.json");
}
