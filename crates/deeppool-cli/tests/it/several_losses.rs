//! Networks with several losses, and with layers that no loss depends on.

use tempfile::TempDir;

use crate::command::{json, succeed, warned};

/// A network with two classifiers of digits, and a layer that no loss depends on.
const GRAPH: &str = r#"{"schema": "deeppool/graph/v1", "name": "two heads", "input": [1, 8, 8], "layers": [
    {"name": "flatten", "inputs": ["input"], "op": "flatten"},
    {"name": "early", "inputs": ["flatten"], "op": {"linear": {"out_features": 10, "bias": true}}},
    {"name": "early_loss", "inputs": ["early"], "op": "softmax_cross_entropy", "loss_weight": 0.25},
    {"name": "hidden", "inputs": ["flatten"], "op": {"linear": {"out_features": 32, "bias": true}}},
    {"name": "relu", "inputs": ["hidden"], "op": "relu"},
    {"name": "pooled", "inputs": ["relu"], "op": "tanh"},
    {"name": "scores", "inputs": ["relu"], "op": {"linear": {"out_features": 10, "bias": true}}},
    {"name": "loss", "inputs": ["scores"], "op": "softmax_cross_entropy"}]}"#;

#[test]
fn each_loss_is_trained_and_reported() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let write = |graph: &str| std::fs::write(path.join("graph.json"), graph).unwrap();
    write(GRAPH);
    let (_, warnings) = warned(path, "plan --graph graph.json --device a100 --gpus 4 --batch 32 --json");
    assert_eq!(warnings, ["two heads: left out `pooled`: no loss depends on it"]);

    let kept = GRAPH.lines().filter(|line| !line.contains("pooled")).collect::<Vec<_>>().join("\n");
    write(&kept);
    let train = "train --graph graph.json --data digits --batch 32 --epochs 3 --lr 0.05 --checkpoint run";
    let report = json(path, &format!("{train} --ranks 3 --json"));
    let eval = "eval --graph graph.json --data digits --checkpoint run";
    let tested = json(path, &format!("{eval} --json"));
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let last = &report["epochs"][2];
    assert!((number(&tested["loss"]) - number(&last["test_loss"])).abs() < 1e-4);
    let losses = tested["losses"].as_array().unwrap();
    let names: Vec<&str> = losses.iter().map(|loss| loss["layer"].as_str().unwrap()).collect();
    assert_eq!(names, ["early_loss", "loss"]);
    let sum: f64 = losses.iter().map(|loss| number(&loss["weight"]) * number(&loss["loss"])).sum();
    assert!((sum - number(&tested["loss"])).abs() < 1e-9);
    assert!(losses.iter().all(|loss| number(&loss["accuracy"]) > 0.85), "{losses:?}");
    let text = succeed(path, eval);
    assert!(text.contains("early_loss (weight 0.25): accuracy "), "{text}");
}
