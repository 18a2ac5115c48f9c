//! A data set in memory. The *training part* is the samples to train on, the *test part* the
//! held-out samples.

use std::sync::OnceLock;

use layer_graph::Shape;
use sha2::{Digest, Sha256};

use super::{DataError, LabelRule, Samples};

/// Labelled samples of one shape, split into a training part and a held-out test part. The labels
/// of a sample are those of one or more losses, one after another.
///
/// Both parts have samples, all of the data set's shape, every label is a class or the ignored
/// label if its loss has classes, and every number is finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    name: String,
    shape: Shape,
    labels: Vec<LabelRule>,
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
        (classes, ignored): (Option<usize>, Option<i32>),
        train: Samples,
        test: Samples,
    ) -> Result<Self, DataError> {
        let rule = LabelRule::new(train.label_count(), classes).with_ignored(ignored);
        Self::with_labels(name, shape, vec![rule], train, test)
    }

    /// Creates a data set for one or more losses, in the order of their labels in a sample, each
    /// with the rule for its labels.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`DataError::SampleLabels`] if samples have another number of
    /// labels than all losses together.
    pub fn with_labels(
        name: impl Into<String>,
        shape: Shape,
        labels: Vec<LabelRule>,
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
            let expected = labels.iter().map(|rule| rule.count).sum();
            if samples.label_count() != expected {
                let (origin, found) = (origin(), samples.label_count());
                return Err(DataError::SampleLabels { origin, found, expected });
            }
            check_labels(samples.labels(), &labels, origin)?;
            check_finite(samples, origin)?;
        }
        Ok(Self { name, shape, labels, train, test, hash: Hash::default() })
    }

    /// Returns the data set for `losses` losses that all have the labels of the only loss of this
    /// one, such as those of the auxiliary classifiers of a network.
    ///
    /// # Errors
    /// None for a data set that could be created.
    pub fn with_shared_labels(self, losses: usize) -> Result<Self, DataError> {
        let part = |samples: &Samples| {
            let features = (0..samples.len()).flat_map(|index| samples.features(index)).copied();
            let of_sample = |index| samples.labels_of(index).repeat(losses);
            let labels = (0..samples.len()).flat_map(of_sample).collect();
            let label_count = losses * samples.label_count();
            Samples::of_sequences(samples.sample_elements(), features.collect(), label_count, labels)
        };
        let (train, test) = (part(&self.train)?, part(&self.test)?);
        Self::with_labels(self.name, self.shape, self.labels.repeat(losses), train, test)
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

    /// Rules for the labels of each loss, in the order of the labels in a sample.
    #[must_use]
    pub fn labels(&self) -> &[LabelRule] {
        &self.labels
    }

    /// Number of classes of the first loss, if it has classes. Its labels are then numbers of
    /// classes, from 0.
    #[must_use]
    pub fn classes(&self) -> Option<usize> {
        self.labels.first().and_then(|rule| rule.classes)
    }

    /// Label of the first loss of positions without a target, if there may be such positions.
    #[must_use]
    pub fn ignored_label(&self) -> Option<i32> {
        self.labels.first().and_then(|rule| rule.ignored)
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
                add_samples(&mut hash, samples, &self.labels);
            }
            hash.finalize().into()
        })
    }
}

fn add_samples(hash: &mut Sha256, samples: &Samples, labels: &[LabelRule]) {
    let has_classes: Vec<bool> =
        labels.iter().flat_map(|rule| std::iter::repeat_n(rule.classes.is_some(), rule.count)).collect();
    hash.update((samples.len() as u64).to_le_bytes());
    let mut bytes = Vec::new();
    for sample in 0..samples.len() {
        bytes.clear();
        bytes.extend(samples.features(sample).iter().flat_map(|value| value.to_le_bytes()));
        let of_label = |(label, &has_classes): (&f32, &bool)| {
            if has_classes { (*label as i32).to_le_bytes() } else { label.to_le_bytes() }
        };
        bytes.extend(samples.labels_of(sample).iter().zip(&has_classes).flat_map(of_label));
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

/// Checks that every label is one that the rule of its loss allows. `rules` are those of the
/// consecutive labels of a sample, in order. `origin` returns the name of the file or part for the
/// error.
///
/// # Errors
/// [`DataError::Label`] with the first label that is not.
pub(super) fn check_labels(
    labels: &[f32],
    rules: &[LabelRule],
    origin: impl FnOnce() -> String,
) -> Result<(), DataError> {
    let of_places: Vec<&LabelRule> =
        rules.iter().flat_map(|rule| std::iter::repeat_n(rule, rule.count)).collect();
    let mut all = labels.iter().zip(of_places.iter().cycle()).enumerate();
    match all.find(|(_, (label, rule))| !rule.allows(**label)) {
        Some((place, (&label, rule))) => {
            let index = place / of_places.len();
            Err(DataError::Label { origin: origin(), index, label, classes: rule.classes })
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
