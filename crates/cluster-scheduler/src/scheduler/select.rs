//! Planning of the *target* of each job, the placement on which it is to run. Jobs are given by the
//! indices of their entries.

use super::Scheduler;
use super::entry::{Assignment, ExecutionChoice};
use super::gpus::Free;
use crate::policy::{Elastic, Order, Sharing};
use crate::table::{Allocation, ExecutionId};
use crate::{Error, GpuType};

impl Scheduler<'_> {
    /// Recomputes the targets of all active jobs, and the time of the next round under a fair
    /// policy.
    ///
    /// # Errors
    /// [`Error::Unsolved`] if the solver of a fair policy fails.
    pub(super) fn replan(&mut self) -> Result<(), Error> {
        let mut order = self.active.clone();
        match &self.policy.order {
            Order::Arrival | Order::Fair(_) => {}
            Order::RemainingTime => order.sort_by_key(|&index| {
                let entry = &self.entries[index];
                entry.remaining.saturating_mul(entry.iteration)
            }),
            Order::AttainedService { .. } => order.sort_by_key(|&index| self.entries[index].level),
        }
        let selected = match self.fair_shares {
            Some(_) => self.select_by_shares(&order)?,
            None if self.policy.elastic != Elastic::Fixed => self.select_at_price(&order),
            None => self.select_in_order(&order),
        };
        let previous = self.assign(&selected);
        self.share(&order, &selected, &previous);
        if let Some(fair_shares) = &self.fair_shares {
            let waits = self.active.iter().any(|&index| self.entries[index].target.is_none());
            self.wake_at = waits.then(|| self.now + fair_shares.round());
        }
        Ok(())
    }

    /// Selects the jobs that get GPUs: in order, those that fit.
    fn select_in_order(&self, order: &[usize]) -> Vec<(usize, ExecutionChoice)> {
        let mut free = self.all_gpus();
        let mut left: usize = self.cluster.gpus();
        let mut selected = Vec::new();
        for &index in order {
            if left == 0 {
                break;
            }
            match self.choice(index, &free) {
                Some(choice) => {
                    free[choice.gpu_type.index()] -= choice.gpus;
                    left -= choice.gpus;
                    selected.push((index, choice));
                }
                None if self.policy.blocking => break,
                None => {}
            }
        }
        selected
    }

    /// Returns a choice of a job that fits, preferably on the GPUs that it already has without
    /// sharing.
    fn choice(&self, index: usize, free: &[usize]) -> Option<ExecutionChoice> {
        let entry = &self.entries[index];
        let own = entry.target.as_ref().filter(|assignment| assignment.beside.is_none());
        let mut fitting = entry.options.iter().filter(|choice| choice.gpus <= free[choice.gpu_type.index()]);
        let is_own =
            |choice: &&ExecutionChoice| own.is_some_and(|assignment| assignment.gpu_type == choice.gpu_type);
        fitting.clone().find(is_own).or_else(|| fitting.next()).copied()
    }

    /// Selects the jobs that get GPUs by their deficits to fair shares; remaining GPUs go to jobs
    /// that fit, in order.
    fn select_by_shares(&mut self, order: &[usize]) -> Result<Vec<(usize, ExecutionChoice)>, Error> {
        let mut free = self.all_gpus();
        let mut selected = Vec::new();
        let mut is_selected = vec![false; self.entries.len()];
        let Some(fair_shares) = &mut self.fair_shares else { return Ok(selected) };
        let prioritized = fair_shares.priorities(self.now, order, &self.entries)?;
        for (index, gpu_type) in prioritized {
            let option = self.entries[index].options.iter().find(|option| option.gpu_type == gpu_type);
            let Some(&choice) = option.filter(|option| option.gpus <= free[gpu_type.index()]) else {
                continue;
            };
            if !std::mem::replace(&mut is_selected[index], true) {
                free[gpu_type.index()] -= choice.gpus;
                selected.push((index, choice));
            }
        }
        for &index in order.iter().filter(|&&index| !is_selected[index]) {
            if let Some(choice) = self.choice(index, &free) {
                free[choice.gpu_type.index()] -= choice.gpus;
                selected.push((index, choice));
            }
        }
        Ok(selected)
    }

    /// Returns the number of GPUs of the cluster for each type.
    pub(super) fn all_gpus(&self) -> Vec<usize> {
        (0..self.cluster.types().len()).map(|of_type| self.cluster.gpus_of(GpuType(of_type as u16))).collect()
    }

    /// Assigns GPUs to the selected jobs, keeping current GPUs where possible, and returns the
    /// previous assignments of the others.
    fn assign(&mut self, selected: &[(usize, ExecutionChoice)]) -> Vec<Option<Assignment>> {
        let mut free = Free::all(self.cluster);
        let mut previous: Vec<Option<Assignment>> = Vec::new();
        previous.resize_with(self.entries.len(), || None);
        let stays = |assignment: &Assignment, choice: &ExecutionChoice| {
            assignment.beside.is_none()
                && assignment.gpu_type == choice.gpu_type
                && assignment.gpus.len() == choice.gpus
        };
        for &index in &self.active {
            previous[index] = self.entries[index].target.take();
        }
        let mut moving = Vec::new();
        for (index, choice) in selected {
            match previous[*index].take() {
                Some(mut assignment) if stays(&assignment, choice) => {
                    assignment.mode = choice.mode;
                    assignment.execution_id = self.execution_id(*index, choice, assignment.spread);
                    assignment.iteration = self.table.at(assignment.execution_id).iteration;
                    assignment.gpus.iter().for_each(|&gpu| free.take(gpu));
                    self.entries[*index].target = Some(assignment);
                }
                _ => moving.push((*index, *choice)),
            }
        }
        // Wide jobs first, because they need whole hosts.
        moving.sort_by_key(|(_, choice)| std::cmp::Reverse(choice.gpus));
        for (index, choice) in moving {
            let ExecutionChoice { gpu_type, gpus: count, mode, .. } = choice;
            let (gpus, spread) = free.take_gpus(gpu_type, count);
            let execution_id = self.execution_id(index, &choice, spread);
            let iteration = self.table.at(execution_id).iteration;
            self.entries[index].target =
                Some(Assignment { gpus, gpu_type, spread, mode, execution_id, beside: None, iteration });
        }
        previous
    }

    fn execution_id(&self, index: usize, choice: &ExecutionChoice, spread: bool) -> ExecutionId {
        let &ExecutionChoice { gpu_type, gpus, mode, execution_id, .. } = choice;
        self.table
            .execution_id(self.entries[index].job.kind, Allocation { gpu_type, gpus, spread }, mode)
            .unwrap_or(execution_id)
    }

    /// Places jobs without GPUs beside others.
    fn share(
        &mut self,
        order: &[usize],
        selected: &[(usize, ExecutionChoice)],
        previous: &[Option<Assignment>],
    ) {
        if self.policy.sharing == Sharing::None || selected.len() == order.len() {
            return;
        }
        let hosts: Vec<usize> = selected.iter().map(|&(index, _)| index).collect();
        let mut pairs = std::mem::take(&mut self.pairs);
        let mut places = super::places::SharedPlaces::new(
            self.table,
            self.policy.sharing,
            &hosts,
            &mut self.entries,
            self.cluster.gpus(),
            &mut pairs,
        );
        for &index in order {
            if places.is_full() {
                break;
            }
            if places.waits(index) {
                places.place(index, previous[index].as_ref());
            }
        }
        self.pairs = pairs;
    }
}
