//! Number of epochs to a target accuracy, by global batch. A *point* of a curve is the number of
//! epochs at one global batch, over one or more training *runs*.

mod check;
mod document;
mod interpolation;
mod named;

pub use document::{CurveSchema, EpochCurveDocument, EpochPoint, Origin};
pub use interpolation::Interpolation;

use crate::AccuracyError;

/// Number of epochs to a target accuracy as a function of the global batch, with its source.
///
/// Epochs are interpolated between points. A batch outside the points is an error.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochCurve {
    document: EpochCurveDocument,
    interpolation: Interpolation,
}

/// Number of epochs to the target at one global batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epochs {
    /// Mean number of epochs over the runs that reached the target.
    pub mean: f64,
    /// Minimum and maximum number of epochs over these runs. `None` if unknown.
    pub range: Option<(f64, f64)>,
    /// Number of runs that missed the target at this point. Between two points, the larger of their
    /// numbers. These runs are not part of the mean, which is then too low.
    pub missed: u32,
}

impl EpochCurve {
    /// Creates a curve from a document after validating it.
    ///
    /// # Errors
    /// [`AccuracyError::Invalid`] with the position of the first violation: an empty network,
    /// dataset, target or source; no samples or points; a batch or a number of runs of zero;
    /// batches that do not ascend; epochs that are not finite and positive; a mean outside the
    /// range of its runs; or only one end of a range.
    pub fn new(document: EpochCurveDocument) -> Result<Self, AccuracyError> {
        check::check(&document)?;
        Ok(Self { document, interpolation: Interpolation::default() })
    }

    /// Sets the axis on which epochs are interpolated between points. Default: the logarithm of the
    /// batch.
    #[must_use]
    pub fn with_interpolation(self, interpolation: Interpolation) -> Self {
        Self { interpolation, ..self }
    }

    /// Returns the document: network, dataset, target, source and points.
    #[must_use]
    pub fn document(&self) -> &EpochCurveDocument {
        &self.document
    }

    /// Returns the points, at least one, by ascending batch.
    #[must_use]
    pub fn points(&self) -> &[EpochPoint] {
        &self.document.points
    }

    /// Returns the smallest and the largest global batch of the curve, in samples.
    #[must_use]
    pub fn range(&self) -> (usize, usize) {
        let batch = |point: Option<&EpochPoint>| point.map_or(0, |point| point.batch);
        (batch(self.points().first()), batch(self.points().last()))
    }

    /// Returns the epochs to the target at a global batch, in samples: those of its point, or
    /// interpolated between the two points around it.
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

    /// Returns for each point except the first and the last the global batch and the relative error
    /// of the interpolation if that point is left out. 0.1 is 10% too many epochs, -0.1 is 10% too
    /// few.
    ///
    /// ```
    /// use time_to_accuracy::{EpochCurve, Interpolation};
    ///
    /// let errors = EpochCurve::named("gnmt")?.leave_one_out_errors(Interpolation::LogBatch);
    /// assert_eq!(format!("{errors:.2?}"), "[(8192, 0.10), (12288, 0.05)]");
    /// # Ok::<(), time_to_accuracy::AccuracyError>(())
    /// ```
    #[must_use]
    pub fn leave_one_out_errors(&self, interpolation: Interpolation) -> Vec<(usize, f64)> {
        let error = |around: &[EpochPoint]| match around {
            [left, point, right] => {
                let predicted = interpolation.between(left, right, point.batch).mean;
                Some((point.batch, predicted / point.epochs - 1.0))
            }
            _ => None,
        };
        self.points().windows(3).filter_map(error).collect()
    }

    /// Parses and validates a JSON document of the format `deeppool/epoch-curve/v1`.
    ///
    /// # Errors
    /// [`AccuracyError::Invalid`] with the position in the document, if it is not of this format or
    /// for the reasons of [`new`](Self::new).
    pub fn from_json(text: &str) -> Result<Self, AccuracyError> {
        Self::new(EpochCurveDocument::from_json(text)?)
    }

    /// Returns the document as indented JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.document.to_json()
    }
}
