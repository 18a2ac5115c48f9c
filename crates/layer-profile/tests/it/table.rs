//! Properties of the table: interpolation and errors.

use std::collections::BTreeMap;
use std::time::Duration;

use layer_graph::{LayerGraph, zoo};
use layer_profile::{
    BatchTime, DeviceModel, LayerProfile, LayerTime, MeasurementConditions, Origin, ProfileError,
    ProfileTable,
};
use proptest::prelude::*;

/// Generates rows of one layer: ascending batch sizes, each with a forward and a backward time in
/// nanoseconds.
fn rows() -> impl Strategy<Value = Vec<(usize, u64, u64)>> {
    let time = 0..10_000_000_000u64;
    prop::collection::btree_map(1..500usize, (time.clone(), time), 1..8)
        .prop_map(|rows| rows.into_iter().map(|(batch, (f, b))| (batch, f, b)).collect())
}

fn one_layer(rows: &[(usize, u64, u64)]) -> ProfileTable {
    let times = rows.iter().map(|&(batch, forward, backward)| BatchTime {
        batch,
        forward: Duration::from_nanos(forward),
        backward: Duration::from_nanos(backward),
        spread: None,
    });
    let layer = LayerProfile {
        name: "a".into(),
        kind: "conv2d".into(),
        structure: None,
        update_spread: None,
        update: Some(Duration::from_micros(7)),
        times: times.collect(),
    };
    ProfileTable::new("net", "device", Origin::Measured, vec![layer], Vec::new()).expect("valid rows")
}

/// Interpolates at `x` by searching all pairs of neighbouring rows.
fn on_the_line(rows: &[(usize, u64, u64)], x: usize) -> Option<f64> {
    if let Some(row) = rows.iter().find(|row| row.0 == x) {
        return Some(row.1 as f64);
    }
    let pair = rows.windows(2).find(|pair| pair[0].0 < x && x < pair[1].0)?;
    let (x0, y0, x1, y1) = (pair[0].0 as f64, pair[0].1 as f64, pair[1].0 as f64, pair[1].1 as f64);
    Some((y0 * (x1 - x as f64) + y1 * (x as f64 - x0)) / (x1 - x0))
}

proptest! {
    #[test]
    fn times_are_interpolated_linearly_inside_the_range(rows in rows(), samples in 1..520usize) {
        let table = one_layer(&rows);
        match (table.time("a", samples), on_the_line(&rows, samples)) {
            (Ok(time), Some(expected)) => {
                // Rounded to the nanosecond.
                prop_assert!((time.forward.as_nanos() as f64 - expected).abs() <= 1.0);
            }
            (Err(ProfileError::OutsideRange { smallest, largest, .. }), None) => {
                prop_assert_eq!((smallest, largest), (rows[0].0, rows[rows.len() - 1].0));
            }
            (time, expected) => prop_assert!(false, "{time:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn rows_are_returned_unchanged(rows in rows()) {
        let table = one_layer(&rows);
        for (batch, forward, backward) in rows {
            let time = table.time("a", batch).expect("a row");
            prop_assert_eq!(time.forward, Duration::from_nanos(forward));
            prop_assert_eq!(time.backward, Duration::from_nanos(backward));
            prop_assert_eq!(time.update, Duration::from_micros(7));
        }
    }

    #[test]
    fn interpolation_preserves_monotonicity(mut rows in rows()) {
        let mut times: Vec<u64> = rows.iter().map(|row| row.1).collect();
        times.sort_unstable();
        for (row, time) in rows.iter_mut().zip(times) {
            row.1 = time;
        }
        let table = one_layer(&rows);
        let all = rows[0].0..=rows[rows.len() - 1].0;
        let forward: Vec<_> = all.map(|n| table.time("a", n).expect("inside").forward).collect();
        prop_assert!(forward.is_sorted());
    }

    #[test]
    fn tables_round_trip_through_json(rows in rows()) {
        let table = one_layer(&rows);
        prop_assert_eq!(ProfileTable::from_json(&table.to_json()).expect("its own JSON"), table);
    }
}

#[test]
fn zero_samples_take_only_the_update() {
    let time = one_layer(&[(4, 100, 200)]).time("a", 0).expect("no samples are fine");
    assert_eq!(time, LayerTime { update: Duration::from_micros(7), ..LayerTime::default() });
}

#[test]
fn missing_layer_error_names_the_layer() {
    let error = one_layer(&[(1, 1, 1)]).time("conv9", 1).expect_err("there is no such layer");
    assert_eq!(error.to_string(), "the profile of `net` has no row for layer `conv9`");
}

#[test]
fn out_of_range_error_gives_the_range() {
    let error = one_layer(&[(2, 1, 1), (8, 1, 1)]).time("a", 9).expect_err("9 is outside");
    assert_eq!(
        error.to_string(),
        "the profile of layer `a` covers batches of 2 to 8 samples, not 9: profile it at that size too"
    );
}

fn digits() -> LayerGraph {
    zoo::model("digits-cnn").expect("in the zoo")
}

fn modelled() -> ProfileTable {
    let device = DeviceModel::named("cpu-core").expect("built in");
    device.profile(&digits(), &[1, 8]).expect("a profile")
}

/// Returns the modelled table with its layers changed.
fn changed(change: impl FnOnce(&mut Vec<LayerProfile>)) -> ProfileTable {
    let table = modelled();
    let (mut layers, network) = (table.layers().to_vec(), table.network().to_vec());
    change(&mut layers);
    ProfileTable::new(table.model(), table.device(), table.origin(), layers, network).expect("valid")
}

#[test]
fn profile_of_another_network_is_rejected() {
    let refusal = |table: ProfileTable, network: &str| {
        let network = zoo::model(network).expect("in the zoo");
        table.for_model(&network).expect_err("refused").to_string()
    };
    assert_eq!(refusal(modelled(), "vgg11"), "the profile is of `digits-cnn`, not of `vgg11`");
    assert_eq!(
        refusal(changed(|layers| layers.retain(|layer| layer.name != "conv3")), "digits-cnn"),
        "the profile of `digits-cnn` has no row for layer `conv3`"
    );
    assert_eq!(
        refusal(changed(|layers| layers[0].kind = "linear".into()), "digits-cnn"),
        "the profile's layer `conv1` is of kind `linear`, but in the network it is `conv2d`"
    );
}

/// Returns a table with recorded structures, measured by the given version, with the given
/// structure of `conv1`.
fn recorded(version: &str, structure: &str) -> ProfileTable {
    let table = changed(|layers| {
        for layer in layers {
            layer.structure = (layer.name == "conv1").then(|| structure.to_owned());
        }
    });
    table.with_measurement(MeasurementConditions {
        profiler: version.into(),
        libraries: BTreeMap::new(),
        clock_mhz: None,
        precision: "f32".into(),
        repeats: 10,
    })
}

const CONV1: &str = "conv2d(bias=true, groups=1, kernel=[3,3], out_channels=16, padding=[1,1], \
                     stride=[1,1]), \
     1x8x8 -> 16x8x8";

#[test]
fn profile_of_another_structure_is_rejected() {
    let this = MeasurementConditions::PROFILER;
    assert!(recorded(this, CONV1).for_model(&digits()).is_ok());
    let wider = CONV1.replace("16", "32");
    let error = recorded(this, &wider).for_model(&digits()).expect_err("wider").to_string();
    assert_eq!(
        error,
        format!(
            "the profile is of another `digits-cnn`: its layer `conv1` is {wider}, but in the network it is \
             {CONV1}; profile this network"
        )
    );
    let extra = changed(|layers| {
        let more = LayerProfile { name: "conv9".into(), structure: Some(CONV1.into()), ..layers[0].clone() };
        layers.push(more);
    });
    let error = extra.for_model(&digits()).expect_err("a layer too many").to_string();
    assert!(error.contains("it has a layer `conv9`, which is not in the network"), "{error}");
}

#[test]
fn profile_of_an_incompatible_version_is_rejected() {
    let error = recorded("99.1.0", CONV1).for_model(&digits()).expect_err("another version").to_string();
    assert_eq!(
        error,
        format!(
            "the profile of `digits-cnn` was measured by layer-profile 99.1.0, whose times are not \
             comparable with those of {}: profile the network again",
            MeasurementConditions::PROFILER
        )
    );
}

#[test]
fn sum_of_layers_adds_all_layers() {
    let table = modelled();
    // For a modelled table the network's time is the sum of the layers.
    assert_eq!(table.sum_of_layers(8).expect("rows"), table.network_time(8).expect("a row"));
    let forward: Duration = table.layers().iter().map(|layer| layer.times[1].forward).sum();
    assert_eq!(table.sum_of_layers(8).expect("rows").forward, forward);
    assert!(matches!(table.sum_of_layers(9), Err(ProfileError::OutsideRange { .. })));
}

#[test]
fn missing_updates_are_shares_of_the_network_update() {
    let network = digits();
    let bare = changed(|layers| layers.iter_mut().for_each(|layer| layer.update = None));
    let shared = bare.clone().for_model(&network).expect("it is of this network");
    let whole = shared.network_time(1).expect("a row").update;
    let sum: Duration = shared.layers().iter().filter_map(|layer| layer.update).sum();
    assert!(sum.abs_diff(whole) < Duration::from_nanos(20), "{sum:?} instead of {whole:?}");
    assert_eq!(shared.time("gelu1", 1).expect("a row").update, Duration::ZERO);

    let table = ProfileTable::new("digits-cnn", "d", Origin::Imported, bare.layers().to_vec(), Vec::new());
    let error = table.expect("valid").for_model(&network).expect_err("nothing to share");
    assert!(matches!(error, ProfileError::MissingUpdate { layer, .. } if layer == "conv1"));
}
