//! A data set in memory. The *training part* is the samples to train on, the *test part* the
//! held-out samples.

use std::sync::OnceLock;

use layer_graph::Shape;
use sha2::{Digest, Sha256};

use super::{DataError, Samples};

/// Labelled samples of one shape, split into a training part and a held-out test part.
///
/// Both parts have samples, all of the data set's shape, every label is a class or the ignored
/// label if the data set has classes, and every number is finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    name: String,
    shape: Shape,
    classes: Option<usize>,
    ignored_label: Option<i32>,
    train: Samples,
    test: Samples,
    hash: Hash,
}

/// SHA-256 hash of a data set, computed at its first use. It follows from the other fields, so
/// comparisons ignore it.
#[derive(Debug, Clone, Default)]
struct Hash(OnceLock<[u8; 32]>);

impl PartialEq for Hash {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Dataset {
    /// Creates a data set from samples in memory. `shape` is the shape of one sample, and `classes`
    /// the number of classes, or `None` if labels are any numbers.
    ///
    /// # Errors
    /// [`DataError`] if a part is empty, has samples of another size than `shape`, a label that is
    /// no class, or a number that is not finite.
    pub fn new(
        name: impl Into<String>,
        shape: Shape,
        classes: impl Into<Option<usize>>,
        train: Samples,
        test: Samples,
    ) -> Result<Self, DataError> {
        Self::with_ignored_label(name, shape, (classes.into(), None), train, test)
    }

    /// Creates a data set as [`new`](Self::new) does, of which labels may also be the ignored one:
    /// that of positions without a target. `classes` are the number of classes and this label.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_ignored_label(
        name: impl Into<String>,
        shape: Shape,
        classes: (Option<usize>, Option<i32>),
        train: Samples,
        test: Samples,
    ) -> Result<Self, DataError> {
        let name = name.into();
        for (part, samples) in [("training", &train), ("test", &test)] {
            let origin = || format!("{part} part of data set `{name}`");
            if samples.is_empty() {
                return Err(DataError::Empty { origin: origin() });
            }
            let expected = elements(&shape)
                .ok_or_else(|| DataError::Size { shape: shape.clone(), samples: samples.len() })?;
            if samples.sample_elements() != expected {
                let (origin, found) = (origin(), samples.sample_elements());
                return Err(DataError::SampleSize { origin, found, expected, shape });
            }
            check_labels(samples.labels(), samples.label_count(), classes, origin)?;
            check_finite(samples, origin)?;
        }
        let (classes, ignored_label) = classes;
        Ok(Self { name, shape, classes, ignored_label, train, test, hash: Hash::default() })
    }

    /// Checks that a batch of `batch` samples is not larger than the training part.
    ///
    /// # Errors
    /// [`DataError::BatchTooLarge`] if it is larger.
    pub fn check_batch(&self, batch: usize) -> Result<(), DataError> {
        let samples = self.train.len();
        if batch > samples {
            return Err(DataError::BatchTooLarge { dataset: self.name.clone(), samples, batch });
        }
        Ok(())
    }

    /// Name of the data set, such as `digits`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Shape of one sample: `channels x height x width` for images.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of classes, if the data set has classes. Labels are then numbers of classes, from 0.
    #[must_use]
    pub fn classes(&self) -> Option<usize> {
        self.classes
    }

    /// Label of positions without a target, if there may be such positions.
    #[must_use]
    pub fn ignored_label(&self) -> Option<i32> {
        self.ignored_label
    }

    /// The samples of the training part.
    #[must_use]
    pub fn train(&self) -> &Samples {
        &self.train
    }

    /// The samples of the test part.
    #[must_use]
    pub fn test(&self) -> &Samples {
        &self.test
    }

    /// Returns the SHA-256 hash of the name and all samples. O(samples) at the first call.
    pub(crate) fn hash(&self) -> [u8; 32] {
        *self.hash.0.get_or_init(|| {
            let mut hash = Sha256::new();
            hash.update(&self.name);
            for samples in [&self.train, &self.test] {
                add_samples(&mut hash, samples, self.classes.is_some());
            }
            hash.finalize().into()
        })
    }
}

fn add_samples(hash: &mut Sha256, samples: &Samples, has_classes: bool) {
    hash.update((samples.len() as u64).to_le_bytes());
    let mut bytes = Vec::new();
    for sample in 0..samples.len() {
        bytes.clear();
        bytes.extend(samples.features(sample).iter().flat_map(|value| value.to_le_bytes()));
        let of_label =
            |label: &f32| if has_classes { (*label as i32).to_le_bytes() } else { label.to_le_bytes() };
        bytes.extend(samples.labels_of(sample).iter().flat_map(of_label));
        hash.update(&bytes);
    }
}

/// Returns whether the sample at this position of the source, from 0, belongs to the test part if
/// the source has none: every fifth does.
pub(super) fn is_held_out(index: usize) -> bool {
    index % 5 == 0
}

/// Returns the number of elements of a shape; `None` if it is 0 or overflows, or the shape has no
/// dimensions.
pub(super) fn elements(shape: &Shape) -> Option<usize> {
    let product = shape.dims().iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
    product.filter(|&count| count > 0 && !shape.dims().is_empty())
}

/// Checks that every label is one of `classes` classes or the ignored label, or, without classes, a
/// finite number. Each sample has `label_count` consecutive labels. `origin` returns the name of
/// the file or part for the error.
///
/// # Errors
/// [`DataError::Label`] with the first label that is not.
pub(super) fn check_labels(
    labels: &[f32],
    label_count: usize,
    (classes, ignored): (Option<usize>, Option<i32>),
    origin: impl FnOnce() -> String,
) -> Result<(), DataError> {
    let is_valid = |label: f32| match classes {
        Some(_) if label.fract() == 0.0 && Some(label as i32) == ignored => true,
        Some(classes) => label.fract() == 0.0 && label >= 0.0 && (label as usize) < classes,
        None => label.is_finite(),
    };
    match labels.iter().position(|&label| !is_valid(label)) {
        Some(place) => {
            let (index, label) = (place / label_count, labels[place]);
            Err(DataError::Label { origin: origin(), index, label, classes })
        }
        None => Ok(()),
    }
}

/// Checks that every feature is finite. `origin` returns the name of the file or part for the
/// error.
///
/// # Errors
/// [`DataError::NotFinite`] with the first sample that has another one, and the number of such
/// samples.
pub(super) fn check_finite(samples: &Samples, origin: impl FnOnce() -> String) -> Result<(), DataError> {
    let not_finite = |&index: &usize| samples.features(index).iter().any(|feature| !feature.is_finite());
    let mut all = (0..samples.len()).filter(not_finite);
    let Some(index) = all.next() else { return Ok(()) };
    let features = samples.features(index);
    let feature = features.iter().position(|feature| !feature.is_finite()).unwrap_or_default();
    let (origin, count) = (origin(), 1 + all.count());
    let (samples, value) = (samples.len(), features[feature]);
    Err(DataError::NotFinite { origin, count, samples, index, feature, value })
}
