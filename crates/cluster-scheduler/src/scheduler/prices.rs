//! Elastic jobs: who runs on how many GPUs, and how, at a price of GPU time.

use super::Scheduler;
use super::entry::Choice;

/// Prices closer than this are not told apart.
const PRECISION: f64 = 1.05;
/// The smallest price above 0: of a thousandth of a job that waits.
const LEAST: f64 = 1e-3;

impl Scheduler<'_> {
    /// Jobs with GPUs of their own, each by the execution that pays at the smallest price at which no more jobs wait than it says.
    ///
    /// Up to 20 passes over the jobs' executions.
    pub(super) fn at_a_price(&self, order: &[usize]) -> Vec<(usize, Choice)> {
        let waiting =
            |selected: &[Option<Choice>]| selected.iter().filter(|choice| choice.is_none()).count() as f64;
        let mut selected = self.selected(order, 0.0);
        // What becomes of prices matters only to jobs with a choice.
        let has_choice = order.iter().any(|&index| self.entries[index].options.len() > 1);
        if has_choice && waiting(&selected) > 0.0 {
            let (mut low, mut high) = (0.0, order.len() as f64);
            selected = self.selected(order, high);
            while high > LEAST && high > low * PRECISION {
                let middle = (low.max(LEAST / 2.0) * high).sqrt();
                let at_middle = self.selected(order, middle);
                if waiting(&at_middle) <= middle {
                    (high, selected) = (middle, at_middle);
                } else {
                    low = middle;
                }
            }
            // GPUs that are left go to those who would pay a little less, and then to whom they make faster.
            for price in [low, 0.0] {
                self.widen(order, &mut selected, price);
            }
        }
        order.iter().zip(selected).filter_map(|(&index, choice)| Some((index, choice?))).collect()
    }

    /// The choice of each job in order, at a price; none where nothing fits any more.
    fn selected(&self, order: &[usize], price: f64) -> Vec<Option<Choice>> {
        let mut free = self.all_gpus();
        let mut left = self.cluster.gpus();
        let mut select = |&index: &usize| {
            if left == 0 {
                return None;
            }
            let choice = self.best(index, &free, price)?;
            free[choice.gpu_type.index()] -= choice.gpus;
            left -= choice.gpus;
            Some(choice)
        };
        order.iter().map(&mut select).collect()
    }

    /// Lets each job in order choose anew, with the GPUs that nobody has beside its own.
    fn widen(&self, order: &[usize], selected: &mut [Option<Choice>], price: f64) {
        let mut free = self.all_gpus();
        for choice in selected.iter().flatten() {
            free[choice.gpu_type.index()] -= choice.gpus;
        }
        for (&index, choice) in order.iter().zip(selected) {
            let Some(choice) = choice else { continue };
            if free.iter().all(|&free| free == 0) {
                break;
            }
            free[choice.gpu_type.index()] += choice.gpus;
            if let Some(better) = self.best(index, &free, price) {
                *choice = better;
            }
            free[choice.gpu_type.index()] -= choice.gpus;
        }
    }

    /// The execution with the smallest time, its GPU time included at a price.
    fn best(&self, index: usize, free: &[usize], price: f64) -> Option<Choice> {
        let of_each = price / self.cluster.gpus() as f64;
        let fits = |choice: &&Choice| choice.gpus <= free[choice.gpu_type.index()];
        let priced = |choice: &Choice| choice.iteration as f64 + of_each * choice.cost as f64;
        let fitting = self.entries[index].options.iter().filter(fits);
        fitting.min_by(|one, other| priced(one).total_cmp(&priced(other))).copied()
    }
}
