//! Import of layer times in the original's format: small files, and the published ones if they are
//! present.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use layer_graph::{Conv2d, Dropout, LayerGraph, LayerKind, Linear, Pool2d, Shape, zoo};
use layer_profile::{
    DeviceModel, ImportedProfile, Observations, Origin, ProfileError, ProfileTable, PublishedProfile,
};
use serde_json::Value;

fn network() -> LayerGraph {
    let mut net = LayerGraph::new("small", Shape::image(3, 8, 8)).expect("a network");
    let mut x = net.input();
    let mut add = |name: &str, kind: LayerKind| {
        x = net.add(name, kind, [x]).expect("it fits");
    };
    add("conv", Conv2d::new(4, 3).padding(1).into());
    add("relu1", LayerKind::Relu);
    add("dropout", Dropout::new(0.5).into());
    add("pool", LayerKind::MaxPool2d(Pool2d::new(2, 2)));
    add("flatten", LayerKind::Flatten);
    add("fc1", Linear::new(16).into());
    add("relu2", LayerKind::Relu);
    add("fc2", Linear::new(10).into());
    add("loss", LayerKind::CROSS_ENTROPY);
    net
}

/// Two batch sizes, the larger one first. Times of batch 2 are chosen to identify their row.
const FILE: &str = r#"
   conv2d{"in_channels":3,"kernel_size":3,"out_channels":4,"padding":1,"stride":1}[4][3,8,8]   0.020   20   1
   ReLU2d{"inplace":true,"kernel_size":1,"padding":0,"stride":1}[4][4,8,8]                     0.075   6    69
   maxPool2d{"kernel_size":2,"padding":0,"stride":2}[4][4,8,8]                                 0.012   4    8
   flatten{"kernel_size":1}[4][4,4,4]                                                          0.010   5    5
   linear{"bias":true,"in_features":64,"out_features":16}[4]64                                 0.011   11   1
   ReLU1d{"inplace":true,"kernel_size":1,"padding":0,"stride":1}[4]16                          0.024   4    19
   linear{"bias":true,"in_features":16,"out_features":10}[4]16                                 0.013   13   0
                                                                                    SUM(avg)   0.165
   conv2d{"in_channels":3,"kernel_size":[3,3],"out_channels":4,"padding":1,"stride":1}[2][3,8,8] 0.001 1    10
   ReLU2d{"inplace":true,"kernel_size":1,"padding":0,"stride":1}[2][4,8,8]                     0.002   2    20
   maxPool2d{"kernel_size":2,"padding":0,"stride":2}[2][4,8,8]                                 0.003   3    30
   flatten{"kernel_size":1}[2][4,4,4]                                                          0.004   4    40
   linear{"bias":true,"in_features":64,"out_features":16}[2]64                                 0.005   5    50
   ReLU1d{"inplace":true,"kernel_size":1,"padding":0,"stride":1}[2]16                          0.006   6    60
   linear{"bias":true,"in_features":16,"out_features":10}[2]16                                 0.007   7    70
sum:   0.308
"#;

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn a100() -> DeviceModel {
    DeviceModel::named("a100").expect("built in")
}

fn import(text: &str, network: &LayerGraph) -> Result<ImportedProfile, ProfileError> {
    PublishedProfile::from_text(text)?.for_network(network, &a100())
}

#[test]
fn rows_are_assigned_to_their_layers() {
    let network = network();
    let imported = import(FILE, &network).expect("it fits");
    let table = &imported.table;
    assert_eq!((table.model(), table.device(), table.origin()), ("small", "a100", Origin::Imported));
    let time = |layer: &str, batch| table.time(layer, batch).expect("a row");
    assert_eq!(time("conv", 4).forward, us(20));
    assert_eq!(time("relu1", 4).forward, us(6));
    assert_eq!((time("pool", 4).forward, time("pool", 4).backward), (us(4), us(8)));
    assert_eq!((time("flatten", 2).forward, time("flatten", 2).backward), (us(4), us(40)));
    assert_eq!(time("fc2", 4).forward, us(13));

    // Convolution and ReLU divide the sum of their backward times in the proportions of the model.
    let [conv, relu] = ["conv", "relu1"].map(|layer| time(layer, 4).backward);
    assert_eq!(conv + relu, us(70));
    let model = ["conv", "relu1"].map(|name| {
        let layer = network.layer(network.find(name).expect("a layer"));
        a100().layer_time(layer, 4).backward.as_secs_f64()
    });
    let ratio = conv.as_secs_f64() / relu.as_secs_f64();
    assert!((ratio / (model[0] / model[1]) - 1.0).abs() < 1e-3, "{ratio}");
    assert_eq!(time("fc1", 2).backward + time("relu2", 2).backward, us(110));
}

#[test]
fn missing_times_are_modelled_and_listed() {
    let network = network();
    let imported = import(FILE, &network).expect("it fits");
    assert_eq!(imported.modelled, ["dropout", "loss"]);
    assert_eq!(imported.modelled_backward, ["fc2"]);
    let model = a100().profile(&network, &[2, 4]).expect("a profile");
    for layer in ["dropout", "loss"] {
        assert_eq!(imported.table.time(layer, 4).expect("a row"), model.time(layer, 4).expect("a row"));
    }
    let last = |table: &ProfileTable| table.time("fc2", 4).expect("a row");
    assert_eq!(last(&imported.table).backward, last(&model).backward);
    assert_eq!(last(&imported.table).update, last(&model).update);

    let whole = imported.table.network_time(4).expect("a row");
    assert_eq!(whole, imported.table.sum_of_layers(4).expect("rows"));
    let filled: Duration = ["dropout", "loss"]
        .map(|layer| model.time(layer, 2).expect("a row"))
        .iter()
        .map(|time| time.forward + time.backward)
        .sum::<Duration>()
        + model.time("fc2", 2).expect("a row").backward;
    let whole = imported.table.network_time(2).expect("a row");
    let share = filled.as_secs_f64() / (whole.forward + whole.backward).as_secs_f64();
    assert!(imported.modelled_share >= share - 1e-9 && imported.modelled_share < 1.0);
    let accuracy = imported.table.accuracy().expect("part of it is modelled").to_string();
    assert!(accuracy.contains("not in the published file"), "{accuracy}");
}

#[test]
fn imported_table_is_valid_but_not_an_observation() {
    let network = network();
    let table = import(FILE, &network).expect("it fits").table;
    assert_eq!(table.clone().for_model(&network).expect("of this network"), table);
    assert_eq!(ProfileTable::from_json(&table.to_json()).expect("a document"), table);
    // A model cannot be fitted to it, since it is partly modelled.
    let error = Observations::new("imported").add_table(&network, &table).expect_err("an error");
    assert!(matches!(error, ProfileError::NotMeasured { .. }), "{error}");
}

#[test]
fn mismatch_error_names_the_first_row() {
    let network = network();
    let error = |text: &str| import(text, &network).expect_err("an error").to_string();
    let channels = FILE.replace("\"out_channels\":4", "\"out_channels\":8");
    // Batch sizes are processed in ascending order, so batch 2 comes first.
    let message = error(&channels);
    assert!(message.starts_with("line 10: expected a row for layer `conv` of `small` (conv2d("), "{message}");
    assert!(message.contains("found `conv2d{") && !message.contains('\n'), "{message}");
    let shape = FILE.replace("[2][4,4,4]", "[2][4,4,5]");
    assert!(error(&shape).starts_with("line 13: expected a row for layer `flatten`"));

    let without = |line: usize| {
        let kept = FILE.lines().enumerate().filter(|&(i, _)| i + 1 != line);
        kept.map(|(_, text)| text).collect::<Vec<_>>().join("\n")
    };
    assert!(error(&without(11)).starts_with("line 11: expected a row for layer `relu1`"));
    let message = error(&without(16));
    assert!(message.contains("the rows of batch 2 end here: there is none for layer `fc2`"), "{message}");
    let more = FILE.replace("sum:", "flatten{}[2]10 0.1 1 1\nsum:");
    assert!(error(&more).contains("comes after all layers of `small`"));
    let published = error("flatten{}[2][3,8,8] 0.1 1 1");
    assert!(published.contains("expected a row for layer `flatten`"), "{published}");
}

#[test]
fn malformed_line_errors_name_the_line() {
    let error = |text: &str| PublishedProfile::from_text(text).expect_err("an error").to_string();
    assert_eq!(error("\nsum: 3.0\n"), "line 1: there are no rows");
    assert!(error("sum: 3\nconv2d 1 2 3").starts_with("line 2: expected a layer such as"));
    for broken in
        ["relu{}[0]8 1 2 3", "relu{}[x]8 1 2 3", "relu{[2]8 1 2 3", "relu{}8 1 2 3", "relu{}[2]8,a 1 2 3"]
    {
        assert!(error(broken).contains("expected a layer such as"), "{broken}");
    }
    assert!(error("relu{}[2]8 1 -2 3").contains("from 0 to 1e12 (11 days), found `-2`"));
    assert!(error("relu{}[2]8 1 NaN 3").contains("found `NaN`"));
    let percentiles = error("flatten{\"kernel_size\":1}[128][512,7,7]  0.074  0.068  0.091  0.143");
    assert!(percentiles.contains("files of percentiles"), "{percentiles}");
    let twice = error("relu{}[2]8 1 2 3\nrelu{}[1]8 1 2 3\nrelu{}[2]8 1 2 3");
    assert_eq!(twice, "line 3: batch 2 is there twice, first from line 1 on");
}

/// Returns the rows of a network in the original text format, and the sums of their times in
/// microseconds.
fn published(path: &Path, source: &str) -> (String, BTreeMap<usize, f64>) {
    let text = std::fs::read_to_string(path).expect("a readable file");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let mut lines = String::new();
    let mut sums = BTreeMap::new();
    let mut batch_before = 0;
    for record in document["records"].as_array().expect("records") {
        if record["source_file"] != source {
            continue;
        }
        let batch = record["batch"].as_u64().expect("a batch") as usize;
        if batch_before != batch {
            lines.push_str("SUM(avg)  0.0\n");
            batch_before = batch;
        }
        let input = match record["input_dim"].as_array().expect("a shape").as_slice() {
            [one] => one.to_string(),
            _ => record["input_dim"].to_string(),
        };
        let number = |name: &str| record[name].as_f64().expect("a number");
        let (forward, backward) = (number("forward_us"), number("backward_us"));
        let kind = record["layer_kind"].as_str().expect("a kind");
        let total = number("total_us") / 1e3;
        writeln!(lines, "{kind}{}[{batch}]{input}  {total}  {forward}  {backward}", record["params"])
            .expect("a string");
        *sums.entry(batch).or_default() += forward + backward;
    }
    (lines, sums)
}

#[test]
fn published_files_match_only_their_networks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/a100-profiles");
    if !folder.is_dir() {
        return println!("SKIPPED: the published A100 profiles are not at {}", folder.display());
    }
    let files = [
        ("vgg16", "vgg16.json", "profile/A100_vgg.prof"),
        ("wrn-101-2", "wrn101_2.json", "profile/A100_wrn.prof"),
        ("inception-v3", "inception_v3.json", "profile/A100_inception.prof"),
    ];
    for (model, file, source) in files {
        let (text, sums) = published(&folder.join(file), source);
        let network = zoo::model(model).expect("in the zoo");
        let imported = import(&text, &network).expect(model);
        let modelled = imported.modelled.len() + imported.modelled_backward.len();
        println!("{model}: {modelled} layers modelled, {:.1}% of the time", 100.0 * imported.modelled_share);
        assert_eq!(imported.table.network().len(), sums.len());
        for (batch, published_us) in sums {
            // The table holds all published times; the rest is modelled. The last linear layer is
            // an exception: its published backward time of 0 to 3 us is replaced.
            let time = imported.table.network_time(batch).expect("a row");
            let passes_us = (time.forward + time.backward).as_secs_f64() * 1e6;
            let share = 1.0 - published_us / passes_us;
            assert!(share <= imported.modelled_share + 1e-4 && share > 0.0, "{model} at {batch}: {share}");
        }
        for other in ["vgg11", "vgg16", "resnet-50", "wrn-101-2", "inception-v3"] {
            if other != model {
                let error = import(&text, &zoo::model(other).expect("in the zoo")).expect_err(other);
                assert!(matches!(error, ProfileError::Published { .. }), "{model} on {other}: {error}");
            }
        }
    }
}
