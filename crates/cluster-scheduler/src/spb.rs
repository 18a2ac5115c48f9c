//! Structured partial backpropagation (SPB, arXiv 2111.10672): each GPU of a data-parallel job
//! backpropagates only a part of the layers.
//!
//! Only the abstract of the paper was available, so the definition of a part is an interpretation:
//! part i of K (from 1) backpropagates the last ceil(i L / K) of L layers, and the parts rotate
//! from iteration to iteration. With equal layers and a backward pass that takes twice the forward
//! pass, this saves (K - 1) / (3 K) of the computation. One part still covers all layers, so a
//! synchronous iteration is hardly shorter; the saving consists of idle time at the end of the
//! iteration.

use std::time::Duration;

/// Returns the computing time of one GPU for each of `parts` parts, that of all layers first: the
/// forward pass of all layers and the backward pass of the part's layers.
///
/// `layers` are forward and backward times from the input to the loss.
///
/// ```
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let times = cluster_scheduler::spb::part_times(&[(ms(1), ms(2)); 4], 4);
/// assert_eq!(times, [ms(12), ms(10), ms(8), ms(6)]);
/// ```
#[must_use]
pub fn part_times(layers: &[(Duration, Duration)], parts: usize) -> Vec<Duration> {
    let total =
        |times: &mut dyn Iterator<Item = Duration>| times.fold(Duration::ZERO, Duration::saturating_add);
    let forward = total(&mut layers.iter().map(|&(forward, _)| forward));
    (1..=parts)
        .rev()
        .map(|part| {
            let last = (part * layers.len()).div_ceil(parts);
            let backward = total(&mut layers.iter().rev().take(last).map(|&(_, backward)| backward));
            forward.saturating_add(backward)
        })
        .collect()
}
