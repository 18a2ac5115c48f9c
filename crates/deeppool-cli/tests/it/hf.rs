//! Networks from files `config.json`.

use std::fs;

use tempfile::TempDir;

use crate::command::{json, refused, succeed, warned};

/// Configuration of a small network.
pub(crate) const LLAMA: &str = r#"{
    "model_type": "llama", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}"#;

/// Configuration of a small network that classifies images.
const VIT: &str = r#"{
    "model_type": "vit", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 4, "image_size": 32, "patch_size": 8}"#;

#[test]
fn configurations_are_planned_trained_and_listed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("small-llama")).unwrap();
    fs::write(path.join("small-llama/config.json"), LLAMA).unwrap();
    let network = "--hf small-llama/config.json --sequence 16";
    let models = json(path, &format!("models {network} --json"));
    let model = &models["models"][0];
    // Embedding and head, two blocks of attention, gated layers and norms, and the last norm.
    let block = 32 * (32 + 16 + 16 + 32) + 3 * 32 * 64 + 2 * 32;
    assert_eq!(model["parameters"], 2 * 100 * 32 + 2 * block + 32);
    assert_eq!(model["name"], "small-llama");
    let plan = "--device a100 --gpus 4 --batch 8 -o plan.json";
    succeed(path, &format!("plan {network} {plan}"));
    let train = format!("train {network} --plan plan.json --data synthetic --iterations 2 --json");
    let report = json(path, &train);
    assert_eq!(report["losses"].as_array().unwrap().len(), 2);
    let scaled = LLAMA.replace('}', r#", "rope_scaling": {"rope_type": "yarn", "factor": 2.0}}"#);
    fs::write(path.join("scaled.json"), scaled).unwrap();
    let (_, warnings) = warned(path, &format!("plan --hf scaled.json --sequence 16 {plan}"));
    let expected = "scaled.json: the network is without scaled rotary angles (yarn)";
    assert!(warnings.iter().any(|line| line.contains(expected)), "{warnings:?}");
}

#[test]
fn wrong_configurations_are_refused_in_one_line() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    fs::write(path.join("mamba.json"), r#"{"model_type": "mamba"}"#).unwrap();
    fs::write(path.join("llama.json"), LLAMA).unwrap();
    let plan = "--device a100 --gpus 2 --batch 8";
    refused(
        path,
        &format!("plan --hf mamba.json --sequence 16 {plan}"),
        "known families: bert, gemma, gpt2, gpt_neo, gpt_neox, llama, mistral, mixtral, opt, qwen2, roberta, \
             t5, vit",
    );
    refused(path, &format!("plan --hf none.json --sequence 16 {plan}"), "none.json");
    for network in ["--model vgg16", "--model gpt2 --blocks 2", "--graph g.json", "--problem p.json"] {
        for option in ["--sequence 16", "--hf llama.json --sequence 16"] {
            refused(path, &format!("plan {network} {option} {plan}"), "cannot be used with");
        }
    }
    fs::write(path.join("vit.json"), VIT).unwrap();
    for (network, expected) in [
        ("--hf llama.json", "`llama` needs the number of tokens of a sequence"),
        ("--hf vit.json --sequence 16", "`vit` reads images: leave out the number of tokens"),
    ] {
        refused(path, &format!("plan {network} {plan}"), expected);
    }
}

#[test]
fn vision_transformers_are_planned_without_a_sequence() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    fs::write(path.join("vit.json"), VIT).unwrap();
    let models = json(path, "models --hf vit.json --json");
    assert_eq!(models["models"][0]["input"], serde_json::json!([3, 32, 32]));
    succeed(path, "plan --hf vit.json --device a100 --gpus 4 --batch 8 -o plan.json");
    let report = json(path, "train --hf vit.json --plan plan.json --data synthetic --iterations 2 --json");
    assert_eq!(report["losses"].as_array().unwrap().len(), 2);
}
