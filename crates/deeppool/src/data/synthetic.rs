//! Synthetic data: class means with noise, sequences of tokens, or inputs with numbers as labels.
//! The same arguments give the same samples.

use layer_engine::random::{Purpose, RandomStream};
use layer_graph::{ElementwiseLoss, Layer, LayerGraph, LayerId, LayerKind, Shape};

use super::dataset::{elements, is_held_out};
use super::label_rule::losses;
use super::{DataError, Dataset, LabelRule, Samples, fit};

/// Maximum default number of samples for a network.
const MAX_SAMPLES: usize = 2048;
/// Maximum size of the features of the default number of samples, bytes.
const MAX_BYTES: usize = 128 << 20;
/// Minimum default number of samples for a network, also if they need more than `MAX_BYTES`.
const MIN_SAMPLES: usize = 320;

/// Returns the default number of samples for a network, training and test part together: 2,048, or
/// fewer (but at least 320) if they need more than 128 MiB.
pub(super) fn default_sample_count(network: &LayerGraph) -> usize {
    let elements = network.sample_elements();
    (MAX_BYTES / elements.saturating_mul(size_of::<f32>()).max(1)).clamp(MIN_SAMPLES, MAX_SAMPLES)
}

/// Generates `samples` synthetic samples, training and test part together. Each input of the
/// network is a sequence of tokens if an embedding reads it, a mask if it is the padding of an
/// attention, and otherwise an image or a vector of its shape.
///
/// # Errors
/// [`DataError::NoLoss`] if the network has no loss layer. [`DataError::Size`] as [`generate`].
pub(super) fn for_network(network: &LayerGraph, samples: usize, seed: u64) -> Result<Dataset, DataError> {
    let losses: Vec<SyntheticLoss> = losses(network).into_iter().map(SyntheticLoss::new).collect();
    if losses.is_empty() {
        return Err(fit::no_loss(network));
    }
    if network.sample_elements().checked_mul(samples).is_none() || samples < 2 {
        return Err(DataError::Size { shape: network.sample_shape(), samples });
    }
    let inputs = network.inputs().map(|id| (network.input_elements(id).len(), Contents::of(network, id)));
    let inputs: Vec<(usize, Contents)> = inputs.collect();
    let has_tokens = inputs.iter().any(|(_, contents)| matches!(contents, Contents::Tokens(_)));
    let (train, test) = match losses.iter().find_map(|loss| loss.rule.classes) {
        None => numbers(network, &inputs, &losses, samples, seed)?,
        Some(_) if has_tokens => sequences(network, &inputs, &losses, samples, seed)?,
        Some(classes) => images(&network.sample_shape(), classes, &losses, samples, seed)?,
    };
    let rules = losses.into_iter().map(|loss| loss.rule).collect();
    Dataset::with_labels("synthetic", network.sample_shape(), rules, train, test)
}

/// A loss with labels to generate.
struct SyntheticLoss {
    rule: LabelRule,
    /// Whether labels that are numbers are 0 or 1.
    is_binary: bool,
}

impl SyntheticLoss {
    fn new((layer, rule): (&Layer, LabelRule)) -> Self {
        let binary = LayerKind::ElementwiseLoss(ElementwiseLoss::BinaryCrossEntropy);
        // No synthetic label is ignored.
        Self { rule: rule.with_ignored(None), is_binary: *layer.kind() == binary }
    }

    /// Returns a number as a label: whether it is positive, if labels are 0 or 1.
    fn number(&self, value: f32) -> f32 {
        if self.is_binary { f32::from(value > 0.0) } else { value }
    }
}

/// Returns the number of labels of a sample.
fn label_count(losses: &[SyntheticLoss]) -> usize {
    losses.iter().map(|loss| loss.rule.count).sum()
}

/// Kind of the elements of an input.
#[derive(Debug, Clone, Copy)]
enum Contents {
    /// Tokens, of a vocabulary of this size.
    Tokens(usize),
    /// Mask of a sequence: 1 up to a random length, and 0 for the padding beyond it.
    Padding,
    /// Noise of mean 0 and variance 1.
    Noise,
}

impl Contents {
    fn of(network: &LayerGraph, input: LayerId) -> Self {
        let is_padding = |(reader, slot): (LayerId, usize)| match network.layer(reader).kind() {
            LayerKind::MultiHeadAttention(rule) => {
                rule.padding && slot + 1 == network.producers(reader).len()
            }
            _ => false,
        };
        match fit::vocabulary(network, input) {
            Some((_, vocabulary)) => Self::Tokens(vocabulary),
            None if network.consumers(input).into_iter().any(is_padding) => Self::Padding,
            None => Self::Noise,
        }
    }

    /// Returns random elements of an input.
    fn values(self, stream: &mut RandomStream, elements: usize) -> Vec<f32> {
        match self {
            Self::Tokens(vocabulary) => (0..elements).map(|_| stream.below(vocabulary) as f32).collect(),
            Self::Padding => {
                let length = 1 + stream.below(elements);
                (0..elements).map(|place| f32::from(place < length)).collect()
            }
            Self::Noise => (0..elements).map(|_| standard_sum(stream.uniform(), stream.uniform())).collect(),
        }
    }
}

/// Probability that a token is random instead of determined by the previous one.
const RANDOM_TOKEN_PROBABILITY: f64 = 0.25;

/// Creates samples of which at least one input is a sequence of tokens. The labels of a loss are
/// the next tokens of the longest one, the first of equal ones (of the last positions, if there are
/// fewer labels; again from the start, if there are more). With fewer classes than tokens, a label
/// is the token modulo the number of classes. A label that is a number is the token between -1/2
/// and 1/2. `inputs` has the number of elements of each input, and what they are.
fn sequences(
    network: &LayerGraph,
    inputs: &[(usize, Contents)],
    losses: &[SyntheticLoss],
    samples: usize,
    seed: u64,
) -> Result<(Samples, Samples), DataError> {
    let (count, label_count) = (network.sample_elements(), label_count(losses));
    let [mut train, mut test] = [(), ()].map(|()| (Vec::new(), Vec::new()));
    for index in 0..samples {
        let stream = |name| RandomStream::new(seed, Purpose::Synthetic, 0, name, index as u64);
        let (mut of_tokens, mut of_values) = (stream("tokens"), stream("values"));
        let (features, labels) = if is_held_out(index) { &mut test } else { &mut train };
        let (mut longest, mut of_longest) = (Vec::new(), 1);
        for &(elements, contents) in inputs {
            if let Contents::Tokens(vocabulary) = contents {
                let all = tokens(&mut of_tokens, vocabulary, elements + 1);
                features.extend(all[..elements].iter().map(|&token| token as f32));
                if all.len() > longest.len() {
                    (longest, of_longest) = (all, vocabulary);
                }
            } else {
                features.extend(contents.values(&mut of_values, elements));
            }
        }
        for loss in losses {
            let first = longest.len().saturating_sub(loss.rule.count);
            let last = longest[first..].iter().cycle().take(loss.rule.count);
            labels.extend(last.map(|token| match loss.rule.classes {
                Some(classes) => (token % classes) as f32,
                None => loss.number(*token as f32 / of_longest as f32 - 0.5),
            }));
        }
    }
    let part = |(features, labels)| Samples::of_sequences(count, features, label_count, labels);
    Ok((part(train)?, part(test)?))
}

/// Creates samples with a number as the label of each element of the outputs of losses: an element
/// of the sample or, for a binary cross entropy, whether it is positive. `inputs` are as in
/// [`sequences`].
fn numbers(
    network: &LayerGraph,
    inputs: &[(usize, Contents)],
    losses: &[SyntheticLoss],
    samples: usize,
    seed: u64,
) -> Result<(Samples, Samples), DataError> {
    let count = network.sample_elements();
    let [mut train, mut test] = [(), ()].map(|()| (Vec::new(), Vec::new()));
    for index in 0..samples {
        let mut stream = RandomStream::new(seed, Purpose::Synthetic, 0, "numbers", index as u64);
        let (features, labels): &mut (Vec<f32>, Vec<f32>) =
            if is_held_out(index) { &mut test } else { &mut train };
        let first = features.len();
        // The elements, tokens as numbers around zero.
        let mut scaled = Vec::with_capacity(count);
        for &(elements, contents) in inputs {
            features.extend(contents.values(&mut stream, elements));
            let of_input = &features[first + scaled.len()..];
            scaled.extend(of_input.iter().map(|value| match contents {
                Contents::Tokens(vocabulary) => value / vocabulary as f32 - 0.5,
                _ => *value,
            }));
        }
        for loss in losses {
            labels.extend((0..loss.rule.count).map(|place| loss.number(scaled[place % count])));
        }
    }
    let part = |(features, labels)| Samples::of_sequences(count, features, label_count(losses), labels);
    Ok((part(train)?, part(test)?))
}

/// Returns `count` tokens, each a function of the one before it, or random.
fn tokens(stream: &mut RandomStream, vocabulary: usize, count: usize) -> Vec<usize> {
    let mut tokens = vec![stream.below(vocabulary)];
    while tokens.len() < count {
        let is_random = stream.uniform() < RANDOM_TOKEN_PROBABILITY;
        // Any function of the previous token would do; this one visits much of the vocabulary.
        let follower = tokens.last().map_or(0, |token| (token + vocabulary / 3 + 1) % vocabulary);
        tokens.push(if is_random { stream.below(vocabulary) } else { follower });
    }
    tokens
}

/// Generates `samples` samples of the given shape and number of classes: the mean of their class
/// plus noise. A fifth of them, rounded up, is held out.
///
/// # Errors
/// [`DataError::Size`] if the shape is empty, there are no classes or fewer than two samples, or
/// they do not fit into memory.
pub(super) fn generate(
    shape: Shape,
    classes: usize,
    samples: usize,
    seed: u64,
) -> Result<Dataset, DataError> {
    let loss = SyntheticLoss { rule: LabelRule::new(1, classes), is_binary: false };
    let (train, test) = images(&shape, classes, &[loss], samples, seed)?;
    Dataset::new("synthetic", shape, classes, train, test)
}

/// Creates samples of the given shape, each the mean of one of `classes` classes plus noise. A
/// label of a loss is the class, modulo its number of classes if it has fewer, or, if labels are
/// numbers, an element of the sample.
fn images(
    shape: &Shape,
    classes: usize,
    losses: &[SyntheticLoss],
    samples: usize,
    seed: u64,
) -> Result<(Samples, Samples), DataError> {
    let too_large = || DataError::Size { shape: shape.clone(), samples };
    let count = elements(shape).filter(|_| classes > 0 && samples >= 2).ok_or_else(too_large)?;
    let held_out = samples.div_ceil(5);

    let part = |part_samples: usize| {
        let mut features = Vec::new();
        let total = count.checked_mul(part_samples)?;
        features.try_reserve_exact(total).ok()?;
        Some((features, Vec::new()))
    };
    let mut train = part(samples - held_out).ok_or_else(too_large)?;
    let mut test = part(held_out).ok_or_else(too_large)?;

    let stream = |name, index| RandomStream::new(seed, Purpose::Synthetic, 0, name, index);
    for index in 0..samples {
        // Labels are random: assigned in order, every fifth sample would have few classes only.
        let class = stream("label", index as u64).below(classes);
        // The mean is recomputed for each sample: a thousand means of large images need more memory
        // than the samples.
        let (mut mean, mut noise) = (stream("mean", class as u64), stream("noise", index as u64));
        let (features, labels) = if is_held_out(index) { &mut test } else { &mut train };
        let first = features.len();
        features.extend((0..count).map(|_| standard_sum(mean.uniform(), noise.uniform())));
        for loss in losses {
            labels.extend((0..loss.rule.count).map(|place| match loss.rule.classes {
                Some(classes) => (class % classes) as f32,
                None => loss.number(features[first + place % count]),
            }));
        }
    }
    let part = |(features, labels)| Samples::of_sequences(count, features, label_count(losses), labels);
    Ok((part(train)?, part(test)?))
}

/// Returns the sum of two numbers that are uniform on `0.0..1.0`, scaled to mean 0 and variance 1.
fn standard_sum(first: f64, second: f64) -> f32 {
    // Each has mean 1/2 and variance 1/12.
    ((first + second - 1.0) * 6f64.sqrt()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_or_huge_synthetic_data_are_rejected() {
        for (shape, classes, samples) in [
            (Shape::image(1, 0, 8), 10, 10),
            (Shape::new([]), 10, 10),
            (Shape::features(4), 0, 10),
            (Shape::features(4), 2, 1),
            (Shape::features(usize::MAX), 2, 10),
            (Shape::new([usize::MAX, usize::MAX]), 2, 10),
        ] {
            let error = Dataset::synthetic(shape, classes, samples, 0).unwrap_err();
            assert!(matches!(error, DataError::Size { .. }), "{error}");
        }
    }
}
