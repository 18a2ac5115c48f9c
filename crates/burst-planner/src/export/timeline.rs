//! What every rank does when, by the planner's model.

use std::ops::Range;

use crate::order::program_order;
use crate::totals::chosen_options;
use crate::waves::Link;
use crate::{NodeId, NodeOption, Plan, PlanProblem, Region, Result, evaluate_schedule, layout, regions};

/// Something that a range of ranks does together.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Span {
    /// What it is.
    pub work: SpanWork,
    /// The ranks that it is shown on.
    pub ranks: Range<usize>,
    /// When it starts, microseconds since the iteration began.
    pub start_us: f64,
    /// How long it takes, microseconds.
    pub duration_us: f64,
}

/// What ranks do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanWork {
    /// The node of this index: forward, backward and all-reduce together, which the model does not tell apart.
    Node(usize),
    /// The transfer along the edge of this index, forward and backward together.
    Edge(usize),
}

/// Lays out an iteration in time: one span for each node and edge, in the order in which they start.
///
/// Things run one after another in program order: producers before consumers, else the node that was added first; each
/// node after its transfers. A region with waves takes the place of a transfer from its fork to its join. The last
/// span ends at the iteration time of [`evaluate_schedule`], and spans on one rank do not overlap.
///
/// A node is shown on its ranks. A transfer is shown on all ranks from the first to the last of both its ends. Where
/// branches run at once, the ranks beyond the branch's own do something else at that time: the transfer is shown on those
/// of the branch only, which for a branch without layers are none. So the durations of nodes, added up over ranks, are
/// exactly their GPU time; those of transfers are theirs where branches run one after another. All-reduces are shown in
/// full, also for a plan in which they overlap.
///
/// # Errors
/// What [`evaluate_schedule`] reports.
pub fn timeline(problem: &PlanProblem, plan: &Plan) -> Result<Vec<Span>> {
    let Plan { choice, schedule, .. } = plan;
    // Only for its checks, not for the totals.
    evaluate_schedule(problem, choice, schedule)?;
    let regions = regions(problem)?;
    let walk = Walk {
        problem,
        choice,
        options: chosen_options(problem, choice)?,
        waves: schedule.waves(problem, &regions)?,
        ranks: layout(problem, choice, schedule)?.ranks,
        regions,
        spans: Vec::with_capacity(problem.nodes.len() + problem.edges.len()),
        now_us: 0.0,
    };
    Ok(walk.spans())
}

struct Walk<'p> {
    problem: &'p PlanProblem,
    choice: &'p [usize],
    options: Vec<&'p NodeOption>,
    regions: Vec<Region>,
    waves: Vec<Vec<Vec<usize>>>,
    ranks: Vec<Range<usize>>,
    spans: Vec<Span>,
    now_us: f64,
}

/// Which ends of a link share no rank.
#[derive(Clone, Copy, Default)]
struct Apart {
    entry: bool,
    exit: bool,
}

impl Walk<'_> {
    fn spans(mut self) -> Vec<Span> {
        let mut is_inside = vec![false; self.problem.nodes.len()];
        let mut is_inside_edge = vec![false; self.problem.edges.len()];
        for branch in self.regions.iter().flat_map(|region| &region.branches) {
            branch.nodes.iter().for_each(|&node| is_inside[node.0] = true);
            for link in &branch.links {
                if let Link::Edge(edge) = *link {
                    is_inside_edge[edge] = true;
                }
            }
        }
        let mut incoming: Vec<Vec<Link>> = vec![Vec::new(); self.problem.nodes.len()];
        for (index, edge) in
            self.problem.edges.iter().enumerate().filter(|(index, _)| !is_inside_edge[*index])
        {
            incoming[edge.to.0].push(Link::Edge(index));
        }
        for (index, region) in self.regions.iter().enumerate().filter(|(_, region)| region.parent.is_none()) {
            incoming[region.join.0].push(Link::Region(index));
        }
        let all = 0..self.problem.gpus;
        for node in program_order(self.problem) {
            if !is_inside[node] {
                incoming[node].iter().for_each(|&link| self.link(link, Apart::default(), &all));
                self.node(node);
            }
        }
        // Those of branches that run at once are found one branch after the other.
        self.spans.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
        self.spans
    }

    fn push(&mut self, work: SpanWork, ranks: Range<usize>, duration_us: f64) {
        self.spans.push(Span { work, ranks, start_us: self.now_us, duration_us });
        self.now_us += duration_us;
    }

    fn node(&mut self, node: usize) {
        self.push(SpanWork::Node(node), self.ranks[node].clone(), self.options[node].total_us());
    }

    /// Runs a transfer or a region; `within` are the ranks that nothing else uses meanwhile.
    fn link(&mut self, link: Link, apart: Apart, within: &Range<usize>) {
        match link {
            Link::Region(region) => self.region(region, apart, within),
            Link::Edge(index) => {
                let edge = &self.problem.edges[index];
                let matrix = match &edge.transfer_disjoint_us {
                    Some(disjoint) if apart.entry || apart.exit => disjoint,
                    _ => &edge.transfer_us,
                };
                let duration_us = matrix[self.choice[edge.from.0]][self.choice[edge.to.0]];
                let ends = hull([&self.ranks[edge.from.0], &self.ranks[edge.to.0]].into_iter());
                let start = ends.start.max(within.start);
                let ranks = start..ends.end.min(within.end).max(start);
                self.push(SpanWork::Edge(index), ranks, duration_us);
            }
        }
    }

    fn region(&mut self, index: usize, apart: Apart, within: &Range<usize>) {
        for wave in self.waves[index].clone() {
            let (start_us, mut end_us) = (self.now_us, self.now_us);
            for (place, &member) in wave.iter().enumerate() {
                self.now_us = start_us;
                let apart = if place == 0 { apart } else { Apart { entry: true, exit: true } };
                if wave.len() == 1 {
                    self.branch(index, member, apart, within);
                } else {
                    let own = hull(self.nodes_of(index, member).iter().map(|node| &self.ranks[node.0]));
                    self.branch(index, member, apart, &own);
                }
                end_us = self.now_us.max(end_us);
            }
            self.now_us = end_us;
        }
    }

    fn branch(&mut self, region: usize, member: usize, apart: Apart, within: &Range<usize>) {
        let branch = self.regions[region].branches[member].clone();
        let last = branch.links.len() - 1;
        for (position, &link) in branch.links.iter().enumerate() {
            let ends = Apart { entry: apart.entry && position == 0, exit: apart.exit && position == last };
            self.link(link, ends, within);
            if let Some(&node) = branch.nodes.get(position) {
                self.node(node.0);
            }
        }
    }

    /// The nodes of a branch, those in nested regions included.
    fn nodes_of(&self, region: usize, member: usize) -> Vec<NodeId> {
        let branch = &self.regions[region].branches[member];
        let mut nodes = branch.nodes.clone();
        for link in &branch.links {
            if let Link::Region(inner) = *link {
                let members = 0..self.regions[inner].branches.len();
                nodes.extend(members.flat_map(|member| self.nodes_of(inner, member)));
            }
        }
        nodes
    }
}

/// From the first rank to the last; none for none.
fn hull<'r>(ranges: impl Iterator<Item = &'r Range<usize>>) -> Range<usize> {
    ranges.cloned().reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}
