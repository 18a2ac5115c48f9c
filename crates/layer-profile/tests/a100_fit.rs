//! The `a100` model against the whole-network times that were published with DeepPool, read where they are present.

use std::collections::BTreeMap;
use std::path::Path;

use layer_graph::zoo;
use layer_profile::DeviceModel;

/// Our model's name, its published file, the rows to read, and the error that the documentation states.
const PUBLISHED: [(&str, &str, &str, f64); 3] = [
    ("vgg16", "vgg16.json", "profile/A100_vgg.prof", 0.04),
    ("wrn-101-2", "wrn101_2.json", "profile/A100_wrn.prof", 0.17),
    ("inception-v3", "inception_v3.json", "profile/A100_inception.prof", 0.12),
];

/// Milliseconds of forward and backward by batch size: the sum over all rows of the file.
fn published_ms(path: &Path, source: &str) -> BTreeMap<usize, f64> {
    let text = std::fs::read_to_string(path).expect("the file is readable");
    let document: serde_json::Value = serde_json::from_str(&text).expect("the file is JSON");
    let mut sums = BTreeMap::new();
    for record in document["records"].as_array().expect("records") {
        if record["source_file"] == source {
            let batch = record["batch"].as_u64().expect("a batch size") as usize;
            *sums.entry(batch).or_default() += record["total_us"].as_f64().expect("a time") / 1e3;
        }
    }
    sums
}

#[test]
fn whole_networks_are_as_close_as_the_documentation_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/a100-profiles");
    if !folder.is_dir() {
        println!("SKIPPED: the published A100 profiles are not at {}", folder.display());
        return;
    }
    let device = DeviceModel::named("a100").expect("built in");
    for (model, file, source, bound) in PUBLISHED {
        let network = zoo::model(model).expect("in the zoo");
        let published = published_ms(&folder.join(file), source);
        assert!(published.len() >= 7, "{file} has too few rows of {source}");
        let batches: Vec<usize> = published.keys().copied().collect();
        let table = device.profile(&network, &batches).expect("a profile");
        for (batch, expected) in published {
            let time = table.network_time(batch).expect("a row");
            let error = (time.forward + time.backward).as_secs_f64() * 1e3 / expected - 1.0;
            println!(
                "{model:>12} batch {batch:>2}: published {expected:>6.2} ms, error {:>+5.1}%",
                100.0 * error
            );
            // Rounded to whole per cents, as the documentation is.
            assert!(error.abs() < bound + 0.005, "{model} at batch {batch} is off by {:.1}%", 100.0 * error);
        }
    }
}
