//! The loss in place: the memory of the scores holds the probabilities, then the gradient.

use layer_engine::{CpuEngine, EngineError, Pass, Precision, Role, Shard};
use layer_graph::{LayerKind, Shape};

use crate::any_engine::{check_loss_in_place, losses};
use crate::single_layer::{SingleLayer, layer};

#[test]
fn loss_in_place_matches_its_ordinary_passes_bitwise() {
    for layer in losses() {
        for samples in [0, 1, 9] {
            let shard = Shard { first: 5, samples };
            for threads in [1, 3] {
                let single = CpuEngine::<f32>::with_threads(threads).unwrap();
                check_loss_in_place(&single, Precision::F32, &layer, shard);
                let double = CpuEngine::<f64>::with_threads(threads).unwrap();
                check_loss_in_place(&double, Precision::F64, &layer, shard);
            }
        }
    }
}

/// An invalid label is an error, and the scores do not change.
#[test]
fn invalid_labels_are_rejected_in_place() {
    let loss = layer(LayerKind::CROSS_ENTROPY, &[Shape::features(3)]);
    let mut loss = SingleLayer::<f64>::new(loss, Shard::whole(2), CpuEngine::new());
    loss.set(Role::Labels, vec![0.0, 3.0]);
    let scores = loss.buffers[&Role::Input(0)].clone();
    for pass in [Pass::ForwardInPlace, Pass::BackwardInPlace] {
        let result = loss.run(pass);
        assert!(matches!(result, Err(EngineError::Label { classes: 3, .. })), "{pass:?}: {result:?}");
        assert_eq!(loss.buffers[&Role::Input(0)], scores, "{pass:?}");
    }
}
