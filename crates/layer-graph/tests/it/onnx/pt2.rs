//! Tests of the importer of `.pt2` files, with archives as `torch.export.save` writes them.

use std::io::Cursor;

use layer_graph::pt2::{Imported, Pt2Error, from_reader};
use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, Dropout, Embedding, LayerGraph, LayerKind, Linear,
    MultiHeadAttention,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Exported program under construction.
struct Program {
    nodes: Vec<Value>,
    tensors: serde_json::Map<String, Value>,
    inputs: Vec<Value>,
    weights: serde_json::Map<String, Value>,
    major: u64,
}

/// Size of the open batch.
fn batch() -> Value {
    json!({"as_expr": {"expr_str": "Symbol('s77', positive=True, integer=True)", "hint": {"as_int": 2}}})
}

/// Returns the type of a tensor. Its first size is the open batch if it is 0.
fn meta(dtype: i64, sizes: &[i64]) -> Value {
    let size = |&size: &i64| if size == 0 { batch() } else { json!({"as_int": size}) };
    let strides: Vec<Value> =
        (0..sizes.len()).map(|i| json!({"as_int": sizes[i + 1..].iter().product::<i64>()})).collect();
    let sizes: Vec<Value> = sizes.iter().map(size).collect();
    json!({"dtype": dtype, "sizes": sizes, "strides": strides, "storage_offset": {"as_int": 0}, "layout": 7,
        "requires_grad": false, "device": {"type": "cpu", "index": null}})
}

fn tensor(name: &str) -> Value {
    json!({"as_tensor": {"name": name}})
}

impl Program {
    /// Creates a program with the input `x`.
    fn new(dtype: i64, sizes: &[i64]) -> Self {
        let mut program = Self {
            nodes: Vec::new(),
            tensors: serde_json::Map::new(),
            inputs: vec![json!({"user_input": {"arg": tensor("x")}})],
            weights: serde_json::Map::new(),
            major: 8,
        };
        program.tensors.insert("x".into(), meta(dtype, sizes));
        program
    }

    /// Adds a parameter, stored in the entry of the given number.
    fn parameter(mut self, name: &str, sizes: &[i64], entry: usize) -> Self {
        let argument = format!("p_{}", name.replace('.', "_"));
        let spec = json!({"parameter": {"arg": {"name": argument}, "parameter_name": name}});
        self.inputs.insert(0, spec);
        self.tensors.insert(argument, meta(7, sizes));
        let place = json!({"path_name": format!("weight_{entry}"), "is_param": true, "use_pickle": false,
            "tensor_meta": meta(7, sizes)});
        self.weights.insert(name.into(), place);
        self
    }

    /// Adds a call of an operator in a module, whose output has the given sizes.
    fn call(
        mut self,
        operator: &str,
        module: &str,
        arguments: &[(&str, Value)],
        output: &str,
        sizes: &[i64],
    ) -> Self {
        let inputs: Vec<Value> =
            arguments.iter().map(|(name, arg)| json!({"name": name, "arg": arg, "kind": 1})).collect();
        let stack = format!("L__self__,,Net;L__self__{module},{module},torch.nn.Module");
        self.nodes.push(json!({"target": format!("torch.ops.aten.{operator}"), "inputs": inputs,
            "outputs": [tensor(output)], "metadata": {"nn_module_stack": stack},
            "is_hop_single_tensor_return": null}));
        self.tensors.insert(output.into(), meta(7, sizes));
        self
    }

    /// Returns the archive of the program with an output.
    fn bytes(&self, output: &str) -> Vec<u8> {
        let program = json!({
            "graph_module": {
                "graph": {"nodes": self.nodes, "tensor_values": self.tensors, "inputs": [], "outputs": [],
                    "sym_int_values": {"size": batch()}, "is_single_tensor_return": false},
                "signature": {"input_specs": self.inputs,
                    "output_specs": [{"user_output": {"arg": tensor(output)}}]},
            },
            "schema_version": {"major": self.major, "minor": 17},
            "torch_version": "2.11.0",
        });
        archive(&[
            ("models/model.json", program.to_string().as_bytes()),
            (
                "data/weights/model_weights_config.json",
                json!({"config": self.weights}).to_string().as_bytes(),
            ),
            ("archive_format", b"pt2"),
        ])
    }

    fn read(&self, output: &str) -> Result<Imported, Pt2Error> {
        from_reader("net", Cursor::new(self.bytes(output)))
    }
}

/// Returns a zip file of uncompressed entries in the folder `net`.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in entries {
        let name = format!("net/{name}");
        let [offset, size] = [bytes.len(), content.len()].map(|number| (number as u32).to_le_bytes());
        let length = (name.len() as u16).to_le_bytes();
        let sizes = [&[0; 4][..], &size, &size, &length].concat();
        bytes
            .extend([b"PK\x03\x04".as_slice(), &[0; 10], &sizes, &[0; 2], name.as_bytes(), content].concat());
        let start = [b"PK\x01\x02".as_slice(), &[0; 12], &sizes, &[0; 12], &offset].concat();
        directory.extend([&start, name.as_bytes()].concat());
    }
    let count = (entries.len() as u16).to_le_bytes();
    let [size, offset] = [directory.len(), bytes.len()].map(|number| (number as u32).to_le_bytes());
    [&bytes[..], &directory, b"PK\x05\x06", &[0; 4], &count, &count, &size, &offset, &[0; 2]].concat()
}

/// Returns a network of a convolution, normalised and rectified in place, and a linear layer.
fn images() -> Program {
    Program::new(7, &[0, 3, 8, 8])
        .parameter("conv.weight", &[4, 3, 3, 3], 0)
        .parameter("bn.weight", &[4], 1)
        .parameter("bn.bias", &[4], 2)
        .parameter("bn.running_mean", &[4], 3)
        .parameter("bn.running_var", &[4], 4)
        .parameter("fc.weight", &[5, 16], 5)
        .parameter("fc.bias", &[5], 6)
        .call(
            "conv2d.default",
            "conv",
            &[
                ("input", tensor("x")),
                ("weight", tensor("p_conv_weight")),
                ("bias", json!({"as_none": true})),
                ("stride", json!({"as_ints": [2, 2]})),
                ("padding", json!({"as_ints": [1, 1]})),
            ],
            "conv2d",
            &[0, 4, 4, 4],
        )
        .call(
            "batch_norm.default",
            "bn",
            &[
                ("input", tensor("conv2d")),
                ("weight", tensor("p_bn_weight")),
                ("bias", tensor("p_bn_bias")),
                ("running_mean", tensor("p_bn_running_mean")),
                ("running_var", tensor("p_bn_running_var")),
                ("training", json!({"as_bool": true})),
                ("momentum", json!({"as_float": 0.1})),
                ("eps", json!({"as_float": 1e-5})),
            ],
            "batch_norm",
            &[0, 4, 4, 4],
        )
        .call("relu_.default", "relu", &[("self", tensor("batch_norm"))], "relu_", &[0, 4, 4, 4])
        // Reads the tensor that was changed in place.
        .call(
            "adaptive_avg_pool2d.default",
            "pool",
            &[("self", tensor("batch_norm")), ("output_size", json!({"as_ints": [2, 2]}))],
            "pool",
            &[0, 4, 2, 2],
        )
        .call(
            "flatten.using_ints",
            "",
            &[("self", tensor("pool")), ("start_dim", json!({"as_int": 1}))],
            "flatten",
            &[0, 16],
        )
        .call(
            "dropout.default",
            "drop",
            &[
                ("input", tensor("flatten")),
                ("p", json!({"as_float": 0.3})),
                ("train", json!({"as_bool": true})),
            ],
            "dropout",
            &[0, 16],
        )
        .call(
            "linear.default",
            "fc",
            &[("input", tensor("dropout")), ("weight", tensor("p_fc_weight")), ("bias", tensor("p_fc_bias"))],
            "linear",
            &[0, 5],
        )
}

fn kinds(network: &LayerGraph) -> Vec<LayerKind> {
    network.computing_layers().map(|(_, layer)| layer.kind().clone()).collect()
}

#[test]
fn networks_of_images_are_imported() {
    let imported = images().read("linear").unwrap();
    assert_eq!(imported.warning(), None);
    assert_eq!(imported.torch_version, "2.11.0");
    let expected: [LayerKind; 8] = [
        Conv2d::new(4, 3).stride(2).padding(1).without_bias().into(),
        BatchNorm { epsilon: 1e-5, momentum: 0.1 }.into(),
        LayerKind::Relu,
        AdaptiveAvgPool2d { output: [2, 2] }.into(),
        LayerKind::Flatten,
        Dropout::new(0.3).into(),
        Linear::new(5).into(),
        LayerKind::CROSS_ENTROPY,
    ];
    assert_eq!(kinds(&imported.graph), expected);
    let names: Vec<&str> = imported.graph.layers().map(|(_, layer)| layer.name()).collect();
    assert_eq!(names, ["input", "conv", "bn", "relu", "pool", "flatten", "drop", "fc", "loss"]);
    assert_eq!(imported.graph.parameter_count(), 108 + 8 + 85);
}

#[test]
fn networks_of_tokens_are_imported() {
    let mut program = Program::new(5, &[0, 6])
        .parameter("tok.weight", &[50, 32], 0)
        .parameter("qkv.weight", &[96, 32], 1)
        // Stored once with the embedding.
        .parameter("head.weight", &[50, 32], 0)
        .call(
            "embedding.default",
            "tok",
            &[
                ("weight", tensor("p_tok_weight")),
                ("indices", tensor("x")),
                ("padding_idx", json!({"as_int": 3})),
            ],
            "h",
            &[0, 6, 32],
        )
        .call(
            "linear.default",
            "qkv",
            &[("input", tensor("h")), ("weight", tensor("p_qkv_weight"))],
            "l",
            &[0, 6, 96],
        );
    for (index, name) in (0..).zip(["q", "k", "v"]) {
        let (start, end) = (32 * index, 32 * (index + 1));
        let part = [
            ("self", tensor("l")),
            ("dim", json!({"as_int": 2})),
            ("start", json!({"as_int": start})),
            ("end", json!({"as_int": end})),
        ];
        let size = json!({"as_sym_ints": [{"as_name": "size"}, {"as_int": 6}, {"as_int": 4}, {"as_int": 8}]});
        program = program
            .call("slice.Tensor", "", &part, &format!("s{name}"), &[0, 6, 32])
            .call(
                "view.default",
                "",
                &[("self", tensor(&format!("s{name}"))), ("size", size)],
                &format!("r{name}"),
                &[0, 6, 4, 8],
            )
            .call(
                "transpose.int",
                "",
                &[
                    ("self", tensor(&format!("r{name}"))),
                    ("dim0", json!({"as_int": 1})),
                    ("dim1", json!({"as_int": -2})),
                ],
                name,
                &[0, 4, 6, 8],
            );
    }
    let heads = [("query", tensor("q")), ("key", tensor("k")), ("value", tensor("v"))];
    let causal =
        [&heads[..], &[("is_causal", json!({"as_bool": true})), ("dropout_p", json!({"as_float": 0.5}))]]
            .concat();
    let program = program
        .call("scaled_dot_product_attention.default", "attn", &causal, "a", &[0, 4, 6, 8])
        .call(
            "transpose.int",
            "",
            &[("self", tensor("a")), ("dim0", json!({"as_int": 1})), ("dim1", json!({"as_int": 2}))],
            "b",
            &[0, 6, 4, 8],
        )
        .call("reshape.default", "", &[("self", tensor("b"))], "c", &[0, 6, 32])
        .call(
            "linear.default",
            "head",
            &[("input", tensor("c")), ("weight", tensor("p_head_weight"))],
            "y",
            &[0, 6, 50],
        );
    let network = program.read("y").unwrap().graph;
    let expected: [LayerKind; 5] = [
        Embedding { padding: Some(3), ..Embedding::new(50, 32) }.into(),
        Linear::new(96).without_bias().into(),
        MultiHeadAttention::new(4, true).with_dropout(0.5).into(),
        Linear::new(50).without_bias().into(),
        LayerKind::CROSS_ENTROPY,
    ];
    assert_eq!(kinds(&network), expected);
    assert_eq!(network.parameter_count(), 50 * 32 + 96 * 32);
}

#[test]
fn operators_without_a_layer_are_named_with_their_modules() {
    let program = images().call("celu.default", "act", &[("self", tensor("linear"))], "celu", &[0, 5]).call(
        "mish.default",
        "unused",
        &[("self", tensor("linear"))],
        "mish",
        &[0, 5],
    );
    assert_eq!(
        program.read("celu").unwrap_err().to_string(),
        "no layer for torch.ops.aten.celu.default (in `act`)"
    );
    // Operators that the output does not depend on are not named.
    program.read("linear").unwrap();

    let all = [("self", tensor("x")), ("other", tensor("x")), ("alpha", json!({"as_float": 2.0}))];
    let error = Program::new(7, &[0, 5]).call("add.Tensor", "add", &all, "y", &[0, 5]).read("y").unwrap_err();
    assert!(error.to_string().contains("(node `y`): it multiplies or rounds its second argument"), "{error}");
}

#[test]
fn other_files_are_named() {
    let error = |bytes: Vec<u8>| from_reader("net", Cursor::new(bytes)).unwrap_err().to_string();
    assert!(error(b"not a zip".to_vec()).contains("it is no zip archive, or is incomplete"));
    assert!(error(Vec::new()).contains("it is no zip archive"));
    assert!(error(archive(&[("data.pkl", b"")])).contains("it has no entry `models/model.json`"));
    let older = archive(&[("serialized_exported_program.json", b"{}")]);
    assert!(error(older).contains("an older PyTorch wrote it"));
    assert!(error(archive(&[("models/model.json", b"{]")])).contains("`models/model.json`: "));
    let newer = Program { major: 9, ..images() };
    let message = newer.read("linear").unwrap_err().to_string();
    assert!(message.contains("PyTorch 2.11.0 in format 9.17, but format 8"), "{message}");
    let missing = images().read("nothing").unwrap_err().to_string();
    assert!(missing.contains("no node makes the output `nothing`"), "{missing}");
}

#[test]
fn networks_exported_in_evaluation_mode_are_warned_of() {
    let mut program = images();
    let flags = program.nodes.iter_mut().flat_map(|node| node["inputs"].as_array_mut().unwrap());
    for flag in flags.filter(|flag| matches!(flag["name"].as_str(), Some("training" | "train"))) {
        flag["arg"] = json!({"as_bool": false});
    }
    let warning = program.read("linear").unwrap().warning().unwrap();
    assert!(
        warning.starts_with("1 batch normalisations of net are frozen and 1 dropouts drop nothing"),
        "{warning}"
    );
}

#[test]
fn every_truncated_file_is_an_error() {
    let bytes = images().bytes("linear");
    for end in (0..bytes.len()).step_by(7) {
        assert!(matches!(from_reader("net", Cursor::new(&bytes[..end])), Err(Pt2Error::NotPt2(_))), "{end}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn damaged_files_never_panic(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = images().bytes("linear");
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Ok(imported) = from_reader("net", Cursor::new(bytes)) {
            prop_assert!(imported.graph.layers().all(|(_, layer)| layer.output_shape().elements() > 0));
        }
    }
}
