//! Labelled samples in memory. *Features* are the values of a sample that are the inputs of the
//! network. A *label* is the number of a class, from 0, or the number that an element of the output
//! should be.

use super::DataError;

/// Labelled samples in memory. A sample has one label, one for each classified position of a
/// sequence, or one for each element of the output.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    sample_elements: usize,
    features: Vec<f32>,
    label_count: usize,
    labels: Vec<f32>,
}

impl Samples {
    /// Creates samples with one label each. `features` are the features of one sample after
    /// another, `sample_elements` of each.
    ///
    /// # Errors
    /// [`DataError::FeatureCount`] if the number of features is not the number of labels times
    /// `sample_elements`.
    pub fn new(sample_elements: usize, features: Vec<f32>, labels: Vec<f32>) -> Result<Self, DataError> {
        Self::of_sequences(sample_elements, features, 1, labels)
    }

    /// Creates samples with `label_count` labels each, at least one. `features` and `labels` are
    /// those of one sample after another, `sample_elements` features of each.
    ///
    /// # Errors
    /// [`DataError::FeatureCount`] if features and labels are not those of the same number of whole
    /// samples, or `label_count` is 0.
    pub fn of_sequences(
        sample_elements: usize,
        features: Vec<f32>,
        label_count: usize,
        labels: Vec<f32>,
    ) -> Result<Self, DataError> {
        let samples =
            labels.len().checked_div(label_count).filter(|samples| samples * label_count == labels.len());
        if samples.and_then(|samples| samples.checked_mul(sample_elements)) == Some(features.len()) {
            Ok(Self { sample_elements, features, label_count, labels })
        } else {
            let (features, labels) = (features.len(), labels.len());
            Err(DataError::FeatureCount { features, labels, sample_elements, label_count })
        }
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len() / self.label_count
    }

    /// Returns whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Number of features of one sample.
    #[must_use]
    pub fn sample_elements(&self) -> usize {
        self.sample_elements
    }

    /// Returns the features of sample `index`, from 0, in the order of the data set's shape
    /// (`channels x height x width`).
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len).
    #[must_use]
    pub fn features(&self, index: usize) -> &[f32] {
        &self.features[index * self.sample_elements..][..self.sample_elements]
    }

    /// Number of labels of one sample.
    #[must_use]
    pub fn label_count(&self) -> usize {
        self.label_count
    }

    /// Returns the labels of sample `index`, from 0: one, one for each classified position of a
    /// sequence, or one for each element of the output.
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len).
    #[must_use]
    pub fn labels_of(&self, index: usize) -> &[f32] {
        &self.labels[index * self.label_count..][..self.label_count]
    }

    /// Returns the labels of all samples, one sample after another.
    #[must_use]
    pub fn labels(&self) -> &[f32] {
        &self.labels
    }
}
