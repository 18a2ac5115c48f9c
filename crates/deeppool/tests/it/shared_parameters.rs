//! Shared parameters: one buffer on every rank of the two layers, with one gradient and one
//! optimiser step.

use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::{Job, plan_problem};
use deeppool::program::{
    CollectiveOp, Contents, LowerOptions, Op, Placement, Program, RankProgram, lower_evaluation,
    lower_training,
};
use layer_engine::{Precision, Role, Sgd};
use layer_graph::{Embedding, LayerGraph, LayerKind, Linear, Shape};
use layer_profile::DeviceModel;

const TOKENS: usize = 1000;
const FEATURES: usize = 64;

fn network() -> LayerGraph {
    let mut net = LayerGraph::new("net", Shape::features(3)).unwrap();
    let embedding = Embedding::new(TOKENS, FEATURES);
    let tokens = net.add("tokens", embedding, [net.input()]).unwrap();
    let x = net.add("fc", Linear::new(FEATURES), [tokens]).unwrap();
    let x = net.add_tied("head", Linear::new(TOKENS).without_bias(), [x], tokens).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [x]).unwrap();
    net
}

/// The embedding is on ranks 0 and 1, the head on 1 and 2.
fn placement(network: &LayerGraph) -> Placement {
    Placement::new(network, 4, vec![vec![0, 1], vec![3], vec![1, 2], vec![1]]).unwrap()
}

fn training(network: &LayerGraph) -> Program {
    let optimizer = Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm: Some(1.0) };
    let options = LowerOptions::default().with_optimizer(optimizer);
    lower_training(network, &placement(network), 6, &options).unwrap()
}

fn count(program: &RankProgram, of: impl Fn(&Op) -> bool) -> usize {
    program.steps.iter().filter(|step| of(&step.op)).count()
}

#[test]
fn shared_parameters_are_held_once_on_each_rank() {
    let network = network();
    let tokens = network.find("tokens").unwrap();
    for program in
        [training(&network), lower_evaluation(&network, &placement(&network), 6, Precision::F32).unwrap()]
    {
        for (rank, held) in [(0, 1), (1, 1), (2, 1), (3, 0)] {
            let buffers = &program.ranks[rank].buffers;
            let of_tokens = buffers[..program.ranks[rank].state_buffers]
                .iter()
                .filter(|buffer| buffer.contents == Contents::Operand(tokens, Role::Parameters));
            assert_eq!(of_tokens.count(), held, "rank {rank}");
            let others = buffers.iter().filter(|buffer| {
                let Contents::Operand(id, Role::Parameters) = buffer.contents else { return false };
                network.parameter_owner(id) != id
            });
            assert_eq!(others.count(), 0, "rank {rank}");
        }
    }
}

#[test]
fn shared_gradients_are_summed_on_each_rank_then_reduced_over_all_ranks() {
    let network = network();
    let tokens = network.find("tokens").unwrap();
    let program = training(&network);
    let shared =
        program.collectives.iter().find(|collective| collective.label == "all-reduce tokens").unwrap();
    assert_eq!(shared.ranks, [0, 1, 2]);
    assert_eq!(shared.op, CollectiveOp::AllReduce { elements: TOKENS * FEATURES });
    for (rank, sums) in [(0, 0), (1, 1), (2, 0), (3, 0)] {
        let steps = &program.ranks[rank];
        assert_eq!(count(steps, |op| *op == Op::SumGradients), sums, "rank {rank}");
        let updates = count(steps, |op| matches!(op, Op::OptimizerStep { layer, .. } if *layer == tokens));
        assert_eq!(updates, usize::from(rank < 3), "rank {rank}");
    }
    let sum = program.ranks[1].steps.iter().find(|step| step.op == Op::SumGradients).unwrap();
    assert_eq!(sum.reads.len(), 2);
}

#[test]
fn planner_charges_one_all_reduce_for_shared_parameters() {
    let network = network();
    let link = LinkModel::dgx_a100();
    let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(8, 4)).unwrap();
    let job = Job::new(Costs::new(&network, &profile, &link), 8, LowerOptions::default());
    let problem = plan_problem(&job, 4, &[4]).unwrap();
    let bytes: u64 = problem.nodes.iter().map(|node| node.gradient_bytes).sum();
    assert_eq!(bytes, network.parameter_count() as u64 * 4);
    let users = problem.nodes.iter().filter(|node| node.parameters_of.is_some());
    assert_eq!(users.count(), 1);
}
