//! Micro-batches: every sample is loaded once, in shorter steps, with less memory.

use deeppool::program::{BatchPart, LowerOptions, Op, Placement, Program, lower_training};
use layer_graph::{LayerGraph, zoo};

const BATCH: usize = 30;

fn lower(network: &LayerGraph, ranks: usize, micro_batches: usize) -> Result<Program, deeppool::Error> {
    let gpus: Vec<usize> = (1..network.len()).map(|layer| 1 + layer % ranks).collect();
    let placement = Placement::first_ranks(network, ranks, &gpus).unwrap();
    lower_training(network, &placement, BATCH, &LowerOptions::default().with_micro_batches(micro_batches))
}

#[test]
fn micro_batches_load_every_sample_once() {
    let network = zoo::model("digits-cnn").unwrap();
    for ranks in 1..=3 {
        for micro_batches in [1, 2, 7, BATCH] {
            let program = lower(&network, ranks, micro_batches).unwrap();
            let mut labels = [0; BATCH];
            for step in program.ranks.iter().flat_map(|rank| &rank.steps) {
                match &step.op {
                    Op::LoadBatch { part: BatchPart::Labels, shard, .. } => {
                        labels[shard.first..shard.first + shard.samples].iter_mut().for_each(|n| *n += 1);
                    }
                    Op::Forward { shard, .. } | Op::Backward { shard, .. } => {
                        assert!(shard.samples <= BATCH.div_ceil(micro_batches));
                        assert!(shard.first + shard.samples <= BATCH);
                    }
                    _ => {}
                }
            }
            assert_eq!(labels, [1; BATCH], "{ranks} ranks, {micro_batches} micro-batches");
        }
    }
}

#[test]
fn gradients_are_reduced_and_applied_once() {
    let network = zoo::model("digits-cnn").unwrap();
    let count = |micro_batches, is: fn(&str) -> bool| {
        let program = lower(&network, 3, micro_batches).unwrap();
        let own = program.ranks.iter().flat_map(|rank| &rank.steps).filter(|step| is(&step.label)).count();
        own + program.collectives.iter().filter(|collective| is(&collective.label)).count()
    };
    for is in [|label: &str| label.starts_with("all-reduce"), |label: &str| label.starts_with("update")] {
        assert!(count(1, is) > 0);
        assert_eq!(count(1, is), count(7, is));
    }
}

#[test]
fn micro_batches_share_their_memory() {
    let network = zoo::model("vgg16").unwrap();
    let placement = Placement::single(&network).unwrap();
    let bytes = |micro_batches| {
        let options = LowerOptions::default().with_micro_batches(micro_batches);
        lower_training(&network, &placement, BATCH, &options).unwrap().ranks[0].memory().total_bytes()
    };
    assert!(bytes(5) < bytes(1));
    assert_eq!(bytes(15), bytes(15).min(bytes(10)), "more and smaller micro-batches never need more");
    let parameters = network.parameter_count() as u64 * 4;
    // Parameters, velocities, and three gradients: the sum so far, that of a micro-batch, and the
    // new sum.
    assert!(bytes(BATCH) < 5 * parameters + bytes(1) / 10, "{} of {}", bytes(BATCH), bytes(1));
}

#[test]
fn invalid_numbers_of_micro_batches_are_rejected() {
    let network = zoo::model("digits-cnn").unwrap();
    for wrong in [0, BATCH + 1] {
        let error = lower(&network, 1, wrong).unwrap_err();
        assert!(error.is_input() && error.to_string().contains("micro-batches"), "{error}");
    }
}
