use std::path::Path;

use layer_graph::{LayerGraph, Shape};

use super::{DataError, DataSource, Samples, cifar10, digits, fit, mnist, synthetic};
use crate::Error;

/// Labelled samples of one shape, split into a part to train on and a part that is held out to test with.
///
/// Both parts hold samples, all of the data set's shape, and every label is below the number of classes.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    name: String,
    shape: Shape,
    classes: usize,
    train: Samples,
    test: Samples,
}

impl Dataset {
    /// A data set of one's own.
    ///
    /// # Errors
    /// When a part is empty, has samples of another size than `shape`, or a label that is not below `classes`.
    pub fn new(
        name: impl Into<String>,
        shape: Shape,
        classes: usize,
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
        }
        Ok(Self { name, shape, classes, train, test })
    }

    /// Opens the data that a source names, to train a network with it.
    ///
    /// Synthetic data are made to fit the network: 2,048 samples, fewer (but 320) where they would take more than
    /// 128 MiB. A network that reads tokens gets sequences in which each token says, but for one in four, which one comes
    /// next; that one is its label.
    ///
    /// # Errors
    /// When a file is missing or not what it should be, or the data do not [fit](Self::fits) the network.
    pub fn open(source: &DataSource, network: &LayerGraph) -> Result<Self, DataError> {
        let dataset = match source {
            DataSource::Digits => Self::digits()?,
            DataSource::Mnist(folder) => Self::mnist(folder)?,
            DataSource::Cifar10(folder) => Self::cifar10(folder)?,
            DataSource::Synthetic { seed } => {
                return Self::synthetic_for(network, synthetic::usual_samples(network), *seed);
            }
        };
        dataset.fits(network)?;
        Ok(dataset)
    }

    /// Checks that there is a whole batch of this size to train on.
    ///
    /// # Errors
    /// [`Error::BatchTooLarge`] when there is not.
    pub fn check_batch(&self, batch: usize) -> Result<(), Error> {
        let samples = self.train.len();
        if batch > samples {
            return Err(Error::BatchTooLarge { dataset: self.name.clone(), samples, batch });
        }
        Ok(())
    }

    /// So many synthetic samples to train a network with, of which a fifth, rounded up, is held out.
    ///
    /// # Errors
    /// When the network has no loss layer, or no data [fit](Self::fits) it.
    pub fn synthetic_for(network: &LayerGraph, samples: usize, seed: u64) -> Result<Self, DataError> {
        let dataset = synthetic::for_network(network, samples, seed)?;
        dataset.fits(network)?;
        Ok(dataset)
    }

    /// The shipped 1,797 handwritten digits of the UCI Machine Learning Repository (E. Alpaydin and C. Kaynak, 1998,
    /// doi 10.24432/C50P49, CC BY 4.0): images of 1x8x8, 10 classes, 1,437 to train on and every fifth held out.
    ///
    /// Pixels are divided by 16 and standardised by mean 0.305215 and standard deviation 0.376322, those of the
    /// training part.
    ///
    /// # Errors
    /// [`DataError::Read`] or [`DataError::Row`] when the shipped file was damaged before the build.
    pub fn digits() -> Result<Self, DataError> {
        digits::load()
    }

    /// The files of MNIST, or of a data set in its format with 10 classes, in a folder: `train-images-idx3-ubyte`,
    /// `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, each plain or with `.gz`.
    ///
    /// The size of the images is what the headers say. Pixels are divided by 255 and standardised by mean 0.1307 and
    /// standard deviation 0.3081, those of MNIST's training part.
    ///
    /// # Errors
    /// When a file is missing, unreadable, truncated, too long, of another format, or at odds with another one.
    pub fn mnist(folder: &Path) -> Result<Self, DataError> {
        mnist::load(folder)
    }

    /// The files of CIFAR-10's binary version in a folder: `data_batch_1.bin` to `data_batch_5.bin` and
    /// `test_batch.bin`, records of a label and 3x32x32 pixels.
    ///
    /// Pixels are divided by 255 and standardised by channel: means 0.4914, 0.4822 and 0.4465, standard deviations
    /// 0.2470, 0.2435 and 0.2616, those of the training part. A file may hold fewer than the usual 10,000 records.
    ///
    /// # Errors
    /// When a file is missing, unreadable, empty, not a whole number of records, or has a label above 9.
    pub fn cifar10(folder: &Path) -> Result<Self, DataError> {
        cifar10::load(folder)
    }

    /// Synthetic data that can be learned: each class has a mean of its own, and each sample is the mean of its class
    /// plus as much noise; every fifth sample is held out.
    ///
    /// Means and noise are uniform; features have mean 0 and variance 1. The same arguments give the same samples, and
    /// more samples give the same first ones. Takes `O(samples * elements)` time.
    ///
    /// # Errors
    /// [`DataError::Size`] when the shape or `classes` is empty, there are fewer than two samples, or they do not fit
    /// into memory.
    pub fn synthetic(shape: Shape, classes: usize, samples: usize, seed: u64) -> Result<Self, DataError> {
        synthetic::generate(shape, classes, samples, seed)
    }

    /// Checks that a network can be trained on this data set: it takes samples of this shape, every loss layer tells this
    /// number of classes apart at as many positions as a sample has labels, and what an embedding reads are tokens.
    ///
    /// # Errors
    /// [`DataError::InputShape`], [`DataError::Classes`], [`DataError::LabelCount`], [`DataError::Token`] or
    /// [`DataError::NoLoss`].
    pub fn fits(&self, network: &LayerGraph) -> Result<(), DataError> {
        fit::check(self, network)
    }

    /// What the data set is called, such as `digits`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The shape of one sample: `channels x height x width` for images.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of classes; every label is below it.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The samples to train on.
    #[must_use]
    pub fn train(&self) -> &Samples {
        &self.train
    }

    /// The samples that are held out.
    #[must_use]
    pub fn test(&self) -> &Samples {
        &self.test
    }
}

/// Whether the sample at this position belongs to the test part, where the source itself has no such part.
pub(super) fn is_held_out(index: usize) -> bool {
    index % 5 == 0
}

/// Elements of a shape; nothing when there are none, or more than can be counted.
pub(super) fn elements(shape: &Shape) -> Option<usize> {
    let product = shape.dims().iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
    product.filter(|&count| count > 0 && !shape.dims().is_empty())
}

/// Checks that every label is below the number of classes; samples have `label_count` labels each.
pub(super) fn check_labels(
    labels: &[u32],
    label_count: usize,
    classes: usize,
    origin: impl FnOnce() -> String,
) -> Result<(), DataError> {
    match labels.iter().position(|&label| label as usize >= classes) {
        Some(place) => {
            let (index, label) = (place / label_count, labels[place]);
            Err(DataError::Label { origin: origin(), index, label, classes })
        }
        None => Ok(()),
    }
}
