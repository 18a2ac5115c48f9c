//! Fits of link models to times of known link models.

use std::time::Duration;

use collectives::{CollectiveKind, Error, LinkModel, Measurement};
use proptest::prelude::*;

const SIZES: [u64; 4] = [4 << 10, 256 << 10, 4 << 20, 64 << 20];

/// Returns the times of operations on a link, in some group sizes, multiplied by the values of
/// `noise` in turn.
fn measured(
    link: &LinkModel,
    collectives: &[CollectiveKind],
    ranks: &[usize],
    noise: &[f64],
) -> Vec<Measurement> {
    let mut noise = noise.iter().cycle();
    let mut measurements = Vec::new();
    for &collective in collectives {
        for &ranks in ranks {
            for bytes in SIZES {
                let factor = noise.next().copied().unwrap_or(1.0);
                let time = link.cost(collective, ranks, bytes).mul_f64(factor);
                measurements.push(Measurement { collective, ranks, bytes, time });
            }
        }
    }
    measurements
}

fn link(startup_ns: u64, latency_ns: u64, bandwidth_bytes_per_s: f64) -> LinkModel {
    let [startup, latency] = [startup_ns, latency_ns].map(Duration::from_nanos);
    LinkModel::new("true", startup, latency, bandwidth_bytes_per_s).expect("a bandwidth")
}

#[track_caller]
fn assert_unfit(measurements: &[Measurement], expected: &str) {
    let error = LinkModel::fit("none", measurements).expect_err(expected);
    assert!(matches!(error, Error::UnfitMeasurements { .. }), "{error}");
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn fit_errors_compare_modelled_and_measured_times() {
    let measurements =
        measured(&link(5_000, 2_000, 1e9), &[CollectiveKind::AllReduce], &[2, 4], &[0.9, 1.0, 1.1]);
    let fit = LinkModel::fit("mine", &measurements).expect("two group sizes and four sizes");
    assert_eq!(fit.link.name(), "mine");
    let mut magnitudes = Vec::new();
    for (m, error) in measurements.iter().zip(&fit.relative_errors) {
        let modelled = fit.link.cost(m.collective, m.ranks, m.bytes);
        assert!((modelled.as_secs_f64() / m.time.as_secs_f64() - 1.0 - error).abs() < 1e-9);
        magnitudes.push(error.abs());
    }
    assert!(magnitudes.iter().all(|&error| error <= fit.max_error()));
    let below = magnitudes.iter().filter(|&&error| error <= fit.median_error()).count();
    assert_eq!(below, magnitudes.len() / 2);
}

#[test]
fn insufficient_measurements_are_refused() {
    let true_link = link(5_000, 2_000, 1e9);
    assert_unfit(&[], "there are 0");
    let several = |ranks: &[usize]| measured(&true_link, &[CollectiveKind::AllReduce], ranks, &[1.0]);
    assert_unfit(&several(&[4])[..2], "at least 3");
    assert_unfit(&several(&[4]), "all-reduce among 4 ranks: measure a second group size");
    let one_size: Vec<_> = several(&[2, 3, 4]).into_iter().filter(|m| m.bytes == SIZES[1]).collect();
    assert_unfit(&one_size, "all are of 262144 bytes: measure a second size");
    assert_unfit(&several(&[1, 2]), "one took no time");
    let mut alone = several(&[2, 4]);
    alone[3].ranks = 1;
    assert_unfit(&alone, "all-reduce among fewer than two ranks");
    // The number of steps is the same in all.
    assert_unfit(
        &measured(&true_link, &[CollectiveKind::AllGather, CollectiveKind::ReduceScatter], &[4], &[1.0]),
        "more group sizes",
    );
    // The time falls with the number of bytes.
    let mut backwards = several(&[2, 4]);
    for m in &mut backwards {
        m.time = Duration::from_secs_f64(1.0 / m.bytes as f64);
    }
    assert_unfit(&backwards, "do not grow");
}

proptest! {
    #[test]
    fn fitting_a_links_exact_times_recovers_the_link(
        startup_ns in 0..50_000_u64,
        latency_ns in 100..50_000_u64,
        bandwidth in 1e8..1e12_f64,
    ) {
        let true_link = link(startup_ns, latency_ns, bandwidth);
        let collectives = [CollectiveKind::AllReduce, CollectiveKind::Broadcast, CollectiveKind::AllGather];
        let fit = LinkModel::fit("fitted", &measured(&true_link, &collectives, &[2, 4, 8], &[1.0]));
        let fit = fit.expect("three group sizes and four sizes");
        prop_assert!(fit.max_error() < 0.01, "{fit:?}");
        prop_assert!((fit.link.bandwidth_bytes_per_s() / bandwidth - 1.0).abs() < 0.01, "{fit:?}");
        // Group sizes that were not measured.
        for ranks in [3, 6, 16] {
            let times = [&fit.link, &true_link].map(|link| link.all_reduce(ranks, 1 << 20).as_secs_f64());
            prop_assert!((times[0] / times[1] - 1.0).abs() < 0.02, "{times:?}");
        }
    }

    #[test]
    fn noise_of_5_percent_moves_the_fit_by_at_most_12_percent(
        startup_ns in 0..50_000_u64,
        latency_ns in 100..50_000_u64,
        bandwidth in 1e8..1e12_f64,
        noise in prop::collection::vec(0.95..1.05_f64, 36),
    ) {
        let true_link = link(startup_ns, latency_ns, bandwidth);
        let collectives =
            [CollectiveKind::AllReduce, CollectiveKind::ReduceScatter, CollectiveKind::Broadcast];
        let fit = LinkModel::fit("fitted", &measured(&true_link, &collectives, &[2, 4, 8], &noise));
        let fit = fit.expect("three group sizes and four sizes");
        prop_assert!(fit.median_error() < 0.05 && fit.max_error() < 0.12, "{fit:?}");
        prop_assert!((fit.link.bandwidth_bytes_per_s() / bandwidth - 1.0).abs() < 0.1, "{fit:?}");
        for (ranks, bytes) in [(2, 4 << 10), (4, 1 << 20), (8, 16 << 20)] {
            let times = [&fit.link, &true_link].map(|link| link.all_reduce(ranks, bytes).as_secs_f64());
            prop_assert!((times[0] / times[1] - 1.0).abs() < 0.12, "{times:?}");
        }
    }
}
