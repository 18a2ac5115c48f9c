//! Recomputation restores the forward pass's results bitwise and changes nothing else.

use layer_engine::{CpuEngine, Pass, Role, Shard, Signature};
use layer_graph::{
    AdditiveAttention, BatchNorm, Conv2d, Dropout, LayerKind, LayerNorm, Linear, MixtureOfExperts,
    MultiHeadAttention, Pool2d, Recurrence, RecurrentCell, RelativePositions, RmsNorm, Shape,
};

use crate::single_layer::{SingleLayer, layer};

#[test]
fn recompute_restores_forward_results_bitwise() {
    let image = || Shape::image(3, 9, 9);
    let sequence = || Shape::sequence(5, 6);
    let gates = || Shape::sequence(5, 12);
    let cases: [(LayerKind, Vec<Shape>); 16] = [
        (Conv2d::new(5, 3).padding(1).into(), vec![image()]),
        (Linear::new(7).into(), vec![sequence()]),
        (LayerKind::Relu, vec![image()]),
        (LayerKind::MaxPool2d(Pool2d::new(3, 2)), vec![image()]),
        (BatchNorm::default().into(), vec![image()]),
        (Dropout::new(0.5).into(), vec![image()]),
        (LayerKind::Add, vec![image(), image()]),
        (LayerNorm::default().into(), vec![sequence()]),
        (RmsNorm::new(1e-5).into(), vec![sequence()]),
        (Recurrence::new(RecurrentCell::Lstm).into(), vec![gates()]),
        (Recurrence::new(RecurrentCell::Gru).into(), vec![gates()]),
        (MixtureOfExperts::new(4, 2, 3).into(), vec![sequence(), Shape::sequence(5, 4)]),
        (MultiHeadAttention::new(2, true).with_window(2).into(), vec![Shape::sequence(5, 18)]),
        (
            MultiHeadAttention::new(2, true).with_relative_positions(RelativePositions::new(4, 4)).into(),
            vec![Shape::sequence(5, 18)],
        ),
        (
            MultiHeadAttention::new(2, false).into(),
            vec![sequence(), Shape::sequence(4, 3), Shape::sequence(4, 3)],
        ),
        (
            AdditiveAttention::normalised().into(),
            vec![sequence(), Shape::sequence(4, 6), Shape::sequence(4, 3)],
        ),
    ];
    for (kind, inputs) in cases {
        let mut single =
            SingleLayer::new(layer(kind, &inputs), Shard { first: 3, samples: 4 }, CpuEngine::<f32>::new());
        single.forward();
        let before = single.buffers.clone();
        for role in Signature::of(&single.layer, Pass::Recompute).unwrap().writes {
            assert!(matches!(role, Role::Output | Role::Saved), "{:?}: {role:?}", single.layer.kind());
            let elements = before[&role].len();
            single.set(role, vec![f32::NAN; elements]);
        }
        single.run(Pass::Recompute).unwrap();
        let bits = |values: &Vec<f32>| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        for (role, values) in &before {
            assert_eq!(bits(&single.buffers[role]), bits(values), "{:?}: {role:?}", single.layer.kind());
        }
    }
}

#[test]
fn loss_has_no_recompute_pass() {
    let loss = layer(LayerKind::CROSS_ENTROPY, &[Shape::features(10)]);
    assert_eq!(Signature::of(&loss, Pass::Recompute), None);
}
