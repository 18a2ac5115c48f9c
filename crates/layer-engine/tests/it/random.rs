//! Random numbers and initial values depend only on their key.

use layer_engine::random::{Purpose, RandomStream};
use layer_engine::{initial_parameters, initial_statistics};
use layer_graph::{BatchNorm, Conv2d, Linear, Shape};
use proptest::prelude::*;

use crate::single_layer::layer;

fn draw(mut stream: RandomStream) -> [u64; 4] {
    std::array::from_fn(|_| stream.uniform().to_bits())
}

proptest! {
    #[test]
    fn every_part_of_the_key_changes_the_stream(seed: u64, iteration in 0..u64::MAX, sample in 0..u64::MAX) {
        use Purpose::{Dropout, Shuffle};
        let stream = draw(RandomStream::new(seed, Dropout, iteration, "layer", sample));
        prop_assert_eq!(stream, draw(RandomStream::new(seed, Dropout, iteration, "layer", sample)));
        prop_assert_ne!(stream, draw(RandomStream::new(seed ^ 1, Dropout, iteration, "layer", sample)));
        prop_assert_ne!(stream, draw(RandomStream::new(seed, Shuffle, iteration, "layer", sample)));
        prop_assert_ne!(stream, draw(RandomStream::new(seed, Dropout, iteration + 1, "layer", sample)));
        prop_assert_ne!(stream, draw(RandomStream::new(seed, Dropout, iteration, "layer2", sample)));
        prop_assert_ne!(stream, draw(RandomStream::new(seed, Dropout, iteration, "layer", sample + 1)));
    }

    #[test]
    fn below_is_less_than_its_bound(seed: u64, bound in 1usize..100) {
        let mut stream = RandomStream::new(seed, Purpose::Synthetic, 0, "", 0);
        prop_assert!((0..50).all(|_| stream.below(bound) < bound));
    }

    #[test]
    fn shuffle_is_a_permutation(seed: u64, count in 0usize..100) {
        let mut items: Vec<usize> = (0..count).collect();
        RandomStream::new(seed, Purpose::Shuffle, 0, "", 0).shuffle(&mut items);
        items.sort_unstable();
        prop_assert!(items.into_iter().eq(0..count));
    }
}

#[test]
fn uniform_numbers_are_evenly_distributed() {
    let mut stream = RandomStream::new(1, Purpose::Synthetic, 0, "", 0);
    let count = 100_000;
    let mut bins = [0; 10];
    let mut sum = 0.0;
    for _ in 0..count {
        let number = stream.uniform();
        assert!((0.0..1.0).contains(&number));
        bins[(number * 10.0) as usize] += 1;
        sum += number;
    }
    // Five standard deviations.
    assert!((sum / f64::from(count) - 0.5).abs() < 5.0 * (1.0 / 12.0 / f64::from(count)).sqrt());
    assert!(bins.iter().all(|&bin: &i32| (bin - 10_000).abs() < 500), "{bins:?}");
}

#[test]
fn below_zero_is_zero() {
    assert_eq!(RandomStream::new(1, Purpose::Shuffle, 0, "", 0).below(0), 0);
}

#[test]
fn initial_weights_are_uniform_within_lecuns_bound() {
    let conv = layer(Conv2d::new(50, 3), &[Shape::image(4, 5, 5)]);
    let values = initial_parameters(&conv, 3);
    assert_eq!(values.len(), conv.parameter_count());
    let bound = (3.0f64 / 36.0).sqrt();
    let (weights, biases) = values.split_at(50 * 36);
    assert!(biases.iter().all(|&bias| bias == 0.0));
    let largest = weights.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    assert!(largest <= bound && largest > 0.99 * bound);
    assert_eq!(values, initial_parameters(&conv, 3));
    assert_ne!(values, initial_parameters(&conv, 4));

    // A layer without a bias starts with the same weights.
    let plain = layer(Linear { out_features: 5, bias: false }, &[Shape::features(7)]);
    let biased = layer(Linear::new(5), &[Shape::features(7)]);
    assert_eq!(initial_parameters(&plain, 3), initial_parameters(&biased, 3)[..35]);

    let norm = layer(BatchNorm::default(), &[Shape::features(2)]);
    assert_eq!(initial_parameters(&norm, 3), [1.0, 1.0, 0.0, 0.0]);
    assert_eq!(initial_statistics(&norm), [0.0, 0.0, 1.0, 1.0]);
    assert!(initial_statistics(&plain).is_empty());
}
