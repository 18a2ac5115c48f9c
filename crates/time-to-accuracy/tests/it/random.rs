//! Random curves.

use proptest::prelude::*;
use time_to_accuracy::{CurveSchema, EpochCurve, EpochCurveDocument, EpochPoint, Origin};

/// Returns a curve with the given points: batch, mean, and relative distances of the minimum and
/// maximum.
pub(crate) fn curve(samples_per_epoch: u64, points: &[(usize, f64, f64, f64)]) -> EpochCurve {
    let point = |&(batch, epochs, below, above): &(usize, f64, f64, f64)| EpochPoint {
        batch,
        epochs,
        epochs_min: Some(epochs / (1.0 + below)),
        epochs_max: Some(epochs * (1.0 + above)),
        runs: None,
        missed: 0,
    };
    let document = EpochCurveDocument {
        schema: CurveSchema::V1,
        network: "net".into(),
        dataset: "data".into(),
        target: "90%".into(),
        origin: Origin::Assumed,
        source: "random".into(),
        licence: None,
        note: None,
        samples_per_epoch,
        points: points.iter().map(point).collect(),
    };
    EpochCurve::new(document).expect("a valid curve")
}

/// Generates curves of up to 6 points with batches up to a few thousand.
pub(crate) fn curves() -> impl Strategy<Value = EpochCurve> {
    let point = (1..1000_usize, 0.1..100.0_f64, 0.0..0.5_f64, 0.0..0.5_f64);
    (1..100_000_u64, prop::collection::vec(point, 1..6)).prop_map(|(samples, mut points)| {
        let mut batch = 0;
        for point in &mut points {
            batch += point.0;
            point.0 = batch;
        }
        curve(samples, &points)
    })
}
