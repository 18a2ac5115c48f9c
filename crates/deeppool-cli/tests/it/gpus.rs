//! Ranks that are emulated GPUs, which execute the PTX of kernels.

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{command, deeppool, json, losses, refused, succeed};
use crate::comparison::{distance, random_plan};

const TRAIN: &str = "train --model digits-cnn --data digits --batch 32 --json";
const LIMIT: f64 = 1e-4;

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

/// Number of iterations whose losses are compared; CI sets 10.
fn iterations() -> usize {
    number("DEEPPOOL_GPU_ITERATIONS", 4)
}

#[test]
fn gpu_losses_match_cpu_losses() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let run = format!("{TRAIN} --iterations {}", iterations());
    random_plan(path, 3);
    random_plan(path, 4);
    for (gpus, options) in [
        (1, "--device a100"),
        (2, "--device a100 --mode dp --clip-norm 1 --weight-decay 0.01"),
        (3, "--plan random3.json --device a100"),
        (4, "--device a100 --amplification 1.3"),
        // Without captured graphs.
        (4, "--device a100 --amplification 1.3 --policy naive"),
        (4, "--plan random4.json --background digits-cnn:8 --device a100"),
        // With two kinds of iterations.
        (4, "--device a100 --mode dp --spb 2"),
    ] {
        let processors = json(path, &format!("{run} --ranks {gpus} {options}"));
        let emulated =
            json(path, &format!("{run} --engine cuda --gpus {gpus} --emulate-gpus {gpus} {options}"));
        let distance = distance(&losses(&processors), &losses(&emulated));
        println!("{gpus} GPUs {options}: {distance:.1e}");
        assert!(distance <= LIMIT, "{gpus} GPUs {options}: {distance:.1e}");
        assert_eq!(processors["plan"], emulated["plan"]);
        let us = |what: &str| emulated[what].as_f64();
        let measured = emulated["iteration_us"]["median"].as_f64().unwrap();
        if let (Some(simulated), false) = (us("simulated_iteration_us"), options.contains("background")) {
            println!("simulated {simulated:.1} us, measured in virtual time {measured:.1} us");
        }
        assert_eq!(emulated["emulated_gpus"], gpus.to_string().as_str());
        assert_eq!(
            emulated["background_samples_per_s"].as_f64().unwrap() > 0.0,
            options.contains("background")
        );
    }
}

/// In TF32 the losses differ from those of processors, by no more than the rounding of factors.
#[test]
fn losses_in_tf32_are_near_those_in_single_precision() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let run = format!("{TRAIN} --iterations {} --device a100", number("DEEPPOOL_GPU_ITERATIONS", 50));
    let single = losses(&json(path, &format!("{run} --ranks 2")));
    let tf32 = format!("{run} --engine cuda --gpus 2 --emulate-gpus 2 --precision tf32");
    let report = json(path, &tf32);
    let order = &report["image_order"];
    assert_eq!(
        (&order["layout"], &order["reason"]),
        (&"channels-first".into(), &"kernels are not timed".into())
    );
    let distance = distance(&single, &losses(&report));
    println!("losses in TF32 are {distance:.1e} from those in single precision");
    assert!((1e-7..1e-2).contains(&distance), "{distance:.1e}");
    refused(path, &format!("{run} --ranks 2 --precision tf32"), "give --engine cuda");
}

/// The report names the candidate that computes each part of a kernel, and the reason.
#[test]
fn kernels_are_chosen_and_reported() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let run = format!("{TRAIN} --iterations 1 --device a100 --emulate-gpus 1");
    let chosen = |report: &Value| -> Vec<String> {
        let text = |part: &Value, field: &str| part[field].as_str().unwrap().to_owned();
        let parts = report["kernels"].as_array().unwrap().iter();
        parts
            .map(|part| {
                let fields = ["step", "part", "chosen", "reason"].map(|field| text(part, field));
                assert!(fields.iter().all(|field| !field.is_empty()));
                assert!(
                    part["candidates"].as_array().unwrap().iter().any(|one| one["name"] == part["chosen"])
                );
                fields[2].clone()
            })
            .collect()
    };
    let of_rule = |options: &str| chosen(&json(path, &format!("{run} {options}")));
    let (vendor, own) = (of_rule(""), of_rule("--kernels own"));
    assert!(vendor.len() > 4 && vendor.len() == own.len(), "{vendor:?} {own:?}");
    assert!(own.iter().all(|name| name == "own"), "{own:?}");
    assert!(vendor.iter().all(|name| name.starts_with("cuDNN engine ") || name.starts_with("cuBLASLt ")));
    assert_ne!(vendor, of_rule("--nondeterministic"));
    let printed = succeed(path, &run.replace(" --json", ""));
    let line = printed.lines().find(|line| line.starts_with("products of rank 0 ")).unwrap();
    assert!(line.contains(" by cuDNN") && line.contains(" by cuBLASLt"), "{line}");
    let line = printed.lines().find(|line| line.starts_with("order of images ")).unwrap();
    assert!(line.ends_with("channels-first: no tensor cores"), "{line}");
    let of_processor = json(path, &format!("{TRAIN} --iterations 1 --ranks 1"));
    assert_eq!(
        (&of_processor["kernels"], &of_processor["image_order"]),
        (&Value::Array(vec![]), &Value::Null)
    );
    for option in ["--kernels own", "--nondeterministic"] {
        refused(path, &format!("{TRAIN} --ranks 1 {option}"), "is for GPUs: give --engine cuda");
    }
}

/// Compares the accuracy after two epochs. CI checks one of four ways to train.
#[test]
fn gpu_accuracy_matches_cpu_accuracy() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    random_plan(path, 3);
    let ways = [
        (2, "--mode dp --device a100"),
        (1, "--device a100 --policy naive"),
        (4, "--device a100 --amplification 1.3 --background digits-cnn:8"),
        (3, "--plan random3.json --device a100"),
    ];
    for (gpus, options) in ways.into_iter().take(number("DEEPPOOL_GPU_ACCURACIES", 1)) {
        let run = format!("{TRAIN} --epochs 2 {options}");
        let processors = json(path, &format!("{run} --ranks {gpus}"));
        let emulated = json(path, &format!("{run} --engine cuda --gpus {gpus} --emulate-gpus {gpus}"));
        let accuracy = |report: &Value| report["epochs"][1]["test_accuracy"].as_f64().unwrap();
        let (of_processors, of_gpus) = (accuracy(&processors), accuracy(&emulated));
        println!("{gpus} GPUs {options}: {of_gpus:.4}, and {of_processors:.4} on processors");
        // Samples at the decision border may differ.
        assert!((of_processors - of_gpus).abs() * 360.0 < 1.5, "{of_processors} {of_gpus}");
        assert!(of_gpus > 0.8, "{of_gpus}");
    }
}

/// Runs alternate between CPU and GPUs, with other ranks.
#[test]
fn checkpoints_move_between_engines() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    // The second run has checkpoints within its rotation of roles.
    for (options, folder) in [("", "kept"), ("--spb 4", "partial")] {
        let undisturbed = json(path, &format!("{TRAIN} --ranks 2 --iterations 6 {options}"));
        let mut found = Vec::new();
        for (until, ranks) in
            [(2, "--ranks 1"), (4, "--engine cuda --gpus 2 --emulate-gpus 2"), (6, "--ranks 3")]
        {
            let kept = format!("--checkpoint {folder} --checkpoint-every 2 --resume");
            let run = format!("{TRAIN} {ranks} --iterations {until} {options} {kept}");
            found.extend(losses(&json(path, &run)));
        }
        let distance = distance(&losses(&undisturbed), &found);
        assert!(distance <= LIMIT, "{options}: {distance:.1e}");
    }
}

/// Accuracies on both engines are equal, losses but for rounding, and layer times are measured.
#[test]
fn gpus_evaluate_and_profile() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let trained = json(path, &format!("{TRAIN} --ranks 1 --epochs 2 --checkpoint run"));
    let eval = "eval --model digits-cnn --data digits --checkpoint run --json";
    let on_processor = json(path, eval);
    assert_eq!(on_processor["accuracy"], trained["epochs"][1]["test_accuracy"]);
    let on_gpu = json(path, &format!("{eval} --engine cuda --emulate-gpus 1"));
    assert_eq!(on_gpu["accuracy"], on_processor["accuracy"]);
    let [a, b] = [&on_gpu, &on_processor].map(|evaluated| evaluated["loss"].as_f64().unwrap());
    assert!((a - b).abs() < 1e-5 * b, "{a} on the GPU, {b} on the processor");

    let profile =
        "profile --model digits-cnn --engine cuda --batches 1 --emulate-gpus 1 -o profile.json --json";
    let profile = json(path, profile);
    let device = profile["profile"]["device"].as_str().unwrap();
    assert!(device.contains("Emulated"), "{device}");
    refused(path, "profile --model digits-cnn --engine cuda --threads 2 -o x.json", "--threads");
    refused(path, "profile --model digits-cnn --engine cpu --emulate-gpus 1 -o x.json", "--engine cuda");
}

/// Sets the variables of torchrun for one process, because emulated GPUs belong to one process.
#[test]
fn torchrun_processes_are_ranks() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let variables = |world: &str| {
        [
            ("RANK", "0"),
            ("LOCAL_RANK", "0"),
            ("WORLD_SIZE", world),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", "39517"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    let run = format!("{TRAIN} --engine cuda --emulate-gpus 1 --iterations 3");
    let alone = json(path, &format!("{run} --ranks 1"));
    let of_process = command(path, &run).envs(variables("1")).output().unwrap();
    let errors = String::from_utf8_lossy(&of_process.stderr);
    assert!(of_process.status.success(), "{errors}");
    let of_process: Value = serde_json::from_slice(&of_process.stdout).unwrap();
    assert_eq!(losses(&alone), losses(&of_process));

    let one_of_two = command(path, &format!("{run} --timeout 5")).envs(variables("2")).output().unwrap();
    let errors = String::from_utf8_lossy(&one_of_two.stderr);
    assert_eq!((one_of_two.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(errors.contains("[1] did not connect"), "{errors}");
    let on_processors = command(path, TRAIN).envs(variables("2")).output().unwrap();
    let errors = String::from_utf8_lossy(&on_processors.stderr);
    assert_eq!((on_processors.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains("--engine cuda"), "{errors}");
}

#[test]
fn what_cannot_be_is_one_line() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    refused(path, &format!("{TRAIN} --ranks 2 --engine cpu --emulate-gpus 2"), "give --engine cuda");
    let lacking = format!("{TRAIN} --engine cuda --gpus 3 --emulate-gpus 2");
    refused(path, &lacking, "CUDA device 2");
    refused(path, &format!("{TRAIN} --engine cuda --gpus 1 --emulate-gpus 9"), "1 to 8");
    let mut without = command(path, &format!("{TRAIN} --engine cuda --gpus 1 --emulate-gpus 1"));
    let without = without.env("CUDA_EMULATOR_LIBRARY", "nowhere.so").output().unwrap();
    let errors = String::from_utf8_lossy(&without.stderr);
    assert_eq!((without.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains("nowhere.so"), "{errors}");
}

#[test]
fn emulated_gpus_determine_the_engine_and_the_number_of_ranks() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let report = json(path, &format!("{TRAIN} --emulate-gpus 3 --iterations 1"));
    assert_eq!((&report["ranks"], &report["emulated_gpus"]), (&3.into(), &"3".into()));
    let report = json(path, &format!("{TRAIN} --emulate-gpus 3 --ranks 2 --iterations 1"));
    assert_eq!((&report["ranks"], &report["emulated_gpus"]), (&2.into(), &"3".into()));
    succeed(path, "plan --model digits-cnn --device a100 --gpus 2 --batch 32 -o plan.json");
    let train = "train --model digits-cnn --data digits --plan plan.json --iterations 1 --json";
    assert_eq!(json(path, &format!("{train} --emulate-gpus 3"))["ranks"], 2);
    succeed(path, &format!("{} --iterations 1 --ranks 1 --checkpoint run", TRAIN.replace(" --json", "")));
    let eval = "eval --model digits-cnn --data digits --json --checkpoint run --emulate-gpus 1";
    assert!(json(path, eval)["accuracy"].is_number());
    let profile = "profile --model digits-cnn --batches 1 --emulate-gpus 1 -o profile.json --json";
    assert!(json(path, profile)["profile"]["device"].as_str().unwrap().contains("Emulated"));
}

/// The output says that times of emulated GPUs are virtual.
#[test]
fn emulated_times_are_reported_as_virtual() {
    let folder = TempDir::new().unwrap();
    let text = TRAIN.trim_end_matches(" --json");
    let printed =
        deeppool(folder.path(), &format!("{text} --engine cuda --gpus 1 --emulate-gpus 1 --iterations 1"));
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.contains("the GPUs are emulated"), "{printed}");
    let report: Value =
        serde_json::from_str(&succeed(folder.path(), &format!("{TRAIN} --ranks 1 --iterations 1"))).unwrap();
    assert!(report.get("emulated_gpus").is_none());
}
