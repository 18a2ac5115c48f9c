//! What every rank does in one iteration: the value that the runtime executes and the simulator executes.

mod builder;
mod export;
mod iteration_schedule;
mod launch_order;
mod lower;
mod lowered_training;
mod memory;
mod partial;
mod placement;
mod recompute;

use std::sync::Arc;

use collectives::Redistribution;
use layer_engine::{Pass, Role, Sgd, Shard};
use layer_graph::LayerId;

use crate::Error;

/// The two lanes of a rank: each runs one step at a time, in order, and the two run side by side.
pub use gpu_mux::Lane;
pub use iteration_schedule::IterationSchedule;
pub use launch_order::Launch;
pub use lower::{LowerOptions, lower_evaluation, lower_for_simulation, lower_rotation, lower_training};
pub use lowered_training::LoweredTraining;
pub use memory::{RankMemory, rotation_memory};
pub use partial::{PartialBackpropagation, PartialDepth};
pub use placement::Placement;
pub use recompute::possible_checkpoints;
pub(crate) use recompute::{backward_reads, checkpoints, is_read_once};

/// The programs of all ranks, and the collectives that they take part in.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Samples of the global batch.
    pub batch: usize,
    /// How many iterations it is: one where it is to be executed.
    pub iterations: usize,
    /// What the ranks do: a program each, by rank, where it is to be executed, and one for all ranks that do the same
    /// where it is to be simulated.
    pub ranks: Vec<RankProgram>,
    /// All collectives in the one order in which every rank issues those that it takes part in, so that overlapping
    /// groups cannot deadlock. A [`CollectiveId`] is an index into this list.
    pub collectives: Vec<Collective>,
}

impl Program {
    /// How many ranks there are, idle ones included.
    #[must_use]
    pub fn world(&self) -> usize {
        self.ranks.iter().map(|program| program.stands_for.len()).sum()
    }

    /// What a rank executes.
    ///
    /// # Errors
    /// When there is no such rank, or it was lowered [for simulation](lower_for_simulation) and another rank stands for
    /// this one.
    pub fn of_rank(&self, rank: usize) -> Result<&RankProgram, Error> {
        if let Some(program) = self.ranks.iter().find(|program| program.rank == rank) {
            return Ok(program);
        }
        let ranks = self.world();
        Err(if rank < ranks {
            Error::Program(format!(
                "it was lowered for simulation, where rank {rank} shares the program of another rank"
            ))
        } else {
            Error::NoSuchRank { rank, ranks }
        })
    }
}

/// What one rank does in one iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct RankProgram {
    /// The rank.
    pub rank: usize,
    /// The ranks that this program is simulated for, this one included, ascending: they run the same steps for the same numbers of samples,
    /// with the same parts in the same collectives. Only this one where the program is to be executed.
    pub stands_for: Vec<usize>,
    /// All buffers; a [`BufferId`] is an index into this list. State comes first, in an order that all programs for the
    /// same network and placement share.
    pub buffers: Vec<BufferSpec>,
    /// How many of the buffers are state: they outlive the iteration.
    pub state_buffers: usize,
    /// Elements of each piece of memory that several buffers use one after another, where activations are computed again.
    pub shared_elements: Vec<usize>,
    /// The steps. Each lane runs its steps in this order; a [`StepId`] is an index into this list.
    pub steps: Vec<Step>,
}

/// Index of a step within its [`RankProgram`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId(pub usize);

/// Index of a buffer within its [`RankProgram`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub usize);

/// Index of a collective within its [`Program`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CollectiveId(pub usize);

/// One step of a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What it does.
    pub op: Op,
    /// What it is called in timelines and messages, such as `forward conv1`.
    pub label: String,
    /// Steps of the same rank that have to be finished before it starts.
    pub after: Vec<StepId>,
    /// Buffers that it reads.
    pub reads: Vec<BufferId>,
    /// Buffers that it writes or updates.
    pub writes: Vec<BufferId>,
}

impl Step {
    /// The lane that the step runs on.
    #[must_use]
    pub fn lane(&self) -> Lane {
        match self.op {
            Op::Collective(_) => Lane::Communication,
            _ => Lane::Compute,
        }
    }
}

/// What a step does.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Fills `writes[0]` with the shard's samples, or their labels.
    LoadBatch {
        /// Which part of the samples.
        part: BatchPart,
        /// Which samples.
        shard: Shard,
    },
    /// A pass of a layer's forward step (the loss is a layer, too).
    Forward {
        /// The layer.
        layer: LayerId,
        /// The pass.
        pass: Pass,
        /// The rank's samples.
        shard: Shard,
    },
    /// A pass of a layer's backward step.
    Backward {
        /// The layer.
        layer: LayerId,
        /// The pass.
        pass: Pass,
        /// The rank's samples.
        shard: Shard,
    },
    /// `writes[0]` = the sum of `reads`: the gradient of a fork from those of its branches, or what micro-batches gave.
    AccumulateGradient,
    /// Multiplies `writes[0]`, such as the gradient of a layer's output or a part of it, in place: so many samples by one factor, the next ones
    /// by another. Where a factor is zero, the result is, whatever was there before.
    ScaleGradient {
        /// The layer.
        layer: LayerId,
        /// Elements of one sample.
        sample_elements: usize,
        /// How many samples of the rank's shard, and by what.
        factors: Vec<(usize, f64)>,
    },
    /// This rank's part in a collective.
    Collective(CollectiveId),
    /// `writes[0]` = the sum of the squares of `reads`: this rank's share of the squared gradient norm.
    SquaredNorm,
    /// Updates the parameters of a layer: reads the gradient (and the squared norm, when clipping), writes parameters
    /// and velocity.
    OptimizerStep {
        /// The layer.
        layer: LayerId,
        /// The rule.
        rule: Sgd,
    },
}

/// Which part of the samples is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchPart {
    /// The samples' features.
    Features,
    /// Their classes.
    Labels,
}

/// What a buffer is.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferSpec {
    /// Number of elements.
    pub elements: usize,
    /// What it holds.
    pub contents: Contents,
    /// The piece of [shared memory](RankProgram::shared_elements) that it is in, which only steps of the compute lane use: a step that
    /// writes it overwrites the buffer that was there before. `None` for memory of its own.
    pub shared: Option<usize>,
}

/// What a buffer holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Contents {
    /// Something that a layer's passes read or write. Its parameters and statistics are state; after the last step the
    /// metrics of the loss layer are those of the global batch.
    Operand(LayerId, Role),
    /// The optimiser's velocity for a layer's parameters (state).
    Velocity(LayerId),
    /// The same value in every element, set once: the gradient of the mean loss by each sample's loss.
    Constant(f64),
    /// A copy of a layer's output, or a part of its gradient, as another layer's partition needs it.
    Moved(LayerId),
    /// The squared norm of all gradients.
    SquaredNorm,
}

/// A collective operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Collective {
    /// What it does.
    pub op: CollectiveOp,
    /// The ranks that take part, ascending; a rank's place in its group is its position here.
    pub ranks: Vec<usize>,
    /// What it is called in timelines and messages.
    pub label: String,
}

impl Collective {
    /// What it is about: all buffers of one rank of an all-reduce or a broadcast, all samples that a redistribution moves between
    /// ranks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let elements = match &self.op {
            CollectiveOp::AllReduce { elements } | CollectiveOp::Broadcast { elements } => *elements,
            CollectiveOp::Redistribute { redistribution, sample_elements } => {
                redistribution.moves().iter().map(|moved| moved.samples.len()).sum::<usize>()
                    * sample_elements
            }
        };
        elements as u64 * ELEMENT_BYTES
    }
}

/// What a collective does.
#[derive(Debug, Clone, PartialEq)]
pub enum CollectiveOp {
    /// Sums each of the step's `writes` over the ranks, in place. Several buffers travel together as one bucket.
    AllReduce {
        /// Elements of all buffers together.
        elements: usize,
    },
    /// Copies the step's `writes` from the first rank of the group to the others.
    Broadcast {
        /// Elements of all buffers together.
        elements: usize,
    },
    /// Moves samples: from `reads[0]`, where the rank holds samples before, to `writes[0]`, where it does afterwards.
    Redistribute {
        /// Which samples move where.
        redistribution: Arc<Redistribution>,
        /// Elements of one sample.
        sample_elements: usize,
    },
}

/// Bytes of an element in the programs' precision, for costs.
pub const ELEMENT_BYTES: u64 = 4;
