//! Conversion of each operator.

use layer_graph::onnx::{OnnxError, from_bytes};
use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, Dropout, GroupNorm, LayerGraph, LayerKind,
    LayerNorm, LeakyRelu, Linear, LocalResponseNorm, Pad, Permute, Pool2d, Recurrence, RecurrentCell,
    Reshape, RmsNorm, Shape,
};

use super::file::Attribute::{Float, Int, Ints, Text};
use super::file::Model;

fn network(model: &Model) -> LayerGraph {
    from_bytes("net", &model.bytes()).expect("a network").graph
}

/// Returns the kind and output shape of each layer between the input and the loss.
fn layers(model: &Model) -> Vec<(LayerKind, Vec<usize>)> {
    let network = network(model);
    let count = network.len() - 2;
    let inner = network.computing_layers().take(count);
    inner.map(|(_, layer)| (layer.kind().clone(), layer.output_shape().dims().to_vec())).collect()
}

fn error(model: &Model) -> String {
    from_bytes("net", &model.bytes()).expect_err("an error").to_string()
}

/// Returns a model that pools the value `features` to the scores of four classes.
fn classifier(opset: i64) -> Model {
    Model::new(opset, &[1, 2, 8, 8], &[1, 4, 1, 1]).node("GlobalAveragePool", "features", "y", &[])
}

/// Returns a model of two channels with the node that computes the value `features`.
fn two_channels(opset: i64, build: impl Fn(Model) -> Model) -> Model {
    build(Model::new(opset, &[1, 2, 8, 8], &[1, 2, 1, 1])).node("GlobalAveragePool", "features", "y", &[])
}

/// Returns a [`classifier`] with the nodes of `build` before the pooling.
fn image(opset: i64, build: impl Fn(Model) -> Model) -> Model {
    build(Model::new(opset, &[1, 2, 8, 8], &[1, 4, 1, 1])).node("GlobalAveragePool", "features", "y", &[])
}

#[test]
fn convolution_attributes_are_imported() {
    let plain = image(13, |model| {
        let attributes = [Ints("pads", &[1, 0, 1, 0]), Ints("strides", &[1, 2]), Int("group", 2)];
        model.weight("w", &[4, 1, 3, 2]).weight("b", &[4]).node("Conv", "x w b", "features", &attributes)
    });
    let expected = Conv2d { kernel: [3, 2], stride: [1, 2], padding: [1, 0], groups: 2, ..Conv2d::new(4, 3) };
    assert_eq!(layers(&plain)[0], (expected.into(), vec![4, 8, 4]));

    // `SAME_LOWER` pads as much as a stride of 1 needs.
    let same = image(13, |model| {
        model.weight("w", &[4, 2, 5, 3]).node("Conv", "x w", "features", &[Text("auto_pad", "SAME_LOWER")])
    });
    let expected = Conv2d { kernel: [5, 3], padding: [2, 1], ..Conv2d::new(4, 3).without_bias() };
    assert_eq!(layers(&same)[0], (expected.into(), vec![4, 8, 8]));

    // Padding that no window reaches is ignored.
    let one_sided = |pads| {
        image(13, move |model| {
            let attributes = [Ints("pads", pads), Ints("strides", &[2, 2])];
            model.weight("w", &[4, 2, 3, 3]).node("Conv", "x w", "features", &attributes)
        })
    };
    let expected = Conv2d::new(4, 3).stride(2).padding(1).without_bias();
    assert_eq!(layers(&one_sided(&[1, 1, 0, 0]))[0], (expected.into(), vec![4, 4, 4]));
    let expected: [LayerKind; 2] =
        [Pad { before: [0, 0], after: [1, 1] }.into(), Conv2d::new(4, 3).stride(2).without_bias().into()];
    let shapes = [vec![2, 9, 9], vec![4, 4, 4]];
    assert_eq!(
        layers(&one_sided(&[0, 0, 1, 1]))[..2],
        expected.map(|kind| kind).into_iter().zip(shapes).collect::<Vec<_>>()
    );

    let padded =
        |pads| two_channels(13, move |model| model.list("pads", pads).node("Pad", "x pads", "features", &[]));
    let kind = Pad { before: [1, 2], after: [3, 0] };
    assert_eq!(layers(&padded(&[0, 0, 1, 2, 0, 0, 3, 0]))[0], (kind.into(), vec![2, 12, 10]));
    for (pads, problem) in [
        (&[0, 1, 0, 0, 0, 0, 0, 0][..], "something other than height and width"),
        (&[0, 0, 1, 0, 0, 0, -1, 0], "a padding of -1"),
        (&[0, 0, 1, 0], "4 pads for 4 axes"),
    ] {
        assert!(error(&padded(pads)).contains(problem));
    }

    let dilated = image(13, |model| {
        model.weight("w", &[4, 2, 3, 3]).node("Conv", "x w", "features", &[Ints("dilations", &[2, 2])])
    });
    let expected = Conv2d::new(4, 3).dilation(2).without_bias();
    assert_eq!(layers(&dilated)[0], (expected.into(), vec![4, 4, 4]));
}

#[test]
fn channelwise_addition_becomes_a_bias() {
    let added = image(13, |model| {
        model.weight("w", &[4, 2, 1, 1]).weight("b", &[1, 4, 1, 1]).node("Conv", "x w", "c", &[]).node(
            "Add",
            "b c",
            "features",
            &[],
        )
    });
    assert_eq!(layers(&added)[0].0, Conv2d::new(4, 1).into());

    // A value with another reader keeps its addition.
    let twice = image(13, |model| {
        model
            .weight("w", &[4, 2, 1, 1])
            .weight("b", &[4, 1, 1])
            .node("Conv", "x w", "c", &[])
            .node("Add", "c b", "d", &[])
            .node("Add", "c d", "features", &[])
    });
    assert!(error(&twice).contains("`b` is a constant"));
}

#[test]
fn weights_are_shared_if_bias_and_orientation_agree() {
    let square = || Model::new(13, &[1, 6], &[1, 6]).weight("w", &[6, 6]).weight("b", &[6]).weight("c", &[6]);
    let parameters = |model: &Model| network(model).parameter_count();
    let twice = square().node("Gemm", "x w b", "h", &[]).node("Gemm", "h w b", "y", &[]);
    assert_eq!(parameters(&twice), 42);
    let written_apart = square()
        .node("Gemm", "x w b", "h", &[Int("transB", 1)])
        .node("Transpose", "w", "t", &[Ints("perm", &[1, 0])])
        .node("MatMul", "h t", "m", &[])
        .node("Add", "b m", "y", &[]);
    assert_eq!(parameters(&written_apart), 42);
    let back_and_forth = square().node("Gemm", "x w b", "h", &[]).node("Transpose", "w", "t", &[]).node(
        "Gemm",
        "h t b",
        "y",
        &[Int("transB", 1)],
    );
    assert_eq!(parameters(&back_and_forth), 42);

    let message = |way: &str| {
        let problem = format!("it uses the weight `w` of `node1` {way}: layers cannot share it in this way");
        format!("Gemm (node `node2`) is not supported here: {problem}")
    };
    let biases = square().node("Gemm", "x w b", "h", &[]).node("Gemm", "h w c", "y", &[]);
    assert_eq!(error(&biases), message("with another bias"));
    let one_bias = square().node("Gemm", "x w b", "h", &[]).node("Gemm", "h w", "y", &[]);
    assert_eq!(error(&one_bias), message("with another bias"));
    let turned = square().node("Gemm", "x w b", "h", &[]).node("Gemm", "h w b", "y", &[Int("transB", 1)]);
    assert_eq!(error(&turned), message("transposed"));
    // With a reshape between them, two transpositions do not cancel.
    let shuffled = Model::new(13, &[1, 4], &[1, 4])
        .weight("w", &[2, 8])
        .list("square", &[4, 4])
        .node("Reshape", "w square", "plain", &[])
        .node("Transpose", "w", "t", &[])
        .node("Reshape", "t square", "r", &[])
        .node("Transpose", "r", "other", &[])
        .node("MatMul", "x plain", "h", &[])
        .node("MatMul", "h other", "y", &[]);
    assert!(error(&shuffled).contains("`w` of `node5` transposed"), "{}", error(&shuffled));

    let convolutions = |second: &'static str| {
        image(13, move |model| {
            let model = model
                .weight("k", &[2, 2, 1, 1])
                .weight("l", &[4, 2, 1, 1])
                .weight("b", &[2])
                .weight("c", &[2]);
            model.node("Conv", "x k b", "h", &[]).node("Conv", second, "i", &[]).node(
                "Conv",
                "i l",
                "features",
                &[],
            )
        })
    };
    assert_eq!(parameters(&convolutions("h k b")), 6 + 8);
    assert!(error(&convolutions("h k c")).contains("`k` of `node1` with another bias"));
}

#[test]
fn scale_and_shift_merge_into_batch_normalisation() {
    let model = image(9, |model| {
        let model = ["scale", "shift", "mean", "variance", "s", "t"]
            .iter()
            .fold(model, |model, name| model.weight(name, &[2]))
            .weight("w", &[4, 2, 1, 1]);
        model
            .node("BatchNormalization", "x scale shift mean variance", "n", &[Float("epsilon", 1e-3)])
            .node("Unsqueeze", "s", "s3", &[Ints("axes", &[1, 2])])
            .node("Mul", "n s3", "m", &[])
            .node("Unsqueeze", "t", "t3", &[Ints("axes", &[1, 2])])
            .node("Add", "m t3", "a", &[])
            .node("Relu", "a", "r", &[])
            .node("Conv", "r w", "features", &[])
    });
    let network = network(&model);
    assert_eq!(network.parameter_count(), 2 * 2 + 4 * 2);
    assert_eq!(network.len(), 7, "input, normalisation, ReLU, convolution, pooling, flattening, loss");
    let LayerKind::BatchNorm(BatchNorm { epsilon, momentum }) = layers(&model)[0].0 else { panic!() };
    assert_eq!(epsilon.to_bits(), 1e-3f64.to_bits(), "the decimal in the file");
    assert!((momentum - 0.1).abs() < 1e-9);
}

#[test]
fn layer_and_local_response_normalisations_are_imported() {
    let local = image(13, |model| {
        let attributes = [Int("size", 5), Float("alpha", 2e-4), Float("bias", 2.0)];
        model.weight("w", &[4, 2, 1, 1]).node("LRN", "x", "n", &attributes).node(
            "Conv",
            "n w",
            "features",
            &[],
        )
    });
    assert_eq!(layers(&local)[0].0, LocalResponseNorm { size: 5, alpha: 2e-4, beta: 0.75, k: 2.0 }.into());

    let layer = Model::new(17, &[-1, 3, 8], &[-1, 3, 8])
        .weight("scale", &[8])
        .weight("shift", &[8])
        .node("LayerNormalization", "x scale shift", "n", &[Float("epsilon", 1e-6)])
        .node("Gelu", "n", "y", &[Text("approximate", "tanh")]);
    assert_eq!(
        layers(&layer),
        [(LayerNorm { epsilon: 1e-6 }.into(), vec![3, 8]), (LayerKind::GeluTanh, vec![3, 8])]
    );

    let layer = Model::new(23, &[-1, 3, 8], &[-1, 3, 8]).weight("scale", &[8]).node(
        "RMSNormalization",
        "x scale",
        "y",
        &[Float("epsilon", 1e-6)],
    );
    assert_eq!(layers(&layer), [(RmsNorm::new(1e-6).into(), vec![3, 8])]);
}

#[test]
fn convolutions_of_signals_are_those_of_images() {
    let signal = Model::new(13, &[-1, 2, 9], &[-1, 16])
        .weight("conv.weight", &[4, 1, 2])
        .weight("conv.bias", &[4])
        .node(
            "Conv",
            "x conv.weight conv.bias",
            "c",
            &[Int("group", 2), Ints("strides", &[2]), Ints("pads", &[0, 0])],
        )
        .node("Flatten", "c", "y", &[]);
    let convolution = Conv2d { stride: [1, 2], groups: 2, ..Conv2d::rectangular(4, [1, 2]) };
    let reshape = |dims: &[usize]| LayerKind::from(Reshape { output: Shape::new(dims) });
    let expected = [
        (reshape(&[2, 1, 9]), vec![2, 1, 9]),
        (convolution.into(), vec![4, 1, 4]),
        (reshape(&[4, 4]), vec![4, 4]),
    ];
    assert_eq!(layers(&signal)[..3], expected);
    let network = network(&signal);
    assert_eq!(network.find("conv").map(|id| network.layer(id).parameter_count()), Some(4 * 2 + 4));
}

#[test]
fn transposed_convolutions_and_upsampling_are_imported() {
    let attributes = [Ints("strides", &[2, 2]), Ints("pads", &[1, 1, 0, 1]), Int("group", 2)];
    let transposed = |attributes: &[super::file::Attribute<'static>]| {
        two_channels(13, |model| {
            model.weight("w", &[2, 1, 3, 3]).weight("b", &[2]).node(
                "ConvTranspose",
                "x w b",
                "features",
                attributes,
            )
        })
    };
    let expected = ConvTranspose2d {
        padding: [1, 1],
        output_padding: [1, 0],
        groups: 2,
        ..ConvTranspose2d::new(2, 3, 2)
    };
    assert_eq!(layers(&transposed(&attributes))[0], (expected.into(), vec![2, 16, 15]));
    let more = [Ints("pads", &[0, 0, 1, 0]), Int("group", 2)];
    assert!(error(&transposed(&more)).contains("more padding after the image"));
    assert!(error(&transposed(&attributes[..2])).contains("its bias is not of 1 channels"));

    let resized = |scales: &[f32], attributes: &[super::file::Attribute<'static>]| {
        let scales = scales.to_vec();
        two_channels(13, move |model| {
            model.table("s", &[4], &scales).node("Resize", "x  s", "features", attributes)
        })
    };
    let floor = [Text("coordinate_transformation_mode", "asymmetric"), Text("nearest_mode", "floor")];
    let expected = AdaptiveAvgPool2d { output: [16, 24] };
    assert_eq!(layers(&resized(&[1.0, 1.0, 2.0, 3.0], &floor))[0], (expected.into(), vec![2, 16, 24]));
    assert!(error(&resized(&[1.0, 1.0, 1.5, 2.0], &floor)).contains("factors that are not integers"));
    assert!(error(&resized(&[1.0; 4], &floor[..1])).contains("another resampling"));
}

#[test]
fn group_normalisations_are_imported() {
    let norm = |opset, operator: &'static str, attributes: &[super::file::Attribute<'static>]| {
        two_channels(opset, |model| {
            model.weight("s", &[2]).weight("b", &[2]).node(operator, "x s b", "features", attributes)
        })
    };
    let groups = Int("num_groups", 1);
    let group = norm(21, "GroupNormalization", &[groups, Float("epsilon", 1e-3)]);
    assert_eq!(layers(&group)[0], (GroupNorm { groups: 1, epsilon: 1e-3 }.into(), vec![2, 8, 8]));
    let instance = norm(13, "InstanceNormalization", &[]);
    assert_eq!(layers(&instance)[0], (GroupNorm::new(2).into(), vec![2, 8, 8]));
    assert!(error(&norm(18, "GroupNormalization", &[groups])).contains("before operator set 21"));
    assert!(error(&norm(21, "GroupNormalization", &[])).contains("0 groups do not divide 2 channels"));
}

/// Returns a model of a recurrent node of width 8 over 5 positions of 6 features, with the batch as
/// its second dimension. Its weights and biases are inputs `w`, `r` and `b`, of `directions`.
fn recurrent(
    operator: &str,
    inputs: &str,
    directions: usize,
    attributes: &[super::file::Attribute<'_>],
) -> Model {
    let gates = if operator == "LSTM" { 32 } else { 24 };
    let directions = i64::try_from(directions).unwrap();
    let attributes = [&[Int("hidden_size", 8)], attributes].concat();
    Model::new(17, &[-1, 5, 6], &[-1, 5, 8 * directions])
        .weight("rnn.w", &[directions, gates, 6])
        .weight("r", &[directions, gates, 8])
        .weight("b", &[directions, 2 * gates])
        .weight("state", &[directions, 1, 8])
        .table("zeros", &[directions, 1, 8], &vec![0.0; 8 * usize::try_from(directions).unwrap()])
        .list("joined", &[0, 0, -1])
        .node("Transpose", "x", "t", &[Ints("perm", &[1, 0, 2])])
        .named_node("/net/rnn/RNN", "", operator, inputs, "o h", &attributes)
        .node("Transpose", "o", "s", &[Ints("perm", &[0, 2, 1, 3])])
        .node("Reshape", "s joined", "f", &[])
        .node("Transpose", "f", "y", &[Ints("perm", &[1, 0, 2])])
}

#[test]
fn recurrences_are_imported() {
    let both = recurrent("LSTM", "t rnn.w r b  zeros zeros", 2, &[Text("direction", "bidirectional")]);
    let (gates, lstm) = (Linear::new(32), Recurrence::new(RecurrentCell::Lstm));
    let expected: [(LayerKind, Vec<usize>); 5] = [
        (gates.clone().into(), vec![5, 32]),
        (lstm.clone().into(), vec![5, 8]),
        (gates.into(), vec![5, 32]),
        (lstm.reversed().into(), vec![5, 8]),
        (LayerKind::Concat, vec![5, 16]),
    ];
    assert_eq!(layers(&both), expected);

    let after = [Int("linear_before_reset", 1)];
    let gru = Recurrence { bias: false, ..Recurrence::new(RecurrentCell::Gru) };
    let reversed = recurrent("GRU", "t rnn.w r", 1, &[after[0], Text("direction", "reverse")]);
    let expected: [(LayerKind, Vec<usize>); 2] =
        [(Linear::new(24).without_bias().into(), vec![5, 24]), (gru.clone().reversed().into(), vec![5, 8])];
    assert_eq!(layers(&reversed), expected);

    for (model, expected) in [
        (recurrent("GRU", "t rnn.w r b", 1, &[]), "only with `linear_before_reset` = 1"),
        (recurrent("GRU", "t rnn.w r b  state", 1, &after), "first state `state` is not zero"),
        (recurrent("LSTM", "t rnn.w r b zeros", 1, &[]), "lengths of sequences"),
        (recurrent("LSTM", "t rnn.w r b", 1, &[Int("layout", 1)]), "moves the batch"),
        (recurrent("LSTM", "t rnn.w r b", 1, &[Int("layout", 2)]), "`layout` is 2"),
        (recurrent("LSTM", "t rnn.w r b", 1, &[Int("input_forget", 1)]), "coupled gates"),
        (recurrent("LSTM", "x rnn.w r b", 1, &[]), "the batch is not the second dimension"),
        (recurrent("LSTM", "t r rnn.w b", 1, &[]), "has not 192 elements for each direction"),
        (
            recurrent("LSTM", "t rnn.w r rnn.w", 1, &[]),
            "its bias `rnn.w` has not 64 elements for each direction",
        ),
        (recurrent("LSTM", "t rnn.w r b", 1, &[Text("direction", "up")]), "`direction` is `up`"),
        (recurrent("LSTM", "t rnn.w r b", 1, &[]).output("h", &[1, -1, 8]), "one of the outputs"),
    ] {
        let error = error(&model);
        assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
    }
    let state = Model::new(17, &[-1, 5, 6], &[1, -1, 8])
        .weight("w", &[1, 32, 6])
        .weight("r", &[1, 32, 8])
        .node("Transpose", "x", "t", &[Ints("perm", &[1, 0, 2])])
        .node("LSTM", "t w r", "o y", &[Int("hidden_size", 8)]);
    assert!(error(&state).contains("not its last state"));
}

#[test]
fn recurrent_layers_have_the_names_of_their_weights() {
    // As PyTorch writes them: the gates of a weight in another order, by parts of it.
    let part = |model: Model, name: &str, rows: [i64; 3]| {
        let [first, second, third] = rows.map(|row| format!("{name}.{row}"));
        let slices = rows.iter().fold(model, |model, &row| {
            let [start, end] = [row, row + 8].map(|end| format!("{name}.{end}.end"));
            let ends = format!("{name} {start} {end} axes");
            model.node("Slice", &ends, &format!("{name}.{row}"), &[])
        });
        let (joined, own) = (format!("{first} {second} {third}"), format!("{name}.joined"));
        let model = slices.node("Concat", &joined, &own, &[Int("axis", 0)]);
        model.node("Unsqueeze", &format!("{own} axes"), &format!("{name}.w"), &[])
    };
    let ends = |model: Model, name: &str| {
        [0, 8, 16, 24].iter().fold(model, |model, &end| model.list(&format!("{name}.{end}.end"), &[end]))
    };
    let names = ["weight_ih_l3", "weight_hh_l3", "weight_ih_l3_reverse", "weight_hh_l3_reverse"];
    let names = names.map(|name| format!("rnn.{name}"));
    let mut model = Model::new(17, &[-1, 5, 6], &[-1, 5, 16]).list("axes", &[0]).list("joined", &[0, 0, -1]);
    for (name, width) in names.iter().zip([6, 8, 6, 8]) {
        model = part(ends(model.weight(name, &[24, width]), name), name, [8, 0, 16]);
    }
    let attributes =
        [Int("hidden_size", 8), Int("linear_before_reset", 1), Text("direction", "bidirectional")];
    let [w, r, w_reverse, r_reverse] = names.map(|name| format!("{name}.w"));
    let model = model
        .node("Concat", &format!("{w} {w_reverse}"), "w", &[Int("axis", 0)])
        .node("Concat", &format!("{r} {r_reverse}"), "r", &[Int("axis", 0)])
        .node("Transpose", "x", "t", &[Ints("perm", &[1, 0, 2])])
        .node("GRU", "t w r", "o", &attributes)
        .node("Transpose", "o", "s", &[Ints("perm", &[0, 2, 1, 3])])
        .node("Reshape", "s joined", "f", &[])
        .node("Transpose", "f", "y", &[Ints("perm", &[1, 0, 2])]);
    let network = network(&model);
    let found: Vec<&str> = network.computing_layers().map(|(_, layer)| layer.name()).collect();
    let expected =
        ["rnn.ih_l3", "rnn.hh_l3", "rnn.ih_l3_reverse", "rnn.hh_l3_reverse", "rnn.concat_l3", "loss"];
    assert_eq!(found, expected);
}

#[test]
fn activations_and_products_of_layers_are_imported() {
    let gated = Model::new(17, &[-1, 3, 8], &[-1, 3, 8])
        .node("Sigmoid", "x", "s", &[])
        .node("Mul", "x s", "m", &[])
        .node("Tanh", "m", "y", &[]);
    let shape = vec![3, 8];
    let kinds = [LayerKind::Silu, LayerKind::Tanh];
    assert_eq!(layers(&gated), kinds.map(|kind| (kind, shape.clone())));
    let gated = Model::new(17, &[-1, 3, 8], &[-1, 3, 8])
        .node("Relu", "x", "r", &[])
        .node("Sigmoid", "x", "s", &[])
        .node("Mul", "r s", "m", &[])
        .node("Tanh", "m", "y", &[]);
    let kinds = [LayerKind::Relu, LayerKind::Sigmoid, LayerKind::Multiply, LayerKind::Tanh];
    assert_eq!(layers(&gated), kinds.map(|kind| (kind, shape.clone())));
    for factors in ["x s", "s x"] {
        let excited = Model::new(17, &[-1, 3, 8, 6], &[-1, 144])
            .node("GlobalAveragePool", "x", "s", &[])
            .node("Mul", factors, "m", &[])
            .node("Flatten", "m", "y", &[]);
        assert_eq!(layers(&excited)[1], (LayerKind::Multiply, vec![3, 8, 6]));
    }
    let hard = |operator: &'static str, attributes: &[super::file::Attribute<'static>]| {
        Model::new(17, &[-1, 3, 8], &[-1, 3, 8])
            .node(operator, "x", "s", attributes)
            .node("HardSwish", "s", "t", &[])
            .number("zero", 0.0)
            .number("six", 6.0)
            .node("Clip", "t zero six", "y", &[])
    };
    let sixth = Float("alpha", 1.0 / 6.0);
    let kinds = [LayerKind::HardSigmoid, LayerKind::HardSwish, LayerKind::Relu6];
    assert_eq!(layers(&hard("HardSigmoid", &[sixth])), kinds.map(|kind| (kind, shape.clone())));
    assert!(error(&hard("HardSigmoid", &[])).contains("alpha 0.2 and beta 0.5: only 1/6 and 1/2"));
    let leaky = |attributes| Model::new(17, &[-1, 3, 8], &[-1, 3, 8]).node("LeakyRelu", "x", "y", attributes);
    let kind = |negative_slope| LayerKind::LeakyRelu(LeakyRelu { negative_slope });
    assert_eq!(layers(&leaky(&[])), [(kind(0.01), shape.clone())]);
    assert_eq!(layers(&leaky(&[Float("alpha", 0.25)])), [(kind(0.25), shape.clone())]);
    assert!(error(&leaky(&[Float("alpha", -1.0)])).contains("needs a finite negative slope >= 0"));
    let limits = [Float("min", 0.0), Float("max", 6.0)];
    let attributes = |limits| Model::new(9, &[-1, 3, 8], &[-1, 3, 8]).node("Clip", "x", "y", limits);
    assert_eq!(layers(&attributes(&limits)), [(LayerKind::Relu6, shape)]);
    assert!(error(&attributes(&limits[..1])).contains("only from 0 to 6"));
}

#[test]
fn pooling_attributes_are_imported() {
    let pool = |operator: &'static str, attributes: &[super::file::Attribute<'static>]| {
        let attributes = attributes.to_vec();
        layers(&image(13, move |model| {
            let attributes = [attributes.as_slice(), &[Ints("kernel_shape", &[3, 3])]].concat();
            model.weight("w", &[4, 2, 1, 1]).node(operator, "x", "p", &attributes).node(
                "Conv",
                "p w",
                "features",
                &[],
            )
        }))[0]
            .clone()
    };
    let strides = Ints("strides", &[2, 2]);
    let padded = Ints("pads", &[0, 0, 1, 1]);
    assert_eq!(pool("MaxPool", &[strides]), (LayerKind::MaxPool2d(Pool2d::new(3, 2)), vec![2, 3, 3]));
    // Padding at the end and `ceil_mode` are equivalent.
    let expected = LayerKind::MaxPool2d(Pool2d::new(3, 2).extra_padding([1, 1]));
    assert_eq!(pool("MaxPool", &[strides, padded]), (expected.clone(), vec![2, 4, 4]));
    assert_eq!(pool("MaxPool", &[strides, Int("ceil_mode", 1)]), (expected.clone(), vec![2, 4, 4]));
    assert_eq!(pool("MaxPool", &[strides, Text("auto_pad", "SAME_UPPER")]), (expected, vec![2, 4, 4]));

    // ONNX excludes padding from averages by default.
    let mean = Pool2d::new(3, 2).extra_padding([1, 1]);
    let without = LayerKind::AvgPool2d(mean.clone().without_counting_padding());
    assert_eq!(pool("AveragePool", &[strides, padded]).0, without);
    let with = [strides, padded, Int("count_include_pad", 1)];
    assert_eq!(pool("AveragePool", &with).0, LayerKind::AvgPool2d(mean));
    assert_eq!(pool("AveragePool", &[strides]).0, LayerKind::AvgPool2d(Pool2d::new(3, 2)));
}

#[test]
fn means_over_height_and_width_become_global_pooling() {
    let mean = Model::new(13, &[4, 3, 5, 6], &[4, 3]).node(
        "ReduceMean",
        "x",
        "y",
        &[Ints("axes", &[-1, -2]), Int("keepdims", 0)],
    );
    let pool = LayerKind::from(AdaptiveAvgPool2d { output: [1, 1] });
    assert_eq!(layers(&mean), [(pool, vec![3, 1, 1]), (LayerKind::Flatten, vec![3])]);
    let max = Model::new(13, &[4, 3, 5, 6], &[4, 3, 1, 1]).node("GlobalMaxPool", "x", "y", &[]);
    let window = Pool2d { kernel: [5, 6], ..Pool2d::new(1, 1) };
    assert_eq!(layers(&max)[0], (LayerKind::MaxPool2d(window), vec![3, 1, 1]));
}

#[test]
fn matrix_products_become_linear_layers() {
    let gemm = Model::new(13, &[-1, 6], &[-1, 4])
        .weight("w", &[5, 6])
        .weight("b", &[5])
        .weight("v", &[5, 4])
        .node("Gemm", "x w b", "h", &[Int("transB", 1)])
        .node("Gemm", "h v", "y", &[]);
    assert_eq!(
        layers(&gemm),
        [(Linear::new(5).into(), vec![5]), (Linear::new(4).without_bias().into(), vec![4])]
    );

    // Over each position of a sequence, with the bias in a separate node.
    let matmul = Model::new(13, &[1, 3, 6], &[1, 3, 4])
        .weight("w", &[6, 4])
        .weight("b", &[4])
        .node("MatMul", "x w", "h", &[])
        .node("Add", "h b", "y", &[]);
    assert_eq!(layers(&matmul), [(Linear::new(4).into(), vec![3, 4])]);

    let of_activations = Model::new(13, &[1, 4, 4], &[1, 4, 4]).node("MatMul", "x x", "y", &[]);
    assert!(error(&of_activations).contains("products of queries and keys that are no attention"));
    let of_vectors = Model::new(13, &[4, 4], &[4, 4]).node("MatMul", "x x", "y", &[]);
    assert!(error(&of_vectors).contains("its input `x` is computed"));
}

#[test]
fn shared_weights_count_once() {
    let model = Model::new(13, &[1, 6], &[1, 6])
        .weight("w", &[6, 6])
        .node("MatMul", "x w", "h", &[])
        .node("Relu", "h", "r", &[])
        .node("MatMul", "r w", "y", &[]);
    let network = network(&model);
    assert_eq!(network.parameter_count(), 36);
    let id = |name| network.find(name).expect("a layer");
    assert_eq!(network.parameter_owner(id("node3")), id("node1"));
}

#[test]
fn reshapes_and_transpositions_are_imported() {
    // The file was traced with a batch of 2. 0 and -1 are resolved within a sample.
    let shuffle = Model::new(13, &[2, 4, 3, 3], &[2, 36])
        .list("split", &[2, 2, 2, 3, 0])
        .list("joined", &[0, -1, 3, 3])
        .node("Reshape", "x split", "s", &[])
        .node("Transpose", "s", "t", &[Ints("perm", &[0, 2, 1, 3, 4])])
        .node("Reshape", "t joined", "j", &[])
        .node("Flatten", "j", "y", &[]);
    let reshape = |dims: &[usize]| LayerKind::from(Reshape { output: Shape::new(dims) });
    let bad = error(&shuffle);
    assert!(bad.contains("cannot make [2, 2, 2, 3, 0]"), "{bad}: there is no fifth dimension");
    let shuffle = Model::new(13, &[2, 4, 3, 3], &[2, 36])
        .list("split", &[2, 2, 2, 3, 3])
        .list("joined", &[0, -1, 3, 3])
        .node("Reshape", "x split", "s", &[])
        .node("Transpose", "s", "t", &[Ints("perm", &[0, 2, 1, 3, 4])])
        .node("Reshape", "t joined", "j", &[])
        .node("Flatten", "j", "y", &[]);
    assert_eq!(
        layers(&shuffle),
        [
            (reshape(&[2, 2, 3, 3]), vec![2, 2, 3, 3]),
            (Permute { order: vec![1, 0, 2, 3] }.into(), vec![2, 2, 3, 3]),
            (reshape(&[4, 3, 3]), vec![4, 3, 3]),
            (LayerKind::Flatten, vec![36]),
        ]
    );

    let squeezed = Model::new(13, &[1, 4, 1, 1], &[1, 4])
        .list("axes", &[2, -1])
        .node("Squeeze", "x axes", "s", &[])
        .node("Unsqueeze", "s axes", "u", &[])
        .node("Squeeze", "u axes", "y", &[]);
    // Rearrangements that undo each other are left out.
    assert_eq!(layers(&squeezed), [(LayerKind::Flatten, vec![4])]);

    let mixing =
        Model::new(13, &[2, 4, 3, 3], &[1, 72]).list("shape", &[1, 72]).node("Reshape", "x shape", "y", &[]);
    assert!(error(&mixing).contains("mixes samples of the batch"));
}

#[test]
fn dropout_is_imported_and_identities_vanish() {
    let model = Model::new(13, &[1, 6], &[1, 6])
        .number("ratio", 0.3)
        .node("Dropout", "x ratio", "d mask", &[])
        .node("Identity", "d", "i", &[])
        .node("Relu", "i", "y", &[]);
    assert_eq!(layers(&model), [(Dropout::new(0.3).into(), vec![6]), (LayerKind::Relu, vec![6])]);
    let older = Model::new(9, &[1, 6], &[1, 6]).node("Dropout", "x", "y", &[Float("ratio", 0.1)]);
    let LayerKind::Dropout(Dropout { probability, .. }) = layers(&older)[0].0 else { panic!() };
    assert_eq!(probability.to_bits(), 0.1f64.to_bits(), "the decimal in the file");
}

#[test]
fn final_softmax_becomes_part_of_the_loss() {
    let end = |opset, dims: &[i64], attributes: &[_]| {
        let model = Model::new(opset, dims, dims).node("Relu", "x", "r", &[]);
        let model = model.node("Softmax", "r", "y", attributes);
        from_bytes("net", &model.bytes()).map(|imported| {
            imported.graph.layers().map(|(_, layer)| layer.kind().label()).collect::<Vec<_>>().join(" ")
        })
    };
    assert_eq!(end(13, &[1, 6], &[]).expect("read"), "input relu softmax_cross_entropy");
    assert_eq!(end(13, &[1, 5, 6], &[]).expect("read"), "input relu softmax_cross_entropy");
    let one_pixel = end(9, &[1, 6, 1, 1], &[]).expect("read");
    assert_eq!(one_pixel, "input relu flatten softmax_cross_entropy");
    assert!(matches!(end(9, &[1, 5, 6], &[]), Err(OnnxError::UnsupportedUse { .. })), "over two dimensions");
    assert!(matches!(end(13, &[1, 6, 3, 3], &[Int("axis", 1)]), Err(OnnxError::UnsupportedUse { .. })));

    let inside = Model::new(13, &[1, 6], &[1, 6]).node("Softmax", "x", "s", &[]).node("Relu", "s", "y", &[]);
    assert_eq!(layers(&inside), [(LayerKind::Softmax, vec![6]), (LayerKind::Relu, vec![6])]);
}

#[test]
fn nodes_that_the_output_does_not_depend_on_have_no_layers() {
    let model = classifier(13).node("NonMaxSuppression", "x", "unused", &[]);
    assert!(error(&model).contains("takes `features`, which nothing before it makes"));
    let model = Model::new(13, &[1, 6], &[1, 6]).node("NonMaxSuppression", "x", "unused", &[]).node(
        "Relu",
        "x",
        "y",
        &[],
    );
    assert_eq!(layers(&model), [(LayerKind::Relu, vec![6])]);
}

#[test]
fn layers_are_named_after_modules() {
    let names = |model: &Model| -> Vec<String> {
        network(model).layers().map(|(_, layer)| layer.name().to_owned()).collect()
    };
    let build = |named: [(&str, &str); 5]| {
        let [conv, relu, inner, sum, relu2] = named;
        Model::new(13, &[1, 4, 8, 8], &[1, 4])
            .weight("stem.weight", &[4, 4, 1, 1])
            .weight("onnx::Conv_7", &[4, 4, 1, 1])
            .named_node(conv.0, conv.1, "Conv", "x stem.weight", "c", &[])
            .named_node(relu.0, relu.1, "Relu", "c", "r", &[])
            .named_node(inner.0, inner.1, "Conv", "r onnx::Conv_7", "d", &[])
            .named_node(sum.0, sum.1, "Add", "d r", "s", &[])
            .named_node(relu2.0, relu2.1, "Relu", "s", "t", &[])
            .node("GlobalAveragePool", "t", "g", &[])
            .node("Flatten", "g", "y", &[])
    };
    let expected = [
        "stem",
        "layer1.0.relu",
        "layer1.0.conv1",
        "layer1.0.add",
        "layer1.0.relu.2",
        "node6",
        "node7",
        "loss",
    ];
    // Node names of the older exporter.
    let paths = build([
        ("/stem/Conv", ""),
        ("/layer1/layer1.0/relu/Relu", ""),
        ("/layer1/layer1.0/conv1/Conv", ""),
        ("/layer1/layer1.0/Add", ""),
        ("/layer1/layer1.0/relu_1/Relu", ""),
    ]);
    let mut by_path = expected;
    by_path[4] = "layer1.0.relu_1";
    assert_eq!(names(&paths)[1..], by_path);
    // Scope lists of the newer exporter.
    let lists = build([
        ("node_conv2d", "['', 'stem', 'conv2d']"),
        ("node_relu", "['', 'layer1', 'layer1.0', 'layer1.0.relu', 'relu']"),
        ("node_conv2d_1", "['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_1']"),
        ("node_add", "['', 'layer1', 'layer1.0', 'add']"),
        ("node_relu_1", "['', 'layer1', 'layer1.0', 'layer1.0.relu', 'relu_1']"),
    ]);
    assert_eq!(names(&lists)[1..], expected);
    // Without modules: named parameters, or plain node names.
    let plain = build([("Conv_0", ""), ("Relu_1", ""), ("Conv_2", ""), ("a/Add", ""), ("/a/b", "")]);
    assert_eq!(names(&plain)[1..6], ["stem", "Relu_1", "Conv_2", "a/Add", "/a/b"]);
}

#[test]
fn folded_batch_normalisations_are_counted() {
    let build = |weight: &str, bias: &str| {
        let inputs = format!("x {weight} {bias}");
        let model = Model::new(13, &[1, 3, 8, 8], &[1, 4]).weight(weight, &[4, 3, 3, 3]).weight(bias, &[4]);
        let scopes = "['', 'layer1', 'layer1.bn1', '_native_batch_norm']";
        model
            .named_node("node_Conv_1", scopes, "Conv", inputs.trim(), "c", &[])
            .node("GlobalAveragePool", "c", "p", &[])
            .node("Flatten", "p", "y", &[])
    };
    for (weight, bias, folded, name) in [
        ("features.0.weight", "features.0.bias", 0, "features.0"),
        ("onnx::Conv_193", "onnx::Conv_194", 1, "layer1.bn1"),
        ("layer1.conv1.weight", "layer1.conv1.weight_bias", 1, "layer1.conv1"),
    ] {
        let imported = from_bytes("net", &build(weight, bias).bytes()).unwrap();
        assert_eq!(imported.folded_batch_norms, folded, "{weight} {bias}");
        assert_eq!(imported.warning().is_some_and(|text| text.contains("TrainingMode.TRAINING")), folded > 0);
        assert!(imported.graph.find(name).is_some(), "{name}");
    }
}
