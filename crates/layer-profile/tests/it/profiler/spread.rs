//! Statistics of measurements on an engine with known times.

use std::time::Duration;

use layer_graph::{LayerGraph, LayerKind, Linear, Shape};
use layer_profile::{MeasurementConditions, ProfileTable, Profiler, Spread};

use super::virtual_engine::VirtualEngine;

fn network() -> LayerGraph {
    let build = || {
        let mut net = LayerGraph::new("net", Shape::features(4))?;
        let fc = net.add("fc", Linear::new(3), [net.input()])?;
        let relu = net.add("relu", LayerKind::Relu, [fc])?;
        let sum = net.add("sum", LayerKind::Add, [relu, fc])?;
        net.add("loss", LayerKind::CROSS_ENTROPY, [sum])?;
        Ok::<_, layer_graph::GraphError>(net)
    };
    build().expect("a valid network")
}

const QUIET: Spread = Spread { deviation: Duration::ZERO, outliers: Some(0), warm_up_unstable: false };

fn profile(engine: &VirtualEngine) -> ProfileTable {
    Profiler::new(engine).batches([1, 16]).profile(&network()).expect("measured")
}

#[test]
fn noiseless_times_are_exact_and_conditions_are_recorded() {
    let table = profile(&VirtualEngine::new());
    for batch in [1, 16] {
        let name: u64 = "relu".bytes().map(u64::from).sum();
        let forward = name * 101 + 7000 * batch as u64;
        let time = table.time("relu", batch).expect("a row");
        assert_eq!(time.forward, Duration::from_nanos(forward));
        assert_eq!(time.backward, Duration::from_nanos(2 * forward));
        // The whole network also sums gradients at the fork.
        let (alone, whole) =
            (table.sum_of_layers(batch).expect("rows"), table.network_time(batch).expect("a row"));
        assert_eq!((alone.forward, alone.update), (whole.forward, whole.update));
        let sum = Duration::from_nanos(600 + 3 * batch as u64);
        assert_eq!(alone.backward + sum, whole.backward);
    }
    for layer in table.layers() {
        assert!(layer.times.iter().all(|row| row.spread.is_some_and(|all| all.forward == QUIET)));
        assert_eq!(layer.update_spread, (layer.name == "fc").then_some(QUIET), "{}", layer.name);
    }
    let measurement = table.measurement().expect("recorded");
    assert_eq!((measurement.profiler.as_str(), measurement.repeats), (MeasurementConditions::PROFILER, 10));
    assert_eq!((measurement.clock_mhz, measurement.precision.as_str()), (Some(1000), "f32"));
    assert_eq!(measurement.libraries["virtual"], "1.0.0");
    assert_eq!(table.device(), "virtual device");
    assert_eq!(ProfileTable::from_json(&table.to_json()).expect("its own JSON"), table);
    assert_eq!(table.clone().for_model(&network()).expect("of this network"), table);
}

#[test]
fn occasional_slow_samples_are_outliers_and_leave_the_median() {
    let mut engine = VirtualEngine::new();
    // An odd period, so that neither windows of three nor the phases of the network align with it.
    engine.noise = |sample| Duration::from_millis(if sample % 7 == 0 { 5 } else { 0 });
    let (noisy, quiet) = (profile(&engine), profile(&VirtualEngine::new()));
    let mut outliers = 0;
    for (noisy, quiet) in noisy.layers().iter().zip(quiet.layers()) {
        for (noisy, quiet) in noisy.times.iter().zip(&quiet.times) {
            assert_eq!((noisy.forward, noisy.backward), (quiet.forward, quiet.backward));
            let spread = noisy.spread.expect("measured");
            for Spread { deviation, outliers: found, warm_up_unstable } in [spread.forward, spread.backward] {
                // Ten consecutive samples hold one or two of every seventh.
                let found = found.expect("counted");
                assert!(deviation.is_zero() && (1..=2).contains(&found) && !warm_up_unstable, "{found}");
                outliers += found;
            }
        }
    }
    assert!(outliers > 16, "{outliers}");
}

#[test]
fn work_that_keeps_slowing_down_is_marked_unsteady() {
    let mut engine = VirtualEngine::new();
    engine.noise = |sample| Duration::from_micros(100) * 2u32.pow((sample / 2).min(30) as u32);
    let profiler = Profiler::new(&engine).batches([1]);
    let table = profiler.profile(&network()).expect("measured");
    let spread = table.layers()[0].times[0].spread.expect("measured");
    assert!(spread.forward.warm_up_unstable);
    let reread = ProfileTable::from_json(&table.to_json()).expect("its own JSON");
    assert_eq!(reread, table);
}
