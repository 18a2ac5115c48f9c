use std::io;
use std::path::PathBuf;

use layer_graph::Shape;

/// The notations of all data sources, for error messages.
const KNOWN_SOURCES: &str = "digits, mnist:DIR, cifar10:DIR, safetensors:FILE, synthetic, synthetic:SEED";

/// What can be wrong with training data. Every message is one line that names the file or the data set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// There is no data set of this name.
    #[error("unknown data set `{spec}`; known data sets: {}", KNOWN_SOURCES)]
    UnknownSource {
        /// What was asked for.
        spec: String,
    },
    /// The data set exists, but not with this argument.
    #[error("data set `{spec}`: {problem}")]
    Argument {
        /// What was asked for.
        spec: String,
        /// What is wrong with the part after the colon.
        problem: &'static str,
    },
    /// The folder of a data set does not exist or is not a folder.
    #[error("{}: not a folder", path.display())]
    NotAFolder {
        /// The folder that was named.
        path: PathBuf,
    },
    /// A file of a data set is missing, plain and gzipped.
    #[error("{}: no such file, plain or with .gz", path.display())]
    MissingFile {
        /// The plain file.
        path: PathBuf,
    },
    /// The operating system, or the gzip decoder, could not read a file.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// An IDX file does not begin as one of its kind does.
    #[error(
        "{}: wrong magic number {found:#010x}, an IDX file of {content} begins with {expected:#010x}",
        path.display()
    )]
    Magic {
        /// The file.
        path: PathBuf,
        /// What the file should hold: `images` or `labels`.
        content: &'static str,
        /// The magic number of such a file.
        expected: u32,
        /// The magic number of this file.
        found: u32,
    },
    /// A file ends too early. Bytes are counted after decompression.
    #[error("{}: truncated: expected {expected_bytes} bytes, found {found_bytes}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its size according to its header, or the size of the header when not even that is whole.
        expected_bytes: u64,
        /// Its size.
        found_bytes: u64,
    },
    /// A file goes on where its header says that it ends. Bytes are counted after decompression.
    #[error("{}: goes on after the {expected_bytes} bytes that its header announces", path.display())]
    Trailing {
        /// The file.
        path: PathBuf,
        /// Its size according to its header.
        expected_bytes: u64,
    },
    /// A file does not consist of whole records. Bytes are counted after decompression.
    #[error(
        "{}: truncated or of another format: expected a multiple of {record_bytes} bytes, found {found_bytes}",
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
        /// The line, counted from 1.
        line: usize,
    },
    /// A safetensors file does not hold samples and their labels.
    #[error("{}: {problem}", path.display())]
    Tensors {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// There is nothing to train on, or nothing to test with.
    #[error("{origin}: holds no samples")]
    Empty {
        /// The file, or the part of a data set.
        origin: String,
    },
    /// A label is not a class of the data set.
    #[error("{origin}: sample {index} has label {label}, but labels must be below {classes}")]
    Label {
        /// The file, or the part of a data set.
        origin: String,
        /// Which sample, counted from 0.
        index: usize,
        /// Its label.
        label: u32,
        /// Number of classes.
        classes: usize,
    },
    /// A file of images and the file of their labels do not belong together.
    #[error("{} holds {image_count} images, but {} holds {label_count} labels", images.display(), labels.display())]
    CountMismatch {
        /// The file of images.
        images: PathBuf,
        /// How many it holds.
        image_count: usize,
        /// The file of labels.
        labels: PathBuf,
        /// How many it holds.
        label_count: usize,
    },
    /// The test images of a data set have another shape than its training images.
    #[error("{}: has images of {found}, but those of the training part are {expected}", path.display())]
    ImageShape {
        /// The file of test images.
        path: PathBuf,
        /// Their shape.
        found: Shape,
        /// Shape of the training images.
        expected: Shape,
    },
    /// Samples have another size than the data set's shape says.
    #[error("{origin}: has samples of {found} features, but shape {shape} needs {expected}")]
    SampleSize {
        /// The part of a data set.
        origin: String,
        /// Features of its samples.
        found: usize,
        /// Features of a sample of the shape.
        expected: usize,
        /// Shape of the data set's samples.
        shape: Shape,
    },
    /// Features and labels are not those of the same number of whole samples.
    #[error(
        "{features} features and {labels} labels are not those of samples of {sample_elements} features and \
         {label_count} labels each"
    )]
    FeatureCount {
        /// Number of features.
        features: usize,
        /// Number of labels.
        labels: usize,
        /// Features of one sample.
        sample_elements: usize,
        /// Labels of one sample.
        label_count: usize,
    },
    /// A data set of this size cannot be held in memory, or has no elements at all.
    #[error("{samples} samples of shape {shape} are empty or too large for the memory")]
    Size {
        /// Shape of a sample.
        shape: Shape,
        /// Number of samples.
        samples: usize,
    },
    /// The network takes samples of another shape.
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
    /// The network tells another number of classes apart.
    #[error(
        "data set `{dataset}` has {found} classes, but layer `{layer}` of network `{network}` tells {expected} apart"
    )]
    Classes {
        /// The data set.
        dataset: String,
        /// Its number of classes.
        found: usize,
        /// The network.
        network: String,
        /// The loss layer.
        layer: String,
        /// Number of class scores that the loss layer takes.
        expected: usize,
    },
    /// The network classifies another number of positions.
    #[error(
        "data set `{dataset}` has {found} labels a sample, but layer `{layer}` of network `{network}` takes {expected}"
    )]
    LabelCount {
        /// The data set.
        dataset: String,
        /// Labels of its samples.
        found: usize,
        /// The network.
        network: String,
        /// The loss layer.
        layer: String,
        /// Labels that the loss layer takes.
        expected: usize,
    },
    /// A feature is not the number of a token.
    #[error(
        "data set `{dataset}` has a feature {feature}, which is none of the {vocabulary} tokens of layer `{layer}` of \
         network `{network}`"
    )]
    Token {
        /// The data set.
        dataset: String,
        /// The feature.
        feature: f32,
        /// The network.
        network: String,
        /// The embedding.
        layer: String,
        /// Number of tokens.
        vocabulary: usize,
    },
    /// The network has no loss, so it cannot be trained on labels.
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
        /// The batch.
        batch: usize,
    },
}
