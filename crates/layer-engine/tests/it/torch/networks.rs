//! Single-precision gradients of whole networks by both engines, compared with double-precision
//! ones of the CPU engine.

use layer_engine::{CpuEngine, Precision, TorchDevice, TorchEngine};
use layer_graph::{LayerGraph, zoo};

use crate::any_engine::network::gradients;

/// Returns a model of the zoo. Some have a smaller input in these tests: all layers, with a fifth
/// of the work of Inception-V3 and about a hundredth of that of GPT-2.
fn model(name: &str) -> LayerGraph {
    let model = zoo::model(name).unwrap();
    let input = match name {
        "inception-v3" => serde_json::json!([3, 139, 139]),
        "gpt2" => serde_json::json!([32]),
        _ => return model,
    };
    let mut document: serde_json::Value = serde_json::from_str(&model.to_json()).unwrap();
    document["input"] = input;
    LayerGraph::from_json(&document.to_string()).unwrap()
}

/// Returns the squared norm of the difference of two networks' gradients.
fn squared_distance(got: &[(String, Vec<f64>)], expected: &[(String, Vec<f64>)]) -> f64 {
    let layers = got.iter().zip(expected);
    let pairs = layers.flat_map(|((_, got), (_, expected))| got.iter().zip(expected));
    pairs.map(|(got, expected)| (got - expected).powi(2)).sum()
}

/// Returns the distances of the single-precision gradients of both engines from the
/// double-precision ones, relative to their norm.
fn distances(graph: &LayerGraph, seed: u64) -> [f64; 2] {
    let cpu = CpuEngine::<f64>::with_threads(2).unwrap();
    let exact = gradients(&cpu, Precision::F64, graph, seed);
    let norm: f64 = exact.iter().flat_map(|(_, layer)| layer).map(|value| value * value).sum();
    let cpu = CpuEngine::<f32>::with_threads(2).unwrap();
    let cpu_distance = squared_distance(&gradients(&cpu, Precision::F32, graph, seed), &exact);
    let torch = TorchEngine::<f32>::new(TorchDevice::Cpu).unwrap();
    let torch_distance = squared_distance(&gradients(&torch, Precision::F32, graph, seed), &exact);
    [cpu_distance, torch_distance].map(|squared| (squared / norm).sqrt())
}

/// Returns the network with smooth functions: GELU (tanh form) for ReLU, average for maximum
/// pooling.
fn smoothed(graph: &LayerGraph) -> LayerGraph {
    let document = graph.to_json();
    let document =
        document.replace(r#""relu""#, r#""gelu_tanh""#).replace(r#""max_pool2d""#, r#""avg_pool2d""#);
    LayerGraph::from_json(&document).unwrap()
}

/// Returns the CPU engine's distance divided by libtorch's.
fn ratio(graph: &LayerGraph, seed: u64) -> f64 {
    let [cpu_distance, torch_distance] = distances(graph, seed);
    println!(
        "{}, input {seed}: distance of the CPU engine {cpu_distance:.1e}, of libtorch {torch_distance:.1e}",
        graph.name()
    );
    assert!(
        torch_distance < 0.2,
        "{}: libtorch's gradients are {torch_distance:.1e} off: too far for rounding alone",
        graph.name()
    );
    cpu_distance / torch_distance
}

/// Checks that the CPU engine's gradients are at most twice as far from the double-precision ones
/// as libtorch's, by norm: for one input of the smoothed network, and in the median over several
/// inputs of the network.
///
/// If rounding moves a value across the kink of a rectifier in one engine only, a gradient changes
/// about a thousand times as much as by rounding alone, so single inputs vary widely. The median of
/// one, three, five, seven or nine inputs must be within the bound.
fn check(name: &str) {
    let graph = model(name);
    let smooth = smoothed(&graph);
    let without_kinks = ratio(&smooth, 100);
    assert!(without_kinks <= 2.0, "{name}, smoothed: {without_kinks:.2} times as far off as libtorch");
    if graph == smooth {
        return;
    }
    let mut ratios = Vec::new();
    for seed in 101..110 {
        ratios.push(ratio(&graph, seed));
        ratios.sort_unstable_by(f64::total_cmp);
        if ratios.len() % 2 == 1 && ratios[ratios.len() / 2] <= 2.0 {
            return;
        }
    }
    panic!("{name}: the CPU engine's gradients are {ratios:.2?} times as far off as libtorch's");
}

#[test]
fn network_gradients_are_as_accurate_as_libtorchs() {
    for name in ["digits-cnn", "resnet-18", "inception-v3"] {
        check(name);
    }
}

/// Networks that only repeat the blocks of smaller ones, or have more parameters than memory.
const DEEPER: [&str; 5] = ["resnet-101", "resnet-152", "bert-large", "gpt2-xl", "llama-3-8b"];

/// Checks the models of the zoo, but those that are [deeper](DEEPER). Takes minutes and 6 GB of
/// memory.
#[test]
#[ignore = "takes minutes: run with --include-ignored"]
fn gradients_of_the_zoo_are_as_accurate_as_libtorchs() {
    let is_run =
        |name: &&str| !DEEPER.contains(name) && zoo::model(name).unwrap().opaque_layers().next().is_none();
    for name in zoo::names().into_iter().filter(is_run) {
        check(name);
    }
}
