//! Plans with layers that are split.

use std::ops::Range;

use layer_graph::{Division, LayerGraph, LayerKind, NetworkSplits, Split, zoo};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::{measure, refused, succeed};

const PLAN: &str = "plan --model vgg16 --device a100 --gpus 8 --batch 32";

#[test]
fn plans_name_the_split_of_each_run() {
    let folder = TempDir::new().unwrap();
    let text = succeed(folder.path(), &format!("{PLAN} --splits features,inputs --explain --dot plan.dot"));
    let (path, explained) = text.split_once("\nWhat layers on the same ranks").unwrap();
    let column = path.lines().find(|line| line.trim_start().starts_with("layers")).unwrap();
    assert!(column.contains("ranks") && column.contains(" split "), "{column}");
    let row = |text: &str, first: &str| {
        text.lines().find(|line| line.trim_start().starts_with(first)).unwrap_or_default().to_owned()
    };
    assert!(row(path, "classifier.0").contains(" 8 by features "), "{path}");
    assert!(row(explained, "classifier.0").contains("(8 by features)"), "{explained}");
    // The linear layers end a run: the convolutions have the same ranks and no split.
    assert!(row(path, "features.0").contains(" .. flatten"), "{path}");
    assert!(!row(path, "features.0").contains(" by "), "{path}");
    let dot = std::fs::read_to_string(folder.path().join("plan.dot")).unwrap();
    assert!(dot.contains(r#"n33 [label="classifier.0\n8 GPUs, ranks 0 to 7\nsplit 8 by features""#), "{dot}");
    assert!(dot.contains("n32 -> n33 [style=bold];") && dot.contains("n33 -> n34;"), "{dot}");
}

/// The embedding and the head share parameters, and move together.
#[test]
fn plans_of_more_gpus_than_samples_are_explained() {
    let folder = TempDir::new().unwrap();
    let plan = "plan --model gpt2 --blocks 1 --device a100 --gpus 16 --batch 4 --amplification 100";
    let text = succeed(folder.path(), &format!("{plan} --splits all --explain"));
    let (path, explained) = text.split_once("\nWhat layers on the same ranks").unwrap();
    assert!(path.contains(" 4 by positions "), "{path}");
    let row = explained.lines().find(|line| line.trim_start().starts_with("tokens ..")).unwrap();
    assert!(row.contains("(4 by ") && row.contains(" ms"), "{explained}");
}

#[test]
fn explanations_as_json_have_the_division() {
    let folder = TempDir::new().unwrap();
    let plan = crate::command::json(folder.path(), &format!("{PLAN} --splits features --explain --json"));
    let runs = plan["explanations"].as_array().unwrap();
    let split = runs.iter().find(|run| run["first"] == "classifier.0").unwrap();
    assert_eq!(split["division"], json!({"split": "features", "parts": 8}));
    assert!(runs.iter().any(|run| run.get("division").is_none()));
}

#[test]
fn plans_without_splits_have_no_column_for_them() {
    let folder = TempDir::new().unwrap();
    let text = succeed(folder.path(), &format!("{PLAN} --explain --dot plan.dot"));
    assert!(!text.contains("split"), "{text}");
    assert!(!std::fs::read_to_string(folder.path().join("plan.dot")).unwrap().contains("split"));
}

/// A profile for a plan has the times of the plan's parts, and the simulation takes them.
#[test]
fn parts_are_measured_for_a_plan() {
    let folder = TempDir::new().unwrap();
    let run = |arguments: &str| succeed(folder.path(), arguments);
    let read = |name: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(folder.path().join(name)).unwrap()).unwrap()
    };
    run("plan --model digits-cnn --device cpu-core --gpus 2 --batch 8 --amplification 100 -o plan.json");
    let mut plan = read("plan.json");
    for layer in plan["layers"].as_array_mut().unwrap() {
        (layer["ranks"], layer["gpus"]) = (json!([0, 1]), json!(2));
        if layer["name"] == "fc1" {
            layer["division"] = json!({"split": "features", "parts": 2});
        }
    }
    std::fs::write(folder.path().join("plan.json"), plan.to_string()).unwrap();
    let profile = "profile --model digits-cnn --engine cpu --for-plan plan.json -o profile.json";
    let shown = measure(folder.path(), profile);
    assert!(shown.contains("\nEach part of a split layer alone\n") && shown.contains("fc1, "), "{shown}");
    let mut profile = read("profile.json");
    let parts = profile["parts"].as_array().unwrap();
    let batches: Vec<_> =
        parts[0]["times"].as_array().unwrap().iter().map(|row| row["batch"].clone()).collect();
    assert_eq!((parts.len(), batches), (1, vec![json!(4), json!(8)]), "the plan needs no others");
    // Without the times of the whole network, a disturbed measurement is taken, too.
    profile["network"] = json!([]);
    std::fs::write(folder.path().join("profile.json"), profile.to_string()).unwrap();
    let simulate = "simulate --model digits-cnn --plan plan.json --profile";
    assert!(!run(&format!("{simulate} profile.json")).contains("modelled from whole layers"));
    let iteration = |name: &str| -> f64 {
        let report = crate::command::json(folder.path(), &format!("{simulate} {name} --json"));
        report["iteration_us"].as_f64().unwrap()
    };
    profile["parts"][0]["times"][1]["forward_us"] = json!(1e6);
    std::fs::write(folder.path().join("slow.json"), profile.to_string()).unwrap();
    assert!(iteration("profile.json") < 5e5 && iteration("slow.json") > 1e6);
    profile.as_object_mut().unwrap().remove("parts");
    std::fs::write(folder.path().join("whole.json"), profile.to_string()).unwrap();
    let text = run(&format!("{simulate} whole.json"));
    assert!(text.contains("parts of 1 of 1 split layers: modelled from whole layers"), "{text}");
    run("plan --model vgg16 --device a100 --gpus 2 --batch 8 -o other.json");
    let of_another = "profile --model digits-cnn --engine cpu --for-plan other.json -o never.json";
    assert!(refused(folder.path(), of_another, "other.json").contains("features.0"));
}

/// Returns the split of a layer of GPT-2 that has even parts on two ranks. Layers that share
/// parameters are split by positions.
fn split_of(network: &LayerGraph, splits: &NetworkSplits<'_>, name: &str) -> Option<Split> {
    let id = network.find(name)?;
    if network.parameter_users(network.parameter_owner(id)).len() > 1 {
        return Some(Split::Positions);
    }
    let is_even = |split: &Split| splits.max_parts(id, *split) > 1 && splits.max_parts(id, *split) % 2 == 0;
    // The linear layer after the attention reads features of heads. Norms have no split by
    // features.
    let ways = if name.ends_with("out_proj") {
        [Split::Inputs, Split::Features]
    } else if matches!(network.layer(id).kind(), LayerKind::PositionEmbedding(_)) {
        [Split::Positions; 2]
    } else {
        [Split::Features, Split::Positions]
    };
    ways.into_iter().find(is_even)
}

/// Returns the positions of the elements of a tensor that a placement gives to the part `index` of
/// two, as `torch.distributed.tensor` defines it.
fn elements(placement: &str, shape: &[usize], index: usize) -> Vec<usize> {
    let all = 0..shape.iter().product();
    let Some((_, arguments)) = placement.split_once("Shard(") else { return all.collect() };
    let (dim, factor) = arguments.trim_end_matches(')').split_once(", split_factor=").unwrap_or_else(|| {
        (arguments.trim_end_matches(')'), "1") // A dimension of one block.
    });
    let (dim, blocks): (usize, usize) = (dim.parse().unwrap(), factor.parse().unwrap());
    let inner: usize = shape[dim + 1..].iter().product();
    let chunk = shape[dim] / (2 * blocks);
    all.filter(|position| position / inner % shape[dim] / chunk % 2 == index).collect()
}

#[test]
fn dtensor_placements_have_the_elements_of_parts() {
    let folder = TempDir::new().unwrap();
    let plan =
        "plan --model gpt2 --blocks 1 --device a100 --gpus 4 --batch 4 --amplification 100 -o plan.json";
    succeed(folder.path(), plan);
    let path = folder.path().join("plan.json");
    let mut plan: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let network = zoo::gpt2_of_blocks(1).unwrap();
    let splits = NetworkSplits::new(&network);
    for layer in plan["layers"].as_array_mut().unwrap() {
        let split = split_of(&network, &splits, layer["name"].as_str().unwrap());
        (layer["ranks"], layer["gpus"]) = (json!([0, 1, 2, 3]), json!(4));
        if let Some(split) = split {
            layer["division"] = json!({"split": split.label(), "parts": 2});
        }
    }
    std::fs::write(&path, plan.to_string()).unwrap();
    succeed(folder.path(), "lower --model gpt2 --blocks 1 --plan plan.json --dtensor -o placements.json");
    let placements = std::fs::read_to_string(folder.path().join("placements.json")).unwrap();
    assert!(placements.contains("_StridedShard(0, split_factor=3)"), "{placements}");
    assert!(placements.contains("\"positions\""), "{placements}");
    let placements: Value = serde_json::from_str(&placements).unwrap();
    let mut compared = 0;
    for layer in placements["layers"].as_array().unwrap() {
        let name = layer["name"].as_str().unwrap();
        let (id, split) = (network.find(name).unwrap(), split_of(&network, &splits, name));
        let Some(split) = split else {
            assert_eq!(layer["mesh"]["shape"], json!([4]), "{name}");
            continue;
        };
        assert_eq!(layer["mesh"]["shape"], json!([2, 2]), "{name}");
        assert_eq!(layer["mesh"]["dim_names"], json!(["samples", split.label()]), "{name}");
        for index in 0..2 {
            let part = splits.part(id, Division { split, parts: 2 }, index).unwrap();
            for (of_part, parameter) in part.parameters.iter().zip(layer["parameters"].as_array().unwrap()) {
                let shape: Vec<usize> = serde_json::from_value(parameter["shape"].clone()).unwrap();
                let placement = parameter["placements"][1].as_str().unwrap();
                let of_part: Vec<usize> = of_part.runs().into_iter().flat_map(Range::into_iter).collect();
                assert_eq!(elements(placement, &shape, index), of_part, "{name}: {parameter}");
                compared += 1;
            }
        }
    }
    assert!(compared > 8, "{compared}");
}
