//! Layers of transformers, which exporters write in several nodes.

use layer_graph::onnx::{Imported, OnnxError, from_bytes, from_vec_in};
use layer_graph::{
    Embedding, LayerKind, Linear, MultiHeadAttention, PositionEmbedding, RmsNorm, RotaryEmbedding,
};

use super::file::Attribute::{Float, Int, Ints};
use super::file::Model;

/// A kind with the nodes that compute it.
type Case = (LayerKind, fn(Model) -> Model);

const POSITIONS: usize = 6;
const WIDTH: usize = 8;

/// Returns the kind of each layer between the input and the loss, without rearrangements.
fn kinds(imported: &Imported) -> Vec<LayerKind> {
    let count = imported.graph.len() - 2;
    imported.graph.computing_layers().take(count).map(|(_, layer)| layer.kind().clone()).collect()
}

fn read(model: &Model) -> Result<Imported, OnnxError> {
    from_bytes("net", &model.bytes())
}

/// Returns the mask of a causal attention, with `hidden` at later positions.
fn causal(hidden: f32) -> Vec<f32> {
    let at = |i: usize| if i % POSITIONS > i / POSITIONS { hidden } else { 0.0 };
    (0..POSITIONS * POSITIONS).map(at).collect()
}

/// Returns a model of tokens that embeds them to 32 features, as the value `h`.
fn tokens() -> Model {
    let positions: Vec<i64> = (0..6).collect();
    Model::new(20, &[2, 6], &[2, 6, 50])
        .weight("tok.weight", &[50, 32])
        .weight("pos.weight", &[9, 32])
        .list("ids", &positions)
        .node("Gather", "tok.weight x", "t", &[])
        .node("Gather", "pos.weight ids", "p", &[])
        .node("Add", "t p", "h", &[])
}

/// Adds projections of `h` to four query heads of 8 features and to `heads` key heads, which share
/// them in groups, as the values `q`, `k` and `v` of four dimensions.
fn projections(model: Model, heads: i64) -> Model {
    let model =
        model.list("groups", &[2, heads, 4 / heads, 6, 8]).list("all", &[0, 4, 6, 8]).list("two", &[2]);
    let mut model = model.weight("out", &[32, 50]).list("joined", &[0, 0, -1]);
    for (name, count) in [("q", 4), ("k", heads), ("v", heads)] {
        let [weight, shape, product, split, parts] =
            ["w", "s", "m", "r", "t"].map(|kind| format!("{kind}{name}"));
        model = model
            .weight(&weight, &[32, count * 8])
            .list(&shape, &[0, -1, count, 8])
            .node("MatMul", &format!("h {weight}"), &product, &[])
            .node("Reshape", &format!("{product} {shape}"), &split, &[])
            .node("Transpose", &split, &parts, &[Ints("perm", &[0, 2, 1, 3])]);
        model = if count == 4 {
            model.node("Identity", &parts, name, &[])
        } else {
            let [open, repeated] = ["o", "e"].map(|kind| format!("{kind}{name}"));
            model
                .node("Unsqueeze", &format!("{parts} two"), &open, &[])
                .node("Expand", &format!("{open} groups"), &repeated, &[])
                .node("Reshape", &format!("{repeated} all"), name, &[])
        };
    }
    model
}

/// Adds the products of queries and keys, their softmax after `mask`, the product with the values
/// and the scores of the classes.
fn attended(model: Model, scale: f32, mask: impl FnOnce(Model) -> Model) -> Model {
    let model = model
        .number("scale", scale)
        .node("Transpose", "k", "kt", &[Ints("perm", &[0, 1, 3, 2])])
        .node("MatMul", "q kt", "products", &[])
        .node("Mul", "products scale", "scores", &[]);
    mask(model)
        .node("Softmax", "masked", "weights", &[Int("axis", -1)])
        .node("MatMul", "weights v", "a", &[])
        .node("Transpose", "a", "b", &[Ints("perm", &[0, 2, 1, 3])])
        .node("Reshape", "b joined", "c", &[])
        .node("MatMul", "c out", "y", &[])
}

fn linear(features: usize) -> LayerKind {
    Linear::new(features).without_bias().into()
}

#[test]
fn embeddings_and_positions_are_imported() {
    let model = tokens().weight("out", &[32, 50]).node("MatMul", "h out", "y", &[]);
    let imported = read(&model).unwrap();
    let expected: [LayerKind; 3] =
        [Embedding::new(50, 32).into(), PositionEmbedding::new(9).into(), linear(50)];
    assert_eq!(kinds(&imported), expected);
    let names: Vec<_> = imported.graph.layers().map(|(_, layer)| layer.name().to_owned()).collect();
    assert_eq!(names[1..3], ["tok", "pos"]);

    // Positions that do not begin with the first vector, and one vector for all positions.
    let zeros = [0; POSITIONS];
    let types = Model::new(20, &[2, 6], &[2, 6, 50])
        .weight("tok.weight", &[50, 32])
        .weight("pos.weight", &[9, 32])
        .weight("type.weight", &[2, 32])
        .list("ids", &[2, 3, 4, 5, 6, 7])
        .list("types", &zeros)
        .weight("out", &[32, 50])
        .node("Gather", "tok.weight x", "t", &[])
        .node("Gather", "pos.weight ids", "p", &[])
        .node("Gather", "type.weight types", "s", &[])
        .node("Add", "t p", "g", &[])
        .node("Add", "s g", "h", &[])
        .node("MatMul", "h out", "y", &[]);
    let shifted = PositionEmbedding { first: 2, ..PositionEmbedding::new(9) };
    let repeated = PositionEmbedding { repeated: true, ..PositionEmbedding::new(2) };
    assert_eq!(kinds(&read(&types).unwrap())[1..3], [shifted.into(), repeated.into()]);

    // The head shares the weight of the embedding.
    let tied = tokens().node("Transpose", "tok.weight", "w", &[Ints("perm", &[1, 0])]).node(
        "MatMul",
        "h w",
        "y",
        &[],
    );
    assert_eq!(read(&tied).unwrap().graph.parameter_count(), (50 + 9) * 32);
}

#[test]
fn written_out_attentions_are_imported() {
    let width = WIDTH as f32;
    for (heads, causal_mask) in [(4, false), (2, false), (1, true), (2, true)] {
        let mask = causal(if causal_mask { f32::MIN } else { 0.0 });
        let model = attended(projections(tokens(), heads), width.sqrt().recip(), |model| {
            model.table("mask", &[1, 1, 6, 6], &mask).node("Add", "scores mask", "masked", &[])
        });
        let imported = read(&model).unwrap();
        let keys = heads as usize * WIDTH;
        let attention = MultiHeadAttention::new(4, causal_mask);
        let expected = [linear(32), linear(keys), linear(keys), attention.into(), linear(50)];
        assert_eq!(kinds(&imported)[2..], expected, "{heads} key heads");
    }
    // Positions before a window are hidden, too.
    let mut mask = causal(f32::MIN);
    let far = |i: usize| i / POSITIONS >= i % POSITIONS + 3;
    (0..mask.len()).filter(|&i| far(i)).for_each(|i| mask[i] = f32::MIN);
    let model = attended(projections(tokens(), 4), 1.0, |model| {
        model.table("mask", &[6, 6], &mask).node("Add", "scores mask", "masked", &[])
    });
    let attention = MultiHeadAttention::new(4, true).scaled_by(1.0).with_window(3);
    assert_eq!(kinds(&read(&model).unwrap())[5], attention.into());
    // Weights that are dropped.
    let model = projections(tokens(), 4)
        .node("Transpose", "k", "kt", &[Ints("perm", &[0, 1, 3, 2])])
        .node("MatMul", "q kt", "scores", &[])
        .node("Softmax", "scores", "weights", &[])
        .number("ratio", 0.25)
        .boolean("on", true)
        .node("Dropout", "weights ratio on", "kept", &[])
        .node("MatMul", "kept v", "a", &[])
        .node("Transpose", "a", "b", &[Ints("perm", &[0, 2, 1, 3])])
        .node("Reshape", "b joined", "c", &[])
        .node("MatMul", "c out", "y", &[]);
    let attention = MultiHeadAttention::new(4, false).scaled_by(1.0).with_dropout(0.25);
    assert_eq!(kinds(&read(&model).unwrap())[5], attention.into());
    // A scale of its own, and a mask by choice.
    let hidden: Vec<f32> = causal(1.0);
    let model = attended(projections(tokens(), 4), 0.5, |model| {
        model
            .table("mask", &[6, 6], &hidden)
            .number("zero", 0.0)
            .number("low", f32::NEG_INFINITY)
            .node("Equal", "mask zero", "kept", &[])
            .node("Where", "kept scores low", "masked", &[])
    });
    let attention = MultiHeadAttention::new(4, true).scaled_by(0.5);
    assert_eq!(kinds(&read(&model).unwrap())[5], attention.into());
}

#[test]
fn attentions_of_other_masks_are_refused() {
    let mut holes = causal(f32::MIN);
    holes[POSITIONS * (POSITIONS - 1) + 1] = f32::MIN;
    let model = |mask: &[f32]| {
        attended(projections(tokens(), 4), 0.5, |model| {
            model.table("mask", &[6, 6], mask).node("Add", "scores mask", "masked", &[])
        })
    };
    let error = read(&model(&holes)).unwrap_err().to_string();
    assert!(error.contains("a mask of an attention that is neither causal nor a window"), "{error}");
    let error = read(&model(&[0.5; 36])).unwrap_err().to_string();
    assert!(error.contains("a mask of an attention that is neither causal nor a window"), "{error}");
    // The products alone are no layer.
    let alone = projections(tokens(), 4).node("MatMul", "q v", "y", &[]);
    assert!(
        read(&alone).unwrap_err().to_string().contains("products of queries and keys that are no attention")
    );
}

#[test]
fn attention_nodes_are_imported() {
    let model = projections(tokens(), 4)
        .node("Attention", "q k v", "a", &[Int("is_causal", 1)])
        .node("Transpose", "a", "b", &[Ints("perm", &[0, 2, 1, 3])])
        .node("Reshape", "b joined", "c", &[])
        .node("MatMul", "c out", "y", &[]);
    assert_eq!(kinds(&read(&model).unwrap())[5], MultiHeadAttention::new(4, true).into());

    let heads = [Int("q_num_heads", 4), Int("kv_num_heads", 2), Float("scale", 0.25)];
    let model =
        projections(tokens(), 2).node("Attention", "mq mk mv", "a", &heads).node("MatMul", "a out", "y", &[]);
    assert_eq!(kinds(&read(&model).unwrap())[5], MultiHeadAttention::new(4, false).scaled_by(0.25).into());
}

#[test]
fn rotated_queries_and_keys_are_imported() {
    let table = |function: fn(f64) -> f64| -> Vec<f32> {
        let rotation = RotaryEmbedding::new(WIDTH, 10_000.0);
        (0..POSITIONS * WIDTH)
            .map(|i| function(rotation.angle(i / WIDTH, i % WIDTH % (WIDTH / 2))) as f32)
            .collect()
    };
    let rotated = |sines: &[f32]| {
        let mut model = projections(tokens(), 4)
            .table("cos", &[1, 1, 6, 8], &table(f64::cos))
            .table("sin", &[1, 1, 6, 8], sines)
            .list("start", &[0])
            .list("half", &[4])
            .list("end", &[i64::MAX])
            .list("axis", &[3])
            .number("scale", 1.0 / (WIDTH as f32).sqrt());
        for name in ["q", "k"] {
            let value = |kind: &str| format!("{kind}_{name}");
            model = model
                .node("Slice", &format!("{name} start half axis"), &value("first"), &[])
                .node("Slice", &format!("{name} half end axis"), &value("second"), &[])
                .node("Neg", &value("second"), &value("minus"), &[])
                .node(
                    "Concat",
                    &[value("minus"), value("first")].join(" "),
                    &value("turned"),
                    &[Int("axis", -1)],
                )
                .node("Mul", &format!("{name} cos"), &value("left"), &[])
                .node("Mul", &format!("{} sin", value("turned")), &value("right"), &[])
                .node("Add", &[value("left"), value("right")].join(" "), &value("r"), &[]);
        }
        model
            .node("Transpose", "r_k", "kt", &[Ints("perm", &[0, 1, 3, 2])])
            .node("MatMul", "r_q kt", "products", &[])
            .node("Mul", "products scale", "scores", &[])
            .node("Softmax", "scores", "weights", &[])
            .node("MatMul", "weights v", "a", &[])
            .node("Transpose", "a", "b", &[Ints("perm", &[0, 2, 1, 3])])
            .node("Reshape", "b joined", "c", &[])
            .node("MatMul", "c out", "y", &[])
    };
    let rotation: LayerKind = RotaryEmbedding::new(WIDTH, 10_000.0).into();
    let found = kinds(&read(&rotated(&table(f64::sin))).unwrap());
    assert_eq!(found[5..8], [rotation.clone(), rotation, MultiHeadAttention::new(4, false).into()]);
    let error = read(&rotated(&table(|angle| angle.sin() / 2.0))).unwrap_err().to_string();
    assert!(error.contains("a rotation of other features"), "{error}");
}

#[test]
fn normalisations_and_activations_in_several_nodes_are_imported() {
    let model = Model::new(20, &[-1, 3, 8], &[-1, 3, 8])
        .weight("scale", &[8])
        .number("two", 2.0)
        .number("epsilon", 1e-6)
        .list("last", &[-1])
        .node("Pow", "x two", "s", &[])
        .node("ReduceMean", "s last", "m", &[])
        .node("Add", "m epsilon", "e", &[])
        .node("Sqrt", "e", "r", &[])
        .node("Reciprocal", "r", "i", &[])
        .node("Mul", "x i", "n", &[])
        .node("Mul", "scale n", "y", &[]);
    assert_eq!(kinds(&read(&model).unwrap()), [RmsNorm::new(1e-6).into()]);

    let numbers = |model: Model| {
        let numbers =
            [("half", 0.5), ("one", 1.0), ("three", 3.0), ("six", 6.0), ("zero", 0.0), ("root", 0.797_884_6)];
        let more = [("cubic", 0.044_715), ("two", std::f32::consts::SQRT_2), ("factor", 1.702)];
        numbers.into_iter().chain(more).fold(model, |model, (name, value)| model.number(name, value))
    };
    let cases: [Case; 4] = [
        (LayerKind::HardSwish, |model| {
            model
                .node("Add", "x three", "a", &[])
                .node("Clip", "a zero six", "c", &[])
                .node("Div", "c six", "d", &[])
                .node("Mul", "x d", "y", &[])
        }),
        (LayerKind::Gelu, |model| {
            model
                .node("Div", "x two", "a", &[])
                .node("Erf", "a", "b", &[])
                .node("Add", "b one", "c", &[])
                .node("Mul", "x c", "d", &[])
                .node("Mul", "d half", "y", &[])
        }),
        (LayerKind::GeluTanh, |model| {
            model
                .number("cube", 3.0)
                .node("Pow", "x cube", "a", &[])
                .node("Mul", "a cubic", "b", &[])
                .node("Add", "x b", "c", &[])
                .node("Mul", "c root", "d", &[])
                .node("Tanh", "d", "e", &[])
                .node("Add", "e one", "f", &[])
                .node("Mul", "x half", "g", &[])
                .node("Mul", "g f", "y", &[])
        }),
        (LayerKind::QuickGelu, |model| {
            model.node("Mul", "x factor", "a", &[]).node("Sigmoid", "a", "b", &[]).node(
                "Mul",
                "x b",
                "y",
                &[],
            )
        }),
    ];
    for (kind, nodes) in cases {
        let model = nodes(numbers(Model::new(20, &[-1, 3, 8], &[-1, 3, 8])));
        assert_eq!(kinds(&read(&model).unwrap()), [kind]);
    }
    let other = numbers(Model::new(20, &[-1, 3, 8], &[-1, 3, 8])).node("Mul", "x factor", "y", &[]);
    assert!(read(&other).unwrap_err().to_string().contains("no part of an activation"));
}

#[test]
fn masks_in_another_file_are_read() {
    let model = |file: &str| {
        attended(projections(tokens(), 4), 0.5, |model| {
            model.external_table("mask", &[6, 6], file, 8).node("Add", "scores mask", "masked", &[])
        })
    };
    let folder = std::env::temp_dir().join(format!("layer-graph-external-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("inner")).unwrap();
    let values: Vec<u8> = causal(f32::MIN).iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(folder.join("net.data"), [&[0; 8][..], &values].concat()).unwrap();
    std::fs::write(folder.join("short.data"), &values).unwrap();
    let imported = from_vec_in("net", model("net.data").bytes(), &folder).unwrap();
    assert_eq!(kinds(&imported)[5], MultiHeadAttention::new(4, true).scaled_by(0.5).into());
    // Files that are absent or too short, and files of other folders, are not read.
    for (file, folder) in
        [("none.data", &folder), ("short.data", &folder), ("../net.data", &folder.join("inner"))]
    {
        let error = from_vec_in("net", model(file).bytes(), folder).unwrap_err().to_string();
        assert!(error.contains("its mask `mask` is stored in another file"), "{file}: {error}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
