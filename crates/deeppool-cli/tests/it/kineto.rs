//! Traces of PyTorch's profiler: profiles of them, comparisons with simulations, and damaged files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::command::{json, refused, succeed, warned};

/// A classifier of images, of two layers.
fn network() -> Value {
    json!({"schema": "deeppool/graph/v1", "name": "small", "input": [3, 8, 8], "layers": [
        {"name": "flatten", "op": "flatten", "inputs": ["input"]},
        {"name": "fc", "op": {"linear": {"out_features": 5, "bias": true}}, "inputs": ["flatten"]},
        {"name": "loss", "op": "softmax_cross_entropy", "inputs": ["fc"]},
    ]})
}

/// Returns a trace of one iteration with `batch` samples, whose operators take multiples of `us`
/// microseconds.
fn trace(batch: usize, us: f64) -> Value {
    let event = |cat: &str, name: &str, start: f64, dur: f64, args: Value| {
        json!({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": 1e6 + us * start,
            "dur": us * dur, "args": args})
    };
    let node = |name: &str, start: f64, dur: f64, node: u64| {
        let name = format!("autograd::engine::evaluate_function: {name}");
        event("cpu_op", &name, start, dur, json!({"Sequence number": node}))
    };
    json!({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0.0, "args": {"name": "python"}},
        event("user_annotation", "deeppool:", 0.0, 50.0, json!({})),
        event("cpu_op", "aten::flatten", 1.0, 2.0, json!({"Input Dims": [[batch, 3, 8, 8], [], []]})),
        event("user_annotation", "deeppool:fc", 5.0, 42.0, json!({})),
        event("cpu_op", "aten::linear", 6.0, 40.0,
            json!({"Sequence number": 3, "Input Dims": [[batch, 192], [5, 192], [5]]})),
        event("cpu_op", "aten::cross_entropy_loss", 51.0, 8.0, json!({"Sequence number": 4})),
        node("NllLossBackward0", 60.0, 6.0, 4),
        node("AddmmBackward0", 70.0, 70.0, 3),
        event("user_annotation", "Optimizer.step#SGD.step", 150.0, 20.0, json!({})),
        event("cpu_op", "aten::_foreach_add_", 151.0, 12.0, json!({})),
        event("cpu_op", "aten::item", 180.0, 2.0, json!({})),
    ]})
}

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    std::fs::write(folder.join(name), content).unwrap();
}

fn gzipped(content: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(content).unwrap();
    packed.finish().unwrap()
}

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    write(path, "net.json", network().to_string());
    write(path, "4.json", trace(4, 1.0).to_string());
    write(path, "8.json.gz", gzipped(trace(8, 2.0).to_string().as_bytes()));
    folder
}

#[test]
fn traces_are_profiles_to_plan_from() {
    let folder = folder();
    let folder = folder.path();
    let profile = "profile --graph net.json --kineto 8.json.gz --kineto 4.json -o profile.json";
    let shown = succeed(folder, profile);
    for expected in [
        "small on processor, imported",
        "98.6%",
        "4.json: 1.4% of the time of all operators is not assigned: aten::item 1.4%",
        "wrote profile.json",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let report = json(folder, &format!("{profile} --json"));
    assert_eq!(report["traces"][0]["batch"], 8);
    assert_eq!(report["traces"][1]["total_us"], 140.0);
    assert_eq!(report["profile"]["layers"][1]["times"][0]["backward_us"], 70.0);
    assert_eq!(report["profile"]["network"][1]["update_us"], 24.0);
    let plan = succeed(folder, "plan --graph net.json --profile profile.json --gpus 2 --batch 8");
    assert!(plan.contains("processor, imported"), "{plan}");

    let given = succeed(folder, "profile --graph net.json --kineto 4.json --batches 3 -o three.json");
    assert!(given.contains("\n 3 "), "{given}");
}

#[test]
fn recorded_iterations_are_compared_with_simulated_ones() {
    let folder = folder();
    let folder = folder.path();
    succeed(folder, "profile --graph net.json --kineto 4.json -o profile.json");
    let compare = "compare-trace --graph net.json --kineto 4.json --profile profile.json";
    let shown = succeed(folder, compare);
    let row = |name: &str| shown.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    for name in ["fc", "loss", "all layers", "update"] {
        assert!(row(name).trim_end().ends_with("1.00"), "{name}: {shown}");
    }
    let report = json(folder, &format!("{compare} --json"));
    assert_eq!(report["layers"][1]["recorded"]["forward_us"], 40.0);
    assert_eq!(report["layers"][1]["simulated"]["forward_us"], 40.0);
    assert_eq!(report["iteration"]["recorded_us"], 163.0);
    assert_eq!(report["iteration"]["simulated_us"], 138.0);
    let modelled = json(folder, "compare-trace --graph net.json --kineto 8.json.gz --device a100 --json");
    assert!(modelled["layers"][1]["simulated"]["forward_us"].as_f64().unwrap() > 0.0);
    assert_eq!(modelled["batch"], 8);

    // A trace of a rank of a plan, which has half of the samples.
    let plan = "plan --graph net.json --device a100 --gpus 2 --batch 8 --mode dp -o plan.json";
    succeed(folder, plan);
    let of_rank = "compare-trace --graph net.json --plan plan.json --rank 1";
    let report = json(folder, &format!("{of_rank} --kineto 4.json --json"));
    assert_eq!((&report["rank"], &report["batch"]), (&json!(1), &json!(4)));
    refused(
        folder,
        &format!("{of_rank} --kineto 8.json.gz"),
        "the trace has 8 samples, and rank 1 of the plan 4",
    );
    refused(
        folder,
        &format!("{} --kineto 4.json", of_rank.replace("rank 1", "rank 2")),
        "2 ranks, from 0 on",
    );
    refused(
        folder,
        "compare-trace --graph net.json --kineto 4.json",
        "--device NAME, --profile FILE or --plan",
    );
}

#[test]
fn missing_times_are_modelled_and_named() {
    let folder = folder();
    let folder = folder.path();
    let mut without = trace(4, 1.0);
    without["traceEvents"].as_array_mut().unwrap().retain(|event| {
        let name = event["name"].as_str().unwrap();
        !name.starts_with("Optimizer") && name != "aten::flatten"
    });
    write(folder, "part.json", without.to_string());
    let profile = "profile --graph net.json --kineto part.json -o part-profile.json";
    refused(
        folder,
        profile,
        "part.json: the trace has no step of an optimiser: record one, or give a device",
    );
    let (shown, warnings) = warned(folder, &format!("{profile} --device cpu-core"));
    assert!(shown.contains("of forward and backward: flatten"), "{shown}");
    let expected = "part.json: 10.1% of the time of all operators is not assigned: aten::_foreach_add_ 8.7%";
    assert!(warnings.len() == 1 && warnings[0].starts_with(expected), "{warnings:?}");
}

#[test]
fn damaged_traces_are_refused_in_one_line() {
    let folder = folder();
    let folder = folder.path();
    let whole = trace(4, 1.0).to_string();
    let packed = gzipped(whole.as_bytes());
    let mut changed = packed.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 0x55;
    let unnamed = whole.replace("deeppool:", "range:");
    let unshaped = whole.replace("Input Dims", "Input dimensions");
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty.json", Vec::new(), "not a trace of PyTorch's profiler: EOF"),
        ("text.json", b"no trace".to_vec(), "not a trace of PyTorch's profiler: expected"),
        ("plan.json", network().to_string().into_bytes(), "there are no `traceEvents`"),
        ("cut.json", whole.as_bytes()[..whole.len() / 2].to_vec(), "EOF"),
        ("cut.json.gz", packed[..packed.len() / 2].to_vec(), "not a trace of PyTorch's profiler: "),
        ("changed.json.gz", changed, "not a trace of PyTorch's profiler: "),
        ("plain.json.gz", b"\x1f\x8bplain".to_vec(), "not a trace of PyTorch's profiler: "),
        ("types.json", whole.replace("\"dur\":", "\"dur\":\"1\",\"ts\":").into_bytes(), "`traceEvents["),
        ("deep.json", "{\"a\":[".repeat(1_000_000).into_bytes(), "EOF while parsing"),
        (
            "bomb.json.gz",
            gzipped(format!("{{\"a\":\"{}", "x".repeat(64 << 20)).as_bytes()),
            "more than 64 MiB beside the events",
        ),
        ("unnamed.json", unnamed.into_bytes(), "the trace has no names of modules: 100.0% of the time"),
        ("unshaped.json", unshaped.into_bytes(), "record with record_shapes=True"),
    ];
    for (name, content, expected) in cases {
        write(folder, name, content);
        let began = Instant::now();
        let error = refused(folder, &format!("profile --graph net.json --kineto {name} -o x.json"), expected);
        assert!(error.contains(name) && began.elapsed() < Duration::from_secs(5), "{error}");
        let compare = format!("compare-trace --graph net.json --device a100 --kineto {name}");
        refused(folder, &compare, expected);
    }
    let profile = "profile --graph net.json -o x.json";
    refused(folder, &format!("{profile} --kineto none.json"), "none.json: no such file");
    refused(folder, &format!("{profile} --kineto ."), ".: this is a folder");
    refused(folder, &format!("{profile} --kineto 4.json --kineto 4.json"), "have the same batch size, 4");
    refused(folder, &format!("{profile} --kineto 4.json --batches 1,2"), "2 batch sizes for 1 traces");
    refused(folder, &format!("{profile} --kineto 4.json --engine cpu"), "cannot be used with");
    refused(
        folder,
        "profile --model digits-cnn --kineto 4.json -o x.json",
        "4.json: the trace is not one of training `digits-cnn`: no operator computes its layer",
    );
}

/// Published traces of GPUs have no names of modules.
#[test]
fn kernels_without_names_of_modules_are_listed() {
    let folder = folder();
    let traces = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/published/traces");
    if !traces.is_dir() {
        println!("SKIPPED: there are no published traces in {}", traces.display());
        return;
    }
    for (name, kernel) in [
        ("a100x2_hta_nccl_rank0.json.gz", "ncclKernel"),
        ("v100_hta_ns_resolution_rank0.json.gz", "cudnn"),
        ("h100x8_moddednanogpt_rank0_full.json.gz", "nccl"),
    ] {
        let path = traces.join(name);
        let profile = format!("profile --graph net.json --kineto {} -o x.json", path.display());
        let error = refused(folder.path(), &profile, "100.0% of the time of all kernels is not assigned: ");
        assert!(error.contains(kernel) && error.contains("with_stack=True"), "{error}");
    }
}
