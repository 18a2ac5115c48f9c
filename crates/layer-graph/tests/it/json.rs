//! Tests of the `graph` file format.

use layer_graph::{
    GraphError, LayerGraph, LayerTensor, Opaque, OpaquePass, Recurrence, RecurrentCell, Shape, zoo,
};

#[test]
fn every_model_round_trips_through_json() {
    for name in zoo::names() {
        let net = zoo::model(name).unwrap();
        assert_eq!(LayerGraph::from_json(&net.to_json()).unwrap(), net, "{name}");
    }
}

#[test]
fn documented_format_is_accepted() {
    let text = r#"{"schema": "deeppool/graph/v1", "name": "tiny", "input": [1, 8, 8], "layers": [
        {"name": "conv", "inputs": ["input"], "op": {"conv2d": {"out_channels": 4, "kernel": [3, 3],
            "stride": [1, 1], "padding": [1, 1], "groups": 1, "bias": true}}},
        {"name": "flatten", "inputs": ["conv"], "op": "flatten"},
        {"name": "fc", "inputs": ["flatten"], "op": {"linear": {"out_features": 10, "bias": true}}},
        {"name": "loss", "inputs": ["fc"], "op": "softmax_cross_entropy"}]}"#;
    let net = LayerGraph::from_json(text).unwrap();
    assert_eq!(net.parameter_count(), 4 * 9 + 4 + 256 * 10 + 10);
}

/// A cross entropy without options is a name alone, with or without label smoothing of 0 in the
/// document.
#[test]
fn options_of_cross_entropies_may_be_omitted() {
    let text = |op: &str| {
        format!(
            r#"{{"schema": "deeppool/graph/v1", "name": "net", "input": [4], "layers": [
            {{"name": "loss", "inputs": ["input"], "op": {op}}}]}}"#
        )
    };
    let read = |op: &str| LayerGraph::from_json(&text(op));
    let plain = read(r#""softmax_cross_entropy""#).unwrap();
    assert_eq!(read(r#"{"softmax_cross_entropy": {}}"#).unwrap(), plain);
    assert!(plain.to_json().contains(r#""op": "softmax_cross_entropy""#));
    for options in [r#"{"label_smoothing": 0.1}"#, r#"{"ignored_label": -100}"#] {
        let network = read(&format!(r#"{{"softmax_cross_entropy": {options}}}"#)).unwrap();
        assert_ne!(network, plain);
        assert_eq!(LayerGraph::from_json(&network.to_json()).unwrap(), network);
    }
    for (op, expected) in [
        (r#"{"softmax_cross_entropy": {"smoothing": 0.1}}"#, "`layers[0].op.softmax_cross_entropy"),
        (r#"{"softmax_cross_entropy": {"label_smoothing": -0.1}}"#, "label smoothing -0.1"),
        (r#"{"relu": null, "softmax_cross_entropy": {}}"#, "layers[0].op"),
        (r#""softmax_entropy""#, "unknown variant `softmax_entropy`, expected one of"),
        (r#""linear""#, "layers[0].op"),
        ("7", "the name of a kind of layer"),
    ] {
        let error = read(op).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn recurrences_without_a_direction_are_forward() {
    let text = r#"{"schema": "deeppool/graph/v1", "name": "gru", "input": [5, 6], "layers": [
        {"name": "gru", "op": {"recurrence": {"cell": "gru", "bias": true}}, "inputs": ["input"]}]}"#;
    let forward = LayerGraph::from_json(text).unwrap();
    assert!(!forward.to_json().contains("reversed"));
    let mut expected = LayerGraph::new("gru", Shape::sequence(5, 6)).unwrap();
    let rule = Recurrence::new(RecurrentCell::Gru);
    expected.add("gru", rule.clone(), [expected.input()]).unwrap();
    assert_eq!(forward, expected);

    let reversed = LayerGraph::from_json(&text.replace("true", "true, \"reversed\": true")).unwrap();
    assert_eq!(LayerGraph::from_json(&reversed.to_json()).unwrap(), reversed);
    let mut expected = LayerGraph::new("gru", Shape::sequence(5, 6)).unwrap();
    expected.add("gru", rule.reversed(), [expected.input()]).unwrap();
    assert_eq!(reversed, expected);
}

#[test]
fn further_inputs_come_before_layers_and_are_kept() {
    let text = r#"{"schema": "deeppool/graph/v1", "name": "pair", "input": [4],
        "further_inputs": [{"name": "other", "shape": [4]}],
        "layers": [{"name": "sum", "op": "add", "inputs": ["other", "input"]}]}"#;
    let network = LayerGraph::from_json(text).unwrap();
    let other = network.find("other").unwrap();
    assert!(network.is_input(other) && network.inputs().eq([network.input(), other]));
    assert_eq!(network.computing_layers().len(), 1);
    assert_eq!(LayerGraph::from_json(&network.to_json()).unwrap(), network);

    let error = |text: &str| LayerGraph::from_json(text).unwrap_err().to_string();
    assert!(error(&text.replace("\"other\", \"shape\"", "\"input\", \"shape\"")).contains("`input`"));
    assert!(error(&text.replace("[4]}", "[0]}")).contains("`0` is empty"));
    let mut late = network.clone();
    let late = late.add_input("late", Shape::features(2)).unwrap_err();
    assert!(late.to_string().contains("inputs are added before other layers"), "{late}");
}

#[test]
fn errors_name_the_path_in_the_document() {
    let good = zoo::model("digits-cnn").unwrap().to_json();
    let cases = [
        (good.replace("graph/v1", "graph/v9"), "schema"),
        (good.replacen("\"stride\"", "\"strides\"", 1), "layers[0].op"),
        (good.replacen("\"conv1\"", "\"stem\"", 1), "conv1"),
        (good[..good.len() / 2].to_owned(), "EOF"),
        (good.clone() + "{}", "at `.`: trailing characters"),
    ];
    for (text, expected) in cases {
        let error = LayerGraph::from_json(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Returns a network of one opaque layer.
fn with_opaque(opaque: Opaque) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new("net", Shape::sequence(8, 16))?;
    net.add("lstm", opaque, [net.input()])?;
    Ok(net)
}

fn lstm() -> Opaque {
    Opaque::new("LSTM", Shape::sequence(8, 32))
        .parameters([
            LayerTensor::new("weight_ih_l0", [128, 16]),
            LayerTensor::new("weight_hh_l0", [128, 32]),
        ])
        .forward(OpaquePass { flops: 1_000, bytes: 2_000, kernels: 3 })
        .backward(OpaquePass { flops: 2_000, bytes: 3_000, kernels: 5 })
        .saved_bytes(512)
}

#[test]
fn opaque_layers_report_their_declared_costs() {
    let net = with_opaque(lstm()).unwrap();
    assert_eq!(LayerGraph::from_json(&net.to_json()).unwrap(), net);
    let layer = net.layer(net.find("lstm").unwrap());
    assert_eq!((layer.forward_flops(), layer.backward_flops()), (1_000, 2_000));
    assert_eq!(layer.parameter_count(), 128 * 16 + 128 * 32);
    assert_eq!(layer.tensor_name(&layer.parameters()[0]), "lstm.weight_ih_l0");
    assert_eq!(net.opaque_layers().map(|(_, opaque)| &*opaque.op).collect::<Vec<_>>(), ["LSTM"]);

    let text = r#"{"schema": "deeppool/graph/v1", "name": "net", "input": [4], "layers": [
        {"name": "loss", "inputs": ["input"], "op": {"opaque": {"op": "mse_loss", "output": [1], "labels": 4,
            "forward": {"flops": 12, "bytes": 36, "kernels": 1},
            "backward": {"flops": 8, "bytes": 36, "kernels": 1}}}}]}"#;
    let net = LayerGraph::from_json(text).unwrap();
    let loss = net.layer(net.find("loss").unwrap());
    assert!(loss.kind().is_loss());
    assert_eq!(loss.label_count(), 4);
}

#[test]
fn invalid_opaque_layers_are_rejected() {
    let twice = [LayerTensor::new("w", [1]), LayerTensor::new("w", [2])];
    for (opaque, expected) in [
        (lstm().parameters(twice), "two parameters named `w`"),
        (lstm().parameters([LayerTensor::new("w", [0, 3])]), "parameter `w` is empty"),
        (Opaque::new("nothing", Shape::new([])), "is empty or too large"),
        (lstm().loss(1), "not of 1"),
        (Opaque::new("loss", Shape::features(1)).loss(0), "without labels"),
    ] {
        let error = with_opaque(opaque).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("lstm"), "{error}");
    }
}

/// Sizes whose products or sums overflow are refused with the name of the layer, and not computed.
#[test]
fn implausibly_large_networks_are_refused() {
    let layers = |input: &str, layers: &str| {
        let text = format!(
            r#"{{"schema": "deeppool/graph/v1", "name": "net", "input": {input}, "layers": [{layers}]}}"#
        );
        LayerGraph::from_json(&text).map_err(|error| error.to_string())
    };
    let layer = |op: &str| format!(r#"{{"name": "a", "inputs": ["input"], "op": {op}}}"#);
    let linear =
        |features: u64| layer(&format!(r#"{{"linear": {{"out_features": {features}, "bias": true}}}}"#));
    let conv = |kernel: u64, padding: u64| {
        layer(&format!(
            r#"{{"conv2d": {{"out_channels": 4, "kernel": [{kernel}, {kernel}], "stride": [1, 1],
            "padding": [{padding}, {padding}], "groups": 1, "bias": true}}}}"#
        ))
    };
    let opaque = |flops: u64, bytes: u64, saved: u64| {
        layer(&format!(
            r#"{{"opaque": {{"op": "x", "output": [4], "saved_bytes": {saved},
            "forward": {{"flops": {flops}, "bytes": {bytes}, "kernels": 1}},
            "backward": {{"flops": 1, "bytes": 1, "kernels": 1}}}}}}"#
        ))
    };
    let large = u64::MAX;
    for (input, text) in [
        ("[4]", linear(large)),
        ("[4]", linear(1 << 60)),
        ("[274877906944]", linear(1 << 20)),
        ("[4]", layer(&format!(r#"{{"embedding": {{"vocabulary": {large}, "features": 4}}}}"#))),
        ("[1, 8, 8]", conv(1 << 62, 1 << 62)),
        ("[1, 8, 8]", conv(3, 1 << 40)),
        ("[4]", opaque(large, 1, 0)),
        ("[4]", opaque(1, large, 0)),
        ("[4]", opaque(1, 1, large)),
    ] {
        let error = layers(input, &text).unwrap_err();
        assert!(error.starts_with("layer `"), "{input} {text}: {error}");
        assert!(error.contains("too large") || error.contains("check its sizes"), "{input} {text}: {error}");
    }
    assert!(layers("[4]", &linear(1 << 30)).is_ok());
}
