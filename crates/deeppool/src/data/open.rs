//! Opening of data sets.

use std::path::Path;

use layer_graph::{LayerGraph, Shape};

use super::label_rule::losses;
use super::{DataError, DataSource, Dataset, cifar10, digits, mnist, synthetic, tensors};

impl Dataset {
    /// Opens the data of a source for training a network. The network is the one that synthetic
    /// data are generated for, and that all data must fit. If it has several losses and the data
    /// have labels for one, these are the labels of all losses.
    ///
    /// Synthetic data have 2,048 samples, or fewer (but at least 320) if they need more than 128
    /// MiB. A network that reads tokens gets sequences in which three of four tokens determine the
    /// next one, which is the label.
    ///
    /// # Errors
    /// [`DataError`] if a file is missing or invalid, or the data do not [fit](Self::fits) the
    /// network.
    pub fn open(source: &DataSource, network: &LayerGraph) -> Result<Self, DataError> {
        let dataset = match source {
            DataSource::Digits => Self::digits()?,
            DataSource::Mnist(folder) => Self::mnist(folder)?,
            DataSource::Cifar10(folder) => Self::cifar10(folder)?,
            DataSource::Tensors(file) => tensors::load(file, network)?,
            DataSource::Synthetic { seed } => {
                return Self::synthetic_for(network, synthetic::default_sample_count(network), *seed);
            }
        };
        let losses = losses(network).len();
        let is_shared = dataset.labels().len() == 1 && losses > 1;
        let dataset = if is_shared { dataset.with_shared_labels(losses)? } else { dataset };
        dataset.fits(network)?;
        Ok(dataset)
    }

    /// Generates `samples` synthetic samples for training a network. A fifth of them, rounded up,
    /// is held out. The same arguments give the same samples.
    ///
    /// # Errors
    /// [`DataError`] if the network has no loss layer, or the generated data do not
    /// [fit](Self::fits) it.
    pub fn synthetic_for(network: &LayerGraph, samples: usize, seed: u64) -> Result<Self, DataError> {
        let dataset = synthetic::for_network(network, samples, seed)?;
        dataset.fits(network)?;
        Ok(dataset)
    }

    /// Returns the included 1,797 handwritten digits of the UCI Machine Learning Repository (E.
    /// Alpaydin and C. Kaynak, 1998, doi 10.24432/C50P49, CC BY 4.0): images of 1x8x8, 10 classes,
    /// 1,437 training samples and every fifth held out.
    ///
    /// Pixels are divided by 16 and standardised by mean 0.305215 and standard deviation 0.376322,
    /// those of the training part.
    ///
    /// # Errors
    /// [`DataError::Read`] or [`DataError::Row`] if the included file was damaged before the build.
    pub fn digits() -> Result<Self, DataError> {
        digits::load()
    }

    /// Opens MNIST, or a data set in its format with 10 classes, from a folder with
    /// `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
    /// `t10k-labels-idx1-ubyte`, each plain or with `.gz`.
    ///
    /// The headers give the size of the images. Pixels are divided by 255 and standardised by mean
    /// 0.1307 and standard deviation 0.3081, those of MNIST's training part.
    ///
    /// # Errors
    /// [`DataError`] if a file is missing, unreadable, of another size or format, or inconsistent
    /// with another one.
    pub fn mnist(folder: &Path) -> Result<Self, DataError> {
        mnist::load(folder)
    }

    /// Opens the binary version of CIFAR-10 from a folder with `data_batch_1.bin` to
    /// `data_batch_5.bin` and `test_batch.bin`: records of a label and 3x32x32 pixels.
    ///
    /// Pixels are divided by 255 and standardised by channel: means 0.4914, 0.4822 and 0.4465,
    /// standard deviations 0.2470, 0.2435 and 0.2616, those of the training part. A file may have
    /// fewer than the usual 10,000 records.
    ///
    /// # Errors
    /// [`DataError`] if a file is missing, unreadable, empty, not a whole number of records, or has
    /// a label above 9.
    pub fn cifar10(folder: &Path) -> Result<Self, DataError> {
        cifar10::load(folder)
    }

    /// Generates synthetic data that can be learned: `samples` samples of the given shape and
    /// number of classes. Each class has its own mean, and each sample is the mean of its class
    /// plus noise of the same variance. Every fifth sample is held out.
    ///
    /// Means and noise are uniform. Features have mean 0 and variance 1. The same arguments give
    /// the same samples, and more samples begin with the same ones. `O(samples * elements)`.
    ///
    /// # Errors
    /// [`DataError::Size`] if the shape or `classes` is empty, there are fewer than two samples, or
    /// they do not fit into memory.
    pub fn synthetic(shape: Shape, classes: usize, samples: usize, seed: u64) -> Result<Self, DataError> {
        synthetic::generate(shape, classes, samples, seed)
    }
}
