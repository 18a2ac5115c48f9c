//! Training data: labelled samples, split into a training part and a held-out test part.
//!
//! | on the command line | data | held out | pixels |
//! |---|---|---|---|
//! | `digits` | 1,797 digits of 1x8x8, included in the crate | every fifth | / 16 |
//! | `mnist:DIR` | the IDX files of MNIST or Fashion-MNIST, or `.gz` | `t10k-*` | / 255 |
//! | `cifar10:DIR` | the binary version of CIFAR-10 | `test_batch.bin` | / 255, by channel |
//! | `safetensors:FILE` | `train.inputs`, `train.labels` | `test.*`, or every fifth | unchanged |
//! | `synthetic[:SEED]` | generated for the network | every fifth | |
//!
//! *Every fifth* are the samples whose position, from 0, is a multiple of five. Pixels, and
//! synthetic vectors and images of classes, are standardised: the mean of the training part is
//! subtracted, and the result is divided by its standard deviation. Inputs of safetensors files
//! have the shape samples x shape of a sample; those of a network with several inputs are
//! `train.inputs.NAME` for each of them. The features of a sample are then the elements of its
//! inputs in the network's order. Labels are classes, which are integers, or the numbers that the
//! elements of the output should be. For a network with several losses, `train.labels.NAME` has
//! those of the loss layer of this name; `train.labels` are then labels of all losses, as those of
//! images are.
//!
//! ```
//! use deeppool::data::{DataSource, Dataset};
//! use layer_graph::zoo;
//!
//! let network = zoo::model("digits-cnn")?;
//! let source: DataSource = "digits".parse()?;
//! let digits = Dataset::open(&source, &network)?;
//! assert_eq!((digits.train().len(), digits.test().len()), (1437, 360));
//! assert_eq!(digits.train().features(0).len(), digits.shape().elements());
//! assert_eq!(digits.train().labels_of(0), [1.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cifar10;
mod dataset;
mod digits;
mod error;
mod file;
mod fit;
mod label_rule;
mod mnist;
mod open;
mod pixels;
mod samples;
mod source;
mod synthetic;
mod tensors;

pub use dataset::Dataset;
pub use error::DataError;
pub use label_rule::LabelRule;
pub use samples::Samples;
pub use source::DataSource;
