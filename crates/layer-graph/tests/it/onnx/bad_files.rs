//! Tests with invalid files.

use layer_graph::onnx::{OnnxError, from_bytes};
use proptest::prelude::*;

use super::file::Attribute::{Int, Ints};
use super::file::Model;
use super::published;

/// Returns a small network with most kinds of nodes.
fn model() -> Model {
    Model::new(13, &[-1, 3, 8, 8], &[-1, 10])
        .weight("w1", &[4, 3, 3, 3])
        .weight("scale", &[4])
        .weight("shift", &[4])
        .list("shape", &[0, -1])
        .weight("w2", &[10, 64])
        .declare("c", &[-1, 4, 8, 8])
        .node("Conv", "x w1", "c", &[Ints("pads", &[1, 1, 1, 1]), Int("group", 1)])
        .node("BatchNormalization", "c scale shift scale shift", "n", &[])
        .node("Relu", "n", "r", &[])
        .node("Concat", "r c", "j", &[Int("axis", 1)])
        .node("AveragePool", "r", "p", &[Ints("kernel_shape", &[2, 2]), Ints("strides", &[2, 2])])
        .node("Reshape", "p shape", "f", &[])
        .node("Gemm", "f w2", "g", &[Int("transB", 1)])
        .node("Softmax", "g", "y", &[])
}

fn error(model: &Model) -> OnnxError {
    from_bytes("net", &model.bytes()).expect_err("an error")
}

#[test]
fn files_without_a_model_are_rejected() {
    from_bytes("net", &model().bytes()).expect("a valid model");
    assert!(
        matches!(from_bytes("net", b""), Err(OnnxError::NotOnnx(problem)) if problem == "it has no graph")
    );
    assert!(matches!(from_bytes("net", b"{\"schema\": 1}"), Err(OnnxError::NotOnnx(_))));
    let old = Model::new(6, &[1, 6], &[1, 6]).node("Relu", "x", "y", &[]);
    assert!(error(&old).to_string().contains("convert the model to at least 7"));
}

#[test]
fn every_truncated_file_is_an_error() {
    let bytes = model().bytes();
    for end in 0..bytes.len() {
        assert!(matches!(from_bytes("net", &bytes[..end]), Err(OnnxError::NotOnnx(_))), "{end} bytes");
    }
}

#[test]
fn operators_without_a_layer_are_named() {
    let model = Model::new(13, &[1, 6], &[1, 6]).node("Relu", "x", "r", &[]).node("Celu", "r", "y", &[]);
    let message = error(&model).to_string();
    let expected = "operator `Celu` (node `node2`) is not supported; supported: Abs (in activations), Add, ";
    assert!(message.starts_with(expected), "{message}");
    assert!(!message.contains('\n'));
}

#[test]
fn all_problems_of_a_file_are_named_at_once() {
    let model = Model::new(13, &[1, 6], &[1, 3])
        .weight("w", &[5, 3])
        .weight("negative", &[-1])
        .node("Celu", "x", "h", &[])
        // Depends on an invalid node: only its operator is checked.
        .node("MatMul", "h w", "m", &[])
        .node("Mish", "m", "i", &[])
        .node("Celu", "x", "k", &[])
        .node("MatMul", "x w", "l", &[])
        .node("Add", "x negative", "o", &[])
        .node("Sum", "i k l o", "y", &[]);
    let problem = error(&model);
    let OnnxError::Multiple(problems) = &problem else { panic!("{problem}") };
    assert_eq!(problems.len(), 4, "{problem}");
    let message = problem.to_string();
    let (before, supported) = message.split_once("; supported operators: ").expect("what is supported");
    assert!(supported.starts_with("Abs (in activations), Add, "));
    assert_eq!(
        before,
        "4 problems: not an ONNX model: tensor `negative` has dimensions [-1]; \
         operator `Celu` (nodes `node1`, `node4`) is not supported; \
         operator `Mish` (node `node3`) is not supported; \
         MatMul (node `node5`): its weight is for 5 features, but the sample is 6"
    );

    // Operators are also checked if the inputs of the file are invalid.
    let two = Model::new(13, &[1, 6], &[1, 6]).output("aux", &[1, 6]).node("Mish", "x", "y", &[]);
    let message = error(&two).to_string();
    let expected = "2 problems: expected one of the outputs, found 2: y, aux; operator `Mish` (node `node1`)";
    assert!(message.starts_with(expected), "{message}");

    // A long list is truncated, on one line.
    let many = (0..100).fold(Model::new(13, &[1, 6], &[1, 6]), |model, i| {
        model.node(&format!("Op{i}"), "x", &format!("h{i}"), &[])
    });
    let all = (0..100).map(|i| format!("h{i}")).collect::<Vec<_>>().join(" ");
    let message = error(&many.node("Sum", &all, "y", &[])).to_string();
    assert!(message.contains("`Op9` (node `node10`) is not supported; and 90 more; supported"), "{message}");
    assert!(!message.contains('\n'));
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    let channels =
        Model::new(13, &[1, 3, 8, 8], &[1, 4, 8, 8]).weight("w", &[4, 2, 3, 3]).node("Conv", "x w", "y", &[]);
    let message = error(&channels).to_string();
    assert!(message.contains("Conv (node `node1`)") && message.contains("has 3"), "{message}");

    let declared = Model::new(13, &[1, 3, 8, 8], &[1, 3, 4, 4]).node("Relu", "x", "y", &[]);
    assert_eq!(
        error(&declared).to_string(),
        "the file says that `y` is of shape 3x4x4 without its batch, but its inferred shape is 3x8x8"
    );
    let sum = Model::new(13, &[1, 3, 8, 8], &[1, 3, 8, 8]).node("GlobalAveragePool", "x", "p", &[]).node(
        "Add",
        "x p",
        "y",
        &[],
    );
    assert!(error(&sum).to_string().contains("adds different shapes, 3x8x8 and 3x1x1"));
    let segmentation = Model::new(13, &[1, 3, 8, 8], &[1, 3, 8, 8]).node("Relu", "x", "y", &[]);
    assert!(error(&segmentation).to_string().contains("expected class scores"));
}

#[test]
fn nodes_that_the_output_does_not_depend_on_are_ignored() {
    let small = || Model::new(13, &[1, 6], &[1, 6]).weight("w", &[6, 6]).weight("b", &[6]);
    let wanted = |model: Model| model.node("MatMul", "x w", "m", &[]).node("Add", "m b", "y", &[]);
    let expected = from_bytes("net", &wanted(small()).bytes()).expect("a network").graph;
    for (what, model) in [
        ("a constant without a value", wanted(small()).node("Constant", "", "c", &[])),
        (
            "a rearrangement that does not fit",
            wanted(small().list("odd", &[4])).node("Reshape", "w odd", "r", &[]),
        ),
        ("a tensor of no size", wanted(small()).weight("negative", &[-1])),
        ("an unknown operator", wanted(small()).node("Celu", "x", "h", &[])),
        ("a second reader of a value before its bias", wanted(small()).node("Relu", "m", "r", &[])),
    ] {
        let imported = from_bytes("net", &model.bytes());
        assert_eq!(imported.unwrap_or_else(|error| panic!("{what}: {error}")).graph, expected, "{what}");
    }
    // The same nodes are errors if the output depends on them.
    let odd = small().list("odd", &[4]).node("Reshape", "w odd", "r", &[]).node("MatMul", "x r", "y", &[]);
    assert!(matches!(error(&odd), OnnxError::InvalidNode { .. }));
    let twice =
        small().node("Relu", "x", "r", &[]).node("Gelu", "x", "r", &[]).node("MatMul", "r w", "y", &[]);
    assert!(error(&twice).to_string().contains("two nodes make the value `r`"));
}

#[test]
fn models_need_inputs_of_one_batch_and_one_output() {
    let two = Model::new(13, &[1, 6], &[1, 6]).input("gate", &[2, 6]).node("Mul", "x gate", "y", &[]);
    let expected = "the inputs `x` and `gate` have batches of 1 and 2 samples";
    assert_eq!(error(&two).to_string(), expected);
    let two = Model::new(13, &[1, 6], &[1, 6]).output("aux", &[1, 6]).node("Relu", "x", "y", &[]);
    assert_eq!(error(&two).to_string(), "expected one of the outputs, found 2: y, aux");
    let open = Model::new(13, &[1, 3, -1, -1], &[1, 3]).node("Relu", "x", "y", &[]);
    assert!(error(&open).to_string().contains("has no fixed dimensions"));
    let unmade = Model::new(13, &[1, 6], &[1, 6]).node("Relu", "x", "z", &[]);
    assert!(error(&unmade).to_string().contains("no node makes the output `y`"));
    let order = Model::new(13, &[1, 6], &[1, 6]).node("Relu", "r", "y", &[]).node("Relu", "x", "r", &[]);
    assert!(matches!(error(&order), OnnxError::UndefinedValue { value, .. } if value == "r"));
}

/// Imports possibly damaged bytes and checks the invariants of the network, if there is one.
fn read(bytes: &[u8]) {
    if let Ok(imported) = from_bytes("net", bytes) {
        let network = imported.graph;
        assert!(network.len() > 1);
        assert!(network.layers().all(|(_, layer)| layer.output_shape().elements() > 0));
    }
}

proptest! {
    #[test]
    fn damaged_files_never_panic(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        end in any::<proptest::sample::Index>(), cut: bool,
    ) {
        let mut bytes = model().bytes();
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        let end = if cut { end.index(bytes.len()) } else { bytes.len() };
        read(&bytes[..end]);
    }
}

#[test]
fn bit_flips_in_a_published_network_never_panic() {
    let folder = match published::folder() {
        Ok(folder) => folder,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    let original = std::fs::read(folder.join("light_bvlc_alexnet.onnx")).expect("readable");
    for place in 0..original.len() {
        let mut bytes = original.clone();
        bytes[place] ^= 1 << (place % 8);
        read(&bytes);
    }
}
