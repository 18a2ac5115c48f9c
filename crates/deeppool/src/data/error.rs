//! Errors of training data. *Features* are the values of a sample that are the input of the
//! network. A *label* is the number of a class, from 0.

use std::io;
use std::path::PathBuf;

use layer_graph::Shape;

/// The notations of all data sources, for error messages.
const KNOWN_SOURCES: &str = "digits, mnist:DIR, cifar10:DIR, safetensors:FILE, synthetic, synthetic:SEED";

/// Errors of training data. Every message is one line that names the file, the data set or the
/// source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// There is no data source with this notation.
    #[error("unknown data set `{spec}`; known data sets: {}", KNOWN_SOURCES)]
    UnknownSource {
        /// The given notation, such as `mnist:DIR`.
        spec: String,
    },
    /// The argument of a data source, which is the part after the colon, is invalid.
    #[error("data set `{spec}`: {problem}")]
    Argument {
        /// The given notation.
        spec: String,
        /// Description of the problem with the argument.
        problem: &'static str,
    },
    /// The folder of a data set does not exist or is not a folder.
    #[error("{}: not a folder: give that of the data set's files", path.display())]
    NotAFolder {
        /// The given path.
        path: PathBuf,
    },
    /// A file of a data set is missing, plain and gzipped.
    #[error("{}: no such file, plain or with .gz", path.display())]
    MissingFile {
        /// Path of the file without `.gz`.
        path: PathBuf,
    },
    /// A file cannot be read or decompressed.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// A file in the IDX format has a wrong magic number: the first four bytes, which give type and
    /// number of dimensions.
    #[error(
        "{}: wrong magic number {found:#010x}, an IDX file of {content} begins with {expected:#010x}",
        path.display()
    )]
    Magic {
        /// Path of the file.
        path: PathBuf,
        /// Content that the file should have: `images` or `labels`.
        content: &'static str,
        /// Magic number of a file with this content.
        expected: u32,
        /// Magic number of the file.
        found: u32,
    },
    /// A file is too short. Sizes are those after decompression.
    #[error("{}: truncated: expected {expected_bytes} bytes, found {found_bytes}", path.display())]
    Truncated {
        /// Path of the file.
        path: PathBuf,
        /// Size that the header of the file gives, or the size of the header if that is incomplete.
        expected_bytes: u64,
        /// Size of the file.
        found_bytes: u64,
    },
    /// A file is longer than its header says. Sizes are those after decompression.
    #[error("{}: longer than the {expected_bytes} bytes given by its header", path.display())]
    Trailing {
        /// Path of the file.
        path: PathBuf,
        /// Size that the header of the file gives.
        expected_bytes: u64,
    },
    /// A file does not consist of whole records. Sizes are those after decompression.
    #[error(
        "{}: truncated or of another format: expected a multiple of {record_bytes} bytes, found \
         {found_bytes}",
        path.display()
    )]
    PartialRecord {
        /// Path of the file.
        path: PathBuf,
        /// Size of a record: a label and an image.
        record_bytes: u64,
        /// Size of the file.
        found_bytes: u64,
    },
    /// A line of the included digits is not an image and its label.
    #[error("digits, line {line}: expected 64 pixels from 0 to 16 and a label from 0 to 9")]
    Row {
        /// Number of the line, from 1.
        line: usize,
    },
    /// A safetensors file does not have valid samples and labels.
    #[error("{}: {problem}", path.display())]
    Tensors {
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// A file, or the training or test part of a data set, has no samples.
    #[error("{origin}: has no samples")]
    Empty {
        /// The file, or the part of the data set.
        origin: String,
    },
    /// A label is not a class of the data set, or not finite.
    #[error(
        "{origin}: sample {index} has label {label}, but labels must be {}",
        match classes { Some(classes) => format!("whole numbers below {classes}"), None => "finite".into() }
    )]
    Label {
        /// The file, or the part of the data set.
        origin: String,
        /// Index of the sample in the file or part, from 0.
        index: usize,
        /// The invalid label.
        label: f32,
        /// Number of classes, if labels are classes.
        classes: Option<usize>,
    },
    /// Samples have a feature that is not finite.
    #[error(
        "{origin}: {count} of {samples} samples have values that are not finite, first sample {index} \
         ({value} in feature {feature}): correct the samples or leave them out"
    )]
    NotFinite {
        /// The file or tensor, or the part of the data set.
        origin: String,
        /// Number of samples with such values.
        count: usize,
        /// Number of samples of the file or part.
        samples: usize,
        /// Index of the first sample with such a value in the file or part, from 0.
        index: usize,
        /// Index of the first such feature of that sample, from 0.
        feature: usize,
        /// Its value: NaN or an infinity.
        value: f32,
    },
    /// The numbers of images and labels of a data set differ.
    #[error(
        "{} has {image_count} images, but {} has {label_count} labels",
        images.display(),
        labels.display()
    )]
    CountMismatch {
        /// Path of the file of images.
        images: PathBuf,
        /// Number of images in their file.
        image_count: usize,
        /// Path of the file of labels.
        labels: PathBuf,
        /// Number of labels in their file.
        label_count: usize,
    },
    /// The test images have another shape than the training images.
    #[error("{}: has images of {found}, but those of the training part are {expected}", path.display())]
    ImageShape {
        /// Path of the file of test images.
        path: PathBuf,
        /// Shape of a test image.
        found: Shape,
        /// Shape of a training image.
        expected: Shape,
    },
    /// The samples of a part have another number of features than the shape of the data set.
    #[error("{origin}: has samples of {found} features, but shape {shape} needs {expected}")]
    SampleSize {
        /// The part of the data set.
        origin: String,
        /// Number of features of a sample.
        found: usize,
        /// Number of features that the shape gives.
        expected: usize,
        /// Shape of a sample of the data set.
        shape: Shape,
    },
    /// The samples of a part have another number of labels than the losses of the data set.
    #[error("{origin}: has {found} labels a sample, but its losses read {expected}")]
    SampleLabels {
        /// The part of the data set.
        origin: String,
        /// Number of labels of a sample.
        found: usize,
        /// Number of labels that all losses together read.
        expected: usize,
    },
    /// The numbers of features and labels do not belong to the same number of whole samples.
    #[error(
        "{features} features and {labels} labels are not those of samples of {sample_elements} features and \
         {label_count} labels each"
    )]
    FeatureCount {
        /// Number of features of all samples.
        features: usize,
        /// Number of labels of all samples.
        labels: usize,
        /// Number of features of a sample.
        sample_elements: usize,
        /// Number of labels of a sample.
        label_count: usize,
    },
    /// A data set does not fit into memory, or it would be empty.
    #[error("{samples} samples of shape {shape} are empty or too large for the memory")]
    Size {
        /// Shape of a sample.
        shape: Shape,
        /// Number of samples.
        samples: usize,
    },
    /// The input of the network has another shape than the samples.
    #[error("data set `{dataset}` has samples of shape {found}, but network `{network}` takes {expected}")]
    InputShape {
        /// Name of the data set.
        dataset: String,
        /// Shape of a sample of the data set.
        found: Shape,
        /// Name of the network.
        network: String,
        /// Shape of the network's input for one sample.
        expected: Shape,
    },
    /// The network has another number of losses than the data set has labels for.
    #[error(
        "data set `{dataset}` has labels for {}, but network `{network}` has {}: `{}`",
        counted(*found), counted(expected.len()), expected.join("`, `")
    )]
    LossCount {
        /// Name of the data set.
        dataset: String,
        /// Number of losses that the data set has labels for.
        found: usize,
        /// Name of the network.
        network: String,
        /// Names of the network's loss layers.
        expected: Vec<String>,
    },
    /// The network has another number of classes than the data set, or one of them has none.
    #[error(
        "data set `{dataset}` has {}, but layer `{layer}` of network `{network}` has {}",
        shown(*found), shown(*expected)
    )]
    Classes {
        /// Name of the data set.
        dataset: String,
        /// Number of classes of the data set, if it has any.
        found: Option<usize>,
        /// Name of the network.
        network: String,
        /// Name of the loss layer.
        layer: String,
        /// Number of classes of the loss layer, if it has any.
        expected: Option<usize>,
    },
    /// The loss layer ignores another label than the data set has for positions without a target,
    /// or none.
    #[error(
        "data set `{dataset}` has label {} without a class, but layer `{layer}` of network `{network}` \
         {}: set its `ignored_label`",
        found.unwrap_or_default(),
        match expected { Some(label) => format!("ignores {label}"), None => "ignores none".into() }
    )]
    IgnoredLabel {
        /// Name of the data set.
        dataset: String,
        /// Label of the data set without a class.
        found: Option<i32>,
        /// Name of the network.
        network: String,
        /// Name of the loss layer.
        layer: String,
        /// Label that the loss layer ignores, if it ignores one.
        expected: Option<i32>,
    },
    /// The network classifies another number of positions of a sequence than the data set has
    /// labels per sample.
    #[error(
        "data set `{dataset}` has {found} labels a sample, but layer `{layer}` of network \
         `{network}` takes {expected}"
    )]
    LabelCount {
        /// Name of the data set.
        dataset: String,
        /// Number of labels per sample of the data set.
        found: usize,
        /// Name of the network.
        network: String,
        /// Name of the loss layer.
        layer: String,
        /// Number of labels per sample that the loss layer reads.
        expected: usize,
    },
    /// A feature is not the number of a token, but the network begins with an embedding of tokens.
    #[error(
        "{part} part of data set `{dataset}`: sample {index} has a feature {feature}, which is not one of \
         the {vocabulary} tokens of layer `{layer}` of network `{network}`"
    )]
    Token {
        /// Name of the data set.
        dataset: String,
        /// Part of the data set: `training` or `test`.
        part: &'static str,
        /// Index of the sample in the part, from 0.
        index: usize,
        /// Value of the feature.
        feature: f32,
        /// Name of the network.
        network: String,
        /// Name of the embedding layer.
        layer: String,
        /// Number of tokens, which are numbered from 0.
        vocabulary: usize,
    },
    /// The network has no loss layer of the kind that reads labels.
    #[error(
        "network `{network}` has no loss layer that reads labels, so it cannot be trained on labelled data"
    )]
    NoLoss {
        /// Name of the network.
        network: String,
    },
    /// A batch is larger than the training part of a data set.
    #[error(
        "a batch of {batch} is more than the {samples} training samples of `{dataset}`: give a smaller batch"
    )]
    BatchTooLarge {
        /// Name of the data set.
        dataset: String,
        /// Number of training samples of the data set.
        samples: usize,
        /// Number of samples of the batch.
        batch: usize,
    },
}

fn shown(classes: Option<usize>) -> String {
    classes.map_or_else(|| "numbers as labels".into(), |classes| format!("{classes} classes"))
}

fn counted(losses: usize) -> String {
    if losses == 1 { "1 loss".into() } else { format!("{losses} losses") }
}
