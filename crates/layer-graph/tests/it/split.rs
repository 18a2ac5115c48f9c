//! Splits of layers: views of tensors, parts and their costs.

use layer_graph::{
    Conv2d, Division, Dropout, Embedding, GraphError, Layer, LayerGraph, LayerId, LayerKind, LayerTensor,
    Linear, MultiHeadAttention, NetworkSplits, Permute, Pool2d, Shape, Split, TensorBox, TensorView, Values,
    zoo,
};
use proptest::prelude::*;

proptest! {
    #[test]
    fn runs_are_the_elements_of_a_box_in_order(
        dims in prop::collection::vec((1usize..5, 0usize..5, 0usize..5), 0..5),
    ) {
        let range = |&(dim, a, b): &(usize, usize, usize)| a.min(b).min(dim)..a.max(b).min(dim);
        let part = TensorBox {
            dims: dims.iter().map(|&(dim, ..)| dim).collect(),
            ranges: dims.iter().map(range).collect(),
        };
        // Coordinates of every element, the innermost dimension first.
        let contains = |&element: &usize| {
            let mut rest = element;
            part.dims.iter().zip(&part.ranges).rev().all(|(dim, range)| {
                let coordinate = rest % dim;
                rest /= dim;
                range.contains(&coordinate)
            })
        };
        let expected: Vec<usize> = (0..part.dims.iter().product()).filter(contains).collect();
        let runs = part.runs();
        prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", runs);
        prop_assert!(runs.iter().all(|run| !run.is_empty()));
        prop_assert_eq!(part.elements(), expected.len());
        prop_assert_eq!(runs.into_iter().flatten().collect::<Vec<_>>(), expected);
    }
}

fn division(split: Split, parts: usize) -> Division {
    Division { split, parts }
}

/// Checks that the boxes of the parts contain each element of the tensor exactly `times` times.
fn assert_tiles(tensor: &LayerTensor, boxes: &[TensorBox], times: usize) {
    let mut covered = vec![0; tensor.elements()];
    for part in boxes {
        assert_eq!(part.dims.iter().product::<usize>(), covered.len(), "{tensor:?}");
        assert_eq!(part.runs().into_iter().map(|run| run.len()).sum::<usize>(), part.elements());
        part.runs().into_iter().flatten().for_each(|element| covered[element] += 1);
    }
    assert!(covered.iter().all(|&count| count == times), "{tensor:?}: {boxes:?}");
}

/// Checks that the parts' shapes follow from the views, that their parameters tile the layer's, and
/// that their sizes and costs add up to the layer's.
fn assert_adds_up(network: &LayerGraph, splits: &NetworkSplits<'_>, id: LayerId, division: Division) {
    let (layer, Division { split, parts }) = (network.layer(id), division);
    let cut: Vec<_> = (0..parts).map(|index| splits.part(id, division, index).unwrap()).collect();
    let values = splits.values(id, split);
    let copies = if values.parameter_gradient == Values::Ranges { 1 } else { parts };
    let tensors = [layer.parameters(), layer.statistics()];
    for (list, tensors) in tensors.iter().enumerate() {
        for (index, tensor) in tensors.iter().enumerate() {
            let boxes = cut.iter().filter_map(|part| [&part.parameters, &part.statistics][list].get(index));
            let boxes: Vec<_> = boxes.cloned().collect();
            assert_tiles(tensor, &boxes, copies);
        }
    }
    for part in &cut {
        assert_eq!(part.layer.name(), layer.name());
        let sizes = |tensors: Vec<LayerTensor>| tensors.iter().map(LayerTensor::elements).collect::<Vec<_>>();
        let boxes = |boxes: &[TensorBox]| boxes.iter().map(TensorBox::elements).collect::<Vec<_>>();
        assert_eq!(sizes(part.layer.parameters()), boxes(&part.parameters), "{}", layer.name());
        assert_eq!(sizes(part.layer.statistics()), boxes(&part.statistics), "{}", layer.name());
        let elements = |values, view: TensorView| match values {
            Values::Ranges => view.range(part.units.clone()).elements(),
            Values::Positions => view.position_range(part.units.clone()).elements(),
            _ => view.elements(),
        };
        assert_eq!(part.layer.output_shape().elements(), elements(values.output, splits.view(id)));
        for (shape, producer) in part.layer.input_shapes().iter().zip(network.producers(id)) {
            let is_tokens = matches!(layer.kind(), LayerKind::Embedding(_)) && split == Split::Positions;
            let expected = elements(values.input, splits.view(producer));
            let expected = if is_tokens { part.units.len() } else { expected };
            assert_eq!(shape.elements(), expected, "{}", layer.name());
        }
        assert_eq!(part.layer.mean_positions(), layer.label_count());
    }
    if split == Split::Copies {
        return;
    }
    let sum = |cost: fn(&Layer) -> u64| cut.iter().map(|part| cost(&part.layer)).sum::<u64>();
    let parameters = layer.parameter_count() * copies;
    assert_eq!(sum(|layer| layer.parameter_count() as u64), parameters as u64);
    assert_eq!(sum(Layer::forward_flops), layer.forward_flops(), "{} {division:?}", layer.name());
    assert_eq!(sum(Layer::backward_flops), layer.backward_flops(), "{} {division:?}", layer.name());
}

#[test]
fn parts_of_zoo_layers_tile_parameters_and_costs() {
    for name in ["digits-cnn", "resnet-18", "inception-v3", "gpt2", "vit-b-16", "alexnet"] {
        let Ok(network) = zoo::model(name) else { panic!("no model {name}") };
        let splits = NetworkSplits::new(&network);
        // The boxes of larger layers take long to count.
        for (id, _) in network.layers().filter(|(_, layer)| layer.parameter_count() < 500_000) {
            for split in splits.splits(id) {
                let max = splits.max_parts(id, split);
                for parts in [2, 3].into_iter().filter(|&parts| parts <= max) {
                    assert_adds_up(&network, &splits, id, division(split, parts));
                }
            }
        }
    }
}

#[test]
fn projections_are_split_by_heads() {
    let mut network = LayerGraph::new("attention", Shape::sequence(5, 12)).unwrap();
    let qkv = network.add("qkv", Linear::new(36), [network.input()]).unwrap();
    let attention = MultiHeadAttention::new(3, true);
    let attention = network.add("attention", attention, [qkv]).unwrap();
    let out = network.add("out", Linear::new(12), [attention]).unwrap();
    let splits = NetworkSplits::new(&network);
    assert_eq!(splits.view(qkv), TensorView { positions: 5, outer: 15, units: 3, inner: 4 });
    assert_eq!(splits.view(attention), TensorView { positions: 5, outer: 5, units: 3, inner: 4 });
    assert_eq!(splits.view(out), TensorView { positions: 5, outer: 5, units: 12, inner: 1 });
    assert_eq!(splits.max_parts(out, Split::Inputs), 3);

    let part = splits.part(qkv, division(Split::Features, 2), 1).unwrap();
    assert_eq!(part.units, 2..3);
    assert_eq!(part.layer.output_shape(), &Shape::sequence(5, 12));
    assert_eq!(part.parameters[0], TensorBox { dims: vec![3, 3, 48], ranges: vec![0..3, 2..3, 0..48] });
    assert_eq!(part.parameters[1].runs(), [8..12, 20..24, 32..36]);
    let part = splits.part(attention, division(Split::Features, 2), 0).unwrap();
    assert_eq!(part.layer.kind(), &LayerKind::from(MultiHeadAttention::new(2, true)));
    for id in [qkv, attention, out] {
        for split in splits.splits(id) {
            assert_adds_up(&network, &splits, id, division(split, 3));
        }
    }
}

#[test]
fn grouped_queries_are_split_by_key_heads() {
    let mut network = LayerGraph::new("decoder", Shape::sequence(5, 12)).unwrap();
    let memory = network.add("memory", LayerKind::ClassToken, [network.input()]).unwrap();
    let queries = network.add("queries", Linear::new(6 * 4), [network.input()]).unwrap();
    let keys = network.add("keys", Linear::new(3 * 4), [memory]).unwrap();
    let values = network.add("values", Linear::new(3 * 4), [memory]).unwrap();
    let attention = MultiHeadAttention::new(6, false).scaled_by(0.3).with_dropout(0.1);
    let attention = network.add("attention", attention, [queries, keys, values]).unwrap();
    let out = network.add("out", Linear::new(12), [attention]).unwrap();
    let splits = NetworkSplits::new(&network);
    let grouped = TensorView { positions: 5, outer: 5, units: 3, inner: 8 };
    assert_eq!([queries, attention].map(|id| splits.view(id)), [grouped; 2]);
    let key = TensorView { positions: 6, outer: 6, units: 3, inner: 4 };
    assert_eq!([keys, values].map(|id| splits.view(id)), [key; 2]);
    assert_eq!(splits.splits(attention), [Split::Copies, Split::Features]);
    assert_eq!([queries, keys, attention].map(|id| splits.max_parts(id, Split::Features)), [3; 3]);
    assert_eq!(splits.max_parts(out, Split::Inputs), 3);

    let part = splits.part(attention, division(Split::Features, 2), 0).unwrap();
    let part_kind = MultiHeadAttention::new(4, false).scaled_by(0.3).with_dropout(0.1);
    assert_eq!(part.layer.kind(), &LayerKind::from(part_kind));
    assert_eq!(part.layer.random_box().runs(), std::iter::once(0..4 * 5 * 6).collect::<Vec<_>>());
    let last = splits.part(attention, division(Split::Features, 2), 1).unwrap();
    assert_eq!(last.layer.random_box().runs(), std::iter::once(4 * 5 * 6..6 * 5 * 6).collect::<Vec<_>>());
    let keys_of_part = Shape::sequence(6, 8);
    assert_eq!(part.layer.input_shapes(), [Shape::sequence(5, 16), keys_of_part.clone(), keys_of_part]);
    for id in [queries, keys, values, attention, out] {
        for split in splits.splits(id) {
            assert_adds_up(&network, &splits, id, division(split, 3));
        }
    }
}

#[test]
fn attention_of_projections_with_other_units_is_not_split() {
    let mut network = LayerGraph::new("shared", Shape::sequence(5, 12)).unwrap();
    let queries = network.add("queries", Linear::new(12), [network.input()]).unwrap();
    let keys = network.add("keys", Linear::new(12), [network.input()]).unwrap();
    let mut attend = |name: &str, heads, inputs: [LayerId; 3]| {
        network.add(name, MultiHeadAttention::new(heads, true), inputs).unwrap()
    };
    let first = attend("first", 4, [queries, keys, keys]);
    // Three heads and four heads of the queries have no common units.
    let second = attend("second", 3, [queries, first, first]);
    let splits = NetworkSplits::new(&network);
    assert_eq!(splits.view(queries).units, 1);
    assert_eq!([first, second].map(|id| splits.max_parts(id, Split::Features)), [1; 2]);
}

#[test]
fn flattened_images_are_divided_by_channels() {
    let mut network = LayerGraph::new("flatten", Shape::image(3, 4, 4)).unwrap();
    let conv = network.add("conv", Conv2d::new(5, 3).padding(1), [network.input()]).unwrap();
    let pool = network.add("pool", LayerKind::MaxPool2d(Pool2d::new(2, 2)), [conv]).unwrap();
    let flat = network.add("flat", LayerKind::Flatten, [pool]).unwrap();
    let relu = network.add("relu", LayerKind::Relu, [flat]).unwrap();
    let fc = network.add("fc", Linear::new(7), [relu]).unwrap();
    let splits = NetworkSplits::new(&network);
    assert_eq!(splits.view(pool), TensorView { positions: 1, outer: 1, units: 5, inner: 4 });
    assert_eq!(splits.view(relu), splits.view(pool));
    let part = splits.part(fc, division(Split::Inputs, 2), 1).unwrap();
    assert_eq!(part.layer.input_shapes(), [Shape::features(8)]);
    assert_eq!(part.layer.kind(), &LayerKind::from(Linear::new(7).without_bias()));
    assert_eq!(part.parameters, [TensorBox { dims: vec![7, 5, 4], ranges: vec![0..7, 3..5, 0..4] }]);
}

#[test]
fn grouped_convolutions_are_split_between_groups() {
    let mut network = LayerGraph::new("groups", Shape::image(3, 4, 4)).unwrap();
    let first = network.add("first", Conv2d::new(12, 1), [network.input()]).unwrap();
    let relu = network.add("relu", LayerKind::Relu, [first]).unwrap();
    let grouped = network.add("grouped", Conv2d::new(8, 1).groups(4), [relu]).unwrap();
    let splits = NetworkSplits::new(&network);
    assert_eq!(splits.view(first), TensorView { positions: 1, outer: 1, units: 4, inner: 48 });
    assert_eq!(splits.view(grouped), TensorView { positions: 1, outer: 1, units: 4, inner: 32 });
    assert_eq!(splits.splits(grouped), [Split::Copies, Split::Features]);
    assert_eq!(splits.values(grouped, Split::Features).input, Values::Ranges);
    let part = splits.part(grouped, division(Split::Features, 3), 0).unwrap();
    assert_eq!(part.layer.kind(), &LayerKind::from(Conv2d::new(4, 1).groups(2)));
    assert_eq!(part.layer.input_shapes(), [Shape::image(6, 4, 4)]);
}

#[test]
fn tensors_with_conflicting_units_are_not_divided() {
    let mut network = LayerGraph::new("conflict", Shape::features(6)).unwrap();
    let tokens = network.add("tokens", Embedding::new(9, 12), [network.input()]).unwrap();
    let image = network.add("image", Permute { order: vec![1, 0] }, [tokens]).unwrap();
    assert_eq!(
        NetworkSplits::new(&network).view(image),
        TensorView { positions: 12, outer: 12, units: 6, inner: 1 }
    );
    let a = network.add("a", MultiHeadAttention::new(2, false), [tokens]).unwrap();
    let flat = network.add("flat", LayerKind::Flatten, [a]).unwrap();
    let dropout = network.add("dropout", Dropout::new(0.5), [tokens]).unwrap();
    let b = network.add("b", MultiHeadAttention::new(4, false), [dropout]).unwrap();
    let norm = network.add("norm", layer_graph::BatchNorm::default(), [b]).unwrap();
    let splits = NetworkSplits::new(&network);
    // Attentions of two and four heads share pairs of heads.
    assert_eq!(splits.view(tokens), TensorView { positions: 6, outer: 18, units: 2, inner: 2 });
    assert_eq!(splits.view(flat), TensorView { positions: 1, outer: 6, units: 2, inner: 2 });
    // The normalisation divides the tensor by positions.
    assert_eq!(splits.view(norm).units, 1);
    assert_eq!(splits.splits(norm), [Split::Copies]);
    assert_eq!(splits.splits(b), [Split::Copies]);
    let part = splits.part(dropout, division(Split::Features, 2), 1).unwrap();
    let numbers = TensorBox { dims: vec![18, 2, 2], ranges: vec![0..18, 1..2, 0..2] };
    assert_eq!(part.layer.random_box(), numbers);
}

#[test]
fn impossible_divisions_are_errors() {
    let network = zoo::model("digits-cnn").unwrap();
    let splits = NetworkSplits::new(&network);
    let error = |name: &str, split, parts, index| {
        let id = network.find(name).unwrap();
        splits.part(id, division(split, parts), index).unwrap_err().to_string()
    };
    assert_eq!(
        error("fc2", Split::Features, 11, 0),
        "layer `fc2` cannot be split by features into 11 parts, but into at most 10"
    );
    assert_eq!(
        error("concat", Split::Features, 2, 0),
        "layer `concat` cannot be split by features into 2 parts, but into at most 1"
    );
    assert_eq!(
        error("loss", Split::Copies, 2, 0),
        "layer `loss` cannot be split by copies into 2 parts, but into at most 1"
    );
    assert_eq!(error("fc1", Split::Inputs, 0, 0), "layer `fc1` cannot be split into 0 parts");
    assert_eq!(
        error("fc1", Split::Inputs, 2, 2),
        "layer `fc1` cannot be split into 2 parts with a part 2: parts count from 0"
    );
    assert!(splits.splits(network.input()).is_empty());
    let loss = network.find("loss").unwrap();
    assert_eq!(&splits.part(loss, Division::WHOLE, 0).unwrap().layer, network.layer(loss));
}

#[test]
fn splits_have_labels_in_text_and_json() {
    for split in Split::ALL {
        assert_eq!(split.label().parse::<Split>().unwrap(), split);
        assert_eq!(serde_json::to_string(&split).unwrap(), format!("\"{}\"", split.label()));
    }
    let features = division(Split::Features, 4);
    let json = serde_json::to_string(&features).unwrap();
    assert_eq!(json, r#"{"split":"features","parts":4}"#);
    assert_eq!(serde_json::from_str::<Division>(&json).unwrap(), features);
    let error = "feature".parse::<Split>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown split `feature`; known splits: copies, features, inputs, positions"
    );
    assert!(matches!(error, GraphError::UnknownSplit { .. }));
}
