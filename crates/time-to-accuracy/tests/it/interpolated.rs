//! Interpolation between the points of a curve.

use proptest::prelude::*;
use time_to_accuracy::{AccuracyError, EpochCurve, Interpolation};

use crate::random::{curve, curves};

#[test]
fn interpolation_is_linear_on_its_axis() -> Result<(), AccuracyError> {
    let curve = curve(1000, &[(1024, 2.0, 0.0, 0.0), (4096, 6.0, 1.0, 0.5)]);
    let between = curve.epochs(2048)?;
    let (fewest, most) = between.range.expect("both ends have a spread");
    for (found, expected) in [(between.mean, 4.0), (fewest, 2.5), (most, 5.5)] {
        assert!((found - expected).abs() < 1e-12, "{between:?}");
    }
    let on_batch = curve.with_interpolation(Interpolation::Batch);
    assert_eq!(on_batch.epochs(2560)?.mean, 4.0);
    Ok(())
}

#[test]
fn batches_that_are_equal_as_floats_give_no_nan() -> Result<(), AccuracyError> {
    let curve = curve(1000, &[(usize::MAX - 2, 2.0, 0.0, 0.0), (usize::MAX, 6.0, 0.0, 0.0)]);
    assert_eq!(curve.epochs(usize::MAX - 1)?.mean, 2.0);
    Ok(())
}

#[test]
fn batches_outside_are_errors_with_the_range() -> Result<(), AccuracyError> {
    let curve = EpochCurve::named("gnmt")?;
    for batch in [0, 1, 2047, 16_385, usize::MAX] {
        let message = curve.epochs(batch).expect_err("outside").to_string();
        let expected = format!(
            "the epoch curve of `gnmt` covers global batches of 2048 to 16384 samples, not {batch}: choose"
        );
        assert!(message.starts_with(&expected), "{message}");
    }
    Ok(())
}

#[test]
fn leave_one_out_errors_are_as_documented() -> Result<(), AccuracyError> {
    let within = |name: &str, way, low: f64, high: f64| -> Result<(), AccuracyError> {
        let errors = EpochCurve::named(name)?.leave_one_out_errors(way);
        let is_within = |&(batch, error): &(usize, f64)| batch == 4096 || (low..=high).contains(&error);
        assert!(errors.iter().all(is_within), "{name}: {errors:.3?}");
        Ok(())
    };
    within("gnmt", Interpolation::LogBatch, 0.04, 0.101)?;
    within("gnmt", Interpolation::Batch, -0.001, 0.015)?;
    within("resnet-50", Interpolation::LogBatch, -0.02, 0.102)?;
    within("resnet-50", Interpolation::Batch, -0.03, 0.09)?;
    Ok(())
}

proptest! {
    #[test]
    fn points_are_exact_and_interpolation_is_monotone(curve in curves(), on_batch: bool) {
        let way = if on_batch { Interpolation::Batch } else { Interpolation::LogBatch };
        let curve = curve.with_interpolation(way);
        for point in curve.points() {
            let epochs = curve.epochs(point.batch).expect("a point");
            prop_assert_eq!(epochs.mean, point.epochs);
            prop_assert_eq!(epochs.range, point.epochs_min.zip(point.epochs_max));
        }
        for pair in curve.points().windows(2) {
            let rises = pair[0].epochs <= pair[1].epochs;
            let mut before = pair[0].epochs;
            for batch in pair[0].batch..=pair[1].batch {
                let epochs = curve.epochs(batch).expect("inside");
                let is_monotone = if rises { before <= epochs.mean } else { before >= epochs.mean };
                prop_assert!(is_monotone, "at {}", batch);
                let (fewest, most) = epochs.range.expect("both ends have a spread");
                prop_assert!(fewest <= epochs.mean * (1.0 + 1e-12) && epochs.mean <= most * (1.0 + 1e-12));
                before = epochs.mean;
            }
        }
    }

    #[test]
    fn log_interpolation_is_conservative_on_rising_curves(curve in curves()) {
        let on_batch = curve.clone().with_interpolation(Interpolation::Batch);
        for pair in curve.points().windows(2).filter(|pair| pair[0].epochs <= pair[1].epochs) {
            for batch in pair[0].batch..=pair[1].batch {
                let mean = |curve: &EpochCurve| curve.epochs(batch).expect("inside").mean;
                let (log, linear) = (mean(&curve), mean(&on_batch));
                prop_assert!(log >= linear * (1.0 - 1e-12));
            }
        }
    }
}
