//! Layer times published with DeepPool, as observations of this workspace's networks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use layer_graph::{Layer, LayerGraph, zoo};
use layer_profile::{Direction, Observations};
use serde_json::Value;

/// Name of the network, file of its published times, and the profile in that file.
const NETWORKS: [(&str, &str, &str); 3] = [
    ("vgg16", "vgg16.json", "profile/A100_vgg.prof"),
    ("wrn-101-2", "wrn101_2.json", "profile/A100_wrn.prof"),
    ("inception-v3", "inception_v3.json", "profile/A100_inception.prof"),
];

/// Returns the folder of the data, beside a checkout that has it.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/a100-profiles")
}

/// Returns all rows of the three networks, read as described in the documentation of `DeviceModel`.
pub(crate) fn observations(folder: &Path) -> Observations {
    let mut observations = Observations::new(
        "rows published with DeepPool, inception-v3's normalisations and activations extrapolated",
    );
    for (model, file, profile) in NETWORKS {
        let network = zoo::model(model).expect("in the zoo");
        let text = std::fs::read_to_string(folder.join(file)).expect("a readable file");
        let document: Value = serde_json::from_str(&text).expect("JSON");
        let mut batches = BTreeMap::<usize, Vec<&Value>>::new();
        for record in document["records"].as_array().expect("records") {
            if record["source_file"] == profile {
                batches.entry(number(record, "batch") as usize).or_default().push(record);
            }
        }
        for (batch, records) in batches {
            add(&mut observations, &network, batch, &records);
        }
    }
    observations
}

fn add(observations: &mut Observations, network: &LayerGraph, batch: usize, records: &[&Value]) {
    let mut layers = network.layers().map(|(_, layer)| layer).peekable();
    let mut records = records.iter().peekable();
    while let Some(record) = records.next() {
        let mut covered = Vec::new();
        let first = layers.find(|layer| is(layer, record)).expect("a layer for each row, in order");
        covered.push(first);
        assert_eq!(input_shape(record), first.input_shapes()[0].dims(), "{}", first.name());
        if kind(record) == "ResnetBottleneck" {
            let block = first.name().trim_end_matches("conv1");
            while layers.peek().is_some_and(|layer| layer.name().starts_with(block)) {
                covered.extend(layers.next());
            }
        }
        let row = first.name();
        let forward: Vec<_> = covered.iter().map(|&layer| (layer, Direction::Forward)).collect();
        observations.add(network.name(), row, batch, &forward, microseconds(record, "forward_us"));

        let mut backward = microseconds(record, "backward_us");
        if let Some(relu) = records.next_if(|next| kind(next).starts_with("ReLU")) {
            let layer = layers.find(|layer| is(layer, relu)).expect("a ReLU");
            let forward = microseconds(relu, "forward_us");
            observations.add(network.name(), row, batch, &[(layer, Direction::Forward)], forward);
            backward += microseconds(relu, "backward_us");
            covered.push(layer);
        } else if kind(record) == "linear" {
            // The backward pass of the last layer was charged to a loss that was not published.
            continue;
        }
        let work: Vec<_> = covered.iter().map(|&layer| (layer, Direction::Backward)).collect();
        observations.add(network.name(), row, batch, &work, backward);
    }
}

fn is(layer: &Layer, record: &Value) -> bool {
    let label = match kind(record) {
        "conv2d" => "conv2d",
        "ReLU1d" | "ReLU2d" => "relu",
        "maxPool2d" => "max_pool2d",
        "avgPool2d" => "avg_pool2d",
        "adAvgPool2d" => "adaptive_avg_pool2d",
        "flatten" => "flatten",
        "linear" => "linear",
        "ResnetBottleneck" => {
            return layer.name().strip_suffix("conv1").is_some_and(|block| block.ends_with('.'));
        }
        other => panic!("unknown kind `{other}`"),
    };
    layer.kind().label() == label
}

fn input_shape(record: &Value) -> Vec<usize> {
    record["input_dim"]
        .as_array()
        .expect("a shape")
        .iter()
        .map(|dim| dim.as_u64().expect("a size") as usize)
        .collect()
}

fn kind(record: &Value) -> &str {
    record["layer_kind"].as_str().expect("a kind")
}

fn number(record: &Value, name: &str) -> f64 {
    record[name].as_f64().expect("a number")
}

fn microseconds(record: &Value, name: &str) -> Duration {
    Duration::from_secs_f64(number(record, name) / 1e6)
}
