//! What should hold of the pairs, counted.

use serde::Serialize;

use super::pair::{Pair, SAME};

/// Planned and simulated times should be no farther apart than this, relatively.
pub(super) const AGREEMENT: f64 = 1e-3;

/// How often something that should not be was found, and the worst of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Count {
    /// How many pairs.
    pub(super) pairs: usize,
    /// Of how many that could have shown it.
    pub(super) of: usize,
    /// By how much the time is too long at worst, relatively.
    pub(super) worst: f64,
    /// Where.
    pub(super) worst_pair: Option<String>,
}

/// What the pairs show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Findings {
    pub(super) pairs: usize,
    /// Pairs without a plan within the limit.
    pub(super) without_plan: usize,
    /// Planned and simulated farther apart than 0.1%; `worst` is the farthest of all, within or not. Data-parallel plans, too.
    pub(super) disagreements: Count,
    /// Slower than under a tighter limit.
    pub(super) looser_slower: Count,
    /// Slower than on fewer GPUs.
    pub(super) more_gpus_slower: Count,
    /// Slower than data parallelism under a limit that it keeps.
    pub(super) slower_than_dp: Count,
    /// The median of iteration / lower bound - 1.
    pub(super) median_gap: f64,
}

impl Count {
    /// Notes a pair that takes `excess` too long, relatively; negative is not too long.
    fn note(&mut self, excess: f64, tolerance: f64, pair: impl FnOnce() -> String) {
        self.of += 1;
        self.pairs += usize::from(excess > tolerance);
        if excess > self.worst {
            self.worst = excess;
            self.worst_pair = Some(pair());
        }
    }
}

impl Findings {
    /// O(pairs^2), of some hundreds.
    pub(super) fn of(pairs: &[Pair]) -> Self {
        let mut found = Self {
            pairs: pairs.len(),
            without_plan: pairs.iter().filter(|pair| pair.iteration_us.is_none()).count(),
            disagreements: Count::default(),
            looser_slower: Count::default(),
            more_gpus_slower: Count::default(),
            slower_than_dp: Count::default(),
            median_gap: 0.0,
        };
        let mut gaps = Vec::new();
        for pair in pairs {
            let dp_ratio = pair.dp_iteration_us / pair.dp_planned_iteration_us;
            found
                .disagreements
                .note((dp_ratio - 1.0).abs(), AGREEMENT, || format!("DP of {}", pair.question()));
            let Some((ratio, iteration_us)) = pair.ratio().zip(pair.iteration_us) else { continue };
            found.disagreements.note((ratio - 1.0).abs(), AGREEMENT, || pair.question());
            found.compare(pairs, pair, iteration_us);
            gaps.extend(
                pair.lower_bound_us.zip(pair.planned_iteration_us).map(|(bound, us)| us / bound - 1.0),
            );
        }
        found.median_gap = median(gaps);
        found
    }

    /// Compares a pair's simulated time with those of tighter limits and fewer GPUs, and with data parallelism.
    fn compare(&mut self, pairs: &[Pair], pair: &Pair, iteration_us: f64) {
        let least = |others: &dyn Fn(&Pair) -> bool| {
            let times = pairs.iter().filter(|other| others(other)).filter_map(|other| other.iteration_us);
            times.min_by(f64::total_cmp)
        };
        let limit = pair.amplification_limit;
        let tighter = least(&|other| other.search() == pair.search() && other.amplification_limit < limit);
        let fewer = least(&|other| {
            let (model, batch, link, gpus) = pair.search();
            let same = (&*other.model, other.batch, &*other.link) == (model, batch, link);
            same && other.gpus < gpus && other.amplification_limit <= limit
        });
        let dp_keeps = pair.dp_amplification <= limit * (1.0 + 1e-9);
        let dp = dp_keeps.then_some(pair.dp_iteration_us);
        let counts = [&mut self.looser_slower, &mut self.more_gpus_slower, &mut self.slower_than_dp];
        for (count, other_us) in counts.into_iter().zip([tighter, fewer, dp]) {
            if let Some(other_us) = other_us {
                count.note(iteration_us / other_us - 1.0, SAME, || pair.question());
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
    fn only_what_is_too_long_counts_and_the_worst_is_kept() {
        let mut count = Count::default();
        for (excess, pair) in [(-0.5, "a"), (0.01, "b"), (0.2, "c"), (0.1, "d"), (0.0, "e")] {
            count.note(excess, 0.05, || pair.into());
        }
        assert_eq!((count.pairs, count.of, count.worst_pair.as_deref()), (2, 5, Some("c")));
    }
}
