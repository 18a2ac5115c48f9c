//! Sharing of memory bandwidth by concurrent kernels.

/// Memory demand of a running kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// Fraction of the device's bandwidth, 0 to 1, that it uses at the speed that its
    /// multiprocessors allow.
    pub(super) bandwidth: f64,
    /// Fraction of its time, 0 to 1, that is spent on memory accesses and grows when bandwidth is
    /// short.
    pub(super) bound: f64,
}

/// Returns the factor by which memory accesses are slower than alone: 1 if the bandwidth suffices
/// for all kernels, and otherwise the factor at which the total used is exactly the bandwidth.
///
/// A kernel that spends the fraction m of its time on memory takes (1 - m) + m x as long at the
/// factor x. The wanted x is the root of a decreasing convex function. Newton's method approaches
/// it from below and never overshoots.
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

/// Returns the factor by which a kernel takes longer if its memory accesses are slower by the
/// factor `slowdown`. `bound` is [`Demand::bound`].
pub(super) fn stretch(bound: f64, slowdown: f64) -> f64 {
    1.0 - bound + bound * slowdown
}

/// Tolerance for rounding of the sums. It is small enough that kernels that end at the same time
/// still do so after many microseconds at this slowdown.
const TOLERANCE: f64 = 1e-12;
/// Maximum number of Newton steps. Convergence is quadratic: six or seven suffice for a handful of
/// kernels.
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
