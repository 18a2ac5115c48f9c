//! Training does not depend on the split of a batch: its shards together give the results of the
//! whole batch.
#![allow(clippy::float_cmp, reason = "values that nothing may touch")]

use layer_engine::{CpuEngine, Pass, Role, Shard};
use layer_graph::{
    BatchNorm, Conv2d, Dropout, Embedding, Layer, LayerKind, LayerNorm, Linear, MixtureOfExperts,
    MultiHeadAttention, PositionEmbedding, Recurrence, RecurrentCell, RmsNorm, Shape,
};
use proptest::prelude::*;

use crate::single_layer::{SingleLayer, layer};

/// Returns a batch of eight samples, whole and split in two parts, of which one may be empty.
fn split(layer: &Layer, first_part: usize) -> (SingleLayer<f64>, [SingleLayer<f64>; 2]) {
    let whole = SingleLayer::new(layer.clone(), Shard { first: 3, samples: 8 }, CpuEngine::new());
    let shards =
        [Shard { first: 3, samples: first_part }, Shard { first: 3 + first_part, samples: 8 - first_part }];
    let parts = shards.map(|shard| {
        let mut part = SingleLayer::new(layer.clone(), shard, CpuEngine::new());
        let inputs = (0..layer.input_shapes().len()).map(Role::Input);
        for role in inputs.chain([Role::OutputGradient]) {
            part.take_samples(&whole, role);
        }
        part
    });
    (whole, parts)
}

/// Runs the forward and the backward pass of the batch and of its parts.
fn run(whole: &mut SingleLayer<f64>, parts: &mut [SingleLayer<f64>; 2]) {
    for layer in std::iter::once(whole).chain(parts) {
        layer.forward();
        layer.backward();
    }
}

fn joined(parts: &[SingleLayer<f64>; 2], role: Role) -> Vec<f64> {
    parts.iter().flat_map(|part| part.buffers[&role].clone()).collect()
}

fn added(parts: &[SingleLayer<f64>; 2], role: Role) -> Vec<f64> {
    parts[0].buffers[&role].iter().zip(&parts[1].buffers[&role]).map(|(a, b)| a + b).collect()
}

fn assert_close(got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-10, "{got}, not {expected}");
    }
}

/// Returns a mixture of experts with a capacity.
fn mixture(capacity: Option<usize>) -> Layer {
    let rule = MixtureOfExperts { capacity, ..MixtureOfExperts::new(4, 2, 3) };
    layer(rule, &[Shape::sequence(6, 4), Shape::sequence(6, 4)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(66))]

    #[test]
    fn shard_gradients_sum_to_the_batch_gradient(first_part in 0usize..9, which in 0usize..13) {
        let layer = match which {
            0 => layer(Conv2d::new(6, 3).padding(1).groups(2), &[Shape::image(4, 5, 6)]),
            1 => layer(Conv2d::new(3, 1), &[Shape::image(4, 5, 6)]),
            2 => layer(Linear::new(20), &[Shape::features(30)]),
            3 => layer(Linear::new(5), &[Shape::sequence(6, 4)]),
            4 => layer(LayerNorm::default(), &[Shape::sequence(6, 4)]),
            8 => layer(RmsNorm::new(1e-5), &[Shape::sequence(6, 4)]),
            9 => layer(Recurrence::new(RecurrentCell::Lstm), &[Shape::sequence(6, 8)]),
            10 => layer(Recurrence::new(RecurrentCell::Gru), &[Shape::sequence(6, 6)]),
            11 => mixture(None),
            12 => mixture(Some(2)),
            5 => layer(Embedding::new(9, 3), &[Shape::features(7)]),
            6 => layer(PositionEmbedding::new(8), &[Shape::sequence(6, 4)]),
            _ => layer(LayerKind::ClassToken, &[Shape::sequence(6, 4)]),
        };
        let (mut whole, mut parts) = split(&layer, first_part);
        run(&mut whole, &mut parts);
        assert_close(&joined(&parts, Role::Output), &whole.buffers[&Role::Output]);
        for role in (0..layer.input_shapes().len()).map(Role::InputGradient) {
            assert_close(&joined(&parts, role), &whole.buffers[&role]);
        }
        assert_close(&added(&parts, Role::ParameterGradient), &whole.buffers[&Role::ParameterGradient]);
    }

    #[test]
    fn dropout_masks_do_not_depend_on_the_split(first_part in 0usize..9) {
        let layer = layer(Dropout::new(0.4), &[Shape::features(50)]);
        let (mut whole, mut parts) = split(&layer, first_part);
        run(&mut whole, &mut parts);
        for role in [Role::Output, Role::InputGradient(0)] {
            prop_assert_eq!(&joined(&parts, role), &whole.buffers[&role]);
        }
        let [output, gradient] =
            [Role::Output, Role::InputGradient(0)].map(|role| whole.buffers[&role].iter().map(|&y| y != 0.0));
        let kept = output.clone().filter(|&is_kept| is_kept).count();
        prop_assert!((180..300).contains(&kept), "{} of 400 kept with probability 0.6", kept);
        prop_assert!(output.eq(gradient), "the backward pass drops other elements");
    }

    #[test]
    fn dropped_weights_do_not_depend_on_the_split(first_part in 0usize..9) {
        let attention = MultiHeadAttention::new(2, false).with_dropout(0.4);
        let (mut whole, mut parts) = split(&layer(attention, &[Shape::sequence(6, 12)]), first_part);
        run(&mut whole, &mut parts);
        for role in [Role::Output, Role::InputGradient(0)] {
            assert_close(&joined(&parts, role), &whole.buffers[&role]);
        }
    }

    #[test]
    fn dropped_samples_do_not_depend_on_the_split(first_part in 0usize..9) {
        let layer = layer(Dropout { of_samples: true, ..Dropout::new(0.4) }, &[Shape::features(5)]);
        let (mut whole, mut parts) = split(&layer, first_part);
        run(&mut whole, &mut parts);
        let mut kept = Vec::new();
        for role in [Role::Output, Role::InputGradient(0)] {
            prop_assert_eq!(&joined(&parts, role), &whole.buffers[&role]);
            for sample in whole.buffers[&role].chunks(5) {
                prop_assert!(sample.iter().all(|&y| (y != 0.0) == (sample[0] != 0.0)));
                kept.push(sample[0] != 0.0);
            }
        }
        let (of_output, of_gradient) = kept.split_at(8);
        prop_assert_eq!(of_output, of_gradient);
        prop_assert!(of_output.contains(&true) && of_output.contains(&false));
    }

    /// Synchronised batch normalisation: moments are summed over the ranks between the passes.
    #[test]
    fn sync_batch_norm_matches_the_whole_batch(first_part in 0usize..9) {
        let layer = layer(BatchNorm::default(), &[Shape::image(3, 2, 4)]);
        let (mut whole, mut parts) = split(&layer, first_part);
        whole.forward();
        whole.backward();
        let steps = [
            (Pass::ForwardMoments, Role::Moments, Pass::Forward),
            (Pass::BackwardMoments, Role::GradientMoments, Pass::Backward),
        ];
        for (before, moments, after) in steps {
            for part in &mut parts {
                part.run(before).unwrap();
            }
            let sum = added(&parts, moments);
            for part in &mut parts {
                part.set(moments, sum.clone());
                part.run(after).unwrap();
            }
        }
        assert_close(&joined(&parts, Role::Output), &whole.buffers[&Role::Output]);
        assert_close(&joined(&parts, Role::InputGradient(0)), &whole.buffers[&Role::InputGradient(0)]);
        assert_close(&added(&parts, Role::ParameterGradient), &whole.buffers[&Role::ParameterGradient]);
        for part in &parts {
            assert_close(&part.buffers[&Role::Statistics], &whole.buffers[&Role::Statistics]);
        }
    }
}

#[test]
fn empty_shard_has_zero_gradients_and_keeps_statistics() {
    let sequence = || Shape::sequence(4, 6);
    let layers = [
        layer(Conv2d::new(2, 3), &[Shape::image(3, 5, 5)]),
        layer(Linear::new(4), &[Shape::features(7)]),
        layer(BatchNorm::default(), &[Shape::image(3, 5, 5)]),
        layer(Linear::new(4), &[sequence()]),
        layer(LayerNorm::default(), &[sequence()]),
        layer(RmsNorm::new(1e-5), &[sequence()]),
        layer(Recurrence::new(RecurrentCell::Gru), &[sequence()]),
        layer(Embedding::new(9, 3), &[Shape::features(7)]),
        layer(PositionEmbedding::new(8), &[sequence()]),
        layer(LayerKind::ClassToken, &[sequence()]),
        mixture(None),
    ];
    for layer in layers {
        let mut layer = SingleLayer::<f32>::new(layer, Shard::whole(0), CpuEngine::new());
        for role in [Role::ParameterGradient, Role::Statistics] {
            if let Some(buffer) = layer.buffers.get_mut(&role) {
                buffer.fill(3.0);
            }
        }
        layer.forward();
        layer.backward();
        assert!(layer.buffers[&Role::ParameterGradient].iter().all(|&gradient| gradient == 0.0));
        assert!(layer.buffers.get(&Role::Statistics).is_none_or(|all| all.iter().all(|&value| value == 3.0)));
    }
}
