//! Recomputed activations: steps read the values that were written, and ranks need less memory.

use deeppool::program::{LowerOptions, Op, Placement, RankProgram, lower_training, possible_checkpoints};
use layer_engine::Pass;
use layer_graph::{LayerGraph, zoo};

const BATCH: usize = 12;

fn lowered(
    network: &LayerGraph,
    ranks: usize,
    checkpoints: Vec<String>,
    micro_batches: usize,
) -> Vec<RankProgram> {
    let gpus: Vec<usize> = (1..network.len()).map(|layer| 1 + layer / 7 % ranks).collect();
    let placement = Placement::first_ranks(network, ranks, &gpus).unwrap();
    let options = LowerOptions::default().with_checkpoints(checkpoints).with_micro_batches(micro_batches);
    lower_training(network, &placement, BATCH, &options).unwrap().ranks
}

fn every_nth_layer(network: &LayerGraph, nth: usize) -> Vec<String> {
    let possible = possible_checkpoints(network).into_iter().skip(nth / 2).step_by(nth);
    possible.map(|id| network.layer(id).name().to_owned()).collect()
}

#[test]
fn recomputation_needs_less_memory_and_more_steps() {
    for (model, at_most) in [("vgg16", 0.85), ("resnet-50", 0.5), ("gpt2", 0.6)] {
        let network = zoo::model(model).unwrap();
        let [kept, again] = [Vec::new(), every_nth_layer(&network, 6)]
            .map(|checkpoints| lowered(&network, 1, checkpoints, 1));
        let activations = |program: &RankProgram| {
            let memory = program.memory();
            memory.activations_bytes + memory.activation_gradients_bytes
        };
        let part = activations(&again[0]) as f64 / activations(&kept[0]) as f64;
        assert!(part < at_most, "{model}: {part:.2}");
        let recomputed =
            again[0].steps.iter().filter(|step| matches!(step.op, Op::Forward { pass: Pass::Recompute, .. }));
        let recomputed = recomputed.count();
        assert!(recomputed > 0 && recomputed < network.len(), "{model}: {recomputed}");
        assert_eq!(again[0].steps.len(), kept[0].steps.len() + recomputed, "{model}");
    }
}

#[test]
fn invalid_checkpoints_are_rejected() {
    let network = zoo::model("inception-v3").unwrap();
    let loss = network.layers().last().unwrap().1.name();
    let input = network.layer(network.input()).name();
    let possible = possible_checkpoints(&network);
    let branch = network.computing_layers().find(|(id, _)| !possible.contains(id)).unwrap().1.name();
    for wrong in [loss, input, branch, "nothing"] {
        let placement = Placement::single(&network).unwrap();
        let options = LowerOptions::default().with_checkpoints(vec![wrong.into()]);
        let error = lower_training(&network, &placement, BATCH, &options).unwrap_err();
        assert!(error.is_input() && error.to_string().contains(&format!("`{wrong}`")), "{error}");
    }
}
