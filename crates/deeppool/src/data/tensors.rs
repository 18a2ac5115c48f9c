//! Data from a safetensors file with `train.inputs`, `train.labels` and, if there is a test part,
//! `test.inputs` and `test.labels`.

use std::path::Path;

use layer_graph::{LayerGraph, Shape};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::dataset::{check_finite, check_labels, is_held_out};
use super::file::read_whole;
use super::{DataError, Dataset, Samples, fit};

/// Names of the tensors of a data set.
const NAMES: [&str; 4] = ["train.inputs", "train.labels", "test.inputs", "test.labels"];
/// Magnitude up to which single precision has every integer.
const MAX_EXACT: i64 = 1 << 24;

/// Loads the data for a network from a safetensors file. Without a test part, every fifth sample is
/// held out. The number of classes is that of the network's loss layer.
///
/// # Errors
/// [`DataError::Read`], [`DataError::Tensors`], [`DataError::Label`] or [`DataError::NotFinite`] if
/// the file is unreadable or invalid. [`DataError::NoLoss`] if the network has no loss layer.
pub(super) fn load(path: &Path, network: &LayerGraph) -> Result<Dataset, DataError> {
    let bytes = read_whole(path).map_err(|error| DataError::Read { path: path.into(), error })?;
    let problem = |problem: String| DataError::Tensors { path: path.into(), problem };
    let file = SafeTensors::deserialize(&bytes).map_err(|error| problem(error.to_string()))?;
    check_names(&file).map_err(problem)?;
    let (_, classes) = fit::losses(network).next().ok_or_else(|| fit::no_loss(network))?;
    let (shape, samples) = part(&file, "train").map_err(problem)?;
    // Before splitting, which changes the numbers of the samples.
    check_labels(samples.labels(), samples.label_count(), classes, || path.display().to_string())?;
    check_finite(&samples, || format!("{}: tensor `train.inputs`", path.display()))?;
    let has_test_part = file.names().into_iter().any(|name| name.starts_with("test."));
    let (train, test) = if has_test_part {
        let (test_shape, test) = part(&file, "test").map_err(problem)?;
        if test_shape != shape {
            let found = format!("`test.inputs` has samples of shape {test_shape}, `train.inputs` of {shape}");
            return Err(problem(found));
        }
        check_finite(&test, || format!("{}: tensor `test.inputs`", path.display()))?;
        (samples, test)
    } else {
        split(&samples)?
    };
    Dataset::new(path.display().to_string(), shape, classes, train, test)
}

/// Checks that the file has no tensors that would not be read.
fn check_names(file: &SafeTensors<'_>) -> Result<(), String> {
    let mut unknown: Vec<&str> = file.names().into_iter().filter(|name| !NAMES.contains(name)).collect();
    unknown.sort_unstable();
    match unknown[..] {
        [] => Ok(()),
        [name, ..] => Err(format!(
            "{} of {} tensors are not of a data set, such as `{name}`: expected {}",
            unknown.len(),
            file.len(),
            NAMES.join(", ")
        )),
    }
}

/// Returns the samples of a part, and the shape of each.
fn part(file: &SafeTensors<'_>, name: &str) -> Result<(Shape, Samples), String> {
    let tensor = |kind: &str| {
        let name = format!("{name}.{kind}");
        let view = file.tensor(&name).map_err(|_| format!("tensor `{name}` is missing"))?;
        Ok::<_, String>((name, view))
    };
    let (inputs_name, inputs) = tensor("inputs")?;
    let (labels_name, labels) = tensor("labels")?;
    let [samples, dims @ ..] = inputs.shape() else {
        return Err(format!("tensor `{inputs_name}` has no dimension for the samples"));
    };
    if labels.shape().first() != Some(samples) {
        return Err(format!(
            "tensor `{inputs_name}` is {:?} and `{labels_name}` is {:?}: the first dimension of both is \
                 the samples",
            inputs.shape(),
            labels.shape()
        ));
    }
    let sample_elements: usize = dims.iter().product();
    let features = features(&inputs, sample_elements, &inputs_name)?;
    let label_count: usize = labels.shape()[1..].iter().product();
    let classes = integers(&labels).ok_or_else(|| {
        format!("tensor `{labels_name}` is {}: expected integers, the classes from 0", labels.dtype())
    })?;
    let class = |(place, label): (usize, i64)| {
        u32::try_from(label).map_err(|_| {
            let index = place / label_count.max(1);
            format!(
                "tensor `{labels_name}`: sample {index} has label {label}, but classes are numbered from 0"
            )
        })
    };
    let classes = classes.into_iter().enumerate().map(class).collect::<Result<_, _>>()?;
    let samples = Samples::of_sequences(sample_elements, features, label_count, classes)
        .map_err(|error| error.to_string())?;
    Ok((Shape::new(dims), samples))
}

/// Holds out every fifth sample, as for all data without a test part.
fn split(samples: &Samples) -> Result<(Samples, Samples), DataError> {
    let part = |held_out| {
        let indices = (0..samples.len()).filter(|&index| is_held_out(index) == held_out);
        let features = indices.clone().flat_map(|index| samples.features(index)).copied().collect();
        let labels = indices.flat_map(|index| samples.labels_of(index)).copied().collect();
        Samples::of_sequences(samples.sample_elements(), features, samples.label_count(), labels)
    };
    Ok((part(false)?, part(true)?))
}

/// Returns the elements of the inputs, `sample_elements` of each sample. Integers must be exact in
/// single precision. `name` is the name of the tensor.
fn features(tensor: &TensorView<'_>, sample_elements: usize, name: &str) -> Result<Vec<f32>, String> {
    if tensor.dtype() == Dtype::F32 {
        let values = tensor.data().chunks_exact(4);
        return Ok(values.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect());
    }
    let values = integers(tensor)
        .ok_or_else(|| format!("tensor `{name}` is {}: expected F32 or integers", tensor.dtype()))?;
    match values.iter().position(|value| !(-MAX_EXACT..=MAX_EXACT).contains(value)) {
        None => Ok(values.into_iter().map(|value| value as f32).collect()),
        Some(place) => Err(format!(
            "tensor `{name}`: sample {} has the value {}: expected integers from -{MAX_EXACT} to \
             {MAX_EXACT}, which are exact in single precision",
            place / sample_elements.max(1),
            values[place]
        )),
    }
}

fn integers(tensor: &TensorView<'_>) -> Option<Vec<i64>> {
    let data = tensor.data();
    Some(match tensor.dtype() {
        Dtype::U8 => data.iter().map(|&value| value.into()).collect(),
        Dtype::I32 => {
            data.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()).collect()
        }
        Dtype::I64 => {
            let values = data.chunks_exact(8);
            values.map(|b| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])).collect()
        }
        _ => return None,
    })
}
