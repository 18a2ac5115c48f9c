//! Random problems, and the slow and obvious way to solve them.

use burst_planner::{NodeId, NodeOption, PlanProblem};
use proptest::prelude::*;

pub(crate) mod waves;

/// How nodes hang together.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Node,
    Series(Vec<Shape>),
    /// A fork, branches, a join; with a skip edge from fork to join or without.
    ForkJoin(Vec<Shape>, bool),
}

/// Edges by node index, all from a lower to a higher one.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    pub(crate) nodes: usize,
    pub(crate) edges: Vec<(usize, usize)>,
}

impl Shape {
    pub(crate) fn build(&self, graph: &mut Graph) -> (usize, usize) {
        let add = |graph: &mut Graph| {
            graph.nodes += 1;
            graph.nodes - 1
        };
        match self {
            Self::Node => {
                let node = add(graph);
                (node, node)
            }
            Self::Series(parts) => {
                let ends: Vec<_> = parts.iter().map(|part| part.build(graph)).collect();
                graph.edges.extend(ends.windows(2).map(|pair| (pair[0].1, pair[1].0)));
                (ends[0].0, ends[ends.len() - 1].1)
            }
            Self::ForkJoin(branches, skip) => {
                let fork = add(graph);
                let ends: Vec<_> = branches.iter().map(|branch| branch.build(graph)).collect();
                let join = add(graph);
                for (first, last) in ends {
                    graph.edges.extend([(fork, first), (last, join)]);
                }
                graph.edges.extend(skip.then_some((fork, join)));
                (fork, join)
            }
        }
    }
}

pub(crate) fn chains() -> impl Strategy<Value = Graph> {
    (1_usize..=7).prop_map(|nodes| Graph { nodes, edges: (1..nodes).map(|node| (node - 1, node)).collect() })
}

/// Nested fork-joins with up to 8 nodes; sometimes the first or the last node is missing, so that there are several
/// sources or sinks, or none at all is left to join what remains.
pub(crate) fn series_parallel() -> impl Strategy<Value = Graph> {
    let shape = Just(Shape::Node).prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..=3).prop_map(Shape::Series),
            (prop::collection::vec(inner, 1..=3), any::<bool>())
                .prop_map(|(b, skip)| Shape::ForkJoin(b, skip)),
        ]
    });
    let graph = shape.prop_map(|shape| {
        let mut graph = Graph { nodes: 0, edges: Vec::new() };
        shape.build(&mut graph);
        graph
    });
    (graph.prop_filter("small enough for brute force", |graph| graph.nodes <= 8), any::<[bool; 2]>())
        .prop_map(|(graph, [no_first, no_last])| {
            let first = usize::from(no_first && graph.nodes > 2);
            let last = graph.nodes - usize::from(no_last && graph.nodes > 2);
            let inside = |node: usize| (first..last).contains(&node);
            let edges = graph.edges.iter().filter(|edge| inside(edge.0) && inside(edge.1));
            Graph { nodes: last - first, edges: edges.map(|edge| (edge.0 - first, edge.1 - first)).collect() }
        })
}

/// Any DAG with up to 6 nodes.
pub(crate) fn any_dag() -> impl Strategy<Value = Graph> {
    (1_usize..=6, any::<u16>()).prop_map(|(nodes, bits)| {
        let pairs = (0..nodes).flat_map(|to| (0..to).map(move |from| (from, to)));
        Graph {
            nodes,
            edges: pairs.enumerate().filter(|(i, _)| bits >> i & 1 == 1).map(|(_, pair)| pair).collect(),
        }
    })
}

pub(crate) fn graphs() -> impl Strategy<Value = Graph> {
    prop_oneof![chains(), series_parallel(), any_dag()]
}

/// Problems on the graph: 1 to 3 options a node out of `counts`, small integral times (many ties) or continuous
/// ones, transfers that are zero or not.
pub(crate) fn problems(
    graphs: impl Strategy<Value = Graph>,
    counts: &'static [usize],
) -> impl Strategy<Value = PlanProblem> {
    let draws = prop::collection::vec(any::<u16>(), 64);
    (graphs, draws, any::<bool>()).prop_map(move |(graph, draws, integral)| {
        let mut next = draws.iter().copied().cycle().enumerate().map(|(turn, draw)| {
            // The second time round has to differ from the first.
            usize::from(draw).wrapping_mul(2_654_435_761).wrapping_add(turn * 40_503) >> 7
        });
        let mut draw = move |below: usize| next.next().map_or(0, |value| value % below);
        let time = |value: usize| if integral { (value % 10) as f64 } else { value as f64 * 0.137 };
        let mut problem = PlanProblem::new(8);
        problem.single_gpu_us = Some(100.0);
        for node in 0..graph.nodes {
            let options: Vec<_> = (0..=draw(3))
                .map(|_| {
                    let gpus = counts[draw(counts.len())];
                    let option = NodeOption::new(gpus, time(draw(1000)) / gpus as f64 + time(draw(30)));
                    option.with_all_reduce_us(time(draw(20))).with_memory_bytes(draw(100) as u64)
                })
                .collect();
            problem.add_node(format!("n{node}"), options);
        }
        for (from, to) in graph.edges {
            let columns = problem.nodes[to].options.len();
            let rows = problem.nodes[from].options.len();
            let cell =
                |draw: &mut dyn FnMut(usize) -> usize| if draw(3) == 0 { 0.0 } else { time(draw(200)) };
            let matrix = (0..rows).map(|_| (0..columns).map(|_| cell(&mut draw)).collect()).collect();
            problem.add_edge(NodeId(from), NodeId(to), matrix);
        }
        problem
    })
}

/// Iteration time, GPU time and bytes of one choice, added up without the crate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) choice: Vec<usize>,
    pub(crate) time: f64,
    pub(crate) gpu: f64,
    pub(crate) bytes: u64,
}

/// All choices there are.
pub(crate) fn all_outcomes(problem: &PlanProblem) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let mut choice = vec![0; problem.nodes.len()];
    loop {
        outcomes.push(outcome(problem, &choice));
        let mut node = 0;
        while node < choice.len() {
            choice[node] += 1;
            if choice[node] < problem.nodes[node].options.len() {
                break;
            }
            choice[node] = 0;
            node += 1;
        }
        if node == choice.len() {
            return outcomes;
        }
    }
}

fn outcome(problem: &PlanProblem, choice: &[usize]) -> Outcome {
    let option = |node: usize| &problem.nodes[node].options[choice[node]];
    let (mut time, mut gpu, mut bytes) = (0.0, 0.0, 0);
    for node in 0..choice.len() {
        let us = option(node).time_us + option(node).all_reduce_us;
        time += us;
        gpu += us * option(node).gpus as f64;
        bytes += option(node).memory_bytes.unwrap_or(0);
    }
    for edge in &problem.edges {
        let us = edge.transfer_us[choice[edge.from.0]][choice[edge.to.0]];
        time += us;
        gpu += us * option(edge.from.0).gpus.max(option(edge.to.0).gpus) as f64;
    }
    Outcome { choice: choice.to_vec(), time, gpu, bytes }
}

pub(crate) const CLOSE: f64 = 1e-9;

pub(crate) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= CLOSE * a.abs().max(b.abs())
}

/// What nothing beats: by pairwise comparison, near duplicates once, fastest first.
pub(crate) fn nondominated(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    outcomes.sort_by(|a, b| a.time.total_cmp(&b.time).then(a.gpu.total_cmp(&b.gpu)));
    let mut kept: Vec<Outcome> = Vec::new();
    for one in outcomes {
        if kept.last().is_none_or(|last| one.gpu < last.gpu && !close(one.gpu, last.gpu)) {
            // Of two that are as fast to rounding, the second takes less GPU time.
            if kept.last().is_some_and(|last| close(last.time, one.time)) {
                kept.pop();
            }
            kept.push(one);
        }
    }
    kept
}
