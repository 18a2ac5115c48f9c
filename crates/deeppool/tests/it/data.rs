//! Training data: included, from files and synthetic; and the errors of invalid files.

use std::fs;
use std::io::Write;
use std::path::Path;

use deeppool::data::{DataError, DataSource, Dataset, LabelRule, Samples};
use flate2::Compression;
use flate2::write::GzEncoder;
use layer_graph::{
    ElementwiseLoss, Embedding, LayerGraph, LayerKind, Linear, Shape, SoftmaxCrossEntropy, zoo,
};
use proptest::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

const IDX_FILES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

/// Returns an IDX file of bytes.
fn idx(dims: &[u32], elements: &[u8]) -> Vec<u8> {
    let header = std::iter::once(0x0800 | dims.len() as u32).chain(dims.iter().copied());
    header.flat_map(u32::to_be_bytes).chain(elements.iter().copied()).collect()
}

/// Returns the four files of a tiny data set: three training images of 2x4 and two test images.
fn tiny_mnist() -> [Vec<u8>; 4] {
    let pixels: Vec<u8> = (0..24).map(|i| i * 10).collect();
    [idx(&[3, 2, 4], &pixels), idx(&[3], &[7, 0, 9]), idx(&[2, 2, 4], &pixels[8..]), idx(&[2], &[1, 2])]
}

fn folder_of(names: &[&str], contents: &[Vec<u8>]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in names.iter().zip(contents) {
        fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

const CIFAR_FILES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

/// Returns six files: file `i` has one record with label `i`, whose channels are constant.
fn tiny_cifar() -> Vec<Vec<u8>> {
    let record = |label: u8| {
        let channels = [label, 100 + label, 200 + label].map(|pixel| vec![pixel; 1024]);
        [vec![label], channels.concat()].concat()
    };
    (0..6).map(record).collect()
}

/// Returns the error message of a damaged file, without the name of its folder.
fn error_message(folder: &TempDir, open: fn(&Path) -> Result<Dataset, DataError>) -> String {
    let message = open(folder.path()).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message.replace(&format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR), "")
}

/// Returns the fraction of test samples whose nearest class mean (of the training part) is that of
/// their class.
fn nearest_mean_accuracy(dataset: &Dataset) -> f64 {
    let elements = dataset.shape().elements();
    let mut sums = vec![vec![0f64; elements]; dataset.classes().unwrap()];
    let mut counts = vec![0f64; dataset.classes().unwrap()];
    let train = dataset.train();
    for index in 0..train.len() {
        let class = train.labels_of(index)[0] as usize;
        counts[class] += 1.0;
        sums[class].iter_mut().zip(train.features(index)).for_each(|(sum, &x)| *sum += f64::from(x));
    }
    let test = dataset.test();
    let distance = |index: usize, class: usize| -> f64 {
        let features = test.features(index).iter().map(|&x| f64::from(x));
        sums[class].iter().zip(features).map(|(sum, x)| (sum / counts[class] - x).powi(2)).sum()
    };
    let nearest = |index: usize| {
        (0..dataset.classes().unwrap()).min_by(|&a, &b| distance(index, a).total_cmp(&distance(index, b)))
    };
    let right =
        (0..test.len()).filter(|&index| nearest(index) == Some(test.labels_of(index)[0] as usize)).count();
    right as f64 / test.len() as f64
}

/// Returns the mean and standard deviation of all features.
fn mean_and_deviation(samples: &Samples) -> (f64, f64) {
    let all: Vec<f64> = (0..samples.len()).flat_map(|i| samples.features(i)).map(|&x| f64::from(x)).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64;
    (mean, variance.sqrt())
}

fn linear_classifier(input: Shape, classes: usize) -> LayerGraph {
    let mut net = LayerGraph::new("linear", input).unwrap();
    let flat = net.add("flatten", LayerKind::Flatten, [net.input()]).unwrap();
    let scores = net.add("fc", Linear::new(classes), [flat]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    net
}

#[test]
fn digits_have_1797_samples_with_every_fifth_held_out() {
    let digits = Dataset::digits().unwrap();
    assert_eq!((digits.name(), digits.classes()), ("digits", Some(10)));
    assert_eq!(digits.shape(), &Shape::image(1, 8, 8));
    assert_eq!((digits.train().len(), digits.test().len()), (1437, 360));
    // The file begins with 0 to 9, twice.
    assert_eq!(digits.train().labels()[..8], [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0]);
    assert_eq!(digits.test().labels()[..4], [0.0, 5.0, 0.0, 5.0]);
    // The first image's first row is 0,0,5,13,9,1,0,0.
    let row =
        [0.0, 0.0, 5.0, 13.0, 9.0, 1.0, 0.0, 0.0].map(|pixel: f32| (pixel / 16.0 - 0.305_215) / 0.376_322);
    for (feature, expected) in digits.test().features(0).iter().zip(row) {
        assert!((feature - expected).abs() < 1e-5, "{feature} is not {expected}");
    }
}

#[test]
fn digits_are_standardised_and_labels_match_images() {
    let digits = Dataset::digits().unwrap();
    let (mean, deviation) = mean_and_deviation(digits.train());
    assert!(mean.abs() < 1e-5 && (deviation - 1.0).abs() < 1e-5, "{mean} {deviation}");
    assert!(nearest_mean_accuracy(&digits) > 0.85);
}

#[test]
fn synthetic_data_are_standardised_repeatable_and_learnable() {
    let make = |samples, seed| Dataset::synthetic(Shape::image(1, 8, 8), 10, samples, seed).unwrap();
    let data = make(1000, 3);
    assert_eq!((data.train().len(), data.test().len(), data.classes()), (800, 200, Some(10)));
    let (mean, deviation) = mean_and_deviation(data.train());
    assert!(mean.abs() < 0.1 && (deviation - 1.0).abs() < 0.1, "{mean} {deviation}");
    assert!(nearest_mean_accuracy(&data) > 0.95);

    assert_eq!(data, make(1000, 3));
    assert_ne!(data, make(1000, 4));
    assert_eq!(
        data.train().features(7),
        make(10, 3).train().features(7),
        "more samples, the same first ones"
    );
}

#[test]
fn synthetic_data_fit_any_network() {
    let open = |network: &LayerGraph| Dataset::open(&DataSource::Synthetic { seed: 1 }, network).unwrap();
    let small = open(&linear_classifier(Shape::image(3, 4, 5), 7));
    assert_eq!((small.classes().unwrap(), small.train().len() + small.test().len()), (7, 2048));
    let large = open(&linear_classifier(Shape::image(3, 100, 1000), 2));
    assert_eq!(large.train().len() + large.test().len(), 320);
}

#[test]
fn mnist_files_are_read_plain_and_gzipped_under_either_name() {
    let files = tiny_mnist();
    let plain = folder_of(&IDX_FILES, &files);
    let data = Dataset::mnist(plain.path()).unwrap();
    assert_eq!((data.name(), data.shape(), data.classes()), ("mnist", &Shape::image(1, 2, 4), Some(10)));
    assert_eq!((data.train().labels(), data.test().labels()), (&[7.0, 0.0, 9.0][..], &[1.0, 2.0][..]));
    for (i, &feature) in data.train().features(1).iter().enumerate() {
        let expected = ((80 + 10 * i) as f32 / 255.0 - 0.1307) / 0.3081;
        assert!((feature - expected).abs() < 1e-5);
    }
    assert_eq!(data.test().features(0), data.train().features(1));

    let packed = IDX_FILES.map(|name| format!("{name}.gz"));
    let packed = packed.each_ref().map(String::as_str);
    let gzipped = folder_of(&packed, &files.each_ref().map(|file| gzip(file)));
    assert_eq!(Dataset::mnist(gzipped.path()).unwrap(), data);
    let renamed = folder_of(&packed, &files);
    assert_eq!(Dataset::mnist(renamed.path()).unwrap(), data);
}

#[test]
fn errors_name_damaged_mnist_files_and_the_problem() {
    let (images, labels) = (idx(&[3, 2, 4], &[0; 24]), idx(&[3], &[7, 0, 9]));
    let huge = u32::MAX;
    for (file, content, expected) in [
        (0, images[..39].to_vec(), "train-images-idx3-ubyte: truncated: expected 40 bytes, found 39"),
        (0, images[..10].to_vec(), "train-images-idx3-ubyte: truncated: expected 16 bytes, found 10"),
        (1, Vec::new(), "train-labels-idx1-ubyte: truncated: expected 8 bytes, found 0"),
        (
            0,
            [images, vec![0]].concat(),
            "train-images-idx3-ubyte: longer than the 40 bytes given by its header",
        ),
        (
            2,
            labels,
            "t10k-images-idx3-ubyte: wrong magic number 0x00000801, an IDX file of images \
             begins with 0x00000803",
        ),
        (0, idx(&[0, 2, 4], &[]), "train-images-idx3-ubyte: has no samples"),
        (
            0,
            idx(&[huge, huge, huge], &[1]),
            "train-images-idx3-ubyte: truncated: expected 18446744073709551615 bytes, found 17",
        ),
        (1, idx(&[huge], &[1]), "train-labels-idx1-ubyte: truncated: expected 4294967303 bytes, found 9"),
        (
            3,
            idx(&[2], &[1, 10]),
            "t10k-labels-idx1-ubyte: sample 1 has label 10, but labels must be whole numbers below 10",
        ),
        (
            1,
            idx(&[2], &[1, 1]),
            "train-images-idx3-ubyte has 3 images, but train-labels-idx1-ubyte has 2 labels",
        ),
        (
            2,
            idx(&[2, 4, 2], &[0; 16]),
            "t10k-images-idx3-ubyte: has images of 1x4x2, but those of the training part are 1x2x4",
        ),
    ] {
        let mut files = tiny_mnist();
        files[file] = content;
        assert_eq!(error_message(&folder_of(&IDX_FILES, &files), Dataset::mnist), expected);
    }
}

#[test]
fn errors_name_missing_files_and_folders() {
    let folder = folder_of(&IDX_FILES[..3], &tiny_mnist());
    assert_eq!(
        error_message(&folder, Dataset::mnist),
        "t10k-labels-idx1-ubyte: no such file, plain or with .gz"
    );
    let file = folder.path().join(IDX_FILES[0]);
    for path in [&file, &folder.path().join("nowhere")] {
        for open in [Dataset::mnist, Dataset::cifar10] {
            let error = open(path).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{}: not a folder: give that of the data set's files", path.display())
            );
        }
    }
}

#[test]
fn truncated_gzip_files_are_errors() {
    let mut files = tiny_mnist();
    let packed = gzip(&files[0]);
    for bytes in 0..packed.len() {
        files[0] = packed[..bytes].to_vec();
        let error = error_message(&folder_of(&IDX_FILES, &files), Dataset::mnist);
        assert!(error.starts_with("train-images-idx3-ubyte: "), "{error}");
    }
}

#[test]
fn cifar10_files_are_read_channel_by_channel() {
    let folder = folder_of(&CIFAR_FILES, &tiny_cifar());
    let data = Dataset::cifar10(folder.path()).unwrap();
    assert_eq!((data.name(), data.shape(), data.classes()), ("cifar10", &Shape::image(3, 32, 32), Some(10)));
    assert_eq!((data.train().labels(), data.test().labels()), (&[0.0, 1.0, 2.0, 3.0, 4.0][..], &[5.0][..]));
    let statistics = [(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)];
    for (channel, (mean, deviation)) in statistics.into_iter().enumerate() {
        let expected = ((100 * channel + 3) as f32 / 255.0 - mean) / deviation;
        let plane = &data.train().features(3)[1024 * channel..][..1024];
        assert!(plane.iter().all(|feature| (feature - expected).abs() < 1e-5));
    }
}

#[test]
fn errors_name_damaged_cifar10_files_and_the_problem() {
    let record = tiny_cifar().swap_remove(2);
    let partial = "truncated or of another format: expected a multiple of 3073 bytes, found";
    for (content, expected) in [
        (record[..3000].to_vec(), format!("data_batch_3.bin: {partial} 3000")),
        ([&record[..], &record[..1]].concat(), format!("data_batch_3.bin: {partial} 3074")),
        (Vec::new(), "data_batch_3.bin: has no samples".into()),
        (
            vec![10; 3073],
            "data_batch_3.bin: sample 0 has label 10, but labels must be whole numbers below 10".into(),
        ),
    ] {
        let mut files = tiny_cifar();
        files[2] = content;
        assert_eq!(error_message(&folder_of(&CIFAR_FILES, &files), Dataset::cifar10), expected);
    }
}

#[test]
fn data_that_do_not_fit_the_network_are_rejected() {
    let digits = Dataset::digits().unwrap();
    digits.fits(&zoo::model("digits-cnn").unwrap()).unwrap();
    let error_message = |network: &LayerGraph| {
        let error = Dataset::open(&DataSource::Digits, network).unwrap_err();
        assert_eq!(digits.fits(network).unwrap_err().to_string(), error.to_string());
        error.to_string()
    };
    assert_eq!(
        error_message(&linear_classifier(Shape::image(1, 28, 28), 10)),
        "data set `digits` has samples of shape 1x8x8, but network `linear` takes 1x28x28"
    );
    assert_eq!(
        error_message(&linear_classifier(Shape::image(1, 8, 8), 1000)),
        "data set `digits` has 10 classes, but layer `loss` of network `linear` has 1000 classes"
    );
    let bare = LayerGraph::new("bare", Shape::image(1, 8, 8)).unwrap();
    let no_loss =
        "network `bare` has no loss layer that reads labels, so it cannot be trained on labelled data";
    assert_eq!(error_message(&bare), no_loss);
    let synthetic = Dataset::open(&DataSource::Synthetic { seed: 0 }, &bare).unwrap_err();
    assert_eq!(synthetic.to_string(), no_loss);
}

/// Returns a linear classifier whose loss may ignore a label.
fn linear(features: usize, classes: usize, ignored_label: Option<i32>) -> LayerGraph {
    let mut network = LayerGraph::new("linear", Shape::features(features)).unwrap();
    let scores = network.add("fc", Linear::new(classes), [network.input()]).unwrap();
    let rule = SoftmaxCrossEntropy { label_smoothing: 0.0, ignored_label };
    network.add("loss", rule, [scores]).unwrap();
    network
}

#[test]
fn custom_data_sets_are_checked() {
    let samples = |count: usize, label| Samples::new(2, vec![0.5; 2 * count], vec![label; count]).unwrap();
    let own = |train, test| Dataset::new("own", Shape::features(2), 3, train, test);
    assert_eq!(own(samples(4, 2.0), samples(1, 0.0)).unwrap().train().features(3), [0.5, 0.5]);
    let error = own(samples(4, 2.0), samples(0, 0.0)).unwrap_err();
    assert_eq!(error.to_string(), "test part of data set `own`: has no samples");
    assert!(matches!(
        own(samples(4, 3.0), samples(1, 0.0)),
        Err(DataError::Label { index: 0, label: 3.0, .. })
    ));
    let ignoring = |label| {
        let classes = (Some(3), Some(-100));
        Dataset::with_ignored_label("own", Shape::features(2), classes, samples(4, label), samples(1, 0.0))
    };
    assert!(matches!(ignoring(-1.0), Err(DataError::Label { label: -1.0, .. })));
    let error = ignoring(-100.0).unwrap().fits(&linear(2, 3, None)).unwrap_err();
    assert!(error.to_string().contains("label -100 without a class, but layer `loss` of network"), "{error}");
    ignoring(-100.0).unwrap().fits(&linear(2, 3, Some(-100))).unwrap();
    let wide = Samples::new(3, vec![0.0; 3], vec![0.0]).unwrap();
    assert!(matches!(own(wide, samples(1, 0.0)), Err(DataError::SampleSize { found: 3, expected: 2, .. })));
    assert!(matches!(Samples::new(2, vec![0.0; 3], vec![0.0]), Err(DataError::FeatureCount { .. })));
    assert!(matches!(
        Samples::new(usize::MAX, vec![0.0; 3], vec![0.0; 2]),
        Err(DataError::FeatureCount { .. })
    ));
}

/// Asserts the invariants of all data sets.
fn assert_sound(data: &Dataset) {
    for samples in [data.train(), data.test()] {
        assert!(!samples.is_empty());
        assert!(samples.labels().iter().all(|&label| (label as usize) < data.classes().unwrap()));
        assert_eq!(samples.features(samples.len() - 1).len(), data.shape().elements());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_truncation_of_an_idx_file_is_an_error(file in 0usize..4, cut in any::<prop::sample::Index>()) {
        let mut files = tiny_mnist();
        let bytes = cut.index(files[file].len());
        files[file].truncate(bytes);
        let error = error_message(&folder_of(&IDX_FILES, &files), Dataset::mnist);
        prop_assert!(error.starts_with(&format!("{}: truncated", IDX_FILES[file])), "{}", error);
    }

    #[test]
    fn modified_idx_files_give_valid_data_or_an_error(
        file in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        packed in any::<bool>(),
    ) {
        let mut files = tiny_mnist();
        if packed {
            files[file] = gzip(&files[file]);
        }
        for (position, byte) in changes {
            let position = position.index(files[file].len());
            files[file][position] = byte;
        }
        if let Ok(data) = Dataset::mnist(folder_of(&IDX_FILES, &files).path()) {
            assert_sound(&data);
        }
    }

    #[test]
    fn random_bytes_give_valid_data_or_an_error(
        file in 0usize..6,
        bytes in prop::collection::vec(any::<u8>(), 0..7000),
        header in prop::sample::select(
            vec![vec![], vec![0, 0, 8, 1], vec![0, 0, 8, 3], vec![0x1f, 0x8b, 8, 0]]
        ),
    ) {
        let bytes = [header, bytes].concat();
        let mut mnist = tiny_mnist();
        mnist[file % 4].clone_from(&bytes);
        prop_assert!(Dataset::mnist(folder_of(&IDX_FILES, &mnist).path()).is_err());
        let mut cifar = tiny_cifar();
        cifar[file] = bytes;
        if let Ok(data) = Dataset::cifar10(folder_of(&CIFAR_FILES, &cifar).path()) {
            assert_sound(&data);
        }
    }
}

/// A tensor of a safetensors file: its name, element type, dimensions and bytes.
type RawTensor<'a> = (&'a str, Dtype, Vec<usize>, Vec<u8>);

fn floats<'a>(name: &'a str, dims: &[usize], values: &[f32]) -> RawTensor<'a> {
    (name, Dtype::F32, dims.to_vec(), values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

fn classes<'a>(name: &'a str, dims: &[usize], values: &[i64]) -> RawTensor<'a> {
    (name, Dtype::I64, dims.to_vec(), values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

/// Opens a safetensors file of these tensors for a network of 1x2x2 images and three classes.
fn open_tensors(tensors: &[RawTensor<'_>]) -> Result<Dataset, String> {
    open_tensors_for(&linear_classifier(Shape::image(1, 2, 2), 3), tensors)
}

fn open_tensors_for(network: &LayerGraph, tensors: &[RawTensor<'_>]) -> Result<Dataset, String> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("own.safetensors");
    let views = tensors
        .iter()
        .map(|(name, dtype, dims, bytes)| (*name, TensorView::new(*dtype, dims.clone(), bytes).unwrap()));
    fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    let opened = Dataset::open(&DataSource::Tensors(path.clone()), network);
    opened.map_err(|error| error.to_string().replace(&path.display().to_string(), "FILE"))
}

#[test]
fn safetensors_files_are_read_as_data_sets() {
    let values: Vec<f32> = (0..24).map(|value| value as f32).collect();
    let inputs = floats("train.inputs", &[6, 1, 2, 2], &values);
    let labels = classes("train.labels", &[6], &[0, 1, 2, 0, 1, 2]);

    // Without a test part every fifth sample is held out.
    let own = open_tensors(&[inputs.clone(), labels.clone()]).unwrap();
    assert_eq!((own.train().labels(), own.test().labels()), (&[1.0, 2.0, 0.0, 1.0][..], &[0.0, 2.0][..]));
    assert_eq!(own.train().features(0), [4.0, 5.0, 6.0, 7.0]);
    assert_eq!(own.test().features(1), [20.0, 21.0, 22.0, 23.0]);

    let bytes = ("test.inputs", Dtype::U8, vec![1, 1, 2, 2], vec![0, 1, 254, 255]);
    let small = ("test.labels", Dtype::U8, vec![1], vec![2]);
    let own = open_tensors(&[inputs.clone(), labels.clone(), bytes, small]).unwrap();
    assert_eq!((own.train().len(), own.test().labels()), (6, &[2.0][..]));
    assert_eq!(own.test().features(0), [0.0, 1.0, 254.0, 255.0]);
}

/// A network with several inputs has a tensor for each of them.
#[test]
fn safetensors_files_have_a_tensor_for_each_input() {
    let mut network = LayerGraph::new("pair", Shape::features(2)).unwrap();
    let words = network.add_input("words", Shape::features(3)).unwrap();
    let other = network.add("embedding", Embedding::new(9, 1), [words]).unwrap();
    let other = network.add("flatten", LayerKind::Flatten, [other]).unwrap();
    let other = network.add("fc", Linear::new(2), [other]).unwrap();
    let sum = network.add("sum", LayerKind::Add, [network.input(), other]).unwrap();
    network.add("loss", LayerKind::CROSS_ENTROPY, [sum]).unwrap();

    let values = floats("train.inputs.input", &[2, 2], &[0.5, 1.5, 2.5, 3.5]);
    let words = classes("train.inputs.words", &[2, 3], &[1, 2, 3, 4, 5, 6]);
    let labels = classes("train.labels", &[2], &[0, 1]);
    let data = open_tensors_for(&network, &[values.clone(), words.clone(), labels.clone()]).unwrap();
    assert_eq!(data.test().features(0), [0.5, 1.5, 1.0, 2.0, 3.0]);
    assert_eq!(data.train().features(0), [2.5, 3.5, 4.0, 5.0, 6.0]);

    for (tensors, expected) in [
        (vec![values.clone(), labels.clone()], "FILE: tensor `train.inputs.words` is missing"),
        (
            vec![floats("train.inputs", &[2, 2], &[0.0; 4]), words.clone(), labels.clone()],
            "FILE: 1 of 3 tensors are not of a data set, such as `train.inputs`: expected \
             train.inputs.input, train.inputs.words, train.labels, test.inputs.input, test.inputs.words, \
             test.labels",
        ),
        (
            vec![values.clone(), classes("train.inputs.words", &[2, 2], &[0; 4]), labels.clone()],
            "FILE: `train.inputs.words` has samples of shape 2, but network `pair` takes 3",
        ),
        (
            vec![values.clone(), classes("train.inputs.words", &[2, 3], &[1, 2, 9, 0, 0, 0]), labels.clone()],
            "test part of data set `FILE`: sample 0 has a feature 9, which is not one of the 9 tokens",
        ),
    ] {
        let error = open_tensors_for(&network, &tensors).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn safetensors_files_without_samples_are_rejected() {
    let inputs = floats("train.inputs", &[2, 1, 2, 2], &[0.5; 8]);
    let labels = classes("train.labels", &[2], &[0, 2]);
    for (tensors, expected) in [
        (vec![labels.clone()], "FILE: tensor `train.inputs` is missing"),
        (vec![inputs.clone()], "FILE: tensor `train.labels` is missing"),
        (
            vec![inputs.clone(), classes("train.labels", &[3], &[0; 3])],
            "FILE: tensor `train.inputs` is [2, 1, 2, 2] and `train.labels` is [3]: the first dimension of \
             both is the samples",
        ),
        (
            vec![inputs.clone(), classes("train.labels", &[2], &[0, -1])],
            "FILE: tensor `train.labels`: sample 1 has label -1, but classes are numbered from 0: positions \
             without a target need it as `ignored_label` of the loss layer",
        ),
        (
            vec![inputs.clone(), floats("train.labels", &[2], &[0.0; 2])],
            "FILE: tensor `train.labels` is F32: expected integers, the classes from 0",
        ),
        (
            vec![("train.inputs", Dtype::F64, vec![2], vec![0; 16]), labels.clone()],
            "FILE: tensor `train.inputs` is F64: expected F32 or integers",
        ),
        (
            vec![inputs.clone(), classes("train.labels", &[2], &[0, 3])],
            "FILE: sample 1 has label 3, but labels must be whole numbers below 3",
        ),
        (
            vec![floats("train.inputs", &[2, 4], &[0.5; 8]), labels.clone()],
            "data set `FILE` has samples of shape 4, but network `linear` takes 1x2x2",
        ),
        (
            vec![floats("train.inputs", &[], &[0.5]), labels.clone()],
            "FILE: tensor `train.inputs` has no dimension for the samples",
        ),
    ] {
        let error = open_tensors(&tensors).unwrap_err();
        assert_eq!(error, expected);
    }
}

#[test]
fn samples_that_are_not_finite_are_named() {
    let values = |bad: &[(usize, f32)]| {
        let mut values = vec![0.5; 24];
        for &(place, value) in bad {
            values[place] = value;
        }
        values
    };
    let labels = classes("train.labels", &[6], &[0, 1, 2, 0, 1, 2]);
    let test_labels = classes("test.labels", &[6], &[0, 1, 2, 0, 1, 2]);
    for (train, test, expected) in [
        (
            &[(13, f32::NAN)][..],
            None,
            "FILE: tensor `train.inputs`: 1 of 6 samples have values that are not finite, first sample \
             3 (NaN in feature 1): correct the samples or leave them out",
        ),
        // Sample 5 is held out.
        (&[(20, f32::INFINITY)], None, "first sample 5 (inf in feature 0)"),
        (&[(4, f32::NAN), (5, f32::NAN), (23, f32::NEG_INFINITY)], None, "2 of 6 samples"),
        (
            &[],
            Some(&[(10, f32::NEG_INFINITY)][..]),
            "FILE: tensor `test.inputs`: 1 of 6 samples have values that are not finite, first sample \
             2 (-inf in feature 2)",
        ),
    ] {
        let mut tensors = vec![floats("train.inputs", &[6, 1, 2, 2], &values(train)), labels.clone()];
        if let Some(test) = test {
            tensors.extend([floats("test.inputs", &[6, 1, 2, 2], &values(test)), test_labels.clone()]);
        }
        let error = open_tensors(&tensors).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    // Samples in memory, of both parts.
    let part =
        |value: f32| Samples::new(4, vec![0.5, 0.5, 0.5, 0.5, 0.5, value, 0.5, 0.5], vec![0.0, 1.0]).unwrap();
    for (train, test, expected) in [
        (f32::NAN, 0.0, "training part of data set `own`: 1 of 2 samples"),
        (0.0, f32::NAN, "test part of data set `own`: 1 of 2 samples"),
    ] {
        let dataset = Dataset::new("own", Shape::image(1, 2, 2), 2, part(train), part(test));
        let error = dataset.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("first sample 1 (NaN in feature 1)"), "{error}");
    }
}

/// A source accepts all samples, or is refused with the number of unusable ones or the first of
/// them. The match lists every source, so that a new one does not compile without a case.
#[test]
fn every_source_accepts_or_refuses_all_samples() {
    let sources = [
        DataSource::Digits,
        DataSource::Mnist("m".into()),
        DataSource::Cifar10("c".into()),
        DataSource::Tensors("t".into()),
        DataSource::Synthetic { seed: 0 },
    ];
    for source in &sources {
        for unusable in [0, 1, 3] {
            let samples = 6;
            // Samples 1, 2 and 3 have a label that is no class, or a feature that is not finite.
            let is_bad = |index: usize| (1..=unusable).contains(&index);
            let label = |index: usize| if is_bad(index) { 200 } else { (index % 3) as u8 };
            let labels: Vec<u8> = (0..samples).map(label).collect();
            let opened: Result<Dataset, String> = match source {
                // Generated or included: every sample is usable.
                DataSource::Digits => Dataset::digits().map_err(|error| error.to_string()),
                DataSource::Synthetic { seed } => Dataset::synthetic(Shape::image(1, 2, 2), 3, 320, *seed)
                    .map_err(|error| error.to_string()),
                DataSource::Mnist(_) => {
                    let images = idx(&[6, 2, 2], &[7; 24]);
                    let files = [images.clone(), idx(&[6], &labels), images, idx(&[6], &[0; 6])];
                    let folder = folder_of(&IDX_FILES, &files);
                    Dataset::mnist(folder.path()).map_err(|error| error.to_string())
                }
                DataSource::Cifar10(_) => {
                    let mut files = tiny_cifar();
                    files[0] =
                        labels.iter().flat_map(|&label| [vec![label], vec![1; 3072]].concat()).collect();
                    let folder = folder_of(&CIFAR_FILES, &files);
                    Dataset::cifar10(folder.path()).map_err(|error| error.to_string())
                }
                DataSource::Tensors(_) => {
                    let mut values = vec![0.5; 24];
                    (0..samples)
                        .filter(|&index| is_bad(index))
                        .for_each(|index| values[4 * index] = f32::NAN);
                    let labels = classes("train.labels", &[6], &[0, 1, 2, 0, 1, 2]);
                    open_tensors(&[floats("train.inputs", &[6, 1, 2, 2], &values), labels])
                }
            };
            let has_files = !matches!(source, DataSource::Digits | DataSource::Synthetic { .. });
            match opened {
                Ok(dataset) => {
                    assert!(unusable == 0 || !has_files, "{source}: {unusable} accepted");
                    let all = dataset.train().len() + dataset.test().len();
                    let expected = match source {
                        DataSource::Digits => 1797,
                        DataSource::Synthetic { .. } => 320,
                        DataSource::Mnist(_) => 12,
                        DataSource::Cifar10(_) => 11,
                        DataSource::Tensors(_) => 6,
                    };
                    assert_eq!(all, expected, "{source}");
                }
                Err(error) => {
                    assert!(unusable > 0 && error.contains("sample 1"), "{source}: {error}");
                    let counted = format!("{unusable} of 6 samples");
                    assert!(!matches!(source, DataSource::Tensors(_)) || error.contains(&counted), "{error}");
                }
            }
        }
    }
}

/// Each loss has a tensor of labels, or all have the same one.
#[test]
fn safetensors_files_have_labels_for_each_loss() {
    let mut network = LayerGraph::new("two heads", Shape::features(2)).unwrap();
    let classified = network.add("classes", Linear::new(3), [network.input()]).unwrap();
    network.add("loss", LayerKind::CROSS_ENTROPY, [classified]).unwrap();
    let valued = network.add("values", Linear::new(2), [network.input()]).unwrap();
    let squares = ElementwiseLoss::MeanSquaredError;
    network.add("values_loss", squares, [valued]).unwrap();

    let inputs = floats("train.inputs", &[2, 2], &[0.0; 4]);
    let of_classes = classes("train.labels.loss", &[2], &[2, 1]);
    let of_values = floats("train.labels.values_loss", &[2, 2], &[0.5, -1.0, 1.5, 2.0]);
    let data = open_tensors_for(&network, &[inputs.clone(), of_values.clone(), of_classes.clone()]).unwrap();
    assert_eq!(data.test().labels_of(0), [2.0, 0.5, -1.0]);
    assert_eq!(data.train().labels_of(0), [1.0, 1.5, 2.0]);
    assert_eq!(data.labels(), [LabelRule::new(1, 3), LabelRule::new(2, None::<usize>)]);

    for (tensors, expected) in [
        (vec![inputs.clone(), of_classes.clone()], "FILE: tensor `train.labels.values_loss` is missing"),
        (
            vec![inputs.clone(), classes("train.labels.other", &[2], &[0; 2])],
            "FILE: 1 of 2 tensors are not of a data set, such as `train.labels.other`: expected \
             train.inputs, train.labels.loss, train.labels.values_loss, test.inputs, test.labels.loss, \
             test.labels.values_loss",
        ),
        (
            vec![inputs.clone(), classes("train.labels.loss", &[2], &[2, 3]), of_values.clone()],
            "FILE: sample 1 has label 3, but labels must be whole numbers below 3",
        ),
        (
            vec![inputs.clone(), classes("train.labels.loss", &[3], &[0; 3]), of_values.clone()],
            "FILE: tensor `train.inputs` is [2, 2] and `train.labels.loss` is [3]: the first dimension",
        ),
        (
            vec![inputs.clone(), of_classes.clone(), floats("train.labels.values_loss", &[2, 1], &[0.0; 2])],
            "data set `FILE` has 1 labels a sample, but layer `values_loss` of network `two heads` takes 2",
        ),
        (
            vec![inputs.clone(), classes("train.labels", &[2], &[0, 1])],
            "data set `FILE` has 3 classes, but layer `values_loss` of network `two heads` has numbers",
        ),
    ] {
        let error = open_tensors_for(&network, &tensors).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }

    let mut heads = LayerGraph::new("same labels", Shape::features(2)).unwrap();
    for name in ["loss", "other"] {
        let scores = heads.add(format!("{name}.fc"), Linear::new(3), [heads.input()]).unwrap();
        heads.add(name, LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    }
    let data = open_tensors_for(&heads, &[inputs, classes("train.labels", &[2], &[2, 1])]).unwrap();
    assert_eq!((data.test().labels_of(0), data.train().labels_of(0)), (&[2.0, 2.0][..], &[1.0, 1.0][..]));
}

/// Synthetic data have labels for losses of every kind, and the features do not depend on them.
#[test]
fn synthetic_data_fit_several_losses() {
    for has_tokens in [false, true] {
        let mut network = LayerGraph::new("heads", Shape::features(4)).unwrap();
        let mut hidden = network.input();
        if has_tokens {
            hidden = network.add("embedding", Embedding::new(9, 1), [hidden]).unwrap();
            hidden = network.add("flatten", LayerKind::Flatten, [hidden]).unwrap();
        }
        let mut one = None;
        let losses = [
            LayerKind::CROSS_ENTROPY,
            ElementwiseLoss::BinaryCrossEntropy.into(),
            LayerKind::CROSS_ENTROPY,
            ElementwiseLoss::MeanSquaredError.into(),
        ];
        for (index, loss) in losses.into_iter().enumerate() {
            let scores = network.add(format!("fc{index}"), Linear::new(2 + index), [hidden]).unwrap();
            network.add(format!("loss{index}"), loss, [scores]).unwrap();
            one.get_or_insert_with(|| network.clone());
        }
        let all = Dataset::synthetic_for(&network, 50, 3).unwrap();
        let one = Dataset::synthetic_for(&one.unwrap(), 50, 3).unwrap();
        for index in 0..one.train().len() {
            assert_eq!(all.train().features(index), one.train().features(index));
            let labels = all.train().labels_of(index);
            assert_eq!((labels.len(), labels[0]), (10, one.train().labels_of(index)[0]));
            assert!(labels[1..4].iter().all(|label| [0.0, 1.0].contains(label)), "{labels:?}");
        }
    }
}
