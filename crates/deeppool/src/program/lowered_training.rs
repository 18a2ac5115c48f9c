//! A placement with its programs. A *placement* is the ranks of each layer and the order of the
//! layers.

use std::sync::OnceLock;

use layer_graph::LayerGraph;

use super::{
    IterationSchedule, LowerOptions, Placement, Program, RankMemory, lower_for_simulation, lower_rotation,
    rotation_memory,
};
use crate::Error;

/// A placement of a network with the programs that its training iterations are lowered to, for
/// execution and for simulation. Each of the two forms is lowered on first use, at most once.
#[derive(Debug, Clone)]
pub struct LoweredTraining<'n> {
    network: &'n LayerGraph,
    placement: Placement,
    batch: usize,
    options: LowerOptions,
    programs: OnceLock<Vec<Program>>,
    for_simulation: OnceLock<Program>,
}

impl<'n> LoweredTraining<'n> {
    /// Combines a network, a placement, a global batch of `batch` samples and lowering options.
    /// Nothing is lowered yet.
    #[must_use]
    pub fn new(network: &'n LayerGraph, placement: Placement, batch: usize, options: LowerOptions) -> Self {
        let (programs, for_simulation) = (OnceLock::new(), OnceLock::new());
        Self { network, placement, batch, options, programs, for_simulation }
    }

    /// The network that is trained.
    #[must_use]
    pub fn network(&self) -> &'n LayerGraph {
        self.network
    }

    /// The ranks and the order of the layers.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Number of samples of the global batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// The options with which iterations are lowered.
    #[must_use]
    pub fn options(&self) -> &LowerOptions {
        &self.options
    }

    /// Returns the programs for execution, one per iteration until they repeat: see
    /// [`lower_rotation`].
    ///
    /// # Errors
    /// As [`lower_rotation`].
    pub fn programs(&self) -> Result<&[Program], Error> {
        get_or_lower(&self.programs, || {
            lower_rotation(self.network, &self.placement, self.batch, &self.options)
        })
        .map(Vec::as_slice)
    }

    /// Returns the program for execution of the first iteration.
    ///
    /// # Errors
    /// As [`lower_rotation`].
    pub fn first_program(&self) -> Result<&Program, Error> {
        Ok(&self.programs()?[0])
    }

    /// Returns the program for the simulator, with all iterations until they repeat: see
    /// [`lower_for_simulation`].
    ///
    /// # Errors
    /// As [`lower_rotation`].
    pub fn for_simulation(&self) -> Result<&Program, Error> {
        get_or_lower(&self.for_simulation, || {
            lower_for_simulation(self.network, &self.placement, self.batch, &self.options)
        })
    }

    /// Returns the memory that a rank allocates for the [programs](Self::programs), without the
    /// workspaces of its kernels.
    ///
    /// # Errors
    /// As [`lower_rotation`], and [`Error::NoSuchRank`] for an unknown rank.
    pub fn memory(&self, rank: usize) -> Result<RankMemory, Error> {
        rotation_memory(self.programs()?, rank)
    }

    /// Returns the order in which a run with this seed executes the [programs](Self::programs).
    #[must_use]
    pub fn schedule(&self, seed: u64) -> IterationSchedule {
        self.options
            .partial
            .as_ref()
            .map_or(IterationSchedule::round_robin(1), |partial| partial.schedule(seed))
    }
}

/// Returns the content of a cell, which is lowered first if it is empty.
fn get_or_lower<T>(cell: &OnceLock<T>, lower: impl FnOnce() -> Result<T, Error>) -> Result<&T, Error> {
    if let Some(lowered) = cell.get() {
        return Ok(lowered);
    }
    let lowered = lower()?;
    Ok(cell.get_or_init(|| lowered))
}
