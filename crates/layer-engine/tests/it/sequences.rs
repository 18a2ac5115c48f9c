//! Forward passes of layers that work on sequences or rearrange samples, compared with direct loops
//! over their definitions.
#![allow(clippy::float_cmp, reason = "copies are exact")]

use layer_engine::random::{Purpose, RandomStream};
use layer_engine::{CpuEngine, EngineError, LaunchContext, Pass, Role, Shard};
use layer_graph::{
    AttentionSizes, Embedding, ExpertActivation, Layer, LayerKind, LayerNorm, LeakyRelu, Linear,
    LinearBiases, MixtureOfExperts, MultiHeadAttention, Permute, PositionEmbedding, RecurrentCell,
    RelativePositions, Reshape, RmsNorm, RotaryScaling, Scale, Select, Shape, Slice, SoftmaxCrossEntropy,
};
use proptest::prelude::*;

use crate::layer_cases::{
    additive_attention, any_scale, attention_of_three_inputs, mixture_of_experts, recurrence,
    rotary_embedding,
};
use crate::single_layer::{CONTEXT, SingleLayer, layer};

/// Runs training and evaluation, which give the same result here, and compares each output sample
/// with the oracle: a function of the input sample and of the parameters.
fn check(layer: Layer, samples: usize, oracle: impl Fn(&[f64], &[f64]) -> Vec<f64>) {
    check_inputs(layer, samples, |_, _, inputs, parameters| oracle(inputs[0], parameters));
}

/// Compares as [`check`] does. The oracle is a function of the pass, the index of the sample, the
/// samples of all inputs, and the parameters.
fn check_inputs(layer: Layer, samples: usize, oracle: impl Fn(Pass, u64, &[&[f64]], &[f64]) -> Vec<f64>) {
    let mut layer = SingleLayer::<f64>::new(layer, Shard::whole(samples), CpuEngine::new());
    let of_inputs: Vec<usize> = layer.layer.input_shapes().iter().map(Shape::elements).collect();
    let of_output = layer.layer.output_shape().elements();
    for pass in [Pass::Forward, Pass::Infer] {
        layer.run(pass).unwrap();
        let parameters = layer.buffers.get(&Role::Parameters).map_or(&[][..], Vec::as_slice);
        let outputs = layer.buffers[&Role::Output].chunks(of_output);
        assert_eq!(outputs.len(), samples);
        for (sample, output) in outputs.enumerate() {
            let inputs: Vec<&[f64]> = of_inputs
                .iter()
                .enumerate()
                .map(|(slot, &of_input)| &layer.buffers[&Role::Input(slot)][sample * of_input..][..of_input])
                .collect();
            let expected = oracle(pass, sample as u64, &inputs, parameters);
            assert_eq!(output.len(), expected.len());
            for (index, (got, expected)) in output.iter().zip(expected).enumerate() {
                assert!((got - expected).abs() < 1e-12, "{pass:?} [{index}]: {got}, not {expected}");
            }
        }
    }
}

/// Computes attention by its definition, one query at a time. `inputs` are one sample of each
/// input: queries, keys and values, or one input with all three. `parameters` are those of relative
/// positions; `factors` are those of the weights of each head, query and key.
fn attend(
    attention: &MultiHeadAttention,
    sizes: AttentionSizes,
    inputs: &[&[f64]],
    (parameters, factors): (&[f64], &[f64]),
) -> Vec<f64> {
    let (inputs, padding) = inputs.split_at(inputs.len() - usize::from(attention.padding));
    let is_padding = |key: usize| padding.first().is_some_and(|numbers| numbers[key] <= 0.5);
    let AttentionSizes { positions, key_positions, heads, key_heads, width } = sizes;
    let features = heads * width;
    let at = |part: usize, position: usize, head: usize| match inputs {
        [input] => &input[position * 3 * features + part * features + head * width..][..width],
        _ if part == 0 => &inputs[0][position * features + head * width..][..width],
        _ => &inputs[part][position * key_heads * width + head * key_heads / heads * width..][..width],
    };
    let scale = attention.scale.unwrap_or(1.0 / (width as f64).sqrt());
    let mut output = vec![0.0; positions * features];
    for query in 0..positions {
        let end = if attention.causal { query + 1 } else { key_positions };
        let keys = attention.window.map_or(0, |window| end.saturating_sub(window))..end;
        for head in 0..heads {
            let weights: Vec<f64> = keys
                .clone()
                .map(|key| {
                    let products = at(0, query, head).iter().zip(at(1, key, head)).map(|(q, k)| q * k);
                    let bias = attention.relative.map_or(0.0, |relative| {
                        parameters[relative.bucket(key, query, attention.causal) * heads + head]
                    });
                    let distance = key.abs_diff(query) as f64;
                    let linear = attention.alibi.map_or(0.0, |biases| slope(&biases, head) * distance);
                    if is_padding(key) { 0.0 } else { (products.sum::<f64>() * scale + bias + linear).exp() }
                })
                .collect();
            let sum: f64 = weights.iter().sum();
            for (key, weight) in keys.clone().zip(&weights) {
                let target = &mut output[query * features + head * width..][..width];
                let weight = weight / sum.max(f64::MIN_POSITIVE)
                    * factors[(head * positions + query) * key_positions + key];
                target.iter_mut().zip(at(2, key, head)).for_each(|(y, v)| *y += weight * v);
            }
        }
    }
    output
}

/// Returns a frequency of rotary angles with a change of it, as in the code of Llama 3.1.
fn scaled(frequency: f64, scaling: Option<RotaryScaling>) -> f64 {
    match scaling {
        None => frequency,
        Some(RotaryScaling::Linear { factor }) => frequency / factor,
        Some(RotaryScaling::Llama3 {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_positions,
        }) => {
            let (wave, original) = (std::f64::consts::TAU / frequency, original_positions as f64);
            if wave < original / high_frequency_factor {
                frequency
            } else if wave > original / low_frequency_factor {
                frequency / factor
            } else {
                let smooth = original / wave - low_frequency_factor;
                let smooth = smooth / (high_frequency_factor - low_frequency_factor);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
    }
}

/// Returns the slope of linear biases, as Press et al. list them.
fn slope(biases: &LinearBiases, head: usize) -> f64 {
    let of_power = |heads: usize| -> Vec<f64> {
        let first = (-8.0 / heads as f64).exp2();
        (1..=heads).map(|index| first.powi(i32::try_from(index).unwrap())).collect()
    };
    let lower = (1..=biases.heads).rev().find(|heads| heads.is_power_of_two()).unwrap();
    let slopes = [of_power(lower), of_power(2 * lower).into_iter().step_by(2).collect()].concat();
    -biases.factor * slopes[biases.first + head]
}

/// Compares an attention with its definition.
fn check_attention(attention: &MultiHeadAttention, inputs: &[Shape], samples: usize) {
    let sizes = attention.sizes(inputs).unwrap();
    let layer = layer(attention.clone(), inputs);
    let name = layer.name().to_owned();
    check_inputs(layer, samples, |pass, sample, inputs, parameters| {
        let LaunchContext { seed, iteration, .. } = CONTEXT;
        let mut stream = RandomStream::new(seed, Purpose::Dropout, iteration, &name, sample);
        let kept = 1.0 / (1.0 - attention.dropout);
        let mut factor = || match pass {
            Pass::Infer => 1.0,
            _ if stream.uniform() < attention.dropout => 0.0,
            _ => kept,
        };
        let factors: Vec<f64> = (0..sizes.weights().iter().product()).map(|_| factor()).collect();
        attend(attention, sizes, inputs, (parameters, &factors))
    });
}

/// Howard et al., "Searching for `MobileNetV3`", 2019.
#[test]
fn activations_of_lines_are_constant_or_linear_far_from_zero() {
    // Values and slopes from -6 on, from -3 on, from 0 on, from 3 on and from 6 on.
    type Piece = fn(f64) -> [f64; 2];
    let inputs: Vec<f64> = (-17..18).map(|i| f64::from(i) / 2.0 + 0.1).collect();
    let zero: Piece = |_| [0.0, 0.0];
    let quarter: Piece = |x| [x / 4.0, 0.25];
    let line: Piece = |x| [x / 6.0 + 0.5, 1.0 / 6.0];
    let parabola: Piece = |x| [x * x / 6.0 + x / 2.0, x / 3.0 + 0.5];
    let (one, six, same): (Piece, Piece, Piece) = (|_| [1.0, 0.0], |_| [6.0, 0.0], |x| [x, 1.0]);
    for (kind, pieces) in [
        (LayerKind::Relu6, [zero, zero, same, same, six]),
        (LeakyRelu { negative_slope: 0.25 }.into(), [quarter, quarter, same, same, same]),
        (LayerKind::HardSigmoid, [zero, line, line, one, one]),
        (LayerKind::HardSwish, [zero, parabola, parabola, same, same]),
    ] {
        let layer = layer(kind.clone(), &[Shape::features(inputs.len())]);
        let mut layer = SingleLayer::<f64>::new(layer, Shard::whole(1), CpuEngine::new());
        layer.set(Role::Input(0), inputs.clone());
        layer.set(Role::OutputGradient, vec![1.0; inputs.len()]);
        layer.forward();
        layer.backward();
        for (i, &x) in inputs.iter().enumerate() {
            let piece = pieces[((x / 3.0).floor() + 2.0).clamp(0.0, 4.0) as usize];
            let got = [&layer.buffers[&Role::Output], &layer.buffers[&Role::InputGradient(0)]].map(|b| b[i]);
            let expected = piece(x);
            let is_near = got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-12);
            assert!(is_near, "{kind:?} at {x}: {got:?}, not {expected:?}");
        }
    }
}

/// Computes a mixture of experts by its definition, one position at a time. `inputs` are the
/// features and the scores of one sample.
fn mix(rule: &MixtureOfExperts, inputs: &[&[f64]], parameters: &[f64]) -> Vec<f64> {
    let &MixtureOfExperts { experts, chosen, width, gated, .. } = rule;
    let features = inputs[0].len() * experts / inputs[1].len();
    let inner = if gated { 2 * width } else { width };
    let (all_first, all_second) = parameters.split_at(experts * inner * features);
    let activation = |x: f64| match rule.activation {
        ExpertActivation::Relu => x.max(0.0),
        ExpertActivation::Gelu => x * normal_distribution(x),
        ExpertActivation::GeluTanh => {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            x / 2.0 * (1.0 + (root * (x + 0.044_715 * x.powi(3))).tanh())
        }
        ExpertActivation::Silu => x / (1.0 + (-x).exp()),
    };
    let times = |matrix: &[f64], x: &[f64]| -> Vec<f64> {
        matrix.chunks(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
    };
    let mut computed = vec![0; experts];
    let mut output = Vec::new();
    for (x, scores) in inputs[0].chunks(features).zip(inputs[1].chunks(experts)) {
        let exponentials: Vec<f64> = scores.iter().map(|score| score.exp()).collect();
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let order = &order[..chosen];
        let of_all = exponentials.iter().sum::<f64>();
        let of_chosen = order.iter().map(|&expert| exponentials[expert]).sum::<f64>();
        let mut sums = vec![0.0; features];
        for &expert in order {
            computed[expert] += 1;
            if rule.capacity.is_some_and(|capacity| computed[expert] > capacity) {
                continue;
            }
            let [first, second] = [(all_first, inner), (all_second, width)]
                .map(|(all, rows)| &all[expert * rows * features..][..rows * features]);
            let hidden = times(first, x);
            let factors: Vec<f64> = (0..width)
                .map(|unit| activation(hidden[unit]) * if gated { hidden[width + unit] } else { 1.0 })
                .collect();
            let weight = exponentials[expert] / if rule.normalised { of_chosen } else { of_all };
            sums.iter_mut().zip(times(second, &factors)).for_each(|(sum, value)| *sum += weight * value);
        }
        output.extend(sums);
    }
    output
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn attention_matches_definition(
        positions in 1usize..14,
        heads in 1usize..4,
        width in 1usize..6,
        causal: bool,
        samples in 0usize..3,
    ) {
        let shape = Shape::sequence(positions, 3 * heads * width);
        check_attention(&MultiHeadAttention::new(heads, causal), &[shape], samples);
    }

    #[test]
    fn attention_of_three_inputs_matches_definition(
        attention in attention_of_three_inputs(),
        samples in 0usize..3,
    ) {
        check_attention(&attention.0, &attention.1, samples);
    }

    #[test]
    fn additive_attention_matches_definition(
        (attention, inputs) in additive_attention(),
        samples in 0usize..3,
    ) {
        let sizes = attention.sizes(&inputs).unwrap();
        let (units, features) = (sizes.units, sizes.features);
        check_inputs(layer(attention, &inputs), samples, |_, _, inputs, parameters| {
            let (vector, normal) = parameters.split_at(units);
            let norm = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
            let factor = normal.first().map_or(1.0, |factor| factor / norm);
            let of_query = |query: &[f64]| {
                let score = |key: &[f64]| -> f64 {
                    let term = |unit: usize| {
                        let bias = normal.get(1 + unit).unwrap_or(&0.0);
                        factor * vector[unit] * (query[unit] + key[unit] + bias).tanh()
                    };
                    (0..units).map(term).sum()
                };
                let weights: Vec<f64> = inputs[1].chunks(units).map(|key| score(key).exp()).collect();
                let sum: f64 = weights.iter().sum();
                let values = weights.iter().zip(inputs[2].chunks(features));
                values.fold(vec![0.0; features], |mut output, (weight, value)| {
                    output.iter_mut().zip(value).for_each(|(y, v)| *y += weight / sum * v);
                    output
                })
            };
            inputs[0].chunks(units).flat_map(of_query).collect()
        });
    }

    #[test]
    fn layer_norm_matches_definition(
        positions in 1usize..5,
        features in 1usize..70,
        vector: bool,
        samples in 0usize..4,
    ) {
        let shape = if vector { Shape::features(features) } else { Shape::sequence(positions, features) };
        check(layer(LayerNorm { epsilon: 1e-3 }, &[shape]), samples, |input, parameters| {
            let rows = input.chunks(features).map(|row| {
                let mean = row.iter().sum::<f64>() / features as f64;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / features as f64;
                let normalised = row.iter().map(move |x| (x - mean) / (variance + 1e-3).sqrt());
                let learned = parameters[..features].iter().zip(&parameters[features..]);
                normalised.zip(learned).map(|(x, (weight, bias))| weight * x + bias).collect::<Vec<_>>()
            });
            rows.flatten().collect()
        });
    }

    #[test]
    fn rms_norm_matches_definition(
        positions in 1usize..5,
        features in 1usize..70,
        unit_offset: bool,
        samples in 0usize..4,
    ) {
        let layer = layer(RmsNorm { epsilon: 1e-3, unit_offset }, &[Shape::sequence(positions, features)]);
        check(layer, samples, |input, weights| {
            let rows = input.chunks(features).map(|row| {
                let root = (row.iter().map(|x| x * x).sum::<f64>() / features as f64 + 1e-3).sqrt();
                let factors = weights.iter().map(|weight| weight + f64::from(u8::from(unit_offset)));
                row.iter().zip(factors).map(|(x, factor)| x / root * factor).collect::<Vec<_>>()
            });
            rows.flatten().collect()
        });
    }

    #[test]
    fn recurrence_matches_definition(
        positions in 1usize..6,
        width in 1usize..6,
        rule in recurrence(),
        samples in prop_oneof![0usize..4, 17usize..19],
    ) {
        let gates = rule.cell.gates() * width;
        let kind = rule.clone();
        check(layer(rule, &[Shape::sequence(positions, gates)]), samples, |input, parameters| {
            let (weight, bias) = parameters.split_at(gates * width);
            let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
            let (mut state, mut memory) = (vec![0.0; width], vec![0.0; width]);
            let mut inputs: Vec<&[f64]> = input.chunks(gates).collect();
            if kind.reversed {
                inputs.reverse();
            }
            let steps = inputs.into_iter().map(|x| {
                let products = weight.chunks(width).enumerate().map(|(row, weight)| {
                    let product: f64 = weight.iter().zip(&state).map(|(w, h)| w * h).sum();
                    product + bias.get(row).unwrap_or(&0.0)
                });
                let products: Vec<f64> = products.collect();
                for unit in 0..width {
                    let part = |values: &[f64], gate: usize| values[gate * width + unit];
                    let sum = |gate: usize| part(x, gate) + part(&products, gate);
                    state[unit] = match kind.cell {
                        RecurrentCell::Lstm => {
                            memory[unit] = logistic(sum(1)) * memory[unit] + logistic(sum(0)) * sum(2).tanh();
                            logistic(sum(3)) * memory[unit].tanh()
                        }
                        RecurrentCell::Gru => {
                            let update = logistic(sum(1));
                            let new = (part(x, 2) + logistic(sum(0)) * part(&products, 2)).tanh();
                            (1.0 - update) * new + update * state[unit]
                        }
                    };
                }
                state.clone()
            });
            let mut outputs: Vec<Vec<f64>> = steps.collect();
            if kind.reversed {
                outputs.reverse();
            }
            outputs.concat()
        });
    }

    #[test]
    fn mixture_of_experts_matches_definition((rule, inputs) in mixture_of_experts(), samples in 0usize..4) {
        let layer = layer(rule.clone(), &inputs);
        check_inputs(layer, samples, |_, _, inputs, parameters| mix(&rule, inputs, parameters));
    }

    #[test]
    fn linear_matches_definition(
        positions in 1usize..5,
        inputs in 1usize..9,
        outputs in 1usize..9,
        bias: bool,
        samples in 0usize..4,
    ) {
        let kind = Linear { out_features: outputs, bias };
        check(layer(kind, &[Shape::sequence(positions, inputs)]), samples, |input, parameters| {
            let (weights, biases) = parameters.split_at(inputs * outputs);
            let positions = input.chunks(inputs).map(|x| {
                let of_output = weights.chunks(inputs).enumerate().map(|(output, weights)| {
                    let product: f64 = weights.iter().zip(x).map(|(w, x)| w * x).sum();
                    product + biases.get(output).unwrap_or(&0.0)
                });
                of_output.collect::<Vec<_>>()
            });
            positions.flatten().collect()
        });
    }

    #[test]
    fn embedding_matches_definition(
        positions in 1usize..9,
        vocabulary in 1usize..40,
        features in 1usize..5,
        samples in 0usize..4,
    ) {
        let kind = Embedding::new(vocabulary, features);
        check(layer(kind, &[Shape::features(positions)]), samples, |tokens, parameters| {
            let rows = tokens.iter().map(|&token| &parameters[token as usize * features..][..features]);
            rows.flatten().copied().collect()
        });
    }

    #[test]
    fn rotary_embedding_matches_definition(
        positions in 1usize..9,
        heads in 1usize..4,
        kind in rotary_embedding(),
        samples in 0usize..4,
    ) {
        let (width, rotated) = (kind.width, kind.rotated.unwrap_or(kind.width));
        let half = rotated / 2;
        check(layer(kind.clone(), &[Shape::sequence(positions, heads * width)]), samples, |input, _| {
            let mut output = input.to_vec();
            for index in 0..positions * heads * half {
                let (position, head, i) = (index / half / heads, index / half % heads, index % half);
                let frequency = scaled(50f64.powf(-(i as f64) / half as f64), kind.scaling);
                let (sine, cosine) = ((kind.first + position) as f64 * frequency).sin_cos();
                let head = (position * heads + head) * width;
                let (a, b) = if kind.interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
                let (a, b) = (head + a, head + b);
                output[a] = input[a] * cosine - input[b] * sine;
                output[b] = input[a] * sine + input[b] * cosine;
            }
            output
        });
    }

    #[test]
    fn scale_matches_definition(
        dims in [1usize..5, 1usize..5, 1usize..80],
        rule in any_scale(),
        samples in 0usize..4,
    ) {
        let [height, width, channels] = dims;
        let layer = layer(rule.clone(), &[Shape::image(channels, height, width)]);
        check(layer, samples, |input, factors| {
            let factor = |index: usize| match rule {
                Scale::Constant(factor) => factor,
                Scale::Features => factors[index % width],
                Scale::Channels => factors[index / (height * width)],
            };
            input.iter().enumerate().map(|(index, x)| x * factor(index)).collect()
        });
    }

    #[test]
    fn position_embedding_matches_definition(
        positions in 1usize..6,
        longer in 0usize..3,
        first in 0usize..3,
        repeated: bool,
        features in 1usize..6,
        samples in 0usize..4,
    ) {
        let kind = PositionEmbedding { positions: first + positions + longer, first, repeated };
        check(layer(kind, &[Shape::sequence(positions, features)]), samples, |input, parameters| {
            let learned = parameters[first * features..].chunks(features);
            let vector = |position| learned.clone().nth(if repeated { 0 } else { position }).unwrap();
            let rows = input.chunks(features).enumerate();
            rows.flat_map(|(position, row)| row.iter().zip(vector(position)).map(|(x, y)| x + y)).collect()
        });
    }

    #[test]
    fn class_token_matches_definition(positions in 1usize..6, features in 1usize..6, samples in 0usize..4) {
        let layer = layer(LayerKind::ClassToken, &[Shape::sequence(positions, features)]);
        check(layer, samples, |input, parameters| [parameters, input].concat());
    }

    #[test]
    fn softmax_matches_definition(positions in 1usize..5, classes in 1usize..40, samples in 0usize..4) {
        check(layer(LayerKind::Softmax, &[Shape::sequence(positions, classes)]), samples, |input, _| {
            let rows = input.chunks(classes).flat_map(|row| {
                let sum: f64 = row.iter().map(|x| x.exp()).sum();
                row.iter().map(move |x| x.exp() / sum)
            });
            rows.collect()
        });
    }

    #[test]
    fn gelu_matches_definition(features in 1usize..40, samples in 0usize..4) {
        check(layer(LayerKind::Gelu, &[Shape::features(features)]), samples, |input, _| {
            input.iter().map(|&x| x * normal_distribution(x)).collect()
        });
    }

    #[test]
    fn gelu_tanh_matches_definition(features in 1usize..40, samples in 0usize..4) {
        check(layer(LayerKind::GeluTanh, &[Shape::features(features)]), samples, |input, _| {
            let u = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            input.iter().map(|&x| 0.5 * x * (1.0 + u(x).tanh())).collect()
        });
    }

    #[test]
    fn activations_match_definition(features in 1usize..40, samples in 0usize..4) {
        let sigmoid = |x: f64| (0.5 * x).tanh() / 2.0 + 0.5;
        let line = |x: f64| (x / 6.0 + 0.5).clamp(0.0, 1.0);
        let functions: [(LayerKind, &dyn Fn(f64) -> f64); 8] = [
            (LayerKind::Relu6, &|x| x.clamp(0.0, 6.0)),
            (LeakyRelu::default().into(), &|x| x.max(0.01 * x)),
            (LayerKind::HardSigmoid, &line),
            (LayerKind::HardSwish, &|x| x * line(x)),
            (LayerKind::QuickGelu, &|x| x * sigmoid(1.702 * x)),
            (LayerKind::Silu, &|x| x * sigmoid(x)),
            (LayerKind::Sigmoid, &sigmoid),
            (LayerKind::Tanh, &|x| (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())),
        ];
        for (kind, function) in functions {
            let layer = layer(kind, &[Shape::features(features)]);
            check(layer, samples, |input, _| input.iter().map(|&x| function(x)).collect());
        }
    }

    #[test]
    fn permute_matches_definition(
        dims in [1usize..5, 1usize..5, 1usize..5],
        which in 0usize..6,
        samples in 0usize..3,
    ) {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let order = orders[which];
        let kind = Permute { order: order.to_vec() };
        check(layer(kind, &[Shape::new(dims)]), samples, |input, _| {
            let mut output = Vec::new();
            let mut at = [0; 3];
            for a in 0..dims[order[0]] {
                for b in 0..dims[order[1]] {
                    for c in 0..dims[order[2]] {
                        for (&dim, index) in order.iter().zip([a, b, c]) {
                            at[dim] = index;
                        }
                        output.push(input[(at[0] * dims[1] + at[1]) * dims[2] + at[2]]);
                    }
                }
            }
            output
        });
    }

    #[test]
    fn softmax_cross_entropy_matches_definition(
        positions in 1usize..6,
        classes in 1usize..9,
        samples in 0usize..4,
    ) {
        let layer = layer(LayerKind::CROSS_ENTROPY, &[Shape::sequence(positions, classes)]);
        let mut layer = SingleLayer::<f64>::new(layer, Shard::whole(samples), CpuEngine::new());
        for pass in [Pass::Forward, Pass::Infer] {
            layer.run(pass).unwrap();
            let mut metrics = [0.0; 2];
            let labels = layer.buffers[&Role::Labels].chunks(positions);
            let scores = layer.buffers[&Role::Input(0)].chunks(positions * classes);
            for ((scores, labels), loss) in scores.zip(labels).zip(&layer.buffers[&Role::Output]) {
                let mut expected = 0.0;
                for (scores, label) in scores.chunks(classes).zip(labels) {
                    let label = *label as usize;
                    expected += scores.iter().map(|score| score.exp()).sum::<f64>().ln() - scores[label];
                    let right = scores.iter().all(|&score| score <= scores[label]);
                    metrics[1] += f64::from(right) / positions as f64;
                }
                prop_assert!((loss - expected / positions as f64).abs() < 1e-12);
                metrics[0] += loss;
            }
            for (got, expected) in layer.buffers[&Role::Metrics].iter().zip(metrics) {
                prop_assert!((got - expected).abs() < 1e-12);
            }
        }
    }
}

/// Ignored positions have no loss and no gradient, also if their label is no class. The weight of a
/// sample is the factor of its loss, its correct positions and its gradient.
#[test]
fn ignored_labels_have_no_loss() {
    let rule = SoftmaxCrossEntropy { label_smoothing: 0.2, ignored_label: Some(-100) };
    let shape = [Shape::sequence(3, 4)];
    let mut ignoring = SingleLayer::<f64>::new(layer(rule, &shape), Shard::whole(2), CpuEngine::new());
    let smoothed = layer(SoftmaxCrossEntropy::smoothed(0.2), &[Shape::features(4)]);
    let labels = [[1.0, -100.0, 3.0], [-100.0, -100.0, 0.0]];
    let weights = [1.5, 0.5];
    let with_weights =
        labels.iter().zip(weights).flat_map(|(labels, weight)| [&labels[..], &[weight]].concat());
    ignoring.set(Role::Labels, with_weights.collect());
    ignoring.forward();
    ignoring.backward();
    let mut metrics = [0.0; 2];
    for (sample, (labels, weight)) in labels.iter().zip(weights).enumerate() {
        let mut expected = 0.0;
        for (position, &label) in labels.iter().enumerate() {
            let of_position = (3 * sample + position) * 4..(3 * sample + position + 1) * 4;
            let gradient = &ignoring.buffers[&Role::InputGradient(0)][of_position.clone()];
            if label < 0.0 {
                assert!(gradient.iter().all(|&element| element == 0.0));
                continue;
            }
            let mut one = SingleLayer::<f64>::new(smoothed.clone(), Shard::whole(1), CpuEngine::new());
            one.set(Role::Input(0), ignoring.buffers[&Role::Input(0)][of_position].to_vec());
            one.set(Role::Labels, vec![label]);
            let factor = weight / 3.0;
            one.set(Role::OutputGradient, vec![factor * ignoring.buffers[&Role::OutputGradient][sample]]);
            one.forward();
            one.backward();
            expected += factor * one.buffers[&Role::Output][0];
            metrics[1] += factor * one.buffers[&Role::Metrics][1];
            for (got, expected) in gradient.iter().zip(&one.buffers[&Role::InputGradient(0)]) {
                assert!((got - expected).abs() < 1e-15);
            }
        }
        assert!((ignoring.buffers[&Role::Output][sample] - expected).abs() < 1e-14);
        metrics[0] += expected;
    }
    for (got, expected) in ignoring.buffers[&Role::Metrics].iter().zip(metrics) {
        assert!((got - expected).abs() < 1e-14);
    }
    let losses = ignoring.buffers[&Role::Output].clone();
    ignoring.run(Pass::Infer).unwrap();
    assert_eq!(ignoring.buffers[&Role::Output], losses);
}

/// Integrates the density of the normal distribution by Simpson's rule.
fn normal_distribution(x: f64) -> f64 {
    let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let (start, steps) = (-10.0, 4000);
    let width = (x - start) / f64::from(steps);
    let inner =
        (1..steps).map(|i| density(start + f64::from(i) * width) * if i % 2 == 1 { 4.0 } else { 2.0 });
    (density(start) + inner.sum::<f64>() + density(x)) * width / 3.0
}

/// Sequences with more than one block of queries.
#[test]
fn attention_of_long_sequences_matches_definition() {
    for causal in [false, true] {
        check_attention(&MultiHeadAttention::new(2, causal), &[Shape::sequence(150, 24)], 2);
        let grouped = [(150, 24), (150, 12), (150, 12)].map(|(rows, width)| Shape::sequence(rows, width));
        let attention = MultiHeadAttention::new(6, causal).scaled_by(0.3);
        check_attention(&attention.with_relative_positions(RelativePositions::new(32, 100)), &grouped, 2);
    }
    for window in [1, 70] {
        let attention = MultiHeadAttention::new(2, true).with_window(window);
        check_attention(&attention, &[Shape::sequence(150, 24)], 1);
    }
    let cross = [(70, 12), (140, 12), (140, 12)].map(|(rows, width)| Shape::sequence(rows, width));
    check_attention(&MultiHeadAttention::new(3, false).with_dropout(0.2), &cross, 2);
}

#[test]
fn attention_does_not_overflow() {
    let shape = Shape::sequence(4, 3);
    let kind = MultiHeadAttention::new(1, false);
    let mut layer = SingleLayer::<f32>::new(layer(kind, &[shape]), Shard::whole(1), CpuEngine::new());
    // Queries of 1e3 times keys of up to 3e2: all the weight is on the last key.
    let positions = (0..4u8).flat_map(|i| [1e3, 1e2 * f32::from(i), f32::from(i)]);
    layer.set(Role::Input(0), positions.collect());
    layer.forward();
    assert_eq!(layer.buffers[&Role::Output], [3.0; 4]);
    layer.backward();
    assert!(layer.buffers[&Role::InputGradient(0)].iter().all(|gradient| gradient.is_finite()));
}

/// With equal scores, the first experts are chosen.
#[test]
fn equal_scores_choose_the_experts_of_lower_index() {
    let rule = MixtureOfExperts::new(4, 2, 3);
    let layer = layer(rule.clone(), &[Shape::sequence(3, 5), Shape::sequence(3, 4)]);
    let mut layer = SingleLayer::<f64>::new(layer, Shard::whole(1), CpuEngine::new());
    layer.set(Role::Input(1), vec![1.0, 1.0, 1.0, 1.0, 0.0, 2.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
    layer.forward();
    let [x, scores] = [0, 1].map(|slot| &layer.buffers[&Role::Input(slot)][..]);
    let expected = mix(&rule, &[x, scores], &layer.buffers[&Role::Parameters]);
    let pairs = layer.buffers[&Role::Output].iter().zip(&expected);
    assert!(pairs.clone().all(|(got, expected)| (got - expected).abs() < 1e-12));
    // No number is ordered.
    layer.set(Role::Input(1), vec![f64::NAN; 12]);
    layer.forward();
    layer.backward();
    assert!(layer.buffers[&Role::Output].iter().all(|value| value.is_nan()));
}

#[test]
fn select_and_reshape_match_definition() {
    let part = layer(Select { index: 2 }, &[Shape::sequence(4, 3)]);
    check(part, 3, |input, _| input[6..9].to_vec());
    let range = layer(Slice { start: 1, length: 2 }, &[Shape::sequence(4, 3)]);
    check(range, 3, |input, _| input[3..9].to_vec());
    let flat = layer(Reshape { output: Shape::new([2, 6]) }, &[Shape::sequence(4, 3)]);
    check(flat, 3, |input, _| input.to_vec());
}

#[test]
fn the_vector_of_padding_gets_no_gradient() {
    let features = 2;
    let gradient = |padding| {
        let kind = Embedding { padding, ..Embedding::new(5, features) };
        let mut layer =
            SingleLayer::<f64>::new(layer(kind, &[Shape::features(4)]), Shard::whole(1), CpuEngine::new());
        layer.set(Role::Input(0), vec![3.0, 1.0, 3.0, 0.0]);
        layer.forward();
        layer.backward();
        layer.buffers[&Role::ParameterGradient].clone()
    };
    let all = gradient(None);
    for padding in 0..5 {
        let mut expected = all.clone();
        expected[padding * features..][..features].fill(0.0);
        assert_eq!(gradient(Some(padding)), expected);
    }
    assert!(all[6..8].iter().all(|&gradient| gradient != 0.0));
}

#[test]
fn invalid_tokens_are_rejected() {
    for token in [5.0, -1.0, 0.5, f64::NAN] {
        let kind = Embedding::new(5, 2);
        let mut layer =
            SingleLayer::<f64>::new(layer(kind, &[Shape::features(2)]), Shard::whole(1), CpuEngine::new());
        layer.set(Role::Input(0), vec![0.0, token]);
        for pass in [Pass::Forward, Pass::Infer, Pass::Backward, Pass::BackwardParameters] {
            let result = layer.run(pass);
            assert!(matches!(result, Err(EngineError::Token { vocabulary: 5, .. })), "{pass:?}: {result:?}");
        }
    }
}
