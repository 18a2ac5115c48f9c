use std::io;
use std::path::PathBuf;

use layer_graph::Shape;

/// The notations of all data sources, for error messages.
const KNOWN_SOURCES: &str = "digits, mnist:DIR, cifar10:DIR, safetensors:FILE, synthetic, synthetic:SEED";

/// Errors of training data. Every message is one line with the name of the file or the data set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// There is no data set with this name.
    #[error("unknown data set `{spec}`; known data sets: {}", KNOWN_SOURCES)]
    UnknownSource {
        /// The given notation.
        spec: String,
    },
    /// The argument of the data set is invalid.
    #[error("data set `{spec}`: {problem}")]
    Argument {
        /// The given notation.
        spec: String,
        /// The problem with the part after the colon.
        problem: &'static str,
    },
    /// The folder of a data set does not exist or is not a folder.
    #[error("{}: not a folder", path.display())]
    NotAFolder {
        /// The given folder.
        path: PathBuf,
    },
    /// A file of a data set is missing, plain and gzipped.
    #[error("{}: no such file, plain or with .gz", path.display())]
    MissingFile {
        /// The plain file.
        path: PathBuf,
    },
    /// A file cannot be read or decompressed.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// An IDX file has another magic number.
    #[error(
        "{}: wrong magic number {found:#010x}, an IDX file of {content} begins with {expected:#010x}",
        path.display()
    )]
    Magic {
        /// The file.
        path: PathBuf,
        /// Expected content: `images` or `labels`.
        content: &'static str,
        /// Magic number of this content.
        expected: u32,
        /// Magic number of the file.
        found: u32,
    },
    /// A file is too short. Sizes are those after decompression.
    #[error("{}: truncated: expected {expected_bytes} bytes, found {found_bytes}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Size by its header, or the size of the header if that is incomplete.
        expected_bytes: u64,
        /// Its size.
        found_bytes: u64,
    },
    /// A file is longer than its header says. Sizes are those after decompression.
    #[error("{}: longer than the {expected_bytes} bytes given by its header", path.display())]
    Trailing {
        /// The file.
        path: PathBuf,
        /// Size by its header.
        expected_bytes: u64,
    },
    /// A file does not consist of whole records. Sizes are those after decompression.
    #[error(
        "{}: truncated or of another format: expected a multiple of {record_bytes} bytes, found \
         {found_bytes}",
        path.display()
    )]
    PartialRecord {
        /// The file.
        path: PathBuf,
        /// Size of a record.
        record_bytes: u64,
        /// Size of the file.
        found_bytes: u64,
    },
    /// A line of the digits is not an image and its label.
    #[error("digits, line {line}: expected 64 pixels from 0 to 16 and a label from 0 to 9")]
    Row {
        /// Number of the line, from 1.
        line: usize,
    },
    /// A safetensors file does not have samples and labels.
    #[error("{}: {problem}", path.display())]
    Tensors {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The training part or the test part is empty.
    #[error("{origin}: has no samples")]
    Empty {
        /// The file, or the part of a data set.
        origin: String,
    },
    /// A label is not a class of the data set.
    #[error("{origin}: sample {index} has label {label}, but labels must be below {classes}")]
    Label {
        /// The file, or the part of a data set.
        origin: String,
        /// Index of the sample, from 0.
        index: usize,
        /// The label.
        label: u32,
        /// Number of classes.
        classes: usize,
    },
    /// The numbers of images and labels of a data set differ.
    #[error(
        "{} has {image_count} images, but {} has {label_count} labels",
        images.display(),
        labels.display()
    )]
    CountMismatch {
        /// The file of images.
        images: PathBuf,
        /// Number of images.
        image_count: usize,
        /// The file of labels.
        labels: PathBuf,
        /// Number of labels.
        label_count: usize,
    },
    /// The test images have another shape than the training images.
    #[error("{}: has images of {found}, but those of the training part are {expected}", path.display())]
    ImageShape {
        /// The file of test images.
        path: PathBuf,
        /// Their shape.
        found: Shape,
        /// Shape of the training images.
        expected: Shape,
    },
    /// Samples have another size than the shape of the data set.
    #[error("{origin}: has samples of {found} features, but shape {shape} needs {expected}")]
    SampleSize {
        /// The part of a data set.
        origin: String,
        /// Number of features of a sample.
        found: usize,
        /// Number of features by the shape.
        expected: usize,
        /// Shape of the data set's samples.
        shape: Shape,
    },
    /// The numbers of features and labels are not those of the same whole samples.
    #[error(
        "{features} features and {labels} labels are not those of samples of {sample_elements} features and \
         {label_count} labels each"
    )]
    FeatureCount {
        /// Number of features.
        features: usize,
        /// Number of labels.
        labels: usize,
        /// Number of features of a sample.
        sample_elements: usize,
        /// Number of labels of a sample.
        label_count: usize,
    },
    /// A data set does not fit into memory, or has no elements.
    #[error("{samples} samples of shape {shape} are empty or too large for the memory")]
    Size {
        /// Shape of a sample.
        shape: Shape,
        /// Number of samples.
        samples: usize,
    },
    /// The input of the network has another shape.
    #[error("data set `{dataset}` has samples of shape {found}, but network `{network}` takes {expected}")]
    InputShape {
        /// The data set.
        dataset: String,
        /// Shape of its samples.
        found: Shape,
        /// The network.
        network: String,
        /// Shape of its input.
        expected: Shape,
    },
    /// The network has another number of classes.
    #[error(
        "data set `{dataset}` has {found} classes, but layer `{layer}` of network `{network}` \
         has {expected}"
    )]
    Classes {
        /// The data set.
        dataset: String,
        /// Number of classes of the data set.
        found: usize,
        /// The network.
        network: String,
        /// The loss layer.
        layer: String,
        /// Number of classes of the loss layer.
        expected: usize,
    },
    /// The network classifies another number of positions.
    #[error(
        "data set `{dataset}` has {found} labels a sample, but layer `{layer}` of network \
         `{network}` takes {expected}"
    )]
    LabelCount {
        /// The data set.
        dataset: String,
        /// Number of labels per sample.
        found: usize,
        /// The network.
        network: String,
        /// The loss layer.
        layer: String,
        /// Number of labels of the loss layer.
        expected: usize,
    },
    /// A feature is not the number of a token.
    #[error(
        "data set `{dataset}` has a feature {feature}, which is not one of the {vocabulary} tokens of \
         layer `{layer}` of network `{network}`"
    )]
    Token {
        /// The data set.
        dataset: String,
        /// The feature.
        feature: f32,
        /// The network.
        network: String,
        /// Name of the embedding.
        layer: String,
        /// Number of tokens.
        vocabulary: usize,
    },
    /// The network has no loss layer.
    #[error(
        "network `{network}` has no softmax_cross_entropy layer, so it cannot be trained on labelled data"
    )]
    NoLoss {
        /// The network.
        network: String,
    },
    /// A batch is larger than the training part of a data set.
    #[error(
        "a batch of {batch} is more than the {samples} training samples of `{dataset}`: give a smaller batch"
    )]
    BatchTooLarge {
        /// The data set.
        dataset: String,
        /// Number of its training samples.
        samples: usize,
        /// Number of samples of the batch.
        batch: usize,
    },
}
