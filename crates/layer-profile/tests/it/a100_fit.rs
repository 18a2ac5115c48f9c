//! The `a100` model against the layer times that were published with DeepPool, read where they are present.

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

fn show(what: &str, networks: &[NetworkErrors]) {
    for errors in networks {
        let median = 100.0 * errors.median();
        println!("{} {what}: {} rows, {median:.1}% median", errors.network, errors.rows.len());
        for (batch, error) in &errors.whole {
            println!("    batch {batch:>2}: {:+.1}%", 100.0 * error);
        }
    }
}

#[test]
fn layers_and_whole_networks_are_close_at_every_published_batch() {
    let Some(observations) = observations() else { return };
    let errors = DeviceModel::named("a100").expect("built in").errors(&observations);
    show("fitted", &errors);
    let batches: Vec<_> = errors.iter().map(|network| network.whole.len()).collect();
    assert_eq!(batches, [9, 8, 23], "batches of VGG-16, WRN-101-2 and Inception-V3");
    for network in &errors {
        assert!(network.worst() < 0.07, "{} is off by {:.3}", network.network, network.worst());
        assert!(network.median() < 0.065, "{}: {:.3} median", network.network, network.median());
    }
}

#[test]
fn networks_that_were_left_out_are_nearly_as_close_and_the_built_in_model_is_what_the_fit_gives() {
    let Some(observations) = observations() else { return };
    let (model, report) = DeviceModel::fit("a100", Some(&DataSheet::A100), &observations).expect("a fit");
    show("left out", &report.held_out);
    for network in &report.held_out {
        // VGG-16 8%, WRN-101-2 5%, Inception-V3 7% were seen; for their layers medians of 7%, 8% and 10%.
        assert!(network.worst() < 0.085, "{} is off by {:.3}", network.network, network.worst());
        assert!(network.median() < 0.11, "{}: {:.3} median", network.network, network.median());
    }
    let built_in = DeviceModel::named("a100").expect("built in");
    let (stated, seen) = (built_in.accuracy().seen.expect("checked"), report.summary());
    assert!((stated.layers_median - seen.layers_median).abs() < 1e-3);
    assert!((stated.networks_worst - seen.networks_worst).abs() < 1e-3);
    let held_out = [stated, seen].map(|errors| errors.held_out_worst.expect("three networks"));
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
