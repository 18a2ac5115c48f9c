//! Memory limits of plans.

use crate::command::{json, refused, succeed, warned};

const VGG: &str = "plan --model vgg16 --device a100 --gpus 8 --batch 32";

fn bytes(plan: &serde_json::Value, pointer: &str) -> u64 {
    plan.pointer(pointer).and_then(serde_json::Value::as_u64).unwrap()
}

#[test]
fn plans_report_the_memory_of_the_fullest_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let plan = json(folder.path(), &format!("{VGG} --json"));
    let kinds = plan["memory"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap());
    assert_eq!(kinds.sum::<u64>(), bytes(&plan, "/memory_peak_bytes"));
    assert_eq!(bytes(&plan, "/memory_limit_bytes"), 39_000_000_000);
    // 138 million parameters of VGG-16, their gradients and velocities.
    assert!(bytes(&plan, "/memory_peak_bytes") > 3 * 4 * 138_000_000);
    let text = succeed(folder.path(), VGG);
    assert!(
        text.contains("memory of the fullest GPU: 1.") && text.contains(" of 39.00 GB available"),
        "{text}"
    );
    assert!(!text.contains("does not fit"), "{text}");
    let larger = succeed(folder.path(), &VGG.replace("a100", "a100-80gb"));
    assert!(larger.contains(" of 79.00 GB available"), "{larger}");
}

#[test]
fn plans_keep_the_limit_and_report_what_exceeds_it() {
    let folder = tempfile::tempdir().unwrap();
    let free = json(folder.path(), &format!("{VGG} --memory unlimited --json"));
    assert!(free.get("memory_limit_bytes").is_none());
    // Slightly less than data parallelism needs: 1 GB is reserved for the CUDA context.
    let limit = bytes(&free, "/dp/memory_peak_bytes") - 100_000_000;
    let memory = limit + 1_000_000_000;
    let plan = json(folder.path(), &format!("{VGG} --memory {memory} --json"));
    assert!(bytes(&plan, "/memory_peak_bytes") <= limit);
    assert!(plan["iteration_us"].as_f64() >= free["iteration_us"].as_f64());
    let text = succeed(folder.path(), &format!("{VGG} --memory {memory} -o plan.json"));
    assert_eq!(text.matches("it does not fit:").count(), 2, "{text}");
    assert!(text.contains("is the sum of its layers' times"), "{text}");
    // A plan file keeps its limit.
    succeed(folder.path(), "simulate --model vgg16 --plan plan.json");
}

#[test]
fn impossible_limits_are_errors_with_layers_and_remedies() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(folder.path(), &format!("{VGG} --memory 2GB"), "`classifier.0`");
    assert!(error.contains("give more GPUs, GPUs with more memory, or a smaller batch"), "{error}");
    refused(folder.path(), &format!("{VGG} --memory 2.2GB --mode dp"), "a GPU can hold 1.20 GB");
    refused(folder.path(), &format!("{VGG} --memory 40apples"), "such as 40GB");
    // No micro-batch of the 24 samples fits, and batch normalisation prevents cutting.
    let inception = "plan --model inception-v3 --device a100 --gpus 1 --batch 24 --memory 1.3GB --mode dp";
    refused(folder.path(), inception, "no plan fits");
}

#[test]
fn devices_of_unknown_memory_are_unlimited() {
    let folder = tempfile::tempdir().unwrap();
    let question = "plan --model digits-cnn --device cpu-core --gpus 2 --batch 32";
    let text = succeed(folder.path(), question);
    assert!(text.contains("how much memory `cpu-core` has is not known"), "{text}");
    let limited = succeed(folder.path(), &format!("{question} --memory 1GB"));
    assert!(!limited.contains("not known") && limited.contains(" of 1.00 GB available"), "{limited}");
}

#[test]
fn training_allocates_the_predicted_memory() {
    let folder = tempfile::tempdir().unwrap();
    for background in ["", "--background digits-cnn:8"] {
        let arguments = format!(
            "train --model digits-cnn --data digits --ranks 2 --batch 100 --epochs 1 {background} --json"
        );
        let report = json(folder.path(), &arguments);
        let memory = |kind: &str| bytes(&report, &format!("/memory/{kind}_bytes"));
        assert_eq!(memory("training"), bytes(&report, "/plan/memory_peak_bytes"));
        assert_eq!(memory("allocated"), memory("training") + memory("evaluation") + memory("background"));
        assert_eq!(memory("background") > 0, !background.is_empty());
    }
}

#[test]
fn batches_are_cut_if_nothing_else_fits() {
    let folder = tempfile::tempdir().unwrap();
    let question = "plan --model gpt2 --device a100-80gb --gpus 8 --batch 1024 --mode dp";
    let text = succeed(folder.path(), &format!("{question} -o plan.json"));
    assert!(text.contains("the batch is cut into 2 micro-batches"), "{text}");
    let plan = json(folder.path(), &format!("{question} --json"));
    assert_eq!(plan["lowering"]["micro_batches"], 2);
    assert!(bytes(&plan, "/memory_peak_bytes") <= 79_000_000_000);
    assert!(bytes(&plan, "/single_gpu_memory_bytes") > 79_000_000_000);
    let simulated = json(folder.path(), "simulate --model gpt2 --plan plan.json --json");
    let off = simulated["iteration_us"].as_f64().unwrap() / plan["iteration_us"].as_f64().unwrap() - 1.0;
    assert!(off.abs() < 1e-3, "{off}");
}

#[test]
fn activations_are_recomputed_if_nothing_else_fits() {
    let folder = tempfile::tempdir().unwrap();
    // Batch normalisation prevents micro-batches.
    let question = "plan --model inception-v3 --device a100 --gpus 2 --batch 48 --mode dp";
    let free = json(folder.path(), &format!("{question} --json"));
    let text = succeed(folder.path(), &format!("{question} --memory 3GB -o plan.json"));
    assert!(text.contains("are computed again in the backward pass, in "), "{text}");
    assert!(text.contains(" of 2.00 GB available (activations "), "{text}");
    let plan = json(folder.path(), &format!("{question} --memory 3GB --json"));
    assert!(bytes(&plan, "/memory_peak_bytes") <= 2_000_000_000);
    assert!(bytes(&free, "/memory_peak_bytes") > 2_000_000_000);
    assert_eq!(plan["single_gpu_us"], free["single_gpu_us"]);
    assert_eq!(plan["lowering"]["micro_batches"], 1);
    let slower = plan["iteration_us"].as_f64().unwrap() / free["iteration_us"].as_f64().unwrap();
    assert!(slower > 1.0 && slower < 4.0 / 3.0, "at most one forward pass more: {slower}");
    let simulated = json(folder.path(), "simulate --model inception-v3 --plan plan.json --json");
    let off = simulated["iteration_us"].as_f64().unwrap() / plan["iteration_us"].as_f64().unwrap() - 1.0;
    assert!(off.abs() < 1e-3, "{off}");
}

#[test]
fn plans_with_recomputation_are_trained() {
    let folder = tempfile::tempdir().unwrap();
    let question = "plan --model digits-cnn --device cpu-core --gpus 2 --batch 100";
    let mut plan = json(folder.path(), &format!("{question} --json"));
    let train = "train --model digits-cnn --data digits --epochs 1 --plan plan.json --json";
    let mut losses = |checkpoints: serde_json::Value| {
        plan["lowering"]["checkpoints"] = checkpoints;
        std::fs::write(folder.path().join("plan.json"), plan.to_string()).unwrap();
        json(folder.path(), train)["losses"].clone()
    };
    let kept = losses(serde_json::json!([]));
    let network = layer_graph::zoo::model("digits-cnn").unwrap();
    let possible = deeppool::program::possible_checkpoints(&network);
    let name = |at: usize| network.layer(possible[at]).name();
    assert_eq!(losses(serde_json::json!([name(3)])), kept);
    assert!(kept.as_array().is_some_and(|losses| losses.len() == 14), "{kept}");
    plan["lowering"]["checkpoints"] = serde_json::json!(["conv9"]);
    std::fs::write(folder.path().join("plan.json"), plan.to_string()).unwrap();
    refused(folder.path(), train.trim_end_matches(" --json"), "a checkpoint of activations");
}

#[test]
fn background_jobs_have_the_memory_that_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let simulate = "simulate --model vgg16 --device a100 --iterations 3 --background vgg16:32";
    let alone = json(folder.path(), "plan --model vgg16 --device a100 --gpus 1 --batch 32 --json");
    let background = bytes(&alone, "/memory_peak_bytes");
    let plan = json(folder.path(), &format!("{VGG} --json"));
    let peak = bytes(&plan, "/memory_peak_bytes");
    // 1 GB is reserved for the CUDA context.
    let gigabyte = 1_000_000_000;
    let both = background + peak + gigabyte;
    let question = format!("{simulate} --gpus 8 --batch 32");
    let (text, warnings) = warned(folder.path(), &format!("{question} --memory {both}"));
    assert!(text.contains("memory of the background job") && warnings.is_empty(), "{warnings:?}");
    // The plan for less memory leaves room.
    let (_, warnings) = warned(folder.path(), &format!("{question} --memory {}", both - 50_000_000));
    assert!(warnings.is_empty(), "{warnings:?}");
    let too_little = background + gigabyte - 1;
    refused(folder.path(), &format!("{question} --memory {too_little}"), "the memory of a background job");
    // A plan from a file is kept, and the job runs on the GPUs that have room.
    succeed(folder.path(), &format!("{VGG} -o plan.json"));
    let read = format!("{simulate} --plan plan.json");
    succeed(folder.path(), &format!("{read} --memory unlimited"));
    let share = |memory: u64| {
        let (text, warnings) = warned(folder.path(), &format!("{read} --memory {memory} --json"));
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        (report["background_samples_per_s"].as_f64().unwrap(), warnings)
    };
    let (everywhere, warnings) = share(both);
    assert!(everywhere > 0.0 && warnings.is_empty(), "{warnings:?}");
    let (on_some, warnings) = share(both - 10_000_000);
    // The foreground is faster without a job on the GPU that the others wait for.
    assert!(on_some > 0.0 && on_some.total_cmp(&everywhere).is_ne(), "{on_some} {everywhere}");
    assert!(warnings[0].contains("does not run on"), "{warnings:?}");
    let (nowhere, warnings) = share(background + gigabyte);
    assert!(nowhere.total_cmp(&0.0).is_eq() && warnings[0].contains("on 8 of 8 GPUs"), "{warnings:?}");
    // Where both do not fit, the foreground comes first.
    let (_, warnings) = warned(folder.path(), &format!("{question} --memory {}", background + gigabyte));
    assert!(warnings[0].contains("does not run on"), "{warnings:?}");
}
