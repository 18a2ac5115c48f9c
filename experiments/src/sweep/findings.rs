//! Checks of expected properties of the pairs. A *pair* is a point of the grid with its plan and
//! simulation. Properties compare a time with its expected maximum; the *excess* is the time
//! divided by the maximum, minus one.

use serde::Serialize;

use super::pair::{SweepPair, TOLERANCE};

/// Relative difference up to which planned and simulated times agree.
pub(super) const AGREEMENT: f64 = 1e-3;

/// Number of violations of a property, and the largest excess.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct ViolationCount {
    /// Number of checked pairs that violate the property.
    #[serde(rename = "pairs")]
    pub(super) violations: usize,
    /// Number of pairs for which the property was checked.
    #[serde(rename = "of")]
    pub(super) checked: usize,
    /// Largest excess: 0.1 if a time is 10% above its expected maximum. 0 if none is above it.
    pub(super) worst: f64,
    /// Description of the pair with the largest excess. `None` if no time exceeds its maximum.
    pub(super) worst_pair: Option<String>,
}

/// Findings of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Findings {
    /// Number of pairs.
    pub(super) pairs: usize,
    /// Number of pairs without a plan within the amplification limit.
    pub(super) without_plan: usize,
    /// Planned and simulated times that differ by more than `AGREEMENT`, data-parallel plans
    /// included. `worst` is the largest relative difference, even if it is smaller.
    pub(super) disagreements: ViolationCount,
    /// Plans with a longer simulated time than under a tighter amplification limit.
    pub(super) looser_slower: ViolationCount,
    /// Plans with a longer simulated time than on fewer GPUs under the same or a tighter limit.
    pub(super) more_gpus_slower: ViolationCount,
    /// Plans with a longer simulated time than data parallelism, under a limit that data
    /// parallelism keeps.
    pub(super) slower_than_dp: ViolationCount,
    /// Median gap of the plans to their lower bounds: planned time / bound - 1. 0 if there are no
    /// bounds.
    pub(super) median_gap: f64,
}

impl ViolationCount {
    /// Counts a pair whose time exceeds the expected one by the relative `excess`, which may be
    /// negative.
    fn note(&mut self, excess: f64, tolerance: f64, pair: impl FnOnce() -> String) {
        self.checked += 1;
        self.violations += usize::from(excess > tolerance);
        if excess > self.worst {
            self.worst = excess;
            self.worst_pair = Some(pair());
        }
    }
}

impl Findings {
    /// Checks all pairs. O(n^2) for n pairs.
    pub(super) fn of(pairs: &[SweepPair]) -> Self {
        let mut found = Self {
            pairs: pairs.len(),
            without_plan: pairs.iter().filter(|pair| pair.iteration_us.is_none()).count(),
            disagreements: ViolationCount::default(),
            looser_slower: ViolationCount::default(),
            more_gpus_slower: ViolationCount::default(),
            slower_than_dp: ViolationCount::default(),
            median_gap: 0.0,
        };
        let mut gaps = Vec::new();
        for pair in pairs {
            let dp_ratio = pair.dp_iteration_us / pair.dp_planned_iteration_us;
            found
                .disagreements
                .note((dp_ratio - 1.0).abs(), AGREEMENT, || format!("DP of {}", pair.description()));
            let Some((ratio, iteration_us)) = pair.ratio().zip(pair.iteration_us) else { continue };
            found.disagreements.note((ratio - 1.0).abs(), AGREEMENT, || pair.description());
            found.compare(pairs, pair, iteration_us);
            gaps.extend(
                pair.lower_bound_us.zip(pair.planned_iteration_us).map(|(bound, us)| us / bound - 1.0),
            );
        }
        found.median_gap = median(gaps);
        found
    }

    /// Compares a pair's simulated time with those of tighter limits and fewer GPUs, and with data
    /// parallelism.
    fn compare(&mut self, pairs: &[SweepPair], pair: &SweepPair, iteration_us: f64) {
        let min = |others: &dyn Fn(&SweepPair) -> bool| {
            let times = pairs.iter().filter(|other| others(other)).filter_map(|other| other.iteration_us);
            times.min_by(f64::total_cmp)
        };
        let limit = pair.amplification_limit;
        let tighter = min(&|other| other.search() == pair.search() && other.amplification_limit < limit);
        let fewer = min(&|other| {
            let (model, batch, link, gpus) = pair.search();
            let same = (&*other.model, other.batch, &*other.link) == (model, batch, link);
            same && other.gpus < gpus && other.amplification_limit <= limit
        });
        let dp_keeps = pair.dp_amplification <= limit * (1.0 + 1e-9);
        let dp = dp_keeps.then_some(pair.dp_iteration_us);
        let counts = [&mut self.looser_slower, &mut self.more_gpus_slower, &mut self.slower_than_dp];
        for (count, other_us) in counts.into_iter().zip([tighter, fewer, dp]) {
            if let Some(other_us) = other_us {
                count.note(iteration_us / other_us - 1.0, TOLERANCE, || pair.description());
            }
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_has_excesses_above_tolerance_and_the_largest() {
        let mut count = ViolationCount::default();
        for (excess, pair) in [(-0.5, "a"), (0.01, "b"), (0.2, "c"), (0.1, "d"), (0.0, "e")] {
            count.note(excess, 0.05, || pair.into());
        }
        assert_eq!((count.violations, count.checked, count.worst_pair.as_deref()), (2, 5, Some("c")));
    }
}
