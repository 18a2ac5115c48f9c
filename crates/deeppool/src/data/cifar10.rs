//! CIFAR-10's binary version (<https://www.cs.toronto.edu/~kriz/cifar.html>): records of one byte
//! for the label and 32x32 pixels of red, of green and of blue, row by row.

use std::path::Path;

use layer_graph::Shape;

use super::dataset::check_labels;
use super::file::DataFile;
use super::pixels::Standardiser;
use super::{DataError, Dataset, LabelRule, Samples};

const CLASSES: usize = 10;
const PIXELS: usize = 3 * 32 * 32;
const RECORD_BYTES: usize = 1 + PIXELS;

const TRAINING_FILES: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
const TEST_FILE: &str = "test_batch.bin";

/// Mean and standard deviation of each channel of the training part, divided by 255: red, green,
/// blue.
const TRAINING_PIXELS: [(f32, f32); 3] = [(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)];

/// Loads the binary version of CIFAR-10 from a folder. Pixels are standardised by channel.
pub(super) fn load(folder: &Path) -> Result<Dataset, DataError> {
    let train = load_part(folder, &TRAINING_FILES)?;
    let test = load_part(folder, &[TEST_FILE])?;
    Dataset::new("cifar10", Shape::image(3, 32, 32), CLASSES, train, test)
}

fn load_part(folder: &Path, names: &[&str]) -> Result<Samples, DataError> {
    let standardiser = Standardiser::new(u8::MAX, &TRAINING_PIXELS);
    let mut features = Vec::new();
    let mut labels = Vec::new();
    for name in names {
        let mut file = DataFile::open(folder, name)?;
        let bytes = file.read_up_to(u64::MAX)?;
        let origin = || file.path().display().to_string();
        if bytes.is_empty() {
            return Err(DataError::Empty { origin: origin() });
        }
        if bytes.len() % RECORD_BYTES != 0 {
            return Err(DataError::PartialRecord {
                path: file.path().into(),
                record_bytes: RECORD_BYTES as u64,
                found_bytes: bytes.len() as u64,
            });
        }
        let records = bytes.chunks_exact(RECORD_BYTES);
        let first = labels.len();
        labels.extend(records.clone().map(|record| f32::from(record[0])));
        check_labels(&labels[first..], &[LabelRule::new(1, CLASSES)], origin)?;
        features.reserve(records.len() * PIXELS);
        records.for_each(|record| standardiser.append(&record[1..], &mut features));
    }
    Samples::new(PIXELS, features, labels)
}
