use super::DataError;

/// Labelled samples in memory, one after another.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    sample_elements: usize,
    features: Vec<f32>,
    labels: Vec<u32>,
}

impl Samples {
    /// Samples of `sample_elements` features each, lying one after another in `features`, and the class of each.
    ///
    /// # Errors
    /// [`DataError::FeatureCount`] when the number of features is not the number of labels times `sample_elements`.
    pub fn new(sample_elements: usize, features: Vec<f32>, labels: Vec<u32>) -> Result<Self, DataError> {
        if labels.len().checked_mul(sample_elements) == Some(features.len()) {
            Ok(Self { sample_elements, features, labels })
        } else {
            Err(DataError::FeatureCount { features: features.len(), labels: labels.len(), sample_elements })
        }
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Features of one sample.
    #[must_use]
    pub fn sample_elements(&self) -> usize {
        self.sample_elements
    }

    /// The features of a sample, in the order of the data set's shape (`channels x height x width`).
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len), as indexing a slice does.
    #[must_use]
    pub fn features(&self, index: usize) -> &[f32] {
        &self.features[index * self.sample_elements..][..self.sample_elements]
    }

    /// The class of a sample.
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len), as indexing a slice does.
    #[must_use]
    pub fn label(&self, index: usize) -> u32 {
        self.labels[index]
    }

    /// The classes of all samples, in order.
    #[must_use]
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }
}
