//! Where data sets come from.

use std::path::Path;

use layer_graph::{LayerGraph, Shape};

use super::{DataError, DataSource, Dataset, cifar10, digits, mnist, synthetic, tensors};

impl Dataset {
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
            DataSource::Tensors(file) => tensors::load(file, network)?,
            DataSource::Synthetic { seed } => {
                return Self::synthetic_for(network, synthetic::usual_samples(network), *seed);
            }
        };
        dataset.fits(network)?;
        Ok(dataset)
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
}
