//! Shapes that nodes compute, and tensors in external data.

use layer_graph::LayerGraph;
use layer_graph::onnx::from_bytes;

use super::file::Attribute::Int;
use super::file::Model;

/// Adds the nodes that compute a shape to a model.
type AddNodes = fn(Model) -> Model;

/// Returns the shape of the layer `loss` of a network that flattens 3x4x4 images by `shape` nodes,
/// which compute the value `s`, and classifies with 10 classes.
fn flattened(batch: i64, shape: impl Fn(Model) -> Model) -> Result<String, String> {
    let model = Model::new(13, &[batch, 3, 4, 4], &[batch, 10]).weight("w", &[10, 48]).weight("b", &[10]);
    let model = shape(model).node("Reshape", "x s", "f", &[]).node("Gemm", "f w b", "y", &[Int("transB", 1)]);
    let imported = from_bytes("net", &model.bytes()).map_err(|error| error.to_string())?;
    Ok(imported
        .graph
        .layers()
        .map(|(_, layer)| layer.output_shape().to_string())
        .collect::<Vec<_>>()
        .join(" "))
}

#[test]
fn shapes_of_values_are_evaluated() {
    type Change = fn(Model) -> Model;
    let shapes: [(&str, Change); 5] = [
        ("x.view(x.size(0), -1)", |model| {
            model
                .list("zero", &[0])
                .list("rest", &[-1])
                .node("Shape", "x", "d", &[])
                .node("Gather", "d zero", "n", &[Int("axis", 0)])
                .node("Squeeze", "n", "n0", &[])
                .list("axes", &[0])
                .node("Unsqueeze", "n0 axes", "n1", &[])
                .node("Concat", "n1 rest", "s", &[Int("axis", 0)])
        }),
        ("Cast", |model| {
            model
                .list("zero", &[0])
                .list("rest", &[48])
                .node("Shape", "x", "d", &[])
                .node("Cast", "d", "c", &[Int("to", 7)])
                .node("Gather", "c zero", "n", &[])
                .node("Concat", "n rest", "s", &[Int("axis", 0)])
        }),
        ("x.flatten(1) with Slice", |model| {
            model
                .list("zero", &[0])
                .list("one", &[1])
                .list("rest", &[-1])
                .node("Shape", "x", "d", &[])
                .node("Slice", "d zero one zero", "n", &[])
                .node("Concat", "n rest", "s", &[Int("axis", 0)])
        }),
        ("a part of Shape", |model| {
            model.list("rest", &[-1]).node("Shape", "x", "n", &[Int("start", 0), Int("end", -3)]).node(
                "Concat",
                "n rest",
                "s",
                &[Int("axis", 0)],
            )
        }),
        ("constants", |model| {
            model.list("all", &[0]).list("rest", &[-1]).node("Concat", "all rest", "s", &[Int("axis", 0)])
        }),
    ];
    for (what, shape) in shapes {
        for batch in [2, -1] {
            let found = flattened(batch, shape);
            assert_eq!(found.as_deref(), Ok("3x4x4 48 10 1"), "{what}, batch {batch}: {found:?}");
        }
    }
}

#[test]
fn computed_shapes_that_mix_samples_are_refused() {
    for batch in [2, -1] {
        let error = flattened(batch, |model| {
            model
                .list("zero", &[0])
                .list("rest", &[-1])
                .node("Shape", "x", "d", &[])
                .node("Gather", "d zero", "n", &[])
                .node("Concat", "rest n", "s", &[Int("axis", 0)])
        });
        assert!(error.unwrap_err().contains("shape [-1, batch] mixes samples"), "{batch}");
    }
    let error = flattened(2, |model| {
        model.list("five", &[5]).node("Shape", "x", "d", &[]).node("Gather", "d five", "s", &[])
    });
    assert!(error.as_ref().unwrap_err().contains("of a list of 4"), "{error:?}");
    let error = flattened(2, |model| model.list("zero", &[0]).node("Gather", "x zero", "s", &[]));
    assert!(error.as_ref().unwrap_err().contains("Gather (node `node1`) is not supported here"), "{error:?}");
}

#[test]
fn lists_in_external_data_are_named() {
    let error = flattened(2, |model| model.external_list("s", 2)).unwrap_err();
    assert!(error.contains("its shape `s` is stored in another file (external data)"), "{error}");
    let base = || Model::new(13, &[2, 3, 4, 4], &[2, 3]).external_list("a", 2);
    for (model, what) in [
        (base().node("ReduceMean", "x a", "y", &[Int("keepdims", 0)]), "its list of axes `a`"),
        (
            base().node("GlobalAveragePool", "x", "p", &[]).node("Squeeze", "p a", "y", &[]),
            "its list of axes",
        ),
    ] {
        let error = from_bytes("net", &model.bytes()).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("external data"), "{error}");
    }
}

#[test]
fn other_computed_shapes_are_evaluated() {
    let shapes: [(&str, AddNodes); 3] = [
        ("Slice of a Slice", |model| {
            model
                .list("zero", &[0])
                .list("one", &[1])
                .list("two", &[2])
                .list("rest", &[-1])
                .node("Shape", "x", "d", &[])
                .node("Slice", "d zero two zero", "h", &[])
                .node("Slice", "h zero one zero", "n", &[])
                .node("Concat", "n rest", "s", &[Int("axis", 0)])
        }),
        ("Gather of several", |model| {
            model
                .list("order", &[0, 1])
                .list("first", &[0])
                .list("rest", &[48])
                .node("Shape", "x", "d", &[])
                .node("Gather", "d order", "g", &[])
                .node("Gather", "g first", "n", &[])
                .node("Concat", "n rest", "s", &[Int("axis", 0)])
        }),
        ("Identity and Unsqueeze", |model| {
            model
                .list("axes", &[0])
                .list("rest", &[-1])
                .node("Shape", "x", "d", &[])
                .node("Identity", "d", "e", &[])
                .node("Slice", "e axes one axes", "n", &[])
                .list("one", &[1])
                .node("Concat", "n rest", "s", &[Int("axis", -1)])
        }),
    ];
    for (what, shape) in shapes {
        for batch in [2, -1] {
            let found = flattened(batch, shape);
            assert_eq!(found.as_deref(), Ok("3x4x4 48 10 1"), "{what}, batch {batch}: {found:?}");
        }
    }
}

#[test]
fn weights_in_external_data_are_not_needed() {
    let model = |external: bool| -> LayerGraph {
        let model = Model::new(13, &[2, 6], &[2, 4]);
        let weight = if external { Model::external_weight } else { Model::weight };
        let model = weight(weight(model, "w", &[6, 4]), "b", &[4]);
        let model = model.node("MatMul", "x w", "m", &[]).node("Add", "m b", "y", &[]);
        from_bytes("net", &model.bytes()).unwrap().graph
    };
    assert_eq!(model(true), model(false));
    let error = flattened(2, |model| model.external_weight("s", &[2])).unwrap_err();
    assert!(error.contains("`s`") && error.contains("external data"), "{error}");
}
