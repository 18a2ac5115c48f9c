//! How many epochs it takes to a target accuracy, by global batch.

mod check;
mod document;
mod interpolation;
mod named;

pub use document::{CurveSchema, EpochCurveDocument, EpochPoint, Origin};
pub use interpolation::Interpolation;

use crate::AccuracyError;

/// Epochs to a target accuracy against the global batch, with where they come from and how far runs differ.
///
/// It is known at its points, and interpolated between them; outside them it is an error, never a guess.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochCurve {
    document: EpochCurveDocument,
    interpolation: Interpolation,
}

/// Epochs to the target at one global batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epochs {
    /// The mean over runs.
    pub mean: f64,
    /// The fewest and the most epochs of a run, where that is known.
    pub range: Option<(f64, f64)>,
    /// Runs that did not reach the target, at this point or at the two that it lies between. They are not in the mean, which is too low
    /// then.
    pub missed: u32,
}

impl EpochCurve {
    /// A curve of what a document says.
    ///
    /// # Errors
    /// [`AccuracyError::Invalid`] when it has no name, target or source, no samples or points, batches that do not ascend, epochs that
    /// are not finite and positive, or a mean outside the range of its runs.
    pub fn new(document: EpochCurveDocument) -> Result<Self, AccuracyError> {
        check::check(&document)?;
        Ok(Self { document, interpolation: Interpolation::default() })
    }

    /// The same curve, interpolated in another way.
    #[must_use]
    pub fn with_interpolation(self, interpolation: Interpolation) -> Self {
        Self { interpolation, ..self }
    }

    /// All that the file says: network, dataset, target, source, points.
    #[must_use]
    pub fn document(&self) -> &EpochCurveDocument {
        &self.document
    }

    /// The points, by ascending batch; there is at least one.
    #[must_use]
    pub fn points(&self) -> &[EpochPoint] {
        &self.document.points
    }

    /// The smallest and the largest global batch that it knows of.
    #[must_use]
    pub fn range(&self) -> (usize, usize) {
        let batch = |point: Option<&EpochPoint>| point.map_or(0, |point| point.batch);
        (batch(self.points().first()), batch(self.points().last()))
    }

    /// Epochs to the target at a global batch: those of the point, or interpolated between the two around it.
    ///
    /// # Errors
    /// [`AccuracyError::OutsideCurve`] outside [`range`](Self::range).
    pub fn epochs(&self, batch: usize) -> Result<Epochs, AccuracyError> {
        let points = self.points();
        let above = points.partition_point(|point| point.batch < batch);
        let outside = || {
            let (smallest, largest) = self.range();
            let network = self.document.network.clone();
            AccuracyError::OutsideCurve { network, batch, smallest, largest }
        };
        let right = points.get(above).ok_or_else(outside)?;
        if right.batch == batch {
            return Ok(right.epochs());
        }
        let left = above.checked_sub(1).and_then(|below| points.get(below)).ok_or_else(outside)?;
        Ok(self.interpolation.between(left, right, batch))
    }

    /// How far interpolation would be off at each point but the first and the last, if it were not known: its batch, and the error over
    /// what it is, positive where too many epochs are predicted.
    ///
    /// ```
    /// use time_to_accuracy::{EpochCurve, Interpolation};
    ///
    /// let errors = EpochCurve::named("gnmt")?.left_out(Interpolation::LogBatch);
    /// assert_eq!(format!("{errors:.2?}"), "[(8192, 0.10), (12288, 0.05)]");
    /// # Ok::<(), time_to_accuracy::AccuracyError>(())
    /// ```
    #[must_use]
    pub fn left_out(&self, interpolation: Interpolation) -> Vec<(usize, f64)> {
        let error = |around: &[EpochPoint]| match around {
            [left, point, right] => {
                let predicted = interpolation.between(left, right, point.batch).mean;
                Some((point.batch, predicted / point.epochs - 1.0))
            }
            _ => None,
        };
        self.points().windows(3).filter_map(error).collect()
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`AccuracyError::Invalid`] that names the place in it.
    pub fn from_json(text: &str) -> Result<Self, AccuracyError> {
        Self::new(EpochCurveDocument::from_json(text)?)
    }

    /// The document, with a newline at its end.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.document.to_json()
    }
}
