//! Output, files and errors of the `deeppool` command.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{json, measure, refused, succeed, warned};

const TRAIN: &str = "train --model digits-cnn --data digits";
const PLAN: &str = "plan --model digits-cnn --device cpu-core --gpus 4 --batch 32";

#[test]
fn invalid_options_are_one_line_errors() {
    let folder = TempDir::new().unwrap();
    let cases = [
        (format!("{TRAIN} --ranks 40 --batch 32"), "40 ranks are more than the 32 samples"),
        (format!("{TRAIN} --ranks 2 --batch 2000"), "1437 training samples"),
        (format!("{TRAIN} --ranks 2 --batch 0"), "from 1 to 1048576"),
        (format!("{TRAIN} --ranks 2 --batch 8 --threads-per-rank 0"), "from 1 to 1024"),
        (format!("{TRAIN} --ranks 2 --batch 8 --lr=-1"), "learning rate"),
        (format!("{TRAIN} --ranks 2 --batch 8 --lr 0"), "learning rate"),
        (format!("{TRAIN} --ranks 2 --batch 8 --resume"), "--checkpoint"),
        (format!("{TRAIN} --ranks 2 --batch 8 --background digits-cnn"), "MODEL:BATCH"),
        (format!("{TRAIN} --ranks 2 --batch 8 --background vgg16:8"), "3x224x224"),
        ("train --model digits-cnn --data imagenet --ranks 2 --batch 8".into(), "unknown data set"),
        ("train --model vgg16 --data digits --ranks 2 --batch 8".into(), "1x8x8"),
        ("plan --model vgg17 --device a100 --gpus 8 --batch 32".into(), "known models: alexnet"),
        ("plan --model vgg16 --device b200 --gpus 8 --batch 32".into(), "known devices: a100"),
        ("plan --model vgg16 --device a100 --link rope --gpus 8 --batch 32".into(), "dgx-a100"),
        ("plan --model vgg16 --gpus 8 --batch 32".into(), "--device NAME or --profile FILE"),
        ("plan --model vgg16 --device a100".into(), "--gpus"),
        (
            "plan --model vgg16 --device a100 --gpus 8 --batch 32 --memory 1GB".into(),
            "must be more than the 1 GB that is reserved",
        ),
        (format!("{PLAN} --amplification 0.5"), "at least 1"),
        (format!("{PLAN} --amplification NaN"), "at least 1"),
        ("plan --model vgg16 --device a100 --gpus 8 --batch 0".into(), "from 1 to 1048576"),
        (format!("{PLAN} -o no/such/plan.json"), "does not exist"),
        (format!("{PLAN} --dot no/such/plan.dot"), "does not exist"),
        (format!("{PLAN} --trace no/such/trace.json"), "does not exist"),
        (format!("{PLAN} --deadline 40"), "12ms"),
        (format!("{PLAN} --deadline=-4ms"), "above 0"),
        (format!("{PLAN} --deadline 40ms --amplification 2"), "cannot be used with"),
        (format!("{PLAN} --deadline 40ms --knee"), "cannot be used with"),
        (format!("{PLAN} --knee --mode dp"), "cannot be used with"),
        (format!("{PLAN} --limit-rule per-layer"), "give --problem FILE"),
        (format!("{PLAN} --limit-rule by-eye"), "per-layer"),
        ("plan --problem problem.json --limit-rule per-layer --knee".into(), "cannot be used with"),
        ("plan --problem problem.json --no-overlap".into(), "cannot be used with"),
        (format!("{PLAN} --gpu-counts 0,2"), "`auto`, `powers-of-two`, `all`, or a list such as 1,2,3,6"),
        (format!("{PLAN} --gpu-counts all,3"), "`auto`, `powers-of-two`, `all`, or a list such as 1,2,3,6"),
        (format!("{PLAN} --worker-gpus 3"), "a divisor of the number of GPUs, got 3 for 4 GPUs"),
        (format!("{PLAN} --worker-gpus 0"), "from 1 to 16384"),
        (format!("{PLAN} --worker-gpus 2 --mode dp"), "1 with data parallelism, got 2"),
        (format!("{PLAN} --worker-gpus 2 --compare"), "cannot be used with"),
        (format!("{PLAN} --worker-gpus 2 --spb 2"), "cannot be used with"),
        (
            "simulate --model vgg16 --device a100 --gpus 8 --batch 30 --worker-gpus 2".into(),
            "got 30 samples for 4 of them",
        ),
        (format!("{TRAIN} --ranks 4 --batch 9 --worker-gpus 2"), "got 9 samples for 2 of them"),
        ("plan --model vgg16 --device a100 --gpus 1000000000 --batch 1000000000".into(), "from 1 to 16384"),
        ("simulate --model vgg16 --device a100 --gpus 100000 --batch 100000".into(), "from 1 to 16384"),
        (
            "plan --model vgg16 --device a100 --link ethernet-100g --gpus 16384 --batch 16384 --gpu-counts \
             all"
            .into(),
            "fewer GPU counts",
        ),
        (
            "plan --model vgg16 --device a100 --link dgx-a100 --gpus 64 --batch 64".into(),
            "--link: the link model \"dgx-a100\" connects 8 ranks, not 64",
        ),
        (
            "simulate --model vgg16 --device a100 --gpus 2000 --batch 2000".into(),
            "connects 1120 ranks, not 2000",
        ),
        (format!("{PLAN} --link none.json"), "none.json: "),
        (format!("{PLAN} --compare --pareto"), "cannot be used with"),
        (format!("{PLAN} --compare --svg no/such/figure.svg"), "does not exist"),
        (format!("{PLAN} --svg figure.svg"), "--compare"),
        (format!("{PLAN} --foreground 0.9"), "--objective"),
        (format!("{PLAN} --objective total --foreground 1.5"), "above 0, at most 1, got 1.5"),
        (format!("{PLAN} --objective total --foreground nan"), "above 0, at most 1"),
        (format!("{PLAN} --objective time --foreground 0.9"), "for --objective total"),
        (format!("{PLAN} --background digits-cnn:8"), "for --objective total"),
        (format!("{PLAN} --compare --background digits-cnn:0"), "MODEL:BATCH"),
        ("simulate --model vgg16 --plan plan.json --no-overlap".into(), "cannot be used with '--no-overlap'"),
        ("simulate --model vgg16 --plan plan.json --gpu-counts all".into(), "cannot be used with"),
        (format!("{TRAIN} --plan plan.json --sync-batch-norm"), "cannot be used with '--sync-batch-norm'"),
        (format!("{PLAN} --gpu-counts 5,6"), "none of them"),
        (format!("{PLAN} --deadline 1us"), "the smallest iteration time that can be reached is"),
        ("profile --model digits-cnn --device cpu-core -o no/such/profile.json".into(), "does not exist"),
        ("profile --model digits-cnn -o profile.json".into(), "--engine cpu"),
        (
            "simulate --model vgg16 --device a100 --gpus 8 --batch 32 --trace no/such/trace.json".into(),
            "does not exist",
        ),
        ("simulate --model vgg16 --plan missing.json".into(), "missing.json"),
        ("fly".into(), "fly"),
    ];
    for (arguments, expected) in cases {
        refused(folder.path(), &arguments, expected);
    }
}

#[test]
fn errors_of_numbers_and_missing_files_name_the_option_and_the_way_out() {
    let folder = TempDir::new().unwrap();
    for (arguments, expected) in [
        (format!("{TRAIN} --ranks 2 --batch -3"), "'--batch <BATCH>': expected a whole number from 1 to"),
        (
            format!("{TRAIN} --ranks 2 --batch 8 --epochs 0"),
            "'--epochs <EPOCHS>': expected a whole number of",
        ),
        (format!("{TRAIN} --ranks 2 --batch 8 --lr -1"), "learning rate"),
        (
            "plan --onnx none.onnx --device a100 --gpus 2 --batch 8".into(),
            "none.onnx: no such file: check the",
        ),
        (
            "train --model digits-cnn --data safetensors:none --ranks 2 --batch 8".into(),
            "no such file: check",
        ),
        (format!("{PLAN} --amplification -2"), "a finite number of at least 1"),
        (format!("{PLAN} --amplification inf"), "a finite number of at least 1"),
    ] {
        refused(folder.path(), &arguments, expected);
    }
}

#[test]
fn errors_of_invalid_files_name_the_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let write = |name: &str, text: &str| std::fs::write(path.join(name), text).unwrap();
    succeed(path, "profile --model digits-cnn --device cpu-core --batches 1,2,4,8,16,32 -o profile.json");
    let profile = std::fs::read_to_string(path.join("profile.json")).unwrap();
    let with_profile = "plan --model digits-cnn --gpus 4 --batch 32 --profile";

    write("truncated.json", &profile[..profile.len() / 2]);
    refused(path, &format!("{with_profile} truncated.json"), "truncated.json");
    let mut document: Value = serde_json::from_str(&profile).unwrap();
    let layers = document["layers"].as_array_mut().unwrap();
    layers.retain(|layer| layer["name"] != "conv3");
    write("incomplete.json", &document.to_string());
    refused(path, &format!("{with_profile} incomplete.json"), "conv3");
    refused(path, "plan --model digits-cnn --gpus 4 --batch 64 --profile profile.json", "not 64");
    refused(path, "plan --model vgg16 --gpus 4 --batch 32 --profile profile.json", "digits-cnn");

    succeed(path, &format!("{PLAN} -o plan.json"));
    refused(path, "simulate --model resnet-18 --plan plan.json", "plan.json: the plan does not fit");
    refused(path, "simulate --model digits-cnn --plan plan.json --gpus 2", "4 GPUs, not 2");
    refused(path, &format!("{TRAIN} --plan plan.json --ranks 3"), "4 GPUs, not 3");
    refused(path, "simulate --model digits-cnn --plan profile.json", "profile.json: at `schema`");
    let plan = std::fs::read_to_string(path.join("plan.json")).unwrap();
    write("edited.json", &plan.replacen("\"gpus\": 4", "\"gpus\": 1000000000", 1));
    refused(path, &format!("{TRAIN} --plan edited.json"), "edited.json: at `gpus`");
    write("old.json", r#"{"schema": "deeppool/plan/v1", "gpus": 4}"#);
    refused(path, "simulate --model digits-cnn --plan old.json", "make the plan again with `deeppool plan`");

    write("problem.json", r#"{"schema": "deeppool/plan-problem/v1", "gpus": 2, "nodes": [], "edges": []}"#);
    refused(path, "plan --problem problem.json", "problem.json");
    write("problem.json", &example_problem().replacen("\"gpus\":2", "\"gpu\":2", 1));
    refused(path, "plan --problem problem.json", "nodes[0]");
    for name in ["train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"] {
        write(&format!("{name}-ubyte"), "short");
    }
    refused(path, "train --model digits-cnn --data mnist:. --ranks 1 --batch 8", "train-images-idx3-ubyte");
}

/// Returns a chain of two nodes on up to 2 of 8 GPUs, with transfers that take 5 us in both
/// directions.
fn example_problem() -> String {
    r#"{"schema":"deeppool/plan-problem/v2","gpus":8,
        "nodes":[{"name":"conv1","gradient_bytes":4,
                  "options":[{"gpus":1,"forward_us":40.0,"backward_us":60.0},
                             {"gpus":2,"forward_us":20.0,"backward_us":40.0,"memory_bytes":1000}],
                  "output":[{"from_gpus":1,"to_gpus":1,"transfer_us":2.5},
                            {"from_gpus":1,"to_gpus":2,"transfer_us":2.5},
                            {"from_gpus":2,"to_gpus":2,"transfer_us":2.5}]},
                 {"name":"fc","options":[{"gpus":1,"forward_us":20.0,"backward_us":30.0},
                                         {"gpus":2,"forward_us":19.0,"backward_us":30.0}]}],
        "edges":[{"from":0,"to":1}],
        "all_reduce":[{"gpus":2,"startup_us":0.0,"us_per_byte":0.0}]}"#
        .into()
}

/// Returns the GPU counts of the nodes of a report.
fn gpu_counts(report: &Value) -> Vec<u64> {
    report["layers"].as_array().unwrap().iter().map(|layer| layer["gpus"].as_u64().unwrap()).collect()
}

#[test]
fn problem_files_are_planned() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("problem.json"), example_problem()).unwrap();
    // With both nodes on two GPUs: 109 us, and a GPU time of 218 us for 150 us on one GPU. With
    // only the first node on two GPUs: 115 us, and a GPU time of 120 + 10 + 50 us.
    let loose = json(folder.path(), "plan --problem problem.json --amplification 2 --json");
    assert_eq!(gpu_counts(&loose), [2, 2]);
    assert_eq!(loose["iteration_us"], 109.0);
    let tight = json(folder.path(), "plan --problem problem.json --amplification 1.2 --json");
    assert_eq!(gpu_counts(&tight), [2, 1]);
    assert_eq!(tight["iteration_us"], 115.0);
    assert_eq!(tight["gpu_time_us"], 180.0);
    assert_eq!(tight["single_gpu_us"], 150.0);
}

#[test]
fn problems_are_read_from_standard_input() {
    let folder = TempDir::new().unwrap();
    let from_stdin = |text: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_deeppool"));
        command.current_dir(folder.path()).args([
            "plan",
            "--problem",
            "-",
            "--amplification",
            "1.2",
            "--json",
        ]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        running.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        running.wait_with_output().unwrap()
    };
    let output = from_stdin(&example_problem());
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(gpu_counts(&plan), [2, 1]);
    let output = from_stdin(&example_problem().replacen("\"gpus\":2", "\"gpu\":2", 1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("standard input") && errors.contains("nodes[0]"), "{errors}");
    assert_eq!(output.status.code(), Some(2));
}

/// Runs the example of the documentation.
#[test]
fn the_python_example_plans_a_problem() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../burst-planner/examples/plan_problem.py");
    let run = |limit: &str| {
        let mut python = Command::new("python3");
        python.arg("-B").arg(&example).args([
            "--deeppool",
            env!("CARGO_BIN_EXE_deeppool"),
            "--amplification",
            limit,
        ]);
        python.output()
    };
    let Ok(output) = run("2") else {
        println!("SKIPPED: there is no python3");
        return;
    };
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    assert!(said.contains("limit 2.0"), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains(" on ranks [")).count(), 6, "{said}");
    let refused = run("0.5").unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("at least 1"));
}

/// Lowering options are stored in the plan, and used when the plan is used.
#[test]
fn plans_store_lowering_options() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let time = |options: &str| {
        let plan =
            json(path, &format!("plan --model vgg11 --device a100 --gpus 4 --batch 16 --mode dp {options}"));
        (plan["lowering"].clone(), plan["iteration_us"].as_f64().unwrap())
    };
    let (overlapping, fast) = time("--json");
    let (serial, slow) = time("--json --no-overlap -o plan.json");
    assert_eq!(
        (&overlapping["overlap_all_reduce"], &serial["overlap_all_reduce"]),
        (&true.into(), &false.into())
    );
    assert!(fast < slow);
    let simulated = json(path, "simulate --model vgg11 --plan plan.json --json");
    assert!((simulated["iteration_us"].as_f64().unwrap() / slow - 1.0).abs() < 1e-3);
}

/// The output has data parallelism beside the burst plan, and the critical path, which adds up to
/// the iteration.
#[test]
fn plans_are_printed_with_data_parallelism_and_a_bound() {
    let folder = TempDir::new().unwrap();
    let said =
        succeed(folder.path(), "plan --model vgg16 --device a100 --gpus 8 --batch 32 --amplification 1.5");
    for expected in
        ["data parallel on the same GPUs", "is faster than", "computing", "idle", "ranks", "iteration "]
    {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn deadline_and_knee_select_points_of_the_frontier() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("problem.json"), example_problem()).unwrap();
    let plan = |how: &str| json(folder.path(), &format!("plan --problem problem.json {how} --json"));
    // The frontier in us: iteration 109 with GPU time 218, 115 with 180, 150 with 150.
    for (how, gpus) in [
        ("--deadline 112us", [2, 2]),
        ("--deadline 0.115ms", [2, 1]),
        ("--deadline 1s", [1, 1]),
        ("--knee", [2, 1]),
    ] {
        assert_eq!(gpu_counts(&plan(how)), gpus, "{how}");
    }
    assert_eq!(plan("--deadline 112us")["deadline_us"], 112.0);
    assert!(plan("--knee")["frontier"].is_null());
    assert_eq!(plan("--knee --pareto")["frontier"].as_array().unwrap().len(), 3);
    let model = json(folder.path(), &format!("{PLAN} --knee -o plan.json --json"));
    assert_eq!((&model["mode"], &model["amplification_limit"]), (&Value::from("bp"), &Value::Null));
    succeed(folder.path(), "simulate --model digits-cnn --plan plan.json");
}

#[test]
fn plans_are_explained_by_runs_of_layers() {
    let folder = TempDir::new().unwrap();
    let plan = json(folder.path(), &format!("{PLAN} --amplification 1.15 --explain --json -o plan.json"));
    let runs = plan["explanations"].as_array().unwrap();
    let layers: u64 = runs.iter().map(|run| run["layers"].as_u64().unwrap()).sum();
    assert_eq!(layers as usize, plan["layers"].as_array().unwrap().len());
    for run in runs {
        let gpus = run["gpus"].as_u64().unwrap();
        assert!(run["more"]["gpus"].as_u64().is_none_or(|more| more > gpus));
        assert!(run["fewer"]["gpus"].as_u64().is_none_or(|fewer| fewer < gpus));
    }
    // The file has only the plan.
    succeed(folder.path(), "simulate --model digits-cnn --plan plan.json");
}

#[test]
fn plans_are_written_as_graphs_and_timelines() {
    let folder = TempDir::new().unwrap();
    let said = succeed(
        folder.path(),
        &format!("{PLAN} --amplification 1.15 --dot p.dot --trace p.json -o plan.json"),
    );
    for name in ["p.dot", "p.json", "plan.json"] {
        assert!(said.contains(&format!("wrote {name}\n")), "{said}");
    }
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let dot = read("p.dot");
    assert!(dot.starts_with("digraph plan {\n") && dot.ends_with("}\n"), "{dot}");
    assert!(dot.contains("n0 [label=\"conv1\\n"), "{dot}");
    let plan: Value = serde_json::from_str(&read("plan.json")).unwrap();
    let trace: Value = serde_json::from_str(&read("p.json")).unwrap();
    let ends = trace["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| Some(event["ts"].as_f64()? + event["dur"].as_f64()?));
    let (end, planned) = (ends.fold(0.0, f64::max), plan["iteration_us"].as_f64().unwrap());
    // From the start of the first rank to the end of the last one, which the next iteration may
    // overlap.
    assert!(end >= planned * 0.999 && end < planned * 1.5, "{end} {planned}");
}

#[test]
fn limits_can_apply_to_each_layer() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("problem.json"), example_problem()).unwrap();
    // The per-layer rule exempts layers as short as these, so that its plan exceeds the limit of
    // 1.2.
    let plan = |rule: &str| {
        let arguments = "plan --problem problem.json --amplification 1.2 --json --limit-rule";
        json(folder.path(), &format!("{arguments} {rule}"))
    };
    let (total, per_layer) = (plan("total"), plan("per-layer"));
    assert_eq!(gpu_counts(&total), [2, 1]);
    assert_eq!(gpu_counts(&per_layer), [2, 2]);
    assert!(per_layer["amplification"].as_f64().unwrap() > 1.2);
    assert_eq!(per_layer["limit_rule"], "per-layer");
    assert!(total["limit_rule"].is_null() && per_layer["lower_bound_us"].is_null());
    let said =
        succeed(folder.path(), "plan --problem problem.json --amplification 1.2 --limit-rule per-layer");
    assert!(said.contains("(limit 1.2 for each layer)"), "{said}");
}

#[test]
fn layers_run_on_the_given_gpu_counts() {
    let folder = TempDir::new().unwrap();
    let plan = |counts: &str| {
        let arguments = "plan --model vgg16 --device a100 --gpus 6 --batch 32 --amplification 3 --json";
        let (said, _) = warned(folder.path(), &format!("{arguments} -o plan.json --gpu-counts {counts}"));
        serde_json::from_str::<Value>(&said).unwrap()
    };
    let counts = |plan: &Value| -> Vec<u64> {
        let layers = plan["layers"].as_array().unwrap().iter();
        layers.map(|layer| layer["gpus"].as_u64().unwrap()).collect()
    };
    let time = |plan: &Value| plan["iteration_us"].as_f64().unwrap();
    let (powers, all, listed) = (plan("powers-of-two"), plan("all"), plan("3,5,9"));
    assert!(time(&all) <= time(&powers) && time(&all) <= time(&listed));
    assert!(counts(&listed).iter().all(|count| [3, 5].contains(count)), "{:?}", counts(&listed));
    assert_eq!(listed["single_gpu_us"], all["single_gpu_us"]);
    let simulated = json(folder.path(), "simulate --model vgg16 --plan plan.json --json");
    assert_eq!(simulated["planned_iteration_us"], listed["iteration_us"]);
}

fn has_fields(value: &Value, fields: &[&str]) {
    for field in fields {
        assert!(!value[field].is_null(), "{field} is missing");
    }
}

#[test]
fn plan_files_are_used_and_reports_have_their_fields() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let plan = json(path, &format!("{PLAN} --amplification 1.15 --pareto -o plan.json --json"));
    has_fields(&plan, &["schema", "iteration_us", "gpu_time_us", "single_gpu_us", "amplification"]);
    has_fields(&plan, &["gpus", "layers", "frontier", "lower_bound_us", "gap", "dp", "lowering"]);
    has_fields(&plan, &["computing_us", "communicating_us", "idle_us"]);
    has_fields(&plan["planning"], &["evaluations", "search_end", "proof_operations", "proof_end"]);
    has_fields(&plan["layers"][0], &["name", "gpus", "ranks"]);
    has_fields(&plan["frontier"][0], &["iteration_us", "amplification", "gpus"]);
    assert!(plan["amplification"].as_f64().unwrap() <= 1.15);
    let saved: Value =
        serde_json::from_str(&std::fs::read_to_string(path.join("plan.json")).unwrap()).unwrap();
    let mut plan_alone = plan.clone();
    plan_alone.as_object_mut().unwrap().remove("frontier");
    assert_eq!(saved, plan_alone);

    let arguments =
        "simulate --model digits-cnn --plan plan.json --background digits-cnn:8 --trace t.json --json";
    let simulated = json(path, arguments);
    has_fields(&simulated, &["iteration_us", "amplification", "gpu_busy_fraction"]);
    has_fields(&simulated, &["computing_us", "communicating_us", "idle_us"]);
    has_fields(&simulated["background_samples_per_s_while"], &["computing", "communicating", "idle"]);
    has_fields(&simulated, &["foreground_samples_per_s", "background_samples_per_s"]);
    assert_eq!(simulated["planned_iteration_us"], plan["iteration_us"]);
    assert_eq!(json(path, arguments), simulated, "the simulation is deterministic");
    let trace = std::fs::read_to_string(path.join("t.json")).unwrap();
    assert!(trace.contains("rank 3 (simulated)") && trace.contains("forward conv1"));

    let trained =
        json(path, &format!("{TRAIN} --plan plan.json --epochs 1 --background digits-cnn:8 --json"));
    has_fields(&trained, &["plan", "foreground_samples_per_s", "background_samples_per_s", "background"]);
    has_fields(&trained["background"], &["pieces", "longest_piece_us", "over_long_pieces"]);
    has_fields(&trained["background"]["jobs"][0], &["micro_batches", "weight", "iterations", "losses"]);
    has_fields(&trained, &["planned_iteration_us", "simulated_iteration_us"]);
    has_fields(&trained["iteration_us"], &["median", "p99"]);
    has_fields(&trained["epochs"][0], &["train_loss", "test_accuracy"]);
    assert_eq!(trained["losses"].as_array().unwrap().len(), 44);
    assert_eq!(trained["plan"]["layers"], plan["layers"]);
}

#[test]
fn losses_do_not_depend_on_threads() {
    let folder = TempDir::new().unwrap();
    let losses = |threads: usize| {
        let options = format!("--ranks 3 --batch 120 --epochs 1 --threads-per-rank {threads} --json");
        json(folder.path(), &format!("{TRAIN} {options}"))["losses"].clone()
    };
    let alone = losses(1);
    assert!(!alone.as_array().unwrap().is_empty());
    assert_eq!(alone, losses(2));
}

#[test]
fn training_prints_the_origin_of_layer_times() {
    let folder = TempDir::new().unwrap();
    let said = succeed(folder.path(), &format!("{TRAIN} --ranks 2 --batch 32 --epochs 2"));
    assert!(said.contains("cpu-core, modelled"), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("epoch ")).count(), 2, "{said}");
    for line in ["planned", "simulated", "measured"] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn all_models_are_listed() {
    let folder = TempDir::new().unwrap();
    let said = succeed(folder.path(), "models");
    for model in layer_graph::zoo::names() {
        assert!(said.contains(model), "{said}");
    }
}

#[test]
fn plans_report_the_error_of_their_device_model() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let size = "--model vgg11 --gpus 4 --batch 16";
    let said = succeed(path, &format!("plan {size} --device a100 -o plan.json"));
    assert!(
        said.contains("a100, modelled") && said.contains("nine tenths of what it was not fitted to"),
        "{said}"
    );
    // The model was checked on larger batches only.
    assert!(
        said.contains("range of the iteration: ") && said.contains("not checked on iterations like this one")
    );
    let said = succeed(path, "simulate --model vgg11 --plan plan.json --iterations 2");
    assert!(said.contains("range of the iteration: "), "{said}");
    let simulated = json(path, &format!("simulate {size} --device h200 --json"));
    let range = |end: &str| simulated["range"][end].as_f64().unwrap();
    let planned = simulated["planned_iteration_us"].as_f64().unwrap();
    assert!(range("min_us") < planned && planned < range("max_us") && simulated["range"]["checked"] == true);
    assert_eq!(simulated["link"], "dgx-h200");
    let said = succeed(path, &format!("plan {size} --device h100-fp32"));
    assert!(
        said.contains("scaled from h200-fp32 by data sheets, not checked against measurements"),
        "{said}"
    );
    assert!(!said.contains("range of the iteration"), "{said}");
}

#[test]
fn ways_to_share_gpus_are_compared() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let size = "--model digits-cnn --device a100 --gpus 4 --batch 32";
    let said = succeed(path, &format!("plan {size} --compare --svg compare.svg"));
    for expected in ["simulated", "partition", "BP+Col", "of the fastest foreground", "wrote compare.svg"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let figure = std::fs::read_to_string(path.join("compare.svg")).unwrap();
    assert!(figure.starts_with("<svg") && figure.contains("simulated") && figure.contains("BP+Col"));
    let compared = json(path, &format!("plan {size} --compare --background digits-cnn:4 --json"));
    let points = compared["points"].as_array().unwrap();
    for mode in ["dp", "dp+col", "bp", "bp+col", "partition", "bg"] {
        assert!(points.iter().any(|point| point["mode"] == mode), "{mode}");
    }
    assert!(points.iter().all(|point| point["total_range_samples_per_s"].is_array()));
    assert!(compared["advice"].as_str().unwrap().len() > 20 && compared["background"]["batch"] == 4);
    let total = json(path, &format!("plan {size} --objective total --foreground 0.5 --json"));
    let fastest = json(path, &format!("plan {size} --objective time --json"));
    assert!(total["objective"]["background_samples_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(total["objective"]["fastest_iteration_us"], fastest["iteration_us"]);
    let same = json(path, &format!("plan {size} --objective total --foreground 1 --json"));
    assert_eq!(same["layers"], fastest["layers"]);
}

/// A link model as `coll-bench fit -o` writes, with an additional level.
#[test]
fn link_models_are_read_from_files() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let write = |ranks: usize| {
        let levels = [(4, 2e11), (ranks, 1e10)].map(|(ranks, bandwidth)| {
            serde_json::json!({
                "ranks": ranks, "bandwidth_bytes_per_s": bandwidth, "startup_us": 10, "latency_us": 2,
            })
        });
        let file = serde_json::json!({"schema": "deeppool/link/v1", "name": "mine", "levels": levels});
        std::fs::write(path.join("link.json"), file.to_string()).unwrap();
    };
    write(8);
    let size = "--model digits-cnn --device a100 --batch 32";
    let plan = json(path, &format!("plan {size} --gpus 8 --link link.json --json -o plan.json"));
    assert_eq!(plan["link"], "mine");
    refused(path, &format!("plan {size} --gpus 9 --link link.json"), "\"mine\" connects 8 ranks, not 9");
    refused(path, "simulate --model digits-cnn --plan plan.json", "give their file with --link FILE.json");
    succeed(path, "simulate --model digits-cnn --plan plan.json --link link.json --iterations 2");
    write(6);
    let expected = "levels[1].ranks: expected a multiple of the 4 ranks of the level inside, got 6";
    refused(path, &format!("plan {size} --gpus 8 --link link.json"), expected);
}

#[test]
fn gpu_names_of_cuda_determine_the_links() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    succeed(path, "profile --model digits-cnn --device h200 --batches 1,2,4,8,16 -o profile.json");
    let mut profile: Value =
        serde_json::from_slice(&std::fs::read(path.join("profile.json")).unwrap()).unwrap();
    let size = "plan --model digits-cnn --profile named.json --gpus 4 --batch 16";
    for (device, link) in [
        ("NVIDIA H200", "dgx-h200"),
        ("NVIDIA A100-SXM4-80GB", "dgx-a100"),
        ("Tesla V100-SXM2-16GB", "dgx1-v100"),
        ("AMD EPYC 7763 64-Core Processor, 2 threads", "shared-memory"),
    ] {
        profile["device"] = device.into();
        std::fs::write(path.join("named.json"), profile.to_string()).unwrap();
        assert_eq!(json(path, &format!("{size} --json"))["link"], link, "{device}");
    }
    profile["device"] = "NVIDIA B200".into();
    std::fs::write(path.join("named.json"), profile.to_string()).unwrap();
    refused(path, size, "`NVIDIA B200` are linked: name a link model, one of dgx-a100, dgx-h100, dgx-h200, ");
    assert_eq!(json(path, &format!("{size} --link dgx-a100 --json"))["link"], "dgx-a100");
}

#[test]
fn closed_pipes_are_no_errors() {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_deeppool"));
    let arguments = format!("{PLAN} --explain -o plan.json");
    let command = command.current_dir(folder.path()).args(arguments.split_whitespace());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(folder.path().join("plan.json").exists());
}

#[cfg(unix)]
#[test]
fn plan_files_have_default_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    succeed(path, &format!("{PLAN} -o plan.json"));
    std::fs::write(path.join("other"), "").unwrap();
    let mode = |name: &str| std::fs::metadata(path.join(name)).unwrap().permissions().mode();
    assert_eq!(mode("plan.json"), mode("other"));
}

#[test]
fn device_models_are_fitted_to_measurements() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    measure(path, "profile --model digits-cnn --engine cpu --batches 1,4,16 -o measured.json");
    refused(path, "fit --profile measured.json --name cpu-core -o here.json", "`cpu-core` is built in");
    refused(path, "fit --profile measured.json --data-sheet b200 -o here.json", "known devices: a100");
    let said = succeed(path, "fit --profile measured.json --name here -o here.json");
    assert!(said.contains("here: fitted to times measured on") && said.contains("digits-cnn"), "{said}");
    let fitted = json(path, "fit --profile measured.json --name here -o here.json --json");
    has_fields(&fitted["accuracy"]["seen"], &["layers_median", "networks_worst", "held_out_worst"]);
    assert_eq!(fitted["fitted"][0]["network"].as_array().unwrap().len(), 3);

    let planned = json(
        path,
        "plan --model digits-cnn --device here.json --link shared-memory --gpus 2 --batch 16 -o plan.json \
         --json",
    );
    assert_eq!(
        (&planned["profile"]["device"], &planned["profile"]["origin"]),
        (&"here".into(), &"modelled".into())
    );
    assert_eq!(planned["profile"]["accuracy"], fitted["accuracy"]);
    succeed(path, "simulate --model digits-cnn --plan plan.json --device here.json --iterations 2");
    refused(path, "simulate --model digits-cnn --plan plan.json --iterations 2", "--device");
    // The links of a device of this name are unknown.
    refused(
        path,
        "plan --model digits-cnn --device here.json --gpus 2 --batch 16",
        "name a link model, one of dgx-a100, dgx-h100, dgx-h200, ",
    );

    refused(
        path,
        "fit --profile measured.json --profile measured.json -o twice.json",
        "measured.json: `digits-cnn` at batch 1 was added before",
    );
    let mut measured: Value =
        serde_json::from_slice(&std::fs::read(path.join("measured.json")).unwrap()).unwrap();
    measured["measurement"]["libraries"] = serde_json::json!({"libtorch": "2.11.0"});
    std::fs::write(path.join("torch.json"), measured.to_string()).unwrap();
    refused(
        path,
        "fit --profile measured.json --profile torch.json -o mixed.json",
        "(f32; libtorch 2.11.0), an earlier one on",
    );

    succeed(path, "profile --model digits-cnn --device here.json --batches 1,4 -o modelled.json");
    refused(
        path,
        "fit --profile modelled.json --name more -o more.json",
        "fit a device model to measured times",
    );
}

#[test]
fn every_subcommand_has_completions_and_a_man_page() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let script = succeed(path, "completions bash");
    let subcommands = [
        "models",
        "profile",
        "fit",
        "import-profile",
        "compare-trace",
        "plan",
        "simulate",
        "lower",
        "train",
        "epochs",
        "launch",
        "slurm",
        "export",
        "eval",
        "completions",
        "man",
    ];
    for name in subcommands {
        assert!(script.contains(&format!("deeppool,{name})")), "{name} is not completed");
    }
    assert!(script.contains("--amplification"), "options are completed, too");
    for shell in ["zsh", "fish"] {
        assert!(succeed(path, &format!("completions {shell}")).contains("import-profile"), "{shell}");
    }
    refused(path, "completions csh", "bash");

    let said = succeed(path, "man pages/man1");
    assert!(said.contains("17 man pages in pages/man1"), "{said}");
    let page = |name: &str| std::fs::read_to_string(path.join("pages/man1").join(name)).unwrap();
    for name in subcommands {
        assert!(page("deeppool.1").contains(&name.replace('-', "\\-")), "{name} is not in deeppool.1");
        assert!(page(&format!("deeppool-{name}.1")).starts_with(".ie"), "{name}");
    }
    assert!(page("deeppool-plan.1").contains("deeppool plan"));
    std::fs::write(path.join("a-file"), "").unwrap();
    refused(path, "man a-file/pages", "a-file/pages: ");
}

/// Returns whether a step belongs to a background job, such as `backward conv1`.
fn is_of_a_layer(step: &str) -> bool {
    let what = step.split_once(' ').map(|(what, _)| what);
    matches!(what, Some("forward" | "backward" | "update"))
}

#[test]
fn timelines_name_the_jobs() {
    let folder = TempDir::new().unwrap();
    let small = "simulate --model vgg16 --device a100 --gpus 4 --batch 32 --background resnet-18:8";
    json(folder.path(), &format!("{small} --trace t.json --json"));
    let trace = std::fs::read_to_string(folder.path().join("t.json")).unwrap();
    let trace: Value = serde_json::from_str(&trace).unwrap();
    let of = |category: &str| -> Vec<&Value> {
        trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == category).collect()
    };
    for event in of("communication") {
        let ranks = event["args"]["ranks"].as_array().unwrap();
        let rank = event["pid"].as_u64().unwrap() - 1;
        assert!(ranks.contains(&rank.into()) && event["args"]["bytes"].as_u64().unwrap() > 0, "{event}");
    }
    for event in of("background") {
        let name = event["name"].as_str().unwrap();
        assert!(event["args"]["job"] == "resnet-18" && name.split(" to ").all(is_of_a_layer), "{event}");
        let layers: Vec<_> = event["args"]["layers"].as_array().unwrap().iter().map(Value::as_str).collect();
        let ends = name.split(" to ").map(|step| step.split_once(' ').map(|(_, layer)| layer));
        let [first, .., last] = layers[..] else { panic!("{event}") };
        assert!(ends.eq([first, last]), "{event}");
    }
    assert!(!of("communication").is_empty() && !of("background").is_empty());
}

#[test]
fn plans_are_lowered_to_program_files() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    succeed(path, &format!("{PLAN} -o plan.json"));
    let said = succeed(path, "lower --model digits-cnn --plan plan.json -o program.json");
    assert!(said.contains("the program of 4 ranks"), "{said}");
    let read = |name: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(path.join(name)).unwrap()).unwrap()
    };
    let program = read("program.json");
    assert_eq!(program["schema"], "deeppool/program/v5");
    assert_eq!(program["batch"], 32);
    assert_eq!(program["ranks"].as_array().unwrap().len(), 4);
    let said = json(path, "lower --model digits-cnn --plan plan.json --rank 3 -o rank-3.json --json");
    assert_eq!(said["ranks"], 4);
    assert_eq!(read("rank-3.json")["ranks"][0], program["ranks"][3]);
    refused(path, "lower --model digits-cnn --plan plan.json --rank 4 -o -", "rank 4");
    refused(path, "lower --model vgg11 --plan plan.json -o -", "plan.json: ");
    refused(path, "lower --model digits-cnn --plan none.json -o -", "none.json: ");
}

#[test]
fn plans_of_workers_describe_the_workers() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let size = "--model resnet-18 --device a100 --gpus 24 --batch 48 --amplification 99";
    let said = succeed(path, &format!("plan {size} --worker-gpus 3 -o plan.json"));
    assert!(said.contains("8 workers of 3 GPUs, 6 samples each: alone in "), "{said}");
    assert!(said.contains("; GPUs of 2 of them are on more than one host"), "{said}");
    assert!(said.contains("data parallel on the same GPUs: "), "{said}");
    let again = succeed(path, "simulate --model resnet-18 --plan plan.json");
    assert!(again.contains("8 workers of 3 GPUs"), "{again}");
    let inside = succeed(path, &format!("plan {size} --worker-gpus 4"));
    assert!(!inside.contains("more than one host"), "{inside}");
    refused(path, "simulate --model resnet-18 --plan plan.json --worker-gpus 3", "cannot be used with");
}
