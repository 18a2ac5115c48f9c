//! Fits of device models to tables of times, and their file format.

use std::collections::BTreeMap;
use std::time::Duration;

use layer_graph::{LayerGraph, zoo};
use layer_profile::{
    DataSheet, DeviceModel, Direction, ErrorSummary, Gpu, Iteration, MeasurementConditions, Observations,
    Optimizer, Origin, ProfileError, ProfileTable,
};

fn network(name: &str) -> LayerGraph {
    zoo::model(name).expect("in the zoo")
}

/// Returns a table of modelled times labelled as measured.
fn table(device: &str, network: &LayerGraph, batches: &[usize]) -> ProfileTable {
    let table =
        DeviceModel::named(device).and_then(|model| model.profile(network, batches)).expect("a profile");
    let (layers, whole) = (table.layers().to_vec(), table.network().to_vec());
    ProfileTable::new(network.name(), device, Origin::Measured, layers, whole).expect("valid")
}

fn observations(device: &str, networks: &[&str]) -> Observations {
    let mut observations = Observations::new("made-up times");
    for name in networks {
        let network = network(name);
        observations.add_table(&network, &table(device, &network, &[1, 2, 8, 32])).expect("of this network");
    }
    observations
}

#[test]
fn fit_recovers_a_device_with_the_same_formula() {
    // Arithmetic is ten times slower than the starting point of the fit, and there is no data
    // sheet.
    let observations = observations("v100", &["vgg11", "resnet-18", "resnet-50"]);
    let (model, report) = DeviceModel::fit("found", None, &observations).expect("a fit");
    for errors in &report.fitted {
        assert!(
            errors.median() < 0.02 && errors.max_error() < 0.03,
            "{}: {:?}",
            errors.network,
            errors.whole
        );
    }
    for errors in &report.held_out {
        assert!(errors.max_error() < 0.1, "{}: {:?}", errors.network, errors.whole);
    }
    assert_eq!(report.fitted, model.errors(&observations));
    assert_eq!(model.accuracy().errors, Some(report.summary()));
    assert_eq!(model.accuracy().basis, "fitted to made-up times (vgg11, resnet-18, resnet-50)");

    let (other, v100) = (network("resnet-34"), DeviceModel::named("v100").expect("built in"));
    for batch in [1, 16] {
        let time = |model: &DeviceModel| {
            let table = model.profile(&other, &[batch]).expect("a profile");
            table.network_time(batch).expect("a row").total().as_secs_f64()
        };
        assert!((time(&model) / time(&v100) - 1.0).abs() < 0.03, "batch {batch}");
    }
}

#[test]
fn fit_approximates_another_formula_and_cross_validates_by_shape() {
    let observations = observations("cpu-core", &["resnet-18"]);
    let (_, report) = DeviceModel::fit("core", None, &observations).expect("a fit");
    let (fitted, held_out) = (&report.fitted[0], &report.held_out[0]);
    assert_eq!(fitted.rows.len(), held_out.rows.len());
    assert!(fitted.median() < 0.01 && fitted.max_error() < 0.01, "{} {:?}", fitted.median(), fitted.whole);
    assert!(held_out.max_error() < 0.03, "{:?}", held_out.whole);
}

#[test]
fn fit_finds_a_layer_kind_with_unusual_cost() {
    // Cost of an activation whose exponentials are computed one by one.
    let (digits, core) = (network("digits-cnn"), DeviceModel::named("cpu-core").expect("built in"));
    let mut observations = Observations::new("made-up times");
    for batch in [1, 4, 16, 64] {
        for (_, layer) in digits.computing_layers() {
            let factor = if layer.kind().label().starts_with("gelu") { 100 } else { 1 };
            let (time, launch) = (core.layer_time(layer, batch), Duration::from_micros(2));
            for (pass, time) in [(Direction::Forward, time.forward), (Direction::Backward, time.backward)] {
                observations.add(
                    "digits-cnn",
                    layer.name(),
                    batch,
                    &[(layer, pass)],
                    factor * time.saturating_sub(launch) + launch,
                );
            }
        }
    }
    let (_, report) = DeviceModel::fit("core", None, &observations).expect("a fit");
    let gelu: Vec<_> = report.fitted[0].rows.iter().filter(|row| row.0.starts_with("gelu")).collect();
    assert!(gelu.len() == 20 && gelu.iter().all(|row| row.2.abs() < 0.3), "{gelu:?}");
    assert!(report.fitted[0].max_error() < 0.1, "{:?}", report.fitted[0].whole);
}

#[test]
fn fitted_costs_respect_the_peak_of_the_data_sheet() {
    // 1/200 of the time of the arithmetic at the peak.
    let (network, sheet) = (network("vgg11"), DataSheet::A100);
    let layer = network.layer(network.find("features.6").expect("a layer"));
    let mut observations = Observations::new("wishes");
    observations.add("vgg11", "features.6", 64, &[(layer, Direction::Forward)], Duration::from_micros(10));
    let (model, _) = DeviceModel::fit("wish", Some(&sheet), &observations).expect("a fit");
    let at_the_peak = 64.0 * layer.forward_flops() as f64 / sheet.tf32_flops_per_s.expect("tensor cores");
    assert!(model.layer_time(layer, 64).forward.as_secs_f64() > at_the_peak);
}

/// A refit from a device that is much slower in one resource finds that resource's factor from
/// whole iterations, and predicts another network.
#[test]
fn refit_recovers_a_scaled_device_from_iterations() {
    let [from, gpu] = ["a100", "h100"].map(|name| Gpu::named(name).expect("built in"));
    let truth = DeviceModel::named("a100").expect("built in").scaled("truth", &from, &gpu);
    let networks = ["vgg11", "resnet-18", "resnet-50", "vit-b-16"].map(network);
    let mut observations = Observations::new("made-up iterations");
    for (network, samples) in networks.iter().flat_map(|network| [4, 16, 64].map(|batch| (network, batch))) {
        let table = truth.profile(network, &[samples]).expect("a profile");
        let time = table.network_time(samples).expect("a row").total();
        let iteration = Iteration { network, samples, micro_batches: 1, optimizer: Optimizer::Momentum };
        observations.add_iteration("iteration", &iteration, &gpu, time);
    }
    // The start has the costs of the slower device.
    let start = DeviceModel::named("a100").expect("built in");
    let (model, report) = start.refit("found", &gpu, &observations).expect("a fit");
    for errors in &report.fitted {
        assert!(errors.max_error() < 0.04, "{}: {:?}", errors.network, errors.whole);
    }
    let other = network("resnet-34");
    let time = |model: &DeviceModel| {
        let table = model.profile(&other, &[32]).expect("a profile");
        table.network_time(32).expect("a row").total().as_secs_f64()
    };
    assert!((time(&model) / time(&truth) - 1.0).abs() < 0.05, "{}", time(&model) / time(&truth));
    let (again, _) = start.refit("found", &gpu, &observations).expect("a fit");
    assert_eq!(again, model);
    let left = observations.without("vgg11");
    assert_eq!(left.networks(), ["resnet-18", "resnet-50", "vit-b-16"]);
    assert_eq!(observations.only("vgg11").networks(), ["vgg11"]);
    let empty = start.refit("found", &gpu, &Observations::new("nothing"));
    assert!(matches!(empty, Err(ProfileError::NoObservations)));
}

/// A model that predicts every observation keeps each of its costs.
#[test]
fn refit_to_own_predictions_changes_no_cost() {
    let gpu = Gpu::named("a100").expect("built in");
    let model = DeviceModel::named("a100").expect("built in");
    let mut observations = Observations::new("own predictions");
    for name in ["vgg11", "resnet-18", "vit-b-16"] {
        let network = network(name);
        let table = model.profile(&network, &[4, 64]).expect("a profile");
        for samples in [4, 64] {
            let time = table.network_time(samples).expect("a row").total();
            let iteration =
                Iteration { network: &network, samples, micro_batches: 1, optimizer: Optimizer::Momentum };
            observations.add_iteration("iteration", &iteration, &gpu, time);
        }
    }
    let (again, _) = model.refit("a100", &gpu, &observations).expect("a fit");
    let costs = |model: &DeviceModel| {
        let json: serde_json::Value =
            serde_json::from_str(&model.to_json().expect("JSON")).expect("a document");
        json["costs"].as_object().expect("costs").clone()
    };
    let (before, after) = (costs(&model), costs(&again));
    assert_eq!(before.len(), after.len());
    for (term, cost) in &before {
        let [cost, found] = [cost, &after[term]].map(|cost| cost.as_f64().expect("a number"));
        assert!((found - cost).abs() <= 1e-3 * cost, "{term}: {cost} became {found}");
    }
}

#[test]
fn fit_is_deterministic() {
    let fit = || DeviceModel::fit("d", None, &observations("a100", &["vgg11"])).expect("a fit").0;
    assert_eq!(fit().to_json().expect("JSON"), fit().to_json().expect("JSON"));
}

#[test]
fn modelled_tables_are_rejected_as_observations() {
    let digits = network("digits-cnn");
    let mut observations = Observations::new("nothing");
    assert!(matches!(DeviceModel::fit("d", None, &observations), Err(ProfileError::NoObservations)));
    let modelled =
        DeviceModel::named("a100").and_then(|model| model.profile(&digits, &[1])).expect("a profile");
    let error = observations.add_table(&digits, &modelled).expect_err("modelled").to_string();
    assert_eq!(
        error,
        "the profile of `digits-cnn` is modelled, at least in part: fit a device model to measured times"
    );
    let other = observations.add_table(&network("vgg11"), &table("a100", &digits, &[1]));
    assert!(matches!(other, Err(ProfileError::NetworkMismatch { .. })));
}

#[test]
fn cross_validation_covers_kinds_with_one_shape_and_needs_two_layers() {
    let digits = network("digits-cnn");
    let core = DeviceModel::named("cpu-core").expect("built in");
    let fit = |layers: &[&str]| {
        let mut observations = Observations::new("made-up times");
        for name in layers {
            let layer = digits.layer(digits.find(name).expect("a layer"));
            let time = core.layer_time(layer, 8).forward;
            observations.add("digits-cnn", name, 8, &[(layer, Direction::Forward)], time);
        }
        DeviceModel::fit("core", None, &observations).expect("a fit")
    };
    let (_, report) = fit(&["conv1", "loss"]);
    let rows: Vec<_> = report.held_out[0].rows.iter().map(|row| row.0.as_str()).collect();
    assert_eq!(rows, ["conv1", "loss"]);
    assert!(report.summary().held_out_max.is_some_and(|worst| worst > 0.0));

    let (model, report) = fit(&["conv1"]);
    assert!(report.held_out.is_empty());
    assert!(matches!(model.accuracy().errors, Some(ErrorSummary { held_out_max: None, .. })));
    let said = model.accuracy().to_string();
    assert!(said.contains("(not cross-validated: too few layers)"), "{said}");
    let read = DeviceModel::from_json(&model.to_json().expect("JSON")).expect("its own JSON");
    assert_eq!(read.accuracy().to_string(), said);
}

#[test]
fn duplicate_observations_are_rejected() {
    let digits = network("digits-cnn");
    let mut observations = Observations::new("made-up times");
    observations.add_table(&digits, &table("a100", &digits, &[1, 2])).expect("the first");
    let error = observations.add_table(&digits, &table("a100", &digits, &[2, 4])).expect_err("2 is there");
    assert_eq!(
        error.to_string(),
        "`digits-cnn` at batch 2 was added before: fit to one profile of a network at each batch size"
    );
    // The rejected table left nothing behind.
    observations.add_table(&digits, &table("a100", &digits, &[4])).expect("another batch size");
}

#[test]
fn observations_under_other_conditions_are_rejected() {
    let measured = |device: &str, model: &str, engine: (&str, &str), precision: &str| {
        let network = network(model);
        let measurement = MeasurementConditions {
            profiler: MeasurementConditions::PROFILER.into(),
            libraries: BTreeMap::from([(engine.0.into(), engine.1.into())]),
            clock_mhz: None,
            precision: precision.into(),
            repeats: 10,
        };
        (table(device, &network, &[1]).with_measurement(measurement), network)
    };
    let ours = ("layer-engine", "0.1.0");
    let (first, digits) = measured("a100", "digits-cnn", ours, "f32");
    let mut observations = Observations::new("made-up times");
    observations.add_table(&digits, &first).expect("the first");
    for (device, engine, precision, found) in [
        ("a100", ("libtorch", "2.11.0"), "f32", "`a100` (f32; libtorch 2.11.0)"),
        ("a100", ours, "bf16", "`a100` (bf16; layer-engine 0.1.0)"),
        ("v100", ours, "f32", "`v100` (f32; layer-engine 0.1.0)"),
    ] {
        let (other, vgg) = measured(device, "vgg11", engine, precision);
        let error = observations.add_table(&vgg, &other).expect_err(found).to_string();
        let expected = format!(
            "the profile of `vgg11` was measured on {found}, an earlier one on \
             `a100` (f32; layer-engine 0.1.0): fit to one device, engine and precision"
        );
        assert_eq!(error, expected);
    }
    let vgg = network("vgg11");
    let error = observations.add_table(&vgg, &table("a100", &vgg, &[1])).expect_err("unknown").to_string();
    assert!(error.contains("`a100` (engine not recorded)"), "{error}");
    let (same, vgg) = measured("a100", "vgg11", ours, "f32");
    observations.add_table(&vgg, &same).expect("the same");
}

#[test]
fn models_round_trip_through_json_and_invalid_documents_are_rejected() {
    let a100 = DeviceModel::named("a100").expect("built in");
    assert_eq!(DeviceModel::from_json(&a100.to_json().expect("JSON")).expect("read"), a100);
    let (fitted, _) =
        DeviceModel::fit("d", None, &observations("a100", &["vgg11", "resnet-18"])).expect("a fit");
    let text = fitted.to_json().expect("JSON");
    let launch = text.lines().find(|line| line.contains("\"launch_us\"")).expect("a line");
    let with_error = |field: &str, error: &str| {
        let line = text.lines().find(|line| line.contains(&format!("\"{field}\""))).expect("a line");
        let comma = if line.ends_with(',') { "," } else { "" };
        text.replace(line, &format!("\"{field}\": {error}{comma}"))
    };
    let cases = [
        (
            text.replace("device-model/v1", "device-model/v2"),
            "at `schema`: expected `deeppool/device-model/v1`",
        ),
        (text.replace(launch, ""), "at `costs`: missing field `launch_us`"),
        (
            text.replace(launch, "\"launch_us\": -1,"),
            "at `costs.launch_us`: expected microseconds, not negative",
        ),
        (text.replace(launch, &format!("\"lunch_us\": 1,{launch}")), "at `costs`: unknown field `lunch_us`"),
        (text.replace("\"name\"", "\"title\""), "unknown field `title`"),
        (text.clone() + "{}", "at `.`: trailing characters"),
        (with_error("layers_median", "1e308"), "at `accuracy.seen.layers_median`: expected a relative error"),
        (
            with_error("networks_worst", "-0.1"),
            "at `accuracy.seen.networks_worst`: expected a relative error",
        ),
        (
            with_error("held_out_worst", "1e16"),
            "at `accuracy.seen.held_out_worst`: expected a relative error",
        ),
    ];
    for (text, expected) in cases {
        let error = DeviceModel::from_json(&text).expect_err(expected).to_string();
        assert!(error.starts_with("not a valid device model: ") && error.contains(expected), "{error}");
    }
    let error = DeviceModel::from_json("{").expect_err("truncated").to_string();
    assert!(error.starts_with("not a valid device model"), "{error}");
    let fixed = DeviceModel::named("cpu-core").expect("built in").to_json();
    assert!(matches!(fixed, Err(ProfileError::FixedDevice { .. })));
}
