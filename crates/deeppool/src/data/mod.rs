//! What a network is trained on: labelled samples, split into a part to train on and a part that is held out.
//!
//! | on the command line | what it is | held out | pixels |
//! |---|---|---|---|
//! | `digits` | 1,797 handwritten digits of 1x8x8, shipped with the crate | every fifth | / 16, standardised |
//! | `mnist:DIR` | the four IDX files of MNIST (or of Fashion-MNIST), plain or gzipped | `t10k-*` | / 255, standardised |
//! | `cifar10:DIR` | the six files of CIFAR-10's binary version | `test_batch.bin` | / 255, standardised by channel |
//! | `safetensors:FILE` | `train.inputs` (samples x shape) and `train.labels` of any data | `test.inputs`, `test.labels`; else every fifth | as they are |
//! | `synthetic`, `synthetic:SEED` | made up to fit any network, and learnable | every fifth | standardised |
//!
//! *Every fifth* are the samples whose position, counted from 0, is a multiple of five. *Standardised* is less the mean
//! and divided by the standard deviation of the training part.
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
//! assert_eq!(digits.train().labels_of(0), [1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cifar10;
mod dataset;
mod digits;
mod error;
mod file;
mod fit;
mod mnist;
mod open;
mod pixels;
mod samples;
mod source;
mod synthetic;
mod tensors;

pub use dataset::Dataset;
pub use error::DataError;
pub use samples::Samples;
pub use source::DataSource;
