//! Language models from files `config.json`.

use std::fs;

use tempfile::TempDir;

use crate::command::{deeppool, json, refused, succeed, warned};

/// Configuration of a small network.
pub(crate) const LLAMA: &str = r#"{
    "model_type": "llama", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}"#;

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
    let scaled = LLAMA.replace('}', r#", "rope_scaling": {"rope_type": "linear", "factor": 2.0}}"#);
    fs::write(path.join("scaled.json"), scaled).unwrap();
    let (_, warnings) = warned(path, &format!("plan --hf scaled.json --sequence 16 {plan}"));
    let expected = "scaled.json: the network is without scaled rotary angles (linear)";
    assert!(warnings.iter().any(|line| line.contains(expected)), "{warnings:?}");
}

#[test]
fn wrong_configurations_are_refused_in_one_line() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    fs::write(path.join("t5.json"), r#"{"model_type": "t5"}"#).unwrap();
    fs::write(path.join("llama.json"), LLAMA).unwrap();
    let plan = "--device a100 --gpus 2 --batch 8";
    refused(
        path,
        &format!("plan --hf t5.json --sequence 16 {plan}"),
        "known families: gpt2, llama, mistral, qwen2",
    );
    refused(path, &format!("plan --hf none.json --sequence 16 {plan}"), "none.json");
    for network in ["--model vgg16", "--model gpt2 --blocks 2", "--graph g.json", "--problem p.json"] {
        for option in ["--sequence 16", "--hf llama.json --sequence 16"] {
            refused(path, &format!("plan {network} {option} {plan}"), "cannot be used with");
        }
    }
    let without = deeppool(path, &format!("plan --hf llama.json {plan}"));
    assert_eq!(without.status.code(), Some(2));
    assert!(String::from_utf8(without.stderr).unwrap().contains("--sequence <TOKENS>"));
}
