//! The numbers of GPUs that are searched in sequence.

use crate::PlanProblem;

/// Returns the numbers of GPUs to search with, ascending: all up to 8, then two per doubling, as
/// long as more GPUs can be useful.
///
/// The sequence depends on the number of GPUs only by its end. So everything that is found with
/// fewer GPUs is also found with more.
pub(super) fn up_to(problem: &PlanProblem) -> impl Iterator<Item = usize> + use<> {
    let maximum = problem.nodes.iter().filter_map(|node| node.gpu_counts.last()).max().copied().unwrap_or(1);
    let most_parts = problem.all_parts().last().copied().unwrap_or(1);
    let useful = match maximum {
        // With a memory limit, nodes may have to be spread over all GPUs.
        _ if problem.memory_limit_bytes.is_some() => usize::MAX,
        // Placements use at most one GPU per node.
        1 => problem.nodes.len(),
        _ => maximum.saturating_mul(2).saturating_mul(most_parts),
    };
    let end = problem.gpus.min(useful);
    let step = |level: &usize| Some(if *level < 8 { level + 1 } else { level + (1 << level.ilog2()) / 2 });
    std::iter::successors(Some(1), step).take_while(move |&level| level <= end)
}
