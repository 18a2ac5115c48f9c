//! Validation of epoch curves.

use super::{EpochCurveDocument, EpochPoint};
use crate::AccuracyError;

/// Checks the rules that a valid curve satisfies, in the order of the fields.
///
/// # Errors
/// [`AccuracyError::Invalid`] with the position of the first violation.
pub(super) fn check(curve: &EpochCurveDocument) -> Result<(), AccuracyError> {
    let named = [
        ("network", &curve.network, "the name of the network"),
        ("dataset", &curve.dataset, "what it is trained on"),
        ("target", &curve.target, "the accuracy with its measure, such as `BLEU 24.0`"),
        (
            "source",
            &curve.source,
            "where the points come from: a publication, or the command that measured them",
        ),
    ];
    for (path, text, expected) in named {
        if text.trim().is_empty() {
            return Err(AccuracyError::invalid(path, format!("expected {expected}, found nothing")));
        }
    }
    if curve.samples_per_epoch == 0 {
        return Err(AccuracyError::invalid(
            "samples_per_epoch",
            "expected the samples of an epoch, at least 1, found 0",
        ));
    }
    if curve.points.is_empty() {
        return Err(AccuracyError::invalid("points", "expected at least one point, found none"));
    }
    for (i, point) in curve.points.iter().enumerate() {
        check_point(&format!("points[{i}]"), point)?;
    }
    for (i, pair) in curve.points.windows(2).enumerate() {
        let [before, batch] = [pair[0].batch, pair[1].batch];
        if batch <= before {
            let problem = if batch == before {
                format!("batch {batch} is there twice: expected one point a batch; join the runs of both")
            } else {
                format!("expected batches in ascending order, found {batch} after {before}: sort the points")
            };
            return Err(AccuracyError::invalid(format!("points[{}].batch", i + 1), problem));
        }
    }
    Ok(())
}

fn check_point(path: &str, point: &EpochPoint) -> Result<(), AccuracyError> {
    if point.batch == 0 {
        return Err(AccuracyError::invalid(format!("{path}.batch"), "expected at least one sample, found 0"));
    }
    let figures =
        [("epochs", Some(point.epochs)), ("epochs_min", point.epochs_min), ("epochs_max", point.epochs_max)];
    for (name, figure) in figures {
        if let Some(epochs) = figure.filter(|epochs| !epochs.is_finite() || *epochs <= 0.0) {
            let problem = format!(
                "expected a finite number of epochs above 0, found {epochs}: leave out a batch that does not \
                 reach the target"
            );
            return Err(AccuracyError::invalid(format!("{path}.{name}"), problem));
        }
    }
    if point.runs == Some(0) {
        let problem = "expected at least one run that reached the target, found 0: leave out a batch that \
            does not reach it";
        return Err(AccuracyError::invalid(format!("{path}.runs"), problem));
    }
    match (point.epochs_min, point.epochs_max) {
        (Some(min), _) if min > point.epochs => {
            let problem =
                format!("expected at most the mean, {}, found {min}: are they exchanged?", point.epochs);
            Err(AccuracyError::invalid(format!("{path}.epochs_min"), problem))
        }
        (_, Some(max)) if max < point.epochs => {
            let problem =
                format!("expected at least the mean, {}, found {max}: are they exchanged?", point.epochs);
            Err(AccuracyError::invalid(format!("{path}.epochs_max"), problem))
        }
        (Some(_), None) | (None, Some(_)) => Err(AccuracyError::invalid(
            path,
            "expected both or none of `epochs_min` and `epochs_max`, found one",
        )),
        _ => Ok(()),
    }
}
