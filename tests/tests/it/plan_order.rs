//! The layer order of a plan: ranks execute it, and losses do not depend on it.

use deeppool::data::Dataset;
use deeppool::program::{CollectiveOp, LowerOptions, Op, Placement, Program, lower_training};
use deeppool_tests::{Run, reordered, scattered};
use layer_graph::{Conv2d, LayerGraph, LayerId, LayerKind, Linear, Shape};
use proptest::prelude::*;

/// Returns a network with three branches, two of which share parameters.
fn branches() -> LayerGraph {
    let mut net = LayerGraph::new("branches", Shape::image(1, 8, 8)).unwrap();
    let stem = net.add("stem", Conv2d::new(2, 3).padding(1), [net.input()]).unwrap();
    let flat = net.add("flat", LayerKind::Flatten, [stem]).unwrap();
    let a = net.add("a", Linear::new(12), [flat]).unwrap();
    let a2 = net.add("a2", LayerKind::GeluTanh, [a]).unwrap();
    let b = net.add_tied("b", Linear::new(12), [flat], a).unwrap();
    let c = net.add("c", Linear::new(12), [flat]).unwrap();
    let c2 = net.add("c2", Linear::new(12), [c]).unwrap();
    let joined = net.add("joined", LayerKind::Add, [a2, b, c2]).unwrap();
    let scores = net.add("fc", Linear::new(10), [joined]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    net
}

fn ids(network: &LayerGraph, names: &[&str]) -> Vec<LayerId> {
    names.iter().map(|name| network.find(name).unwrap()).collect()
}

/// Checks that each rank's forward passes are in the placement's order, and its backward passes and
/// all-reduces in reverse.
fn check_lanes(network: &LayerGraph, placement: &Placement, program: &Program) {
    let position = |id: LayerId| placement.order().iter().position(|&other| other == id);
    for rank in &program.ranks {
        let layers = |of: fn(&Op) -> Option<LayerId>| rank.steps.iter().filter_map(move |step| of(&step.op));
        let forward = layers(|op| if let Op::Forward { layer, .. } = op { Some(*layer) } else { None });
        let backward = layers(|op| if let Op::Backward { layer, .. } = op { Some(*layer) } else { None });
        assert!(forward.map(position).is_sorted());
        assert!(backward.map(position).collect::<Vec<_>>().into_iter().rev().is_sorted());
        let reduced =
            rank.steps.iter().filter_map(|step| network.find(step.label.strip_prefix("all-reduce ")?));
        assert!(reduced.map(position).collect::<Vec<_>>().into_iter().rev().is_sorted());
        let ids = rank.steps.iter().filter_map(|step| match step.op {
            Op::Collective(id) => Some(id),
            _ => None,
        });
        assert!(ids.is_sorted(), "collectives are not in program order");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn losses_do_not_depend_on_the_order(ranks in 1usize..5, seed: u64) {
        let (network, dataset) = (branches(), Dataset::digits().unwrap());
        let lowering = LowerOptions::default().with_bucket_bytes(1);
        let by_id = scattered(&network, ranks, seed).unwrap();
        let by_plan = reordered(&network, by_id.clone(), seed).unwrap();
        for placement in [&by_id, &by_plan] {
            let program = lower_training(&network, placement, 30, &lowering).unwrap();
            check_lanes(&network, placement, &program);
        }
        let (network, dataset) = (&network, &dataset);
        let run = Run { network, dataset, batch: 30, epochs: 1, lowering, background: None };
        let [by_id, by_plan] = [by_id, by_plan].map(|placement| run.with(&placement).unwrap());
        for (a, b) in by_id.losses.iter().zip(&by_plan.losses) {
            prop_assert!((a - b).abs() <= 1e-4 * a.abs(), "{} and {}", a, b);
        }
        let accuracies = [by_id, by_plan].map(|report| report.epochs[0].test.score());
        prop_assert!((accuracies[0] - accuracies[1]).abs() < 0.01, "{:?}", accuracies);
    }
}

#[test]
fn transfers_of_a_fork_are_in_the_order_of_its_branches() {
    let network = branches();
    let ranks = |name: &str| match name {
        "a" | "a2" => vec![1],
        "b" => vec![2],
        "c" | "c2" => vec![3],
        _ => vec![0],
    };
    let placed = network.computing_layers().map(|(_, layer)| ranks(layer.name())).collect();
    let order = ["stem", "flat", "c", "a", "c2", "b", "a2", "joined", "fc", "loss"];
    let placement =
        Placement::new(&network, 4, placed).unwrap().with_order(&network, ids(&network, &order)).unwrap();
    let program = lower_training(&network, &placement, 8, &LowerOptions::default()).unwrap();
    let targets = |label: &str| -> Vec<usize> {
        let moves = program.collectives.iter().filter(|collective| collective.label == label);
        let target = moves.map(|collective| match &collective.op {
            CollectiveOp::Redistribute { redistribution, .. } => redistribution.target().ranks()[0],
            _ => panic!("{label} is no redistribution"),
        });
        target.collect()
    };
    assert_eq!(targets("redistribute activations of flat"), [3, 1, 2]);
    let gradients: Vec<&str> = program
        .collectives
        .iter()
        .filter_map(|collective| collective.label.strip_prefix("redistribute gradient of "))
        .take(3)
        .collect();
    assert_eq!(gradients, ["a2", "b", "c2"], "gradients are not in reverse order of the branches");
}

#[test]
fn invalid_orders_return_errors() {
    let network = branches();
    let placement = Placement::single(&network).unwrap();
    let order = ["stem", "flat", "a", "a2", "b", "c", "c2", "joined", "fc", "loss"];
    let check_error = |names: &[&str], message: &str| {
        let error = placement.clone().with_order(&network, ids(&network, names)).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    };
    assert!(placement.clone().with_order(&network, ids(&network, &order)).is_ok());
    check_error(&order[..9], "lacks `loss`");
    check_error(&["stem", "stem"], "`stem` twice");
    check_error(&["input"], "`input`");
    check_error(&["flat", "stem"], "`flat` before `stem`");
    check_error(&["stem", "flat", "b", "a"], "`b` before `a`");
}
