//! With how many GPUs the search is made, one number after another.

use crate::PlanProblem;

/// The numbers of GPUs to search with, ascending: all up to 8, then two from one doubling to the next, as far as there are GPUs and
/// more of them could be of use.
///
/// Which numbers there are does not depend on how many GPUs there are, only where they end. So what is found with some GPUs is found
/// with more of them, too.
pub(super) fn up_to(problem: &PlanProblem) -> impl Iterator<Item = usize> + use<> {
    let most = problem.nodes.iter().filter_map(|node| node.gpu_counts.last()).max().copied().unwrap_or(1);
    let useful = match most {
        // With little memory on each, nodes may have to be spread over all that there are.
        _ if problem.memory_limit_bytes.is_some() => usize::MAX,
        // A placement: each node on a GPU of its own at most.
        1 => problem.nodes.len(),
        _ => most.saturating_mul(2),
    };
    let end = problem.gpus.min(useful);
    let step = |level: &usize| Some(if *level < 8 { level + 1 } else { level + (1 << level.ilog2()) / 2 });
    std::iter::successors(Some(1), step).take_while(move |&level| level <= end)
}
