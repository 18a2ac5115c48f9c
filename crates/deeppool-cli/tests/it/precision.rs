//! The option `--precision` of commands that take layer times.

use crate::command::{json, losses, measure, refused, succeed};

/// In 16 bits, a plan takes the GPU's model in this format, is faster, and has about half the
/// activations; gradients of parameters keep 32 bits.
#[test]
fn plans_follow_the_precision() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let plan = |options: &str| {
        json(path, &format!("plan --model resnet-18 --gpus 4 --batch 64 --mode dp --json {options}"))
    };
    let [single, tensor, half] = ["f32", "tf32", "bf16"]
        .map(|precision| plan(&format!("--device a100 --precision {precision} -o {precision}.json")));
    let devices = [&single, &tensor, &half].map(|plan| plan["profile"]["device"].clone());
    assert_eq!(devices, ["a100-fp32", "a100", "a100-bf16"]);
    let time = |plan: &serde_json::Value| plan["iteration_us"].as_f64().unwrap();
    assert_eq!(half["iteration_us"], plan("--device a100-bf16")["iteration_us"]);
    assert!(time(&half) < time(&tensor) && time(&tensor) < time(&single));
    let bytes = |plan: &serde_json::Value, kind: &str| plan["memory"][kind].as_f64().unwrap();
    assert_eq!(single["memory"], tensor["memory"]);
    let part = bytes(&half, "activations_bytes") / bytes(&tensor, "activations_bytes");
    assert!((0.5..0.65).contains(&part), "{part}");
    assert_eq!(half["memory"]["gradients_bytes"], tensor["memory"]["gradients_bytes"]);
    assert_eq!(half["lowering"]["bf16"], true);
    assert!(tensor["lowering"].get("bf16").is_none());
    // A simulation of the plan has its precision, and its time.
    let simulated = json(path, "simulate --model resnet-18 --plan bf16.json --json");
    assert!((simulated["iteration_us"].as_f64().unwrap() / time(&half) - 1.0).abs() < 0.02, "{simulated}");
    refused(
        path,
        "simulate --model resnet-18 --plan bf16.json --precision f32",
        "is for layers in bf16, not f32",
    );
    let other = "the plan is for layers in bf16, and the layer times (a100) are of tf32";
    refused(path, "simulate --model resnet-18 --plan bf16.json --device a100", other);
    let of_v100 = "plan --model resnet-18 --gpus 4 --batch 64 --device v100 --precision tf32";
    refused(path, of_v100, "`v100` does not multiply in tf32");
    let of_core = "plan --model digits-cnn --gpus 2 --batch 8 --device cpu-core --precision bf16";
    refused(path, of_core, "--precision bf16 needs layer times in this format");
}

/// A profile has the precision of its measurement, and so have the plans that are made from it.
/// Training takes the precision of its plan.
#[test]
fn profiles_and_training_follow_the_precision() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let profile = "profile --model digits-cnn --engine cpu --batches 1,2,4,8,16 --attempts 1";
    measure(path, &format!("{profile} --precision bf16 -o half.json"));
    // Other work may have disturbed it, which is seen from the times of the network.
    let text = std::fs::read_to_string(path.join("half.json")).unwrap();
    let mut measured: serde_json::Value = serde_json::from_str(&text).unwrap();
    measured["network"] = serde_json::json!([]);
    std::fs::write(path.join("half.json"), measured.to_string()).unwrap();
    let plan = "plan --model digits-cnn --gpus 2 --batch 16 --mode dp --link shared-memory";
    let planned = json(path, &format!("{plan} --profile half.json --json -o plan.json"));
    assert_eq!(planned["lowering"]["bf16"], true);
    refused(path, &format!("{plan} --profile half.json --precision f32"), "the times are of bf16, not f32");
    let of_processor = "profile --model digits-cnn --engine cpu --precision tf32 -o tf32.json";
    refused(path, of_processor, "--precision tf32 is for GPUs");
    let of_model = "profile --model digits-cnn --batches 1,2 --device a100 --precision bf16 -o model.json";
    assert!(succeed(path, of_model).contains("a100-bf16"));

    let run = "train --model digits-cnn --data digits --iterations 5 --json";
    let of_plan = losses(&json(path, &format!("{run} --plan plan.json --profile half.json")));
    let asked = losses(&json(path, &format!("{run} --ranks 2 --batch 16 --mode dp --precision bf16")));
    assert_eq!(of_plan, asked);
    // The precision of the plan may be given, too, and other times may stand in for its profile.
    let given = losses(&json(path, &format!("{run} --plan plan.json --precision bf16")));
    assert_eq!(given, asked);
    let single = losses(&json(path, &format!("{run} --ranks 2 --batch 16 --mode dp")));
    assert_ne!(of_plan, single);
    assert!(of_plan.iter().zip(&single).all(|(half, single)| (half - single).abs() < 0.05 * single));
    let other = format!("{run} --plan plan.json --precision f32 --device cpu-core");
    refused(path, &other, "the plan is for layers in bf16, not f32");
}
