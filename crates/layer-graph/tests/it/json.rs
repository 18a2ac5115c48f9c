//! The `graph` file format.

use layer_graph::{GraphError, LayerGraph, zoo};

#[test]
fn every_model_survives_the_round_trip() {
    for name in zoo::names() {
        let net = zoo::model(name).unwrap();
        assert_eq!(LayerGraph::from_json(&net.to_json()).unwrap(), net, "{name}");
    }
}

#[test]
fn the_format_is_as_documented() {
    let text = r#"{"schema": "deeppool/graph/v1", "name": "tiny", "input": [1, 8, 8], "layers": [
        {"name": "conv", "inputs": ["input"], "op": {"conv2d": {"out_channels": 4, "kernel": [3, 3],
            "stride": [1, 1], "padding": [1, 1], "groups": 1, "bias": true}}},
        {"name": "flatten", "inputs": ["conv"], "op": "flatten"},
        {"name": "fc", "inputs": ["flatten"], "op": {"linear": {"out_features": 10, "bias": true}}},
        {"name": "loss", "inputs": ["fc"], "op": "softmax_cross_entropy"}]}"#;
    let net = LayerGraph::from_json(text).unwrap();
    assert_eq!(net.parameter_count(), 4 * 9 + 4 + 256 * 10 + 10);
}

#[test]
fn errors_name_the_place() {
    let good = zoo::model("digits-cnn").unwrap().to_json();
    let cases = [
        (good.replace("graph/v1", "graph/v9"), "schema"),
        (good.replacen("\"stride\"", "\"strides\"", 1), "layers[0].op"),
        (good.replacen("\"conv1\"", "\"stem\"", 1), "conv1"),
        (good[..good.len() / 2].to_owned(), "EOF"),
    ];
    for (text, expected) in cases {
        let error = LayerGraph::from_json(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn files_are_saved_and_loaded_and_errors_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.json");
    let net = zoo::model("digits-cnn").unwrap();
    net.save(&path).unwrap();
    assert_eq!(LayerGraph::load(&path).unwrap(), net);
    std::fs::write(&path, "{").unwrap();
    let error = LayerGraph::load(&path).unwrap_err();
    assert!(matches!(&error, GraphError::File { .. }) && error.to_string().contains("net.json"));
    assert!(net.save(folder.path().join("no/such/folder.json")).is_err());
}
