//! Random problems with branches at the same time, and the slow and obvious way to solve them.

use burst_planner::{Branch, Link, NodeId, PlanProblem, Region, RegionSchedule, Schedule, regions};
use proptest::prelude::*;

use super::{Graph, Outcome, Shape, all_outcomes, any_dag, problems};

/// Problems with branches at the same time: most edges can be apart, and few GPUs make waves too wide.
pub(crate) fn parallel_problems(
    counts: &'static [usize],
    options: usize,
) -> impl Strategy<Value = PlanProblem> {
    let nests = (fork_joins(), any::<u8>());
    let graphs = prop_oneof![4 => nests.prop_map(|(graph, bits)| without_ends(graph, bits)), 1 => any_dag()];
    (problems(graphs, counts), prop::collection::vec(any::<u8>(), 40), 3_usize..=8, any::<bool>()).prop_map(
        move |(mut problem, draws, gpus, cheap)| {
            let mut draws = draws.into_iter().cycle();
            let mut draw = move || usize::from(draws.next().unwrap_or(0));
            problem.gpus = gpus;
            for node in &mut problem.nodes {
                node.options.truncate(options);
                for option in &mut node.options {
                    option.gpus = option.gpus.min(gpus);
                }
            }
            for edge in &mut problem.edges {
                let (rows, columns) =
                    (problem.nodes[edge.from.0].options.len(), problem.nodes[edge.to.0].options.len());
                edge.transfer_us.truncate(rows);
                edge.transfer_us.iter_mut().for_each(|row| row.truncate(columns));
                let factor = if cheap { 0.125 } else { 1.0 };
                let mut matrix = edge.transfer_us.clone();
                matrix.iter_mut().flatten().for_each(|us| *us = *us * factor + (draw() % 8) as f64);
                edge.transfer_disjoint_us = (draw() % 8 > 0).then_some(matrix);
            }
            problem
        },
    )
}

/// A fork and a join with branches between them, some of them fork and join once more.
fn fork_joins() -> impl Strategy<Value = Graph> {
    let chain = || prop_oneof![3 => Just(Shape::Node), 1 => Just(Shape::Series(vec![Shape::Node; 2]))];
    let flat = prop::collection::vec(chain(), 1..=3);
    let inner = (prop::collection::vec(Just(Shape::Node), 1..=2), any::<bool>());
    let nest = inner.prop_map(|(branches, skip)| Shape::ForkJoin(branches, skip));
    let nested = (nest, prop::collection::vec(chain(), 0..=1)).prop_map(|(nest, mut branches)| {
        branches.insert(0, nest);
        branches
    });
    (prop_oneof![flat, nested], any::<bool>(), any::<bool>()).prop_map(|(branches, skip, tail)| {
        let mut graph = Graph { nodes: 0, edges: Vec::new() };
        let region = Shape::ForkJoin(branches, skip);
        if tail { Shape::Series(vec![region, Shape::Node]) } else { region }.build(&mut graph);
        graph
    })
}

/// Sometimes a node is contracted into its only producer, so that nested forks and joins coincide with outer ones.
fn without_ends(graph: Graph, bits: u8) -> Graph {
    let Graph { nodes, mut edges } = graph;
    let mut merged: Vec<usize> = (0..nodes).collect();
    for node in merged.clone() {
        let into: Vec<usize> = edges.iter().filter(|edge| edge.1 == node).map(|edge| edge.0).collect();
        let out: Vec<usize> = edges.iter().filter(|edge| edge.0 == node).map(|edge| edge.1).collect();
        let target = match (into.as_slice(), out.as_slice()) {
            (&[producer], [_, _, ..]) if bits & 1 == 1 => producer,
            ([_, _, ..], &[consumer]) if bits & 2 == 2 => consumer,
            _ => continue,
        };
        edges.retain(|edge| *edge != (target, node) && *edge != (node, target));
        for edge in &mut edges {
            if edge.0 == node {
                edge.0 = target;
            }
            if edge.1 == node {
                edge.1 = target;
            }
        }
        edges.sort_unstable();
        edges.dedup();
        merged[node] = target;
    }
    let kept: Vec<usize> = (0..nodes).filter(|&node| merged[node] == node).collect();
    let number = |node: usize| kept.iter().position(|&other| other == node).unwrap_or(0);
    let edges = edges.into_iter().map(|(from, to)| (number(from), number(to))).collect();
    Graph { nodes: kept.len(), edges }
}

/// A choice of options and a schedule, with what they cost.
#[derive(Debug, Clone)]
pub(crate) struct Scheduled {
    pub(crate) choice: Vec<usize>,
    pub(crate) schedule: Schedule,
    pub(crate) time: f64,
    pub(crate) gpu: f64,
    /// What each rank holds.
    pub(crate) bytes: Vec<u64>,
}

/// All choices of options under all schedules.
pub(crate) fn all_scheduled(problem: &PlanProblem) -> Vec<Scheduled> {
    let regions = regions(problem).expect("a valid problem");
    let schedules = all_schedules(&regions);
    let mut all = Vec::new();
    for Outcome { choice, .. } in all_outcomes(problem) {
        for schedule in &schedules {
            all.extend(scheduled(problem, &regions, &choice, schedule));
        }
    }
    all
}

pub(crate) fn all_schedules(regions: &[Region]) -> Vec<Schedule> {
    let mut schedules = vec![Schedule::default()];
    for region in regions {
        let ways = ways_to_split(region.branches.len());
        let with = |(schedule, waves): (&Schedule, &Vec<Vec<usize>>)| {
            let mut schedule = schedule.clone();
            schedule.regions.push(RegionSchedule {
                fork: region.fork,
                join: region.join,
                waves: waves.clone(),
            });
            schedule
        };
        schedules = schedules.iter().flat_map(|one| ways.iter().map(move |way| with((one, way)))).collect();
    }
    schedules
}

/// What a choice costs under a schedule that lists all regions in order, by the definition; `None` if it is not allowed.
pub(crate) fn scheduled(
    problem: &PlanProblem,
    regions: &[Region],
    choice: &[usize],
    schedule: &Schedule,
) -> Option<Scheduled> {
    let mut ranks = Ranks { problem, regions, choice, schedule, gpu: 0.0, bytes: vec![0; problem.gpus] };
    let branches = || regions.iter().flat_map(|region| &region.branches);
    let mut time = 0.0;
    for node in (0..problem.nodes.len())
        .filter(|node| branches().all(|branch| !branch.nodes.contains(&NodeId(*node))))
    {
        time += ranks.node(node, 0);
    }
    for edge in
        (0..problem.edges.len()).filter(|&edge| branches().all(|b| !b.links.contains(&Link::Edge(edge))))
    {
        time += ranks.edge(edge, false)?;
    }
    for region in (0..regions.len()).filter(|&region| regions[region].parent.is_none()) {
        time += ranks.region(region, problem.gpus, 0, [false; 2])?;
    }
    let Ranks { gpu, bytes, .. } = ranks;
    Some(Scheduled { choice: choice.to_vec(), schedule: schedule.clone(), time, gpu, bytes })
}

/// What has been placed so far.
struct Ranks<'p> {
    problem: &'p PlanProblem,
    regions: &'p [Region],
    choice: &'p [usize],
    schedule: &'p Schedule,
    gpu: f64,
    bytes: Vec<u64>,
}

impl Ranks<'_> {
    fn gpus(&self, node: usize) -> usize {
        self.problem.nodes[node].options[self.choice[node]].gpus
    }

    fn node(&mut self, node: usize, base: usize) -> f64 {
        let option = &self.problem.nodes[node].options[self.choice[node]];
        let us = option.time_us + option.all_reduce_us;
        self.gpu += us * option.gpus as f64;
        (base..base + option.gpus).for_each(|rank| self.bytes[rank] += option.memory_bytes.unwrap_or(0));
        us
    }

    fn edge(&mut self, edge: usize, apart: bool) -> Option<f64> {
        let edge = &self.problem.edges[edge];
        let (from, to) = (self.gpus(edge.from.0), self.gpus(edge.to.0));
        let (matrix, gpus) = if apart {
            (edge.transfer_disjoint_us.as_ref()?, from + to)
        } else {
            (&edge.transfer_us, from.max(to))
        };
        let us = matrix[self.choice[edge.from.0]][self.choice[edge.to.0]];
        self.gpu += us * gpus as f64;
        Some(us)
    }

    fn width(&self, branch: &Branch) -> usize {
        let nested = branch.links.iter().flat_map(|link| match *link {
            Link::Region(inner) => {
                self.regions[inner].branches.iter().map(|branch| self.width(branch)).collect()
            }
            Link::Edge(_) => Vec::new(),
        });
        branch.nodes.iter().map(|&node| self.gpus(node.0)).chain(nested).max().unwrap_or(0)
    }

    /// Entry and exit: whether these edges are disjoint because of what the region is nested in.
    fn region(&mut self, region: usize, available: usize, base: usize, apart: [bool; 2]) -> Option<f64> {
        let mut time = 0.0;
        for wave in &self.schedule.regions[region].waves {
            let (mut used, mut slowest) = (0, 0.0_f64);
            for (place, &branch) in wave.iter().enumerate() {
                let branch = &self.regions[region].branches[branch];
                let [entry, exit] = if place == 0 { apart } else { [true; 2] };
                let (width, mut us) = (self.width(branch), 0.0);
                if used + width > available {
                    return None;
                }
                for (index, &link) in branch.links.iter().enumerate() {
                    let ends = [entry && index == 0, exit && index == branch.nodes.len()];
                    us += match link {
                        Link::Edge(edge) => self.edge(edge, ends[0] || ends[1])?,
                        Link::Region(inner) => self.region(inner, width, base + used, ends)?,
                    };
                    us += branch.nodes.get(index).map_or(0.0, |&node| self.node(node.0, base + used));
                }
                used += width;
                slowest = slowest.max(us);
            }
            time += slowest;
        }
        Some(time)
    }
}

/// All ways to split branches into waves, with all orders within a wave.
fn ways_to_split(branches: usize) -> Vec<Vec<Vec<usize>>> {
    let mut ways: Vec<Vec<Vec<usize>>> = vec![Vec::new()];
    for branch in 0..branches {
        let mut longer = Vec::new();
        for way in &ways {
            for wave in 0..way.len() {
                for place in 0..=way[wave].len() {
                    let mut way = way.clone();
                    way[wave].insert(place, branch);
                    longer.push(way);
                }
            }
            let mut way = way.clone();
            way.push(vec![branch]);
            longer.push(way);
        }
        ways = longer;
    }
    ways
}
