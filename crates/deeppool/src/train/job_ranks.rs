//! The ranks of a background job: which ranks of the run train it, and how they divide its layers.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Duration;

use layer_graph::LayerGraph;

use crate::Error;
use crate::program::{LowerOptions, Placement};

/// Ranks of a run that train a background job together, and the placement of its layers on them.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRanks {
    placement: Placement,
    ranks: Vec<usize>,
    lowering: Option<LowerOptions>,
}

impl JobRanks {
    /// Places a job on ranks of the run: rank `i` of the placement is the rank `ranks[i]` of the
    /// run.
    #[must_use]
    pub fn new(placement: Placement, ranks: Vec<usize>) -> Self {
        Self { placement, ranks, lowering: None }
    }

    /// Divides the batch of each layer of a network between the given ranks of the run.
    ///
    /// # Errors
    /// [`Error::Placement`] without ranks.
    pub fn data_parallel(network: &LayerGraph, ranks: Vec<usize>) -> Result<Self, Error> {
        let counts = vec![ranks.len(); network.computing_layers().len()];
        Ok(Self::new(Placement::first_ranks(network, ranks.len(), &counts)?, ranks))
    }

    /// Sets the options with which the job's iterations are lowered, without partial
    /// backpropagation and with the micro-batches of the job; `None` for those of the foreground.
    #[must_use]
    pub fn with_lowering(self, lowering: Option<LowerOptions>) -> Self {
        Self { lowering, ..self }
    }

    /// Placement of the layers on the ranks of the job, which are numbered from 0.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Rank of the run of each rank of the job.
    #[must_use]
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Options of lowering; `None` for those of the foreground.
    #[must_use]
    pub fn lowering(&self) -> Option<&LowerOptions> {
        self.lowering.as_ref()
    }

    /// Returns the number in the job of a rank of the run; `None` if it is not in the job.
    pub(super) fn place_of(&self, rank: usize) -> Option<usize> {
        self.ranks.iter().position(|&other| other == rank)
    }

    /// Checks the ranks of a job with a global batch of `batch` samples in a run of `world` ranks.
    ///
    /// # Errors
    /// [`Error::Setting`] if a rank is not in the run or is repeated, or the placement is for
    /// another number of ranks. [`Error::MoreRanksThanSamples`].
    pub(super) fn check(&self, network: &LayerGraph, batch: usize, world: usize) -> Result<(), Error> {
        let different: HashSet<&usize> = self.ranks.iter().filter(|&&rank| rank < world).collect();
        if different.len() != self.ranks.len() || self.placement.world() != self.ranks.len() {
            return Err(Error::Setting {
                setting: "the ranks of a background job",
                expected: "different ranks of the run, one for each rank of its plan",
                got: format!(
                    "{:?} for a plan for {} ranks, in a run of {world} ranks",
                    self.ranks,
                    self.placement.world()
                ),
            });
        }
        let ranges = network.layers().map(|(id, _)| self.placement.sample_ranges(id));
        let ranks = ranges.max().unwrap_or(0);
        if ranks > batch { Err(Error::MoreRanksThanSamples { ranks, batch }) } else { Ok(()) }
    }
}

/// Chooses ranks for jobs on `jobs[i]` ranks each, in order: those on which each of these jobs has
/// the most idle time; of equal ones, those with the fewest jobs; of equal ones, the last. `idle`
/// is the time by rank of the run in which the foreground does not compute in an iteration.
/// Returns the ranks of each job in ascending order. A job on more ranks than there are has all of
/// them.
///
/// ```
/// use std::time::Duration;
///
/// use deeppool::train::assign_ranks;
///
/// let idle = [0, 5, 2, 2].map(Duration::from_millis);
/// let ranks = assign_ranks(&idle, &[2, 1, 4, 2]);
/// assert_eq!(ranks, [vec![1, 3], vec![1], vec![0, 1, 2, 3], vec![1, 2]]);
/// ```
#[must_use]
pub fn assign_ranks(idle: &[Duration], jobs: &[usize]) -> Vec<Vec<usize>> {
    let mut loads = vec![0_u32; idle.len()];
    let of_job = |&count: &usize| {
        let mut order: Vec<usize> = (0..idle.len()).rev().collect();
        order.sort_by_key(|&rank| (Reverse(idle[rank] / (loads[rank] + 1)), loads[rank]));
        order.truncate(count);
        order.sort_unstable();
        for &rank in &order {
            loads[rank] += 1;
        }
        order
    };
    jobs.iter().map(of_job).collect()
}
