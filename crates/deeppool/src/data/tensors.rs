//! Data from a safetensors file with `train.inputs`, `train.labels` and, if there is a test part,
//! `test.inputs` and `test.labels`. For a network with several inputs, `train.inputs.NAME` has
//! those of the input of this name, and for one with several losses, `train.labels.NAME` has the
//! labels of the loss layer of this name, or `train.labels` those of all.

use std::path::Path;

use layer_graph::{LayerGraph, Shape};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::dataset::{check_finite, check_labels, is_held_out};
use super::file::read_whole;
use super::label_rule::losses;
use super::{DataError, Dataset, LabelRule, Samples, fit};

/// Magnitude up to which single precision has every integer.
const MAX_EXACT: i64 = 1 << 24;

/// Loads the data for a network from a safetensors file. Without a test part, every fifth sample is
/// held out. The classes are those of the network's loss layer.
///
/// # Errors
/// [`DataError::Read`], [`DataError::Tensors`], [`DataError::Label`] or [`DataError::NotFinite`] if
/// the file is unreadable or invalid. [`DataError::NoLoss`] if the network has no loss layer.
pub(super) fn load(path: &Path, network: &LayerGraph) -> Result<Dataset, DataError> {
    let bytes = read_whole(path).map_err(|error| DataError::Read { path: path.into(), error })?;
    let problem = |problem: String| DataError::Tensors { path: path.into(), problem };
    let file = SafeTensors::deserialize(&bytes).map_err(|error| problem(error.to_string()))?;
    let inputs = input_names(network);
    let labels = label_names(&file, network);
    if labels.is_empty() {
        return Err(fit::no_loss(network));
    }
    check_names(&file, &inputs, &labels).map_err(problem)?;
    let Part { shapes, rules, samples } = part(&file, "train", &inputs, &labels).map_err(problem)?;
    // Before splitting, which changes the numbers of the samples.
    check_labels(samples.labels(), &rules, || path.display().to_string())?;
    let of_part = |part: &str| format!("{}: tensor `{part}.{}`", path.display(), inputs.join("`, or its `"));
    check_finite(&samples, || of_part("train"))?;
    let has_test_part = file.names().into_iter().any(|name| name.starts_with("test."));
    let (train, test) = if has_test_part {
        let Part { shapes: test_shapes, samples: test, .. } =
            part(&file, "test", &inputs, &labels).map_err(problem)?;
        for ((name, of_test), of_training) in inputs.iter().zip(&test_shapes).zip(&shapes) {
            if of_test != of_training {
                return Err(problem(format!(
                    "`test.{name}` has samples of shape {of_test}, `train.{name}` of {of_training}"
                )));
            }
        }
        check_finite(&test, || of_part("test"))?;
        (samples, test)
    } else {
        split(&samples)?
    };
    let shape = match &shapes[..] {
        [shape] => shape.clone(),
        _ => check_shapes(&shapes, network).map_err(problem)?,
    };
    Dataset::with_labels(path.display().to_string(), shape, rules, train, test)
}

/// Returns the names of the tensors of the inputs of a network, without that of their part.
fn input_names(network: &LayerGraph) -> Vec<String> {
    if network.inputs().len() == 1 {
        return vec!["inputs".into()];
    }
    network.inputs().map(|id| format!("inputs.{}", network.layer(id).name())).collect()
}

/// Returns the names of the tensors of the labels of a network's losses, without that of their
/// part, each with the rule for its labels. One tensor has the labels of all losses if there is a
/// single loss, or the file has such a tensor.
fn label_names(file: &SafeTensors<'_>, network: &LayerGraph) -> Vec<(String, LabelRule)> {
    let losses = losses(network);
    if losses.len() == 1 || file.names().into_iter().any(|name| name == "train.labels") {
        return losses.into_iter().take(1).map(|(_, rule)| ("labels".into(), rule)).collect();
    }
    losses.into_iter().map(|(layer, rule)| (format!("labels.{}", layer.name()), rule)).collect()
}

/// Checks that the samples of several inputs have the shapes of a network's inputs, and returns
/// that of a sample.
fn check_shapes(shapes: &[Shape], network: &LayerGraph) -> Result<Shape, String> {
    for (found, input) in shapes.iter().zip(network.inputs()) {
        let layer = network.layer(input);
        if found != layer.output_shape() {
            let (name, expected) = (layer.name(), layer.output_shape());
            return Err(format!(
                "`train.inputs.{name}` has samples of shape {found}, but network `{}` takes {expected}",
                network.name()
            ));
        }
    }
    Ok(network.sample_shape())
}

/// Checks that the file has no tensors that would not be read.
fn check_names(
    file: &SafeTensors<'_>,
    inputs: &[String],
    labels: &[(String, LabelRule)],
) -> Result<(), String> {
    let of_part = |part: &str| -> Vec<String> {
        let names = inputs.iter().chain(labels.iter().map(|(name, _)| name));
        names.map(|name| format!("{part}.{name}")).collect()
    };
    let expected = ["train", "test"].map(of_part).concat();
    let is_unknown = |name: &&str| !expected.iter().any(|other| other == name);
    let mut unknown: Vec<&str> = file.names().into_iter().filter(is_unknown).collect();
    unknown.sort_unstable();
    match unknown[..] {
        [] => Ok(()),
        [name, ..] => Err(format!(
            "{} of {} tensors are not of a data set, such as `{name}`: expected {}",
            unknown.len(),
            file.len(),
            expected.join(", ")
        )),
    }
}

/// Samples of a part of a data set.
struct Part {
    /// Shape of each input.
    shapes: Vec<Shape>,
    /// Rules for the labels of each tensor of labels, with the number that it has.
    rules: Vec<LabelRule>,
    samples: Samples,
}

/// Reads the samples of a part. `labels` are the tensors of labels with their rules.
fn part(
    file: &SafeTensors<'_>,
    name: &str,
    inputs: &[String],
    labels: &[(String, LabelRule)],
) -> Result<Part, String> {
    let tensor = |kind: &str| {
        let name = format!("{name}.{kind}");
        let view = file.tensor(&name).map_err(|_| format!("tensor `{name}` is missing"))?;
        Ok::<_, String>((name, view))
    };
    let of_labels: Vec<_> = labels.iter().map(|(kind, _)| tensor(kind)).collect::<Result<_, _>>()?;
    let (first_name, first) = &of_labels[0];
    let samples = first.shape().first().copied();
    let check = |name: &str, other: &TensorView<'_>| {
        if other.shape().is_empty() {
            return Err(format!("tensor `{name}` has no dimension for the samples"));
        }
        if samples != other.shape().first().copied() {
            return Err(format!(
                "tensor `{name}` is {:?} and `{first_name}` is {:?}: the first dimension of both is the \
                 samples",
                other.shape(),
                first.shape()
            ));
        }
        Ok(())
    };
    let (mut shapes, mut all_inputs) = (Vec::new(), Vec::new());
    for input in inputs {
        let (name, input) = tensor(input)?;
        check(&name, &input)?;
        let dims = &input.shape()[1..];
        let sample_elements: usize = dims.iter().product();
        all_inputs.push((sample_elements, numbers(&input, sample_elements, &name)?));
        shapes.push(Shape::new(dims));
    }
    let (mut rules, mut all_labels) = (Vec::new(), Vec::new());
    for ((name, tensor), (_, rule)) in of_labels.iter().zip(labels) {
        check(name, tensor)?;
        let count: usize = tensor.shape()[1..].iter().product();
        all_labels.push((count, label_values(tensor, count, rule, name)?));
        rules.push(LabelRule { count, ..*rule });
    }
    let samples = samples.unwrap_or(0);
    let [sample_elements, label_count] =
        [&all_inputs, &all_labels].map(|all| all.iter().map(|(elements, _)| elements).sum());
    let (features, labels) = (joined(all_inputs, samples), joined(all_labels, samples));
    let samples = Samples::of_sequences(sample_elements, features, label_count, labels)
        .map_err(|error| error.to_string())?;
    Ok(Part { shapes, rules, samples })
}

/// Returns the labels of a tensor, `count` of each sample: classes, or the ignored label, if the
/// rule has classes, and otherwise any numbers.
fn label_values(
    tensor: &TensorView<'_>,
    count: usize,
    rule: &LabelRule,
    name: &str,
) -> Result<Vec<f32>, String> {
    if rule.classes.is_none() {
        return numbers(tensor, count, name);
    }
    let values = integers(tensor).ok_or_else(|| {
        format!("tensor `{name}` is {}: expected integers, the classes from 0", tensor.dtype())
    })?;
    let class = |(place, label): (usize, i64)| {
        // Numbers of classes are exact in single precision, as they are checked to be few.
        if u32::try_from(label).is_ok() || rule.ignored.map(i64::from) == Some(label) {
            return Ok(label as f32);
        }
        let index = place / count.max(1);
        Err(format!(
            "tensor `{name}`: sample {index} has label {label}, but classes are numbered from 0: \
             positions without a target need it as `ignored_label` of the loss layer"
        ))
    };
    values.into_iter().enumerate().map(class).collect()
}

/// Returns the elements of one sample after another, of tensors of the given numbers of elements a
/// sample.
fn joined(mut inputs: Vec<(usize, Vec<f32>)>, samples: usize) -> Vec<f32> {
    if inputs.len() == 1 {
        return inputs.pop().map(|(_, features)| features).unwrap_or_default();
    }
    let of_sample = |sample: usize| {
        inputs.iter().flat_map(move |(elements, features)| &features[sample * elements..][..*elements])
    };
    (0..samples).flat_map(of_sample).copied().collect()
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

/// Returns the elements of a tensor, `sample_elements` of each sample. Integers must be exact in
/// single precision. `name` is the name of the tensor.
fn numbers(tensor: &TensorView<'_>, sample_elements: usize, name: &str) -> Result<Vec<f32>, String> {
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
