//! First come, first served in rounds. Jobs and types of GPUs are given by their indices.

use std::collections::{BTreeMap, VecDeque};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::RoundsJob;

/// Deviations of Gavel's simulator from first come, first served.
///
/// Both faults affect the published results of its `fifo` policy. On one type of GPU, only the
/// first one has an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FifoFaults {
    /// Whether more GPUs may be promised than there are, so that jobs share time. The simulator
    /// counts the GPUs of the placed jobs in the order of the jobs. Where it finds a job that has
    /// ended, it places the head of the queue if that fits in the GPUs not counted so far, although
    /// later jobs may hold them.
    pub overcommits: bool,
    /// Whether jobs are placed on full types of GPU. If any listed type has room for a job, the job
    /// goes to the first listed type on which it runs, even if that type is full. When a type is
    /// filled to the last GPU, a random type among those that had room is removed from the list.
    ///
    /// Gavel's list is in reverse alphabetical order; give the types in this order (`v100`, `p100`,
    /// `k80`) to compare with it. The random choice depends on
    /// [`RoundsOptions::seed`](super::RoundsOptions::seed) and differs from Python's generator.
    pub misplaces: bool,
}

impl FifoFaults {
    /// No faults: jobs in order, each on the first type that has room for it; the first one that
    /// does not fit blocks the others.
    pub const NONE: Self = Self { overcommits: false, misplaces: false };
    /// Both faults, as in Gavel's simulator.
    pub const GAVEL: Self = Self { overcommits: true, misplaces: true };
}

/// Type of GPU of each placed job.
#[derive(Debug)]
pub(super) struct Fifo {
    placed: BTreeMap<usize, usize>,
    random: ChaCha8Rng,
}

impl Fifo {
    /// Creates a state without placed jobs. `seed` is that of the random generator for
    /// [`FifoFaults::misplaces`].
    pub(super) fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // The first stream draws the order of types.
        random.set_stream(1);
        Self { placed: BTreeMap::new(), random }
    }

    /// Places waiting jobs in order, after removing those that have ended, and returns for each
    /// present job its share of each type of GPU: 1 on the type on which it is placed, otherwise 0.
    /// `present` has the jobs that have arrived and not ended, in increasing order; `gpus` is the
    /// number of GPUs by type.
    pub(super) fn allocation(
        &mut self,
        present: &[usize],
        jobs: &[RoundsJob],
        gpus: &[usize],
        faults: FifoFaults,
    ) -> BTreeMap<usize, Vec<f64>> {
        // Negative if more GPUs are promised than there are.
        let mut left: Vec<i64> = gpus.iter().map(|&gpus| signed(gpus)).collect();
        let mut queue: VecDeque<usize> =
            present.iter().copied().filter(|job| !self.placed.contains_key(job)).collect();
        for (job, of_type) in self.placed.clone() {
            if present.binary_search(&job).is_ok() {
                left[of_type] -= signed(jobs[job].gpus);
                continue;
            }
            self.placed.remove(&job);
            let head = queue.front().map(|&head| (head, &jobs[head])).filter(|_| faults.overcommits);
            let fits = |job: &RoundsJob| runs(job, of_type) && signed(job.gpus) <= left[of_type];
            if let Some((head, job)) = head.filter(|(_, job)| fits(job)) {
                queue.pop_front();
                self.placed.insert(head, of_type);
                left[of_type] -= signed(job.gpus);
            }
        }
        self.place(queue, jobs, left, faults.misplaces);
        let share = |job: &usize| {
            let place = self.placed.get(job);
            let shares = (0..gpus.len()).map(|of_type| f64::from(u8::from(place == Some(&of_type))));
            (*job, shares.collect())
        };
        present.iter().map(share).collect()
    }

    /// Places the queued jobs in order, until one does not fit.
    fn place(&mut self, queue: VecDeque<usize>, jobs: &[RoundsJob], mut left: Vec<i64>, misplaces: bool) {
        let mut listed: Vec<usize> = (0..left.len()).filter(|&of_type| left[of_type] > 0).collect();
        for head in queue {
            let job = &jobs[head];
            let mut roomy = listed.clone();
            roomy.retain(|&of_type| left[of_type] >= signed(job.gpus) && runs(job, of_type));
            let Some(&with_room) = roomy.first() else { break };
            let of_type = if misplaces {
                listed.iter().copied().find(|&of_type| runs(job, of_type)).unwrap_or(with_room)
            } else {
                with_room
            };
            self.placed.insert(head, of_type);
            left[of_type] -= signed(job.gpus);
            if misplaces && left[of_type] == 0 {
                let struck = roomy[self.random.next_u64() as usize % roomy.len()];
                listed.retain(|&other| other != struck);
            }
        }
    }
}

fn runs(job: &RoundsJob, of_type: usize) -> bool {
    job.speeds[of_type] > 0.0
}

fn signed(gpus: usize) -> i64 {
    i64::try_from(gpus).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(gpus: &[usize]) -> Vec<RoundsJob> {
        let job = |&gpus: &usize| RoundsJob { arrival: 0.0, gpus, steps: 1, speeds: vec![1.0; 3] };
        gpus.iter().map(job).collect()
    }

    /// Returns the type of each placed job.
    fn placed(wanted: &[usize], faults: FifoFaults, seed: u64) -> Vec<(usize, usize)> {
        let (jobs, mut fifo) = (jobs(wanted), Fifo::new(seed));
        let present: Vec<usize> = (0..jobs.len()).collect();
        fifo.allocation(&present, &jobs, &[4, 4, 4], faults);
        fifo.placed.into_iter().collect()
    }

    #[test]
    fn without_faults_types_are_filled_in_order() {
        let found = placed(&[4, 2, 2, 3, 4, 1], FifoFaults::NONE, 0);
        assert_eq!(found, [(0, 0), (1, 1), (2, 1), (3, 2)], "the fifth has no room, and blocks the sixth");
    }

    /// Wide jobs skip the value 0: the first type stays listed with a negative number of GPUs, and
    /// gets all jobs for which another type has room.
    #[test]
    fn with_the_fault_the_first_listed_type_gets_all_jobs() {
        for seed in 0..20 {
            let found = placed(&[3, 3, 3, 3, 3], FifoFaults::GAVEL, seed);
            assert_eq!(found, [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)], "15 on 4 GPUs");
        }
    }

    /// The type that is filled exactly is not always the one that is removed: sometimes it
    /// continues to accept jobs.
    #[test]
    fn with_the_fault_a_random_type_is_removed() {
        let second: Vec<usize> = (0..200).map(|seed| placed(&[4, 4], FifoFaults::GAVEL, seed)[1].1).collect();
        // The first job fills type 0. In a third of the cases type 0 is removed, and the second job
        // goes to type 1.
        let moved = second.iter().filter(|&&of_type| of_type == 1).count();
        assert!(second.iter().all(|&of_type| of_type < 2) && (40..95).contains(&moved), "{moved} of 200");
        assert_eq!(placed(&[4; 9], FifoFaults::GAVEL, 5), placed(&[4; 9], FifoFaults::GAVEL, 5), "seeded");
    }
}
