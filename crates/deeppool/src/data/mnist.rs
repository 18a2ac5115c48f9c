//! MNIST in the IDX format (<http://yann.lecun.com/exdb/mnist/>): a magic number with the element
//! type and the number of dimensions, the dimensions, then the elements. Integers are big-endian
//! with 32 bits.

use std::path::{Path, PathBuf};

use layer_graph::Shape;

use super::dataset::check_labels;
use super::file::DataFile;
use super::pixels::Standardiser;
use super::{DataError, Dataset, LabelRule, Samples};

const CLASSES: usize = 10;

/// Mean and standard deviation of the pixels of MNIST's training part, divided by 255.
const TRAINING_PIXELS: (f32, f32) = (0.1307, 0.3081);

/// Loads a data set in the format of MNIST from a folder. Pixels are standardised.
///
/// # Errors
/// [`DataError`] if a file is missing or invalid. [`DataError::ImageShape`] if training and test
/// images differ in shape.
pub(super) fn load(folder: &Path) -> Result<Dataset, DataError> {
    let (shape, train, _) = load_part(folder, "train")?;
    let (found, test, path) = load_part(folder, "t10k")?;
    if found != shape {
        return Err(DataError::ImageShape { path, found, expected: shape });
    }
    Dataset::new("mnist", shape, CLASSES, train, test)
}

/// Returns the shape of the images of a part, its samples, and the path of the images.
fn load_part(folder: &Path, part: &str) -> Result<(Shape, Samples, PathBuf), DataError> {
    let mut images = DataFile::open(folder, &format!("{part}-images-idx3-ubyte"))?;
    let mut labels = DataFile::open(folder, &format!("{part}-labels-idx1-ubyte"))?;
    let ([image_count, height, width], pixels) = read_idx::<3>(&mut images, "images")?;
    let ([label_count], classes) = read_idx::<1>(&mut labels, "labels")?;
    let (images, labels) = (images.into_path(), labels.into_path());
    if image_count != label_count {
        return Err(DataError::CountMismatch { images, image_count, labels, label_count });
    }
    let classes: Vec<f32> = classes.into_iter().map(f32::from).collect();
    check_labels(&classes, &[LabelRule::new(1, CLASSES)], || labels.display().to_string())?;

    let mut features = Vec::with_capacity(pixels.len());
    Standardiser::new(u8::MAX, &[TRAINING_PIXELS]).append(&pixels, &mut features);
    let samples = Samples::new(height * width, features, classes)?;
    Ok((Shape::image(1, height, width), samples, images))
}

/// Reads an IDX file of bytes with `DIMS` dimensions, none of which is 0.
fn read_idx<const DIMS: usize>(
    file: &mut DataFile,
    content: &'static str,
) -> Result<([usize; DIMS], Vec<u8>), DataError> {
    const UNSIGNED_BYTES: u32 = 0x0800;
    let header_bytes = 4 * (1 + DIMS as u64);
    let header = file.read_up_to(header_bytes)?;
    let mut words = header.chunks_exact(4).map(|word| word.iter().fold(0, |all, &b| all << 8 | u32::from(b)));

    let expected = UNSIGNED_BYTES | DIMS as u32;
    if let Some(found) = words.next().filter(|&found| found != expected) {
        return Err(DataError::Magic { path: file.path().into(), content, expected, found });
    }
    if (header.len() as u64) < header_bytes {
        return Err(truncated(file, header_bytes, 0, &header));
    }
    let mut dims = [0; DIMS];
    for (dim, word) in dims.iter_mut().zip(words) {
        *dim = word as usize;
    }
    if dims.contains(&0) {
        return Err(DataError::Empty { origin: file.path().display().to_string() });
    }

    // The header of a damaged file may have more than 2^64 bytes.
    let announced = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim as u64));
    let expected_bytes = announced.unwrap_or(u64::MAX).saturating_add(header_bytes);
    // One more byte shows whether the file ends there.
    let elements = file.read_up_to((expected_bytes - header_bytes).saturating_add(1))?;
    let found_bytes = header_bytes + elements.len() as u64;
    if found_bytes > expected_bytes {
        return Err(DataError::Trailing { path: file.path().into(), expected_bytes });
    }
    if found_bytes < expected_bytes {
        return Err(truncated(file, expected_bytes, header_bytes, &elements));
    }
    Ok((dims, elements))
}

fn truncated(file: &DataFile, expected_bytes: u64, bytes_before: u64, last: &[u8]) -> DataError {
    let found_bytes = bytes_before + last.len() as u64;
    DataError::Truncated { path: file.path().into(), expected_bytes, found_bytes }
}
