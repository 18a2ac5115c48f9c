//! Forward passes of all layers, compared with direct loops over their definitions.
#![allow(clippy::float_cmp, reason = "counts are exact")]

use layer_engine::{CpuEngine, Pass, Role, Shard};
use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, ElementwiseLoss, GroupNorm, Layer, LayerGraph,
    LayerKind, Linear, LocalResponseNorm, Pad, Pool2d, Shape, SoftmaxCrossEntropy,
};
use proptest::prelude::*;

use crate::layer_cases::transposed_conv;
use crate::single_layer::{SingleLayer, layer};

/// Runs training and evaluation, which give the same result here, and compares them with the
/// oracle: a function of input, parameters, and `[channel, row, column]`.
fn check_images(layer: Layer, samples: usize, oracle: impl Fn(&Image<'_>, &[f64], [usize; 3]) -> f64) {
    let mut layer = SingleLayer::<f64>::new(layer, Shard::whole(samples), CpuEngine::new());
    let (channels, height, width) = layer.layer.input_shapes()[0].as_image().unwrap();
    let (out_channels, out_height, out_width) = layer.layer.output_shape().as_image().unwrap();
    for pass in [Pass::Forward, Pass::Infer] {
        layer.run(pass).unwrap();
        let output = &layer.buffers[&Role::Output];
        let parameters = layer.buffers.get(&Role::Parameters).map_or(&[][..], Vec::as_slice);
        let mut index = 0;
        for data in layer.buffers[&Role::Input(0)].chunks(channels * height * width) {
            let image = Image { data, size: [channels, height, width] };
            for c in 0..out_channels {
                for y in 0..out_height {
                    for x in 0..out_width {
                        let expected = oracle(&image, parameters, [c, y, x]);
                        let got = output[index];
                        assert!(
                            (got - expected).abs() < 1e-12,
                            "{pass:?} {c} {y} {x}: {got}, not {expected}"
                        );
                        index += 1;
                    }
                }
            }
        }
        assert_eq!(index, output.len());
    }
}

struct Image<'a> {
    data: &'a [f64],
    size: [usize; 3],
}

impl Image<'_> {
    /// Returns `None` in the padding. Rows and columns are counted from the corner of the padded
    /// image.
    fn at(&self, channel: usize, [y, x]: [usize; 2], padding: [usize; 2]) -> Option<f64> {
        let [_, height, width] = self.size;
        let (y, x) = (y.checked_sub(padding[0])?, x.checked_sub(padding[1])?);
        (y < height && x < width).then(|| self.data[(channel * height + y) * width + x])
    }
}

fn pairs([rows, columns]: [usize; 2]) -> impl Iterator<Item = [usize; 2]> {
    (0..rows).flat_map(move |y| (0..columns).map(move |x| [y, x]))
}

fn convolve(conv: &Conv2d, image: &Image<'_>, parameters: &[f64], [out, y, x]: [usize; 3]) -> f64 {
    let [kernel_height, kernel_width] = conv.kernel;
    let in_group = image.size[0] / conv.groups;
    let first = out / (conv.out_channels / conv.groups) * in_group;
    let weights = conv.out_channels * in_group * kernel_height * kernel_width;
    let mut sum = if conv.bias { parameters[weights + out] } else { 0.0 };
    for channel in 0..in_group {
        for [ky, kx] in pairs(conv.kernel) {
            let weight = parameters[((out * in_group + channel) * kernel_height + ky) * kernel_width + kx];
            let at = [y * conv.stride[0] + ky * conv.dilation[0], x * conv.stride[1] + kx * conv.dilation[1]];
            sum += weight * image.at(first + channel, at, conv.padding).unwrap_or(0.0);
        }
    }
    sum
}

/// Returns an element of the output of a transposed convolution of this number of input channels:
/// the sum over the input pixels and elements of the kernel that meet there.
fn convolve_transposed(
    conv: &ConvTranspose2d,
    image: &Image<'_>,
    (parameters, channels): (&[f64], usize),
    [out, y, x]: [usize; 3],
) -> f64 {
    let filters = conv.out_channels / conv.groups;
    let in_group = channels / conv.groups;
    let [kernel_height, kernel_width] = conv.kernel;
    let weights = channels * filters * kernel_height * kernel_width;
    let mut sum = if conv.bias { parameters[weights + out] } else { 0.0 };
    for channel in out / filters * in_group..(out / filters + 1) * in_group {
        for [ky, kx] in pairs(conv.kernel) {
            let filter = channel * filters + out % filters;
            let weight = parameters[(filter * kernel_height + ky) * kernel_width + kx];
            let from = |place: usize, tap: usize, axis: usize| {
                let distance = (place + conv.padding[axis]).checked_sub(tap * conv.dilation[axis])?;
                (distance % conv.stride[axis] == 0).then_some(distance / conv.stride[axis])
            };
            if let (Some(y), Some(x)) = (from(y, ky, 0), from(x, kx, 1)) {
                sum += weight * image.at(channel, [y, x], [0, 0]).unwrap_or(0.0);
            }
        }
    }
    sum
}

fn window_values<'a>(
    image: &'a Image<'a>,
    pool: &'a Pool2d,
    [c, y, x]: [usize; 3],
) -> impl Iterator<Item = f64> + 'a {
    pairs(pool.kernel).filter_map(move |[ky, kx]| {
        image.at(c, [y * pool.stride[0] + ky, x * pool.stride[1] + kx], pool.padding)
    })
}

fn windows() -> impl Strategy<Value = (Shape, Pool2d)> {
    let sides = || (1usize..8, 1usize..5, 1usize..4, 0usize..3, 0usize..3);
    let all = (1usize..4, sides(), sides(), any::<bool>());
    all.prop_filter_map("a window that fits", |(channels, h, w, count_padding)| {
        let (kernel, stride, padding) = ([h.1, w.1], [h.2, w.2], [h.3, w.3]);
        let pool = Pool2d { kernel, stride, padding, extra_padding: [h.4, w.4], count_padding };
        let shape = Shape::image(channels, h.0, w.0);
        let mut graph = LayerGraph::new("fits", shape.clone()).unwrap();
        let input = graph.input();
        graph.add("pool", LayerKind::MaxPool2d(pool.clone()), [input]).is_ok().then_some((shape, pool))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn conv_matches_definition(
        size in [1usize..12, 1usize..12],
        kernel in [1usize..5, 1usize..5],
        stride in [1usize..4, 1usize..4],
        padding in [0usize..4, 0usize..4],
        dilation in [1usize..4, 1usize..4],
        groups in 1usize..4,
        channels in [1usize..4, 1usize..4],
        bias: bool,
        samples in 0usize..4,
    ) {
        prop_assume!((0..2).all(|i| dilation[i] * (kernel[i] - 1) < size[i] + 2 * padding[i]));
        let conv = Conv2d {
            stride,
            padding,
            dilation,
            groups,
            bias,
            ..Conv2d::rectangular(channels[1] * groups, kernel)
        };
        let layer = layer(conv.clone(), &[Shape::image(channels[0] * groups, size[0], size[1])]);
        check_images(layer, samples, |image, parameters, at| convolve(&conv, image, parameters, at));
    }

    #[test]
    fn max_pool_matches_definition((shape, pool) in windows(), samples in 0usize..4) {
        check_images(layer(LayerKind::MaxPool2d(pool.clone()), &[shape]), samples, |image, _, at| {
            window_values(image, &pool, at).fold(f64::NEG_INFINITY, f64::max)
        });
    }

    #[test]
    fn avg_pool_matches_definition((shape, pool) in windows(), samples in 0usize..4) {
        check_images(layer(LayerKind::AvgPool2d(pool.clone()), &[shape]), samples, |image, _, at| {
            let inside = window_values(image, &pool, at).count();
            let count = if pool.count_padding { pool.kernel[0] * pool.kernel[1] } else { inside };
            window_values(image, &pool, at).sum::<f64>() / count as f64
        });
    }

    #[test]
    fn adaptive_avg_pool_matches_definition(
        size in [1usize..9, 1usize..9],
        output in [1usize..9, 1usize..9],
        samples in 0usize..3,
    ) {
        let shape = Shape::image(2, size[0], size[1]);
        check_images(layer(AdaptiveAvgPool2d { output }, &[shape]), samples, |image, _, [c, y, x]| {
            // The definition in real numbers. Sizes this small divide exactly enough.
            let range = |i: usize, axis: usize| {
                let step = size[axis] as f64 / output[axis] as f64;
                ((i as f64 * step + 1e-9).floor() as usize, ((i + 1) as f64 * step - 1e-9).ceil() as usize)
            };
            let ((top, bottom), (left, right)) = (range(y, 0), range(x, 1));
            let sum: f64 = pairs([bottom - top, right - left])
                .filter_map(|[dy, dx]| image.at(c, [top + dy, left + dx], [0, 0]))
                .sum();
            sum / ((bottom - top) * (right - left)) as f64
        });
    }

    #[test]
    fn transposed_conv_matches_definition((conv, shape) in transposed_conv(), samples in 0usize..4) {
        let channels = shape.dims()[0];
        let layer = layer(conv.clone(), &[shape]);
        check_images(layer, samples, |image, parameters, at| {
            convolve_transposed(&conv, image, (parameters, channels), at)
        });
    }

    #[test]
    fn group_norm_matches_definition(
        groups in 1usize..4,
        of_group in 1usize..4,
        size in [2usize..6, 1usize..6],
        samples in 0usize..3,
    ) {
        let channels = groups * of_group;
        let layer = layer(GroupNorm { groups, epsilon: 0.1 }, &[Shape::image(channels, size[0], size[1])]);
        check_images(layer, samples, |image, parameters, [c, y, x]| {
            let first = c / of_group * of_group;
            let values = |c| pairs(size).map(move |at| image.at(c, at, [0, 0]).unwrap());
            let values: Vec<f64> = (first..first + of_group).flat_map(values).collect();
            let count = (of_group * size[0] * size[1]) as f64;
            let mean = values.iter().sum::<f64>() / count;
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
            let normalised = (image.at(c, [y, x], [0, 0]).unwrap() - mean) / (variance + 0.1).sqrt();
            normalised * parameters[c] + parameters[channels + c]
        });
    }

    #[test]
    fn pad_matches_definition(
        size in [1usize..9, 1usize..9],
        before in [0usize..4, 0usize..4],
        after in [0usize..4, 0usize..4],
        samples in 0usize..3,
    ) {
        let layer = layer(Pad { before, after }, &[Shape::image(2, size[0], size[1])]);
        check_images(layer, samples, |image, _, [c, y, x]| image.at(c, [y, x], before).unwrap_or(0.0));
    }

    #[test]
    fn local_response_norm_matches_definition(
        channels in 1usize..7,
        size in 1usize..6,
        alpha in 0.0..2.0,
        beta in 0.1..1.5,
        samples in 0usize..3,
    ) {
        let norm = LocalResponseNorm { size, alpha, beta, k: 1.5 };
        let layer = layer(norm, &[Shape::image(channels, 2, 3)]);
        check_images(layer, samples, |image, _, [c, y, x]| {
            // The window begins `size / 2` channels before this one.
            let near = (0..size).filter_map(|i| (c + i).checked_sub(size / 2));
            let near = near.filter(|&near| near < channels);
            let squares: f64 = near.map(|near| image.at(near, [y, x], [0, 0]).unwrap().powi(2)).sum();
            image.at(c, [y, x], [0, 0]).unwrap() / (1.5 + alpha * squares / size as f64).powf(beta)
        });
    }

    #[test]
    fn linear_matches_definition(
        inputs in 1usize..70,
        outputs in 1usize..70,
        bias: bool,
        samples in 0usize..20,
    ) {
        let layer = layer(Linear { out_features: outputs, bias }, &[Shape::features(inputs)]);
        let mut layer = SingleLayer::<f64>::new(layer, Shard::whole(samples), CpuEngine::new());
        layer.forward();
        let (x, p) = (&layer.buffers[&Role::Input(0)], &layer.buffers[&Role::Parameters]);
        for s in 0..samples {
            for o in 0..outputs {
                let product: f64 = (0..inputs).map(|i| p[o * inputs + i] * x[s * inputs + i]).sum();
                let expected = product + if bias { p[outputs * inputs + o] } else { 0.0 };
                prop_assert!((layer.buffers[&Role::Output][s * outputs + o] - expected).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn softmax_cross_entropy_matches_definition(
        classes in 1usize..12,
        samples in 0usize..6,
        shift in -1e3..1e3,
        label_smoothing in prop_oneof![Just(0.0), Just(1.0), 0.0..1.0],
    ) {
        let layer = layer(SoftmaxCrossEntropy::smoothed(label_smoothing), &[Shape::features(classes)]);
        let mut layer = SingleLayer::<f64>::new(layer, Shard::whole(samples), CpuEngine::new());
        let scores = layer.buffers[&Role::Input(0)].clone();
        // Scores whose exponentials would overflow have the same losses.
        layer.set(Role::Input(0), scores.iter().map(|score| score + shift).collect());
        for pass in [Pass::Forward, Pass::Infer] {
            layer.run(pass).unwrap();
            let mut metrics = [0.0; 2];
            let labels = &layer.buffers[&Role::Labels];
            let losses = &layer.buffers[&Role::Output];
            for ((scores, label), loss) in scores.chunks(classes).zip(labels).zip(losses) {
                let label = *label as usize;
                let total = scores.iter().map(|score| score.exp()).sum::<f64>().ln();
                let mean = scores.iter().sum::<f64>() / classes as f64;
                let expected = total - (1.0 - label_smoothing) * scores[label] - label_smoothing * mean;
                prop_assert!((loss - expected).abs() < 1e-9);
                metrics[0] += loss;
                metrics[1] += f64::from(scores.iter().all(|&score| score <= scores[label]));
            }
            prop_assert!((layer.buffers[&Role::Metrics][0] - metrics[0]).abs() < 1e-9);
            prop_assert_eq!(layer.buffers[&Role::Metrics][1], metrics[1]);
        }
    }
}

/// Values that a logistic function rounds to 0 or 1 have finite losses, as in PyTorch.
#[test]
fn elementwise_losses_match_definitions() {
    for loss in [ElementwiseLoss::MeanSquaredError, ElementwiseLoss::BinaryCrossEntropy] {
        let mut layer =
            SingleLayer::<f64>::new(layer(loss, &[Shape::features(3)]), Shard::whole(2), CpuEngine::new());
        let (inputs, labels) = ([0.5, -2.0, 3.0, 1000.0, -1000.0, 0.0], [1.0, 0.0, 0.25, 0.0, 1.0, 1.0]);
        layer.set(Role::Input(0), inputs.to_vec());
        layer.set(Role::Labels, labels.to_vec());
        let of_element = |(x, label): (&f64, &f64)| match loss {
            ElementwiseLoss::MeanSquaredError => (x - label) * (x - label),
            ElementwiseLoss::BinaryCrossEntropy if x.abs() > 100.0 => x.abs(),
            ElementwiseLoss::BinaryCrossEntropy => {
                let probability = 1.0 / (1.0 + (-x).exp());
                -label * probability.ln() - (1.0 - label) * (1.0 - probability).ln()
            }
        };
        let all: Vec<f64> = inputs.iter().zip(&labels).map(of_element).collect();
        let expected: Vec<f64> = all.chunks(3).map(|sample| sample.iter().sum::<f64>() / 3.0).collect();
        for pass in [Pass::Forward, Pass::Infer] {
            layer.run(pass).unwrap();
            for (found, expected) in layer.buffers[&Role::Output].iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-9 * expected, "{loss:?}: {found}, not {expected}");
            }
            // Two of three probabilities, and none, are on the right side.
            let right = if loss == ElementwiseLoss::MeanSquaredError { 0.0 } else { 2.0 / 3.0 };
            assert!((layer.buffers[&Role::Metrics][1] - right).abs() < 1e-12, "{loss:?}");
        }
    }
}

/// An image that does not fit into one block of columns.
#[test]
fn conv_of_a_large_image_matches_definition() {
    for stride in [1, 2] {
        let conv = Conv2d::new(4, 5).padding(2).stride(stride).groups(2);
        let layer = layer(conv.clone(), &[Shape::image(32, 36 * stride, 41 * stride)]);
        check_images(layer, 1, |image, parameters, at| convolve(&conv, image, parameters, at));
    }
}

#[test]
fn first_of_equal_scores_is_the_prediction() {
    let mut layer = SingleLayer::<f32>::new(
        layer(LayerKind::CROSS_ENTROPY, &[Shape::features(3)]),
        Shard::whole(2),
        CpuEngine::new(),
    );
    layer.set(Role::Input(0), vec![0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
    layer.set(Role::Labels, vec![1.0, 2.0]);
    layer.forward();
    assert_eq!(layer.buffers[&Role::Metrics][1], 1.0);
}

#[test]
fn nan_propagates() {
    let numbers = vec![f32::NAN, 1.0, 2.0, 3.0];
    let kinds =
        [LayerKind::Relu, LayerKind::MaxPool2d(Pool2d::new(2, 2)), LayerKind::AvgPool2d(Pool2d::new(2, 2))];
    for kind in kinds {
        let mut layer =
            SingleLayer::<f32>::new(layer(kind, &[Shape::image(1, 2, 2)]), Shard::whole(1), CpuEngine::new());
        layer.set(Role::Input(0), numbers.clone());
        layer.forward();
        assert!(layer.buffers[&Role::Output][0].is_nan(), "{:?}", layer.layer.kind());
    }
}

#[test]
fn first_of_equal_maxima_gets_the_gradient() {
    for value in [0.0, f32::NEG_INFINITY] {
        let pool = LayerKind::MaxPool2d(Pool2d::new(3, 2).padding(1));
        let mut layer =
            SingleLayer::<f32>::new(layer(pool, &[Shape::image(1, 3, 3)]), Shard::whole(1), CpuEngine::new());
        layer.set(Role::Input(0), vec![value; 9]);
        layer.set(Role::OutputGradient, vec![1.0, 2.0, 3.0, 4.0]);
        layer.forward();
        layer.backward();
        assert_eq!(layer.buffers[&Role::InputGradient(0)], [1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
    }
}

#[test]
fn batch_norm_normalises_and_updates_running_statistics() {
    let rule = BatchNorm { epsilon: 1e-3, momentum: 0.25 };
    let layer = layer(rule, &[Shape::image(2, 3, 4)]);
    let mut layer = SingleLayer::<f64>::new(layer, Shard::whole(5), CpuEngine::new());
    layer.set(Role::Statistics, vec![0.5, -0.5, 1.0, 2.0]);
    layer.forward();
    let parameters = layer.buffers[&Role::Parameters].clone();
    let count = 5.0 * 12.0;
    for c in 0..2 {
        let of_channel = |role| -> Vec<f64> {
            layer.buffers[&role].chunks(12).skip(c).step_by(2).flatten().copied().collect()
        };
        let x = of_channel(Role::Input(0));
        let mean = x.iter().sum::<f64>() / count;
        let squares: f64 = x.iter().map(|x| (x - mean).powi(2)).sum();
        for (x, y) in x.iter().zip(of_channel(Role::Output)) {
            let normalised = (x - mean) / (squares / count + 1e-3).sqrt();
            assert!((y - (parameters[c] * normalised + parameters[2 + c])).abs() < 1e-12);
        }
        let running = [0.5, -0.5, 1.0, 2.0].map(|former| 0.75 * former);
        let statistics = &layer.buffers[&Role::Statistics];
        assert!((statistics[c] - (running[c] + 0.25 * mean)).abs() < 1e-12);
        assert!((statistics[2 + c] - (running[2 + c] + 0.25 * squares / (count - 1.0))).abs() < 1e-12);
    }
    // Evaluation uses the running statistics and does not change them.
    let statistics = layer.buffers[&Role::Statistics].clone();
    layer.run(Pass::Infer).unwrap();
    assert_eq!(layer.buffers[&Role::Statistics], statistics);
    let (x, y) = (layer.buffers[&Role::Input(0)][0], layer.buffers[&Role::Output][0]);
    let normalised = (x - statistics[0]) / (statistics[2] + 1e-3).sqrt();
    assert!((y - (parameters[0] * normalised + parameters[2])).abs() < 1e-12);
}
