//! Common lists of GPU counts for nodes.

/// Returns 1, 2, 4, ... up to `max`, and `max` itself when it is no power of two; ascending. Empty
/// for 0.
///
/// ```
/// assert_eq!(burst_planner::gpu_counts::powers_of_two_and_max(6), [1, 2, 4, 6]);
/// ```
#[must_use]
pub fn powers_of_two_and_max(max: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1_usize), |count| count.checked_mul(2));
    let mut counts: Vec<usize> = powers.take_while(|&count| count <= max).collect();
    if counts.last().is_some_and(|&last| last < max) {
        counts.push(max);
    }
    counts
}

/// Returns every count from 1 to `max`, ascending, also those that do not divide a batch evenly.
/// Empty for 0.
///
/// ```
/// assert_eq!(burst_planner::gpu_counts::all(3), [1, 2, 3]);
/// ```
#[must_use]
pub fn all(max: usize) -> Vec<usize> {
    (1..=max).collect()
}
