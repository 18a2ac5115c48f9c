//! Differences between the network for training and the file: they are counted, or refused.

use layer_graph::onnx::from_bytes;

use super::file::Attribute::Int;
use super::file::{Attribute, Model};

#[test]
fn frozen_batch_normalisations_are_counted() {
    let build = |opset: i64, first: &[Attribute<'_>], outputs: &str| {
        let mut model = Model::new(opset, &[1, 3, 8, 8], &[1, 3]);
        for name in ["s", "b", "m", "v"] {
            model = model.weight(name, &[3]);
        }
        let model = model
            .node("BatchNormalization", "x s b m v", outputs, first)
            .node("BatchNormalization", "n s b m v", "o", &[])
            .node("GlobalAveragePool", "o", "p", &[])
            .node("Flatten", "p", "y", &[]);
        from_bytes("net", &model.bytes()).unwrap()
    };
    for (opset, first, outputs, frozen) in [
        (15, &[Int("training_mode", 1)][..], "n m1 v1", 1),
        (15, &[Int("training_mode", 0)][..], "n", 2),
        (15, &[][..], "n", 2),
        (13, &[][..], "n m1 v1 m2 v2", 1),
        (13, &[][..], "n", 2),
    ] {
        let imported = build(opset, first, outputs);
        assert_eq!((imported.batch_norms, imported.frozen_batch_norms), (2, frozen), "{opset} {outputs}");
        let warning = imported.warning().unwrap();
        assert!(
            warning.starts_with(&format!("{frozen} of 2 batch normalisations of net are frozen")),
            "{warning}"
        );
    }
}

#[test]
fn frozen_dropouts_are_counted() {
    let model = |opset: i64, second: &str| {
        Model::new(opset, &[1, 6], &[1, 6])
            .number("ratio", 0.3)
            .boolean("on", true)
            .boolean("off", false)
            .node("Dropout", "x ratio on", "d", &[])
            .node("Dropout", second, "y", &[])
    };
    for (second, frozen) in [("d ratio on", 0), ("d ratio off", 1), ("d ratio", 1), ("d", 1)] {
        let imported = from_bytes("net", &model(13, second).bytes()).unwrap();
        assert_eq!((imported.dropouts, imported.frozen_dropouts), (2, frozen), "{second}");
        let warning = imported.warning();
        assert_eq!(warning.is_some(), frozen > 0, "{second}");
        assert!(warning.is_none_or(|warning| warning.starts_with("1 of 2 dropouts of net drop nothing")));
    }
    let older = Model::new(9, &[1, 6], &[1, 6]).node("Dropout", "x", "y", &[]);
    assert_eq!(from_bytes("net", &older.bytes()).unwrap().warning(), None, "without the input");
}

#[test]
fn nodes_that_are_left_out_are_counted() {
    let model = |unused: usize| {
        let model = Model::new(13, &[1, 6], &[1, 6]).node("Relu", "x", "y", &[]);
        (0..unused).fold(model, |model, index| model.node("HardSwish", "x", &format!("u{index}"), &[]))
    };
    for unused in 0..4 {
        let imported = from_bytes("net", &model(unused).bytes()).unwrap();
        assert_eq!(imported.left_out_nodes, unused);
        let expected = format!("{unused} nodes of net are left out");
        assert_eq!(imported.warning().is_some_and(|warning| warning.starts_with(&expected)), unused > 0);
    }
}

/// An operator whose result in training differs from that in the file, without a layer for it.
#[test]
fn other_normalisations_are_refused() {
    for operator in ["LpNormalization", "MeanVarianceNormalization"] {
        let model = Model::new(21, &[1, 3, 8, 8], &[1, 3])
            .weight("s", &[3])
            .weight("b", &[3])
            .node(operator, "x s b", "n", &[])
            .node("GlobalAveragePool", "n", "p", &[])
            .node("Flatten", "p", "y", &[]);
        let error = from_bytes("net", &model.bytes()).unwrap_err().to_string();
        assert!(error.contains(operator), "{error}");
    }
}
