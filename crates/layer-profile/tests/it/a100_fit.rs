//! The `a100` model compared with the layer times published with DeepPool, if they are present.

use layer_graph::zoo;
use layer_profile::{DataSheet, DeviceModel, NetworkErrors, Observations};

use crate::published;

fn observations() -> Option<Observations> {
    let folder = published::folder();
    if folder.is_dir() {
        return Some(published::observations(&folder));
    }
    println!("SKIPPED: the published A100 profiles are not at {}", folder.display());
    None
}

fn show(label: &str, networks: &[NetworkErrors]) {
    for errors in networks {
        let median = 100.0 * errors.median();
        println!("{} {label}: {} rows, {median:.1}% median", errors.network, errors.rows.len());
        for (batch, error) in &errors.whole {
            println!("    batch {batch:>2}: {:+.1}%", 100.0 * error);
        }
    }
}

#[test]
fn model_matches_every_published_batch() {
    let Some(observations) = observations() else { return };
    let errors = DeviceModel::named("a100").expect("built in").errors(&observations);
    show("fitted", &errors);
    let batches: Vec<_> = errors.iter().map(|network| network.whole.len()).collect();
    assert_eq!(batches, [9, 8, 23], "batches of VGG-16, WRN-101-2 and Inception-V3");
    for network in &errors {
        assert!(network.max_error() < 0.07, "{} is off by {:.3}", network.network, network.max_error());
        assert!(network.median() < 0.065, "{}: {:.3} median", network.network, network.median());
    }
}

#[test]
fn cross_validation_is_accurate_and_the_fit_reproduces_the_built_in_model() {
    let Some(observations) = observations() else { return };
    let (model, report) = DeviceModel::fit("a100", Some(&DataSheet::A100), &observations).expect("a fit");
    show("left out", &report.held_out);
    for network in &report.held_out {
        // Observed: 8% for VGG-16, 5% for WRN-101-2 and 7% for Inception-V3; medians of layers 7%,
        // 8% and 10%.
        assert!(network.max_error() < 0.085, "{} is off by {:.3}", network.network, network.max_error());
        assert!(network.median() < 0.11, "{}: {:.3} median", network.network, network.median());
    }
    let built_in = DeviceModel::named("a100").expect("built in");
    let (stated, seen) = (built_in.accuracy().errors.expect("checked"), report.summary());
    assert!((stated.layers_median - seen.layers_median).abs() < 1e-3);
    assert!((stated.networks_max - seen.networks_max).abs() < 1e-3);
    let held_out = [stated, seen].map(|errors| errors.held_out_max.expect("three networks"));
    assert!((held_out[0] - held_out[1]).abs() < 1e-3);
    assert_eq!(built_in.accuracy().basis, model.accuracy().basis);
    for name in ["vgg16", "vit-b-16"] {
        for (_, layer) in zoo::model(name).expect("in the zoo").layers() {
            let (built_in, fitted) = (built_in.layer_time(layer, 8), model.layer_time(layer, 8));
            let (built_in, fitted) = (built_in.total().as_secs_f64(), fitted.total().as_secs_f64());
            assert!((built_in - fitted).abs() <= 1e-3 * fitted, "{}: {built_in} and {fitted}", layer.name());
        }
    }
}
