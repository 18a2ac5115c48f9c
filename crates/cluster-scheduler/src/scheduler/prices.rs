//! Elastic jobs: selection of executions at a price of GPU time. At the *price* p, a job takes the
//! execution that minimizes t + p n t / g, where t is the duration of an iteration on n of the
//! cluster's g GPUs.

use super::Scheduler;
use super::entry::ExecutionChoice;

/// Ratio below which two prices are regarded as equal.
const PRECISION: f64 = 1.05;
/// The smallest price above 0, and the largest, at which every job takes its cheapest execution.
const PRICES: (f64, f64) = (1e-3, 1e6);

impl Scheduler<'_> {
    /// Returns the jobs that get GPUs, by the indices of their entries, each with its best
    /// execution at the smallest price for which the number of waiting jobs is minimal. `order` has
    /// the active jobs in order of priority.
    ///
    /// About ten passes over the jobs' executions.
    pub(super) fn select_at_price(&self, order: &[usize]) -> Vec<(usize, ExecutionChoice)> {
        let waiting =
            |selected: &[Option<ExecutionChoice>]| selected.iter().filter(|choice| choice.is_none()).count();
        let mut selected = self.selected(order, 0.0);
        // The price matters only if a job has a choice.
        let has_choice = order.iter().any(|&index| self.entries[index].options.len() > 1);
        if has_choice && waiting(&selected) > 0 {
            let (mut low, mut high) = PRICES;
            selected = self.selected(order, high);
            let min_waiting = waiting(&selected);
            while high > low * PRECISION {
                let middle = (low * high).sqrt();
                let at_middle = self.selected(order, middle);
                if waiting(&at_middle) <= min_waiting {
                    (high, selected) = (middle, at_middle);
                } else {
                    low = middle;
                }
            }
            // Remaining GPUs go first to jobs that would pay a slightly lower price, and then to
            // those that they make faster.
            for price in [low, 0.0] {
                self.widen(order, &mut selected, price);
            }
            let waiting = waiting(&selected) as f64;
            self.leave_idle_time(order, &mut selected, waiting);
        }
        order.iter().zip(selected).filter_map(|(&index, choice)| Some((index, choice?))).collect()
    }

    /// Returns the choice of each job in order, at a price; `None` if no choice fits.
    fn selected(&self, order: &[usize], price: f64) -> Vec<Option<ExecutionChoice>> {
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

    /// Lets each job in order choose again among the free GPUs and its own.
    fn widen(&self, order: &[usize], selected: &mut [Option<ExecutionChoice>], price: f64) {
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

    /// Lets jobs choose again on their GPUs while others wait for idle time of GPUs.
    fn leave_idle_time(&self, order: &[usize], selected: &mut [Option<ExecutionChoice>], waiting: f64) {
        let of_each = waiting / self.cluster.gpus() as f64;
        for (&index, choice) in order.iter().zip(selected) {
            let Some(choice) = choice else { continue };
            let options = self.entries[index].options.iter();
            let same = options.filter(|other| (other.gpu_type, other.gpus) == (choice.gpu_type, choice.gpus));
            let best = cheapest(same, |choice| choice.iteration as f64 + of_each * choice.cost as f64);
            *choice = best.unwrap_or(*choice);
        }
    }

    /// Returns the execution with the smallest time plus price times GPU time.
    fn best(&self, index: usize, free: &[usize], price: f64) -> Option<ExecutionChoice> {
        let of_each = price / self.cluster.gpus() as f64;
        let fits = |choice: &&ExecutionChoice| choice.gpus <= free[choice.gpu_type.index()];
        cheapest(self.entries[index].options.iter().filter(fits), |choice| {
            choice.iteration as f64 * (1.0 + of_each * choice.gpus as f64)
        })
    }
}

fn cheapest<'a>(
    choices: impl Iterator<Item = &'a ExecutionChoice>,
    cost: impl Fn(&ExecutionChoice) -> f64,
) -> Option<ExecutionChoice> {
    choices.min_by(|one, other| cost(one).total_cmp(&cost(other))).copied()
}
