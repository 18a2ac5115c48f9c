//! Which regions have branches that can run at once at all.

use super::region::{Branch, Link, Region};
use crate::{NodeId, PlanProblem};

/// For each region, whether some two of its branches fit beside each other, one of them on other ranks than fork and join.
///
/// A nested region is given all GPUs here, so one that never gains may count as one that can.
pub(super) fn can_gain(problem: &PlanProblem, regions: &[Region]) -> Vec<bool> {
    let mut narrowest = vec![0; regions.len()];
    // Whether all edges from the fork, and all to the join, say what they cost when their ends share no rank.
    let mut can_be_apart = vec![(false, false); regions.len()];
    let mut gains = vec![false; regions.len()];
    for (index, region) in regions.iter().enumerate().rev() {
        let width_of = |branch: &Branch| {
            let options =
                |&NodeId(node): &NodeId| problem.nodes[node].options.iter().map(|option| option.gpus).min();
            let nested = branch.links.iter().map(|link| match *link {
                Link::Region(inner) => narrowest[inner],
                Link::Edge(_) => 0,
            });
            branch.nodes.iter().filter_map(options).chain(nested).max().unwrap_or(0)
        };
        let ends_of = |branch: &Branch| {
            let end = |link: Option<&Link>| match link {
                Some(&Link::Edge(edge)) => [problem.edges[edge].transfer_disjoint_us.is_some(); 2].into(),
                Some(&Link::Region(inner)) => can_be_apart[inner],
                None => (false, false),
            };
            (end(branch.links.first()).0, end(branch.links.last()).1)
        };
        let widths: Vec<usize> = region.branches.iter().map(width_of).collect();
        let ends: Vec<(bool, bool)> = region.branches.iter().map(ends_of).collect();
        gains[index] = (0..widths.len()).any(|other| {
            let first = (0..widths.len()).filter(|&first| first != other).map(|first| widths[first]).min();
            ends[other] == (true, true) && first.is_some_and(|first| first + widths[other] <= problem.gpus)
        });
        narrowest[index] = widths.into_iter().max().unwrap_or(0);
        can_be_apart[index] = (ends.iter().all(|end| end.0), ends.iter().all(|end| end.1));
    }
    gains
}
