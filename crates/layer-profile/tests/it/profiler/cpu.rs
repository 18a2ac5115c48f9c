//! The profiler on the CPU engine.

use std::time::Duration;

use layer_engine::{CpuEngine, Engine, Precision};
use layer_graph::{
    BatchNorm, Conv2d, Division, Embedding, LayerGraph, LayerKind, LayerNorm, LayerPart, Linear,
    MultiHeadAttention, NetworkSplits, Shape, Split, zoo,
};
use layer_profile::{NumberFormat, Origin, ProfileError, ProfileTable, Profiler};

/// Returns the networks whose layers are measured.
fn networks() -> [LayerGraph; 3] {
    [awkward(), language_model(), zoo::model("digits-cnn").expect("in the zoo")]
}

/// Returns a network with a fork, an output that one layer reads twice, a join with the network's
/// input, and a batch normalisation at the input.
fn awkward() -> LayerGraph {
    let build = || {
        let mut net = LayerGraph::new("awkward", Shape::image(2, 6, 6))?;
        let input = net.input();
        let norm = net.add("norm", BatchNorm::default(), [input])?;
        let conv = net.add("conv", Conv2d::new(2, 3).padding(1), [norm])?;
        let relu = net.add("relu", LayerKind::Relu, [conv])?;
        let twice = net.add("twice", LayerKind::Add, [relu, relu])?;
        let join = net.add("join", LayerKind::Concat, [twice, conv, input])?;
        let norm = net.add("norm2", BatchNorm::default(), [join])?;
        let flat = net.add("flatten", LayerKind::Flatten, [norm])?;
        let fc = net.add("fc", Linear::new(3), [flat])?;
        net.add("loss", LayerKind::CROSS_ENTROPY, [fc])?;
        Ok::<_, layer_graph::GraphError>(net)
    };
    build().expect("a valid network")
}

/// Returns a language model with a label at each position and a tied embedding.
fn language_model() -> LayerGraph {
    let build = || {
        let mut net = LayerGraph::new("language", Shape::features(5))?;
        let tokens = net.add("tokens", Embedding::new(30, 6), [net.input()])?;
        let norm = net.add("norm", LayerNorm::default(), [tokens])?;
        let projection = net.add("projection", Linear::new(18), [norm])?;
        let attention = net.add("attention", MultiHeadAttention::new(2, true), [projection])?;
        let sum = net.add("sum", LayerKind::Add, [attention, tokens])?;
        let head = net.add_tied("head", Linear::new(30).without_bias(), [sum], tokens)?;
        net.add("loss", LayerKind::CROSS_ENTROPY, [head])?;
        Ok::<_, layer_graph::GraphError>(net)
    };
    build().expect("a valid network")
}

/// Returns the parts of all layers of a network in two parts, by all splits.
fn halves(network: &LayerGraph) -> Vec<LayerPart> {
    let splits = NetworkSplits::new(network);
    let mut parts = Vec::new();
    for (id, _) in network.layers() {
        let is_possible = |split: &Split| splits.max_parts(id, *split) >= 2;
        for split in splits.splits(id).into_iter().filter(is_possible) {
            let part = |index| splits.part(id, Division { split, parts: 2 }, index).expect("a part");
            parts.extend([0, 1].map(part));
        }
    }
    parts
}

#[test]
fn parts_of_split_layers_are_measured() {
    let engine = CpuEngine::<f32>::new();
    for network in networks() {
        let parts = halves(&network);
        assert!(parts.len() > 4, "{}", network.name());
        let profiler = Profiler::new(&engine).batches([1, 3]).repeats(3);
        let table = profiler.parts(parts.iter().map(|part| part.layer.clone())).profile(&network);
        let table = table.expect("measured").for_model(&network).expect("of this network");
        for LayerPart { layer, .. } in &parts {
            let row = table.part(layer).expect("measured");
            let id = network.find(layer.name()).expect("a layer");
            let is_owner = network.parameter_owner(id) == id;
            assert_eq!(row.update.is_some(), is_owner && layer.parameter_count() > 0, "{}", layer.name());
            assert_eq!(row.times.len(), 2, "{}", layer.name());
            assert!(row.times.iter().all(|row| row.forward > Duration::ZERO), "{}", layer.name());
        }
        // A layer that stays whole is not among them.
        assert_eq!(table.part(network.layer(network.find("loss").expect("a layer"))), None);
        assert_eq!(ProfileTable::from_json(&table.to_json()).expect("its own JSON"), table);
        let twice = table.scaled(2.0).expect("scaled");
        let forward = |table: &ProfileTable| table.parts().map(|row| row.times[0].forward).sum::<Duration>();
        assert_eq!(forward(&twice), 2 * forward(&table));
    }
    let another = halves(&language_model()).into_iter().map(|part| part.layer);
    let error = Profiler::new(&engine).parts(another).profile(&awkward()).expect_err("another network");
    assert!(error.to_string().contains("`awkward` has no layer `tokens`"), "{error}");
}

#[test]
fn every_layer_is_measured() {
    let engine = CpuEngine::<f32>::new();
    let in_precision = |precision| networks().map(|network| (network, precision));
    for (network, precision) in [Precision::F32, Precision::Bf16].into_iter().flat_map(in_precision) {
        let profiler = Profiler::new(&engine).precision(precision).batches([1, 3]).repeats(3).progress(true);
        let table =
            profiler.profile(&network).expect("measured").for_model(&network).expect("of this network");
        assert_eq!(table.origin(), Origin::Measured);
        assert_eq!(table.device(), engine.describe().name);
        let format = if precision == Precision::Bf16 { NumberFormat::Half } else { NumberFormat::Fp32 };
        assert_eq!(table.number_format(), Some(format));
        assert_eq!(table.layers().len(), network.len() - 1);
        for layer in table.layers() {
            let id = network.find(&layer.name).expect("a layer");
            assert_eq!(layer.update.is_some(), network.own_parameter_count(id) > 0, "{}", layer.name);
            for row in &layer.times {
                assert!(row.forward > Duration::ZERO && row.spread.is_some(), "{}", layer.name);
                assert!(row.backward > Duration::ZERO, "{}", layer.name);
            }
        }
        let whole = table.network_time(2).expect("between the rows");
        assert!(
            whole.forward > Duration::ZERO
                && whole.backward > Duration::ZERO
                && whole.update > Duration::ZERO
        );
        assert_eq!(ProfileTable::from_json(&table.to_json()).expect("its own JSON"), table);
    }
}

#[test]
fn larger_batches_take_longer() {
    // Sixteen times the arithmetic, so that noise cannot reverse the order.
    let engine = CpuEngine::<f64>::new();
    let profiler = Profiler::new(&engine).precision(Precision::F64).batches([1, 16]).repeats(3);
    let network = zoo::model("digits-cnn").expect("in the zoo");
    let table = profiler.profile(&network).expect("measured");
    let time = |samples| table.time("conv2_3x3", samples).expect("a row");
    assert!(time(1).forward < time(16).forward && time(1).backward < time(16).backward);
    assert!(table.network_time(1).expect("a row").forward < table.network_time(16).expect("a row").forward);
}

#[test]
fn engine_errors_name_the_measurement() {
    let engine = CpuEngine::<f32>::new();
    let refused = Profiler::new(&engine).precision(Precision::F64).profile(&awkward());
    let message = refused.expect_err("the engine computes in single precision").to_string();
    assert!(message.starts_with("measuring layer `norm` at batch 1: "), "{message}");
    let refused = Profiler::new(&engine).batches([4, 2]).profile(&awkward());
    assert!(matches!(refused, Err(ProfileError::Batches(batches)) if batches == [4, 2]));
}
