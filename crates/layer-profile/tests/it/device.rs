//! Properties of the device models for every layer of networks of the zoo.

use std::time::Duration;

use layer_graph::{LayerGraph, LayerTensor, Opaque, OpaquePass, Shape, zoo};
use layer_profile::{
    DeviceModel, Gpu, LayerTime, NetworkFamily, NumberFormat, Origin, ProfileError, ProfileTable,
};
use proptest::prelude::*;

fn device(name: &str) -> DeviceModel {
    DeviceModel::named(name).expect("built in")
}

fn network(name: &str) -> LayerGraph {
    zoo::model(name).expect("in the zoo")
}

/// Returns the names of all models.
fn names() -> Vec<String> {
    Gpu::names().into_iter().chain(["cpu-core".into()]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn time_grows_with_samples_and_shrinks_for_each_sample(samples in 1..200usize, more in 1..200usize) {
        for device in names().iter().map(|name| device(name)) {
            for model in ["digits-cnn", "resnet-18", "inception-v3", "vit-b-16", "gpt2"] {
                for (_, layer) in network(model).computing_layers() {
                    let few = device.layer_time(layer, samples);
                    let many = device.layer_time(layer, samples + more);
                    let each = |time: Duration, n: usize| time.as_nanos() as f64 / n as f64;
                    for (few, many) in [(few.forward, many.forward), (few.backward, many.backward)] {
                        // Rounding to the nanosecond.
                        let slack = Duration::from_nanos(1);
                        let is_ordered = Duration::ZERO < few && few <= many + slack;
                        prop_assert!(is_ordered, "{model}: {}", layer.name());
                        prop_assert!(
                            each(many, samples + more) <= each(few, samples) + 1.0,
                            "{model}: {}", layer.name()
                        );
                    }
                    prop_assert_eq!(few.update, many.update);
                }
            }
        }
    }
}

#[test]
fn the_input_layer_and_empty_shards_take_no_time() {
    let network = network("vgg11");
    let a100 = device("a100");
    assert_eq!(a100.layer_time(network.layer(network.input()), 32), LayerTime::default());
    for (_, layer) in network.layers() {
        let time = a100.layer_time(layer, 0);
        assert_eq!((time.forward, time.backward), (Duration::ZERO, Duration::ZERO), "{}", layer.name());
        assert_eq!(time.update.is_zero(), layer.parameter_count() == 0, "{}", layer.name());
    }
}

#[test]
fn data_sheets_order_the_gpus() {
    // Bandwidth alone distinguishes an H200 from an H100. A V100 has no tensor cores for single
    // precision.
    let network = network("resnet-50");
    let total = |name: &str| {
        let table = device(name).profile(&network, &[32]).expect("a profile");
        table.network_time(32).expect("a row").total()
    };
    let [h200, h100, a100, v100] = ["h200", "h100", "a100", "v100"].map(total);
    assert!(h200 < h100 && h100 < a100 && 2 * a100 < v100, "{h200:?} {h100:?} {a100:?} {v100:?}");
}

#[test]
fn models_report_their_accuracy() {
    let said = |name: &str| {
        let table = device(name).profile(&network("digits-cnn"), &[1]).expect("a profile");
        let read = ProfileTable::from_json(&table.to_json()).expect("its own JSON");
        read.accuracy().expect("modelled").to_string()
    };
    let a100 = said("a100");
    assert!(a100.starts_with("fitted to layer times published with DeepPool and published iterations; "));
    assert!(a100.contains("nine tenths of what it was not fitted to: convolutional networks within "));
    assert_eq!(said("a100-80gb"), a100);
    assert_eq!(said("h100-fp32"), "scaled from h200-fp32 by data sheets, not checked against measurements");
    assert_eq!(
        said("cpu-core"),
        "fixed units, so that plans are repeatable; not the times of this machine, not checked against \
         measurements"
    );
}

/// Half precision moves fewer bytes and has faster products than TF32, and TF32 than FP32.
#[test]
fn lower_precision_is_faster() {
    for network in ["resnet-50", "vgg16", "vit-b-16"].map(network) {
        for gpu in ["a100", "h100", "h200"] {
            let total = |name: &str| {
                let table = device(name).profile(&network, &[64]).expect("a profile");
                table.network_time(64).expect("a row").total()
            };
            let [half, tf32, fp32] = ["-bf16", "", "-fp32"].map(|format| total(&format!("{gpu}{format}")));
            assert!(half < tf32 && tf32 < fp32, "{} on {gpu}: {half:?} {tf32:?} {fp32:?}", network.name());
        }
    }
    assert!(Gpu::named("v100-tf32").is_err() && Gpu::named("a100-tf32").is_ok());
}

/// The model of a GPU in each number format has a name, by which its tables know the format.
#[test]
fn number_formats_have_models() {
    use NumberFormat::{Fp32, Half, Tf32};
    let net = network("digits-cnn");
    for (gpu, format, expected) in [
        ("a100", Tf32, "a100"),
        ("a100", Half, "a100-bf16"),
        ("h100-bf16", Half, "h100-bf16"),
        ("a100-80gb", Fp32, "a100-80gb-fp32"),
        ("v100", Fp32, "v100"),
        ("v100-32gb", Half, "v100-32gb-fp16"),
    ] {
        assert_eq!(Gpu::name_in(gpu, format).unwrap(), expected);
        assert_eq!(device(expected).profile(&net, &[1]).unwrap().number_format(), Some(format));
    }
    for (gpu, format) in [("v100", Tf32), ("a100-bf16", Fp32)] {
        assert!(matches!(Gpu::name_in(gpu, format), Err(ProfileError::NumberFormat { .. })));
    }
    assert!(matches!(Gpu::name_in("a101", Half), Err(ProfileError::UnknownDevice { .. })));
    assert_eq!(device("cpu-core").profile(&net, &[1]).unwrap().number_format(), None);
}

/// Batches outside the checked ones, and families of networks that were not checked, are marked.
#[test]
fn predictions_have_a_range_and_are_marked_outside_what_was_checked() {
    let a100 = device("a100");
    let checked = a100.accuracy().held_out.iter().find(|errors| errors.family == NetworkFamily::Transformer);
    let [min, max] = checked.expect("checked").samples;
    let bert = network("bert-large");
    for (samples, is_checked) in [(min, true), (max, true), (max + 1, false)] {
        let range = a100.accuracy().range(&bert, samples).expect("checked");
        let errors = &a100.accuracy().held_out;
        let max_error = errors.iter().map(|errors| errors.nine_tenths).fold(0.0, f64::max);
        let expected = if is_checked { checked.expect("checked").nine_tenths } else { max_error };
        assert_eq!((range.is_checked, range.error), (is_checked, expected));
    }
    assert!(!a100.accuracy().range(&network("big-lstm"), min).expect("other errors").is_checked);
    assert_eq!(device("h100-fp32").accuracy().range(&bert, min), None);
}

#[test]
fn an_a100_is_faster_than_a_core() {
    let (a100, core) = (device("a100"), device("cpu-core"));
    for (_, layer) in network("resnet-50").computing_layers() {
        assert!(a100.layer_time(layer, 32).total() < core.layer_time(layer, 32).total(), "{}", layer.name());
    }
}

#[test]
fn small_layers_scale_worse_than_large_layers() {
    // Only for a large layer does an eighth of the samples take close to an eighth of the time.
    let (vgg, a100) = (network("vgg16"), device("a100"));
    let speedup = |name: &str| {
        let layer = vgg.layer(vgg.find(name).expect("a layer of VGG-16"));
        let time = |n| a100.layer_time(layer, n);
        let (one, eighth) = (time(32), time(4));
        (one.forward + one.backward).as_secs_f64() / (eighth.forward + eighth.backward).as_secs_f64()
    };
    assert!(speedup("features.2") > 6.0 && speedup("features.28") < 5.0 && speedup("classifier.0") < 1.5);
}

#[test]
fn modelled_profile_holds_the_times_of_the_model() {
    let (network, core) = (network("digits-cnn"), device("cpu-core"));
    let table = core.profile(&network, &[1, 3, 32]).expect("a profile");
    assert_eq!((table.model(), table.device(), table.origin()), ("digits-cnn", "cpu-core", Origin::Modelled));
    let mut sum = LayerTime::default();
    for (_, layer) in network.computing_layers() {
        let time = core.layer_time(layer, 3);
        assert_eq!(table.time(layer.name(), 3).expect("a row"), time);
        sum = sum + time;
    }
    assert_eq!(table.network_time(3).expect("a row"), sum);
    assert_eq!(table.clone().for_model(&network).expect("of this network"), table);
}

#[test]
fn shared_parameters_are_updated_once() {
    let (device, network) = (device("a100"), network("gpt2"));
    let table = device.profile(&network, &[1]).unwrap();
    let [tokens, head] = ["tokens", "head"].map(|name| network.layer(network.find(name).unwrap()));
    assert_eq!(table.time("tokens", 1).unwrap(), device.layer_time(tokens, 1));
    let expected = LayerTime { update: Duration::ZERO, ..device.layer_time(head, 1) };
    assert_eq!(table.time("head", 1).unwrap(), expected);
    let layers: LayerTime = table.layers().iter().map(|row| table.time(&row.name, 1).unwrap()).sum();
    assert_eq!(table.network_time(1).unwrap(), layers);
    assert_eq!(table.clone().for_model(&network).unwrap(), table);
}

#[test]
fn unknown_devices_and_invalid_batches_are_rejected() {
    let error = DeviceModel::named("abacus").expect_err("unknown").to_string();
    assert_eq!(
        error,
        "unknown device `abacus`; known devices: a100, a100-40gb, a100-80gb, h100, h200, v100, v100-16gb, \
         v100-32gb, cpu-core; a GPU may have a number format at its end: -fp32, -bf16, or -fp16 for a V100"
    );
    for batches in [&[][..], &[0, 1], &[2, 2], &[4, 2]] {
        let error = device("a100").profile(&network("digits-cnn"), batches).expect_err("refused");
        assert!(matches!(error, ProfileError::Batches(found) if found == batches));
    }
}

#[test]
fn opaque_layers_are_timed_by_their_declared_costs() {
    let layer = |flops: u64, bytes: u64| {
        let pass = OpaquePass { flops, bytes, kernels: 2 };
        let opaque = Opaque::new("swish", Shape::features(8)).forward(pass).backward(pass);
        let mut net = LayerGraph::new("net", Shape::features(8)).expect("a shape");
        let tensor = LayerTensor::new("beta", [1 << 20]);
        let id = net.add("act", opaque.parameters([tensor]), [net.input()]).expect("a layer");
        net.layer(id).clone()
    };
    for device in names().iter().map(|name| device(name)) {
        let forward = |flops, bytes| device.layer_time(&layer(flops, bytes), 16).forward;
        let name = device.name();
        assert!(forward(0, 0) > Duration::ZERO, "{name}: kernels are launched, parameters are read");
        assert!(forward(1 << 32, 0) > 2 * forward(0, 0), "{name}");
        assert!(forward(0, 1 << 30) > 2 * forward(0, 0), "{name}");
        // With 4 Gflop for each of 16 samples, a GPU reaches between a tenth of its peak and its
        // peak.
        let busy = forward(1 << 32, 0).saturating_sub(forward(0, 0));
        if let Ok(Gpu { sheet, format }) = Gpu::named(name) {
            let rate = 16.0 * f64::from(1 << 16).powi(2) / busy.as_secs_f64();
            let peak = sheet.peak_flops_per_s(format).expect("supported");
            assert!(0.1 < rate / peak && rate < peak, "{name}: {rate}");
        }
        // The gradients of the parameters are written.
        let time = device.layer_time(&layer(0, 0), 16);
        assert!(time.backward > time.forward && time.update > Duration::ZERO, "{name}");
        assert_eq!(device.layer_time(&layer(1 << 20, 1 << 20), 0).forward, Duration::ZERO, "{name}");
    }
}
