//! Tests of the validation of planning problems.

use burst_planner::{Error, Node, NodeId, PlanProblem};

fn chain(names: &[&str]) -> PlanProblem {
    let mut problem = PlanProblem::new(2);
    let nodes: Vec<NodeId> = names.iter().map(|&name| problem.add_node(Node::new(name, [1, 2]))).collect();
    for pair in nodes.windows(2) {
        problem.add_edge(pair[0], pair[1]);
    }
    problem
}

#[test]
fn invalid_problems_are_refused() {
    assert_eq!(chain(&["a", "b"]).validate(), Ok(()));
    let with = |change: &dyn Fn(&mut PlanProblem)| {
        let mut problem = chain(&["a", "b", "c"]);
        change(&mut problem);
        problem.validate().unwrap_err()
    };
    assert_eq!(with(&|of| of.gpus = 0), Error::NoGpus);
    assert_eq!(with(&|of| of.nodes.clear()), Error::NoNodes);
    assert_eq!(
        with(&|of| of.nodes[2].name = "a".into()),
        Error::DuplicateName { name: "a".into(), first: 0, second: 2 }
    );
    assert_eq!(with(&|of| of.nodes[1].gpu_counts.clear()), Error::NoOptions { node: "b".into() });
    assert!(matches!(with(&|of| of.nodes[1].gpu_counts = vec![0, 1]), Error::OptionGpus { gpus: 0, .. }));
    assert_eq!(
        with(&|of| of.edges.push((NodeId(2), NodeId(7)))),
        Error::EdgeToNowhere { edge: 2, node: 7, nodes: 3 }
    );
    assert_eq!(
        with(&|of| of.edges.push((NodeId(1), NodeId(1)))),
        Error::SelfEdge { edge: 2, node: "b".into() }
    );
    assert!(matches!(
        with(&|of| of.edges.push((NodeId(0), NodeId(1)))),
        Error::DuplicateEdge { first: 0, second: 2, .. }
    ));
    assert!(matches!(with(&|of| of.edges.push((NodeId(2), NodeId(0)))), Error::Cycle { .. }));
    assert_eq!(
        with(&|of| of.nodes[2].parameters_of = Some(NodeId(0))),
        Error::NoParametersToShare { node: "c".into() }
    );
    assert!(matches!(with(&|of| of.checkpoints = vec![NodeId(9)]), Error::NotACheckpoint { .. }));
}
