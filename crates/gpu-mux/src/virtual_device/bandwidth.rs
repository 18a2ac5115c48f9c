//! How kernels side by side share the memory's bandwidth.

/// What a kernel asks of the memory: the bandwidth it would use, and the part of its time that is spent on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// Fraction of the bandwidth, at the speed that its multiprocessors allow.
    pub(super) bandwidth: f64,
    /// Fraction of its time that grows when bandwidth is short.
    pub(super) bound: f64,
}

/// How much longer memory accesses take than alone: 1 while the bandwidth suffices for all, and otherwise as much as
/// makes what is used exactly the bandwidth there is.
///
/// A kernel that spends the fraction m of its time on memory takes (1 - m) + m x as long. The x that we look for is
/// the root of a falling, convex function; Newton's method comes to it from below and never passes it.
pub(super) fn memory_slowdown(demands: &(impl Iterator<Item = Demand> + Clone)) -> f64 {
    let mut slowdown = 1.0_f64;
    for _ in 0..NEWTON_STEPS {
        let (mut used, mut fall) = (0.0, 0.0);
        for demand in demands.clone() {
            let stretch = stretch(demand.bound, slowdown);
            used += demand.bandwidth / stretch;
            fall += demand.bandwidth * demand.bound / (stretch * stretch);
        }
        if used <= 1.0 + TOLERANCE || fall <= 0.0 {
            break;
        }
        slowdown += (used - 1.0) / fall;
    }
    slowdown
}

/// How much longer a kernel takes.
pub(super) fn stretch(bound: f64, slowdown: f64) -> f64 {
    1.0 - bound + bound * slowdown
}

/// Rounding of the sums. Kernels that end at the same time must still do so after many microseconds at this slowdown.
const TOLERANCE: f64 = 1e-12;
/// It squares its error: six or seven are enough for a handful of kernels.
const NEWTON_STEPS: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn slowdown(fractions: &[f64]) -> f64 {
        memory_slowdown(&fractions.iter().map(|&m| Demand { bandwidth: m, bound: m }))
    }

    #[test]
    fn bandwidth_that_suffices_slows_nobody() {
        assert!((slowdown(&[]) - 1.0).abs() < 1e-12);
        assert!((slowdown(&[0.6, 0.4]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn two_that_only_copy_share_evenly() {
        assert!((slowdown(&[1.0, 1.0]) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn exactly_the_bandwidth_is_used() {
        for fractions in [&[1.0, 0.5][..], &[0.9, 0.8, 0.01], &[0.55, 0.5]] {
            let x = slowdown(fractions);
            let used: f64 = fractions.iter().map(|&m| m / stretch(m, x)).sum();
            assert!((used - 1.0).abs() < 1e-8, "{fractions:?}: {used} at {x}");
        }
    }
}
