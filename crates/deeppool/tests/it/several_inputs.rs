//! Networks with several inputs, with other losses than a cross entropy, and the same networks with
//! one input that is sliced.

use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use deeppool::train::{Length, TrainConfig, train};
use layer_graph::{
    Conv2d, ElementwiseLoss, Embedding, GraphError, LayerGraph, LayerId, LayerKind, LayerNorm, Linear,
    PositionEmbedding, Reshape, Shape, Slice,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::random_splits::{cases, difference, losses, random_options, random_placement};

const PIXELS: usize = 2 * 4 * 4;
const TOKENS: usize = 6;
const BATCH: usize = 12;

fn image() -> Shape {
    Shape::image(2, 4, 4)
}

/// Adds the layers of a network that answers questions on images.
fn add_layers(net: &mut LayerGraph, image: LayerId, tokens: LayerId) -> Result<(), GraphError> {
    let seen = net.add("conv", Conv2d::new(8, 3).padding(1), [image])?;
    let seen = net.add("relu", LayerKind::Relu, [seen])?;
    let seen = net.add("flatten", LayerKind::Flatten, [seen])?;
    let seen = net.add("seen", Linear::new(8), [seen])?;
    let asked = net.add("words", Embedding::new(20, 8), [tokens])?;
    let asked = net.add("places", PositionEmbedding::new(TOKENS), [asked])?;
    let asked = net.add("norm", LayerNorm::default(), [asked])?;
    let asked = net.add("mix", Linear::new(8), [asked])?;
    let asked = net.add("words_flat", LayerKind::Flatten, [asked])?;
    let asked = net.add("asked", Linear::new(8), [asked])?;
    let both = net.add("both", LayerKind::Multiply, [seen, asked])?;
    let scores = net.add("answer", Linear::new(5), [both])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [scores])?;
    Ok(())
}

fn two_inputs() -> LayerGraph {
    let mut net = LayerGraph::new("two", image()).unwrap();
    let tokens = net.add_input("question", Shape::features(TOKENS)).unwrap();
    let input = net.input();
    add_layers(&mut net, input, tokens).unwrap();
    net
}

fn one_input() -> LayerGraph {
    let mut net = LayerGraph::new("one", Shape::features(PIXELS + TOKENS)).unwrap();
    let input = net.input();
    let pixels = net.add("pixels", Slice { start: 0, length: PIXELS }, [input]).unwrap();
    let image = net.add("image", Reshape { output: image() }, [pixels]).unwrap();
    let tokens = net.add("question", Slice { start: PIXELS, length: TOKENS }, [input]).unwrap();
    add_layers(&mut net, image, tokens).unwrap();
    net
}

/// Numbers are learned as labels: the elements of the samples, or whether they are positive.
#[test]
fn losses_of_elements_fall_with_any_placement() {
    for (loss, has_accuracy) in
        [(ElementwiseLoss::MeanSquaredError, false), (ElementwiseLoss::BinaryCrossEntropy, true)]
    {
        let mut net = LayerGraph::new("numbers", Shape::features(4)).unwrap();
        let other = net.add_input("other", Shape::features(2)).unwrap();
        let first = net.add("first", Linear::new(3), [net.input()]).unwrap();
        let second = net.add("second", Linear::new(3), [other]).unwrap();
        let sum = net.add("sum", LayerKind::Add, [first, second]).unwrap();
        net.add("loss", loss, [sum]).unwrap();
        let data = Dataset::synthetic_for(&net, 100, 1).unwrap();
        let reports = [vec![vec![0]; 4], vec![vec![1], vec![0, 1], vec![0], vec![1, 0]]].map(|ranks| {
            let placement = Placement::new(&net, 2, ranks).unwrap();
            let training = LoweredTraining::new(&net, placement, 10, LowerOptions::default());
            let config =
                TrainConfig::new(&data, &training).with_length(Length::Epochs(4)).with_learning_rate(0.2);
            train(&config, &|_| {}).unwrap()
        });
        assert!(difference(&reports[0].losses, &reports[1].losses) < 1e-5);
        let epochs = &reports[0].epochs;
        assert!(epochs[3].test.loss < 0.5 * epochs[0].train_loss, "{epochs:?}");
        assert_eq!(epochs[3].test.accuracy.is_some(), has_accuracy);
        assert!(epochs[3].test.accuracy.unwrap_or(1.0) > 0.9, "{epochs:?}");
    }
}

/// Losses are those of the network with one input, with any placement: of split layers, layers that
/// are computed again, and of several micro-batches.
#[test]
fn losses_are_those_of_one_input_with_any_placement() {
    let (two, one) = (two_inputs(), one_input());
    let data = Dataset::synthetic_for(&two, 60, 1).unwrap();
    let training = (BATCH, 6, 0.05);
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let expected = losses(&one, &Placement::single(&one).unwrap(), &LowerOptions::default(), &data, training);
    let alone = losses(&two, &Placement::single(&two).unwrap(), &LowerOptions::default(), &data, training);
    assert_eq!(alone, expected);
    for case in 0..cases(8) {
        let placement = random_placement(&two, 1 + case % 4, &mut random);
        let mut options = random_options(&two, &mut random);
        options.optimizer = LowerOptions::default().optimizer;
        let found = losses(&two, &placement, &options, &data, training);
        let worst = difference(&found, &expected);
        assert!(worst < 1e-4, "case {case}: {worst}, {placement:?}, {options:?}");
    }
}
