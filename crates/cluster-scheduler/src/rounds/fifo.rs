use std::collections::BTreeMap;

use super::RoundsJob;

/// Jobs with a place, and the type of GPU of each.
#[derive(Debug, Default)]
pub(super) struct Fifo {
    placed: BTreeMap<usize, usize>,
}

impl Fifo {
    /// A share of 1 for each job with a place, after those that have ended have been replaced.
    pub(super) fn allocation(
        &mut self,
        present: &[usize],
        jobs: &[RoundsJob],
        gpus: &[usize],
        overcommit: bool,
    ) -> BTreeMap<usize, Vec<f64>> {
        // Below zero where more are promised than there are.
        let mut left: Vec<i64> = gpus.iter().map(|&gpus| signed(gpus)).collect();
        let mut queue: std::collections::VecDeque<usize> =
            present.iter().copied().filter(|job| !self.placed.contains_key(job)).collect();
        let wanted = |job: usize| signed(jobs[job].gpus);
        let runs = |job: usize, of_type: usize| jobs[job].speeds[of_type] > 0.0;
        for (job, of_type) in self.placed.clone() {
            if present.binary_search(&job).is_ok() {
                left[of_type] -= wanted(job);
                continue;
            }
            self.placed.remove(&job);
            let head = queue.front().copied().filter(|&head| overcommit && runs(head, of_type));
            if let Some(head) = head.filter(|&head| wanted(head) <= left[of_type]) {
                queue.pop_front();
                self.placed.insert(head, of_type);
                left[of_type] -= wanted(head);
            }
        }
        while let Some(head) = queue.pop_front() {
            let fits = |of_type: &usize| left[*of_type] >= wanted(head) && runs(head, *of_type);
            let Some(of_type) = (0..gpus.len()).find(fits) else { break };
            self.placed.insert(head, of_type);
            left[of_type] -= wanted(head);
        }
        let share = |job: &usize| {
            let place = self.placed.get(job);
            let shares = (0..gpus.len()).map(|of_type| f64::from(u8::from(place == Some(&of_type))));
            (*job, shares.collect())
        };
        present.iter().map(share).collect()
    }
}

fn signed(gpus: usize) -> i64 {
    i64::try_from(gpus).unwrap_or(i64::MAX)
}
