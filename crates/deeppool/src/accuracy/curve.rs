//! Epoch curves from training runs. An *epoch curve* gives the number of epochs (passes over the
//! training samples) to a target accuracy, by global batch.

use std::collections::BTreeMap;

use time_to_accuracy::{CurveSchema, EpochCurve, EpochCurveDocument, EpochPoint, Origin};

use super::run::check_target;
use super::{Outcome, TargetRun};
use crate::Error;
use crate::data::Dataset;

/// Description of a measured epoch curve, for its file: everything except the points.
#[derive(Debug, Clone)]
pub struct CurveDescription<'a> {
    /// Name of the network.
    pub network: &'a str,
    /// The data that the runs were trained on.
    pub dataset: &'a Dataset,
    /// Target accuracy on the held-out samples, above 0 and at most 1.
    pub target: f64,
    /// Instructions to repeat the measurement, such as a command.
    pub source: String,
    /// Notes for readers, such as the optimiser.
    pub note: String,
}

/// Returns the epoch curve of runs to a target: for each global batch of the runs the mean, minimum
/// and maximum number of epochs of those that reached the target, and the number of runs that did
/// not.
///
/// # Errors
/// [`Error::TargetMissed`] if no run with some batch reached the target. [`Error::Accuracy`] if
/// there are no runs. [`Error::Setting`] if the target is not above 0 and at most 1.
pub fn epoch_curve(description: &CurveDescription<'_>, runs: &[TargetRun]) -> Result<EpochCurve, Error> {
    check_target(description.target)?;
    let mut by_batch = BTreeMap::<usize, Vec<&TargetRun>>::new();
    for run in runs {
        by_batch.entry(run.batch).or_default().push(run);
    }
    let points = by_batch
        .into_iter()
        .map(|(batch, runs)| point(description, batch, &runs))
        .collect::<Result<_, Error>>()?;
    Ok(EpochCurve::new(EpochCurveDocument {
        schema: CurveSchema::V1,
        network: description.network.into(),
        dataset: description.dataset.name().into(),
        target: format!("test accuracy {}", description.target),
        origin: Origin::Measured,
        source: description.source.clone(),
        licence: None,
        note: Some(description.note.clone()),
        samples_per_epoch: description.dataset.train().len() as u64,
        points,
    })?)
}

fn point(description: &CurveDescription<'_>, batch: usize, runs: &[&TargetRun]) -> Result<EpochPoint, Error> {
    let reached: Vec<f64> = runs.iter().filter_map(|run| run.epochs(description.dataset)).collect();
    if reached.is_empty() {
        let best = runs.iter().map(|run| run.best_accuracy).fold(0.0, f64::max);
        let diverged = runs.iter().filter(|run| matches!(run.outcome, Outcome::Diverged { .. })).count();
        return Err(Error::TargetMissed {
            batch,
            target: description.target,
            runs: runs.len(),
            best,
            diverged,
        });
    }
    let (min, max) = reached
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(min, max), &epochs| (min.min(epochs), max.max(epochs)));
    let mean = reached.iter().sum::<f64>() / reached.len() as f64;
    Ok(EpochPoint {
        batch,
        // The sum may be rounded beyond its terms.
        epochs: mean.clamp(min, max),
        epochs_min: Some(min),
        epochs_max: Some(max),
        runs: Some(reached.len() as u32),
        missed: (runs.len() - reached.len()) as u32,
    })
}
