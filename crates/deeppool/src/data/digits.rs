//! The included handwritten digits. `data/README.md` of the crate has their source and licence.

use std::io::Read;

use flate2::read::GzDecoder;
use layer_graph::Shape;

use super::dataset::is_held_out;
use super::pixels::Standardiser;
use super::{DataError, Dataset, Samples};

const DIGITS_CSV_GZ: &[u8] = include_bytes!("../../data/digits.csv.gz");
const PIXELS: usize = 8 * 8;
const MAX_PIXEL: u8 = 16;
const CLASSES: u8 = 10;

/// Mean and standard deviation of all pixels of the training part, divided by 16.
const TRAINING_PIXELS: (f32, f32) = (0.305_215, 0.376_322);

/// Loads the handwritten digits that are part of the executable.
///
/// # Errors
/// [`DataError::Read`] or [`DataError::Row`] if they were damaged before the build.
pub(super) fn load() -> Result<Dataset, DataError> {
    let mut text = String::new();
    GzDecoder::new(DIGITS_CSV_GZ)
        .read_to_string(&mut text)
        .map_err(|error| DataError::Read { path: "digits.csv.gz".into(), error })?;
    parse(&text)
}

fn parse(text: &str) -> Result<Dataset, DataError> {
    let standardiser = Standardiser::new(MAX_PIXEL, &[TRAINING_PIXELS]);
    let mut train = (Vec::new(), Vec::new());
    let mut test = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let (image, label) = parse_row(line).ok_or(DataError::Row { line: index + 1 })?;
        let (features, labels) = if is_held_out(index) { &mut test } else { &mut train };
        standardiser.append(&image, features);
        labels.push(f32::from(label));
    }
    let train = Samples::new(PIXELS, train.0, train.1)?;
    let test = Samples::new(PIXELS, test.0, test.1)?;
    Dataset::new("digits", Shape::image(1, 8, 8), usize::from(CLASSES), train, test)
}

/// Returns the pixels and the label of a line.
fn parse_row(line: &str) -> Option<(Vec<u8>, u8)> {
    let mut row = line.split(',').map(|field| field.parse().ok()).collect::<Option<Vec<u8>>>()?;
    let label = row.pop().filter(|&label| label < CLASSES)?;
    (row.len() == PIXELS && row.iter().all(|&pixel| pixel <= MAX_PIXEL)).then_some((row, label))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pixels: usize, pixel: &str, label: &str) -> String {
        format!("{}{label}\n", format!("{pixel},").repeat(pixels))
    }

    #[test]
    fn errors_name_the_invalid_line() {
        let good = line(64, "16", "9");
        assert!(parse(&good.repeat(2)).is_ok());
        for bad in [
            line(63, "0", "1"),
            line(65, "0", "1"),
            line(64, "17", "1"),
            line(64, "0", "10"),
            line(64, "-1", "1"),
            line(64, "0", ""),
            "\n".into(),
        ] {
            let error = parse(&format!("{good}{bad}{good}")).unwrap_err();
            assert!(matches!(error, DataError::Row { line: 2 }), "{bad:?}: {error}");
        }
    }
}
