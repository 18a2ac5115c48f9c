//! Programs: the steps of every rank in one iteration, which the runtime executes and the simulator
//! times.

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

/// The two lanes of a rank. Each runs its steps in order, and the two run concurrently.
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

/// The programs of all ranks and their collectives.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Number of samples of the global batch.
    pub batch: usize,
    /// Number of iterations in the program: one if it is for execution.
    pub iterations: usize,
    /// The programs of the ranks: one per rank for execution, one per class of equal ranks for
    /// simulation.
    pub ranks: Vec<RankProgram>,
    /// All collectives, in the one order in which every rank issues its own, so that overlapping
    /// groups cannot deadlock. A [`CollectiveId`] is an index into this list.
    pub collectives: Vec<Collective>,
}

impl Program {
    /// Returns the number of ranks, idle ones included.
    #[must_use]
    pub fn world(&self) -> usize {
        self.ranks.iter().map(|program| program.stands_for.len()).sum()
    }

    /// Returns the program of a rank.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`] for an unknown rank. [`Error::Program`] if the program was lowered
    /// [for simulation](lower_for_simulation) and the rank shares that of another rank.
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

/// The steps and buffers of one rank in one iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct RankProgram {
    /// The rank.
    pub rank: usize,
    /// The ranks that this program represents, itself included, in ascending order: they run the
    /// same steps for the same numbers of samples, with the same parts in the same collectives.
    /// Only this rank if the program is for execution.
    pub stands_for: Vec<usize>,
    /// All buffers. A [`BufferId`] is an index into this list. State comes first, in an order that
    /// all programs of the same network and placement share.
    pub buffers: Vec<BufferSpec>,
    /// Number of state buffers, which outlive the iteration.
    pub state_buffers: usize,
    /// Number of elements of each piece of memory that several buffers share because activations
    /// are recomputed.
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
    /// The operation.
    pub op: Op,
    /// Name in timelines and messages, such as `forward conv1`.
    pub label: String,
    /// Steps of the same rank that must finish before it starts.
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

/// The operation of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Loads the shard's samples, or their labels, into `writes[0]`.
    LoadBatch {
        /// The part of the samples.
        part: BatchPart,
        /// The samples.
        shard: Shard,
    },
    /// A pass of a layer's forward step. The loss is also a layer.
    Forward {
        /// The layer.
        layer: LayerId,
        /// The pass.
        pass: Pass,
        /// The samples of the rank.
        shard: Shard,
    },
    /// A pass of a layer's backward step.
    Backward {
        /// The layer.
        layer: LayerId,
        /// The pass.
        pass: Pass,
        /// The samples of the rank.
        shard: Shard,
    },
    /// `writes[0]` = the sum of `reads`: the gradient at a fork from those of its branches, or the
    /// sum over micro-batches.
    AccumulateGradient,
    /// Multiplies `writes[0]` in place, such as the gradient of a layer's output or a part of it. A
    /// factor of zero gives zero for any previous value.
    ScaleGradient {
        /// The layer.
        layer: LayerId,
        /// Number of elements of one sample.
        sample_elements: usize,
        /// Numbers of consecutive samples of the rank's shard, with their factor.
        factors: Vec<(usize, f64)>,
    },
    /// The rank's part of a collective.
    Collective(CollectiveId),
    /// `writes[0]` = the sum of the squares of `reads`: this rank's share of the squared gradient
    /// norm.
    SquaredNorm,
    /// Updates the parameters of a layer: reads the gradient (and the squared norm, if clipping),
    /// writes parameters and velocity.
    OptimizerStep {
        /// The layer.
        layer: LayerId,
        /// The update rule.
        rule: Sgd,
    },
}

/// A part of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchPart {
    /// The features of the samples.
    Features,
    /// The classes of the samples.
    Labels,
}

/// A buffer of a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferSpec {
    /// Number of elements.
    pub elements: usize,
    /// The contents.
    pub contents: Contents,
    /// The piece of [shared memory](RankProgram::shared_elements) that it is in, which only compute
    /// steps use. A step that writes it overwrites the previous buffer in the piece. `None` for its
    /// own memory.
    pub shared: Option<usize>,
}

/// The contents of a buffer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Contents {
    /// An operand of a layer's passes. Parameters and statistics are state. After the last step,
    /// the metrics of the loss layer are those of the global batch.
    Operand(LayerId, Role),
    /// The optimiser's velocity for a layer's parameters (state).
    Velocity(LayerId),
    /// The same value in every element, set once: the gradient of the mean loss with respect to
    /// each sample's loss.
    Constant(f64),
    /// A copy of a layer's output, or of a part of its gradient, in another layer's partition.
    Moved(LayerId),
    /// The squared norm of all gradients.
    SquaredNorm,
}

/// A collective operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Collective {
    /// The operation.
    pub op: CollectiveOp,
    /// The ranks of the group, ascending. A rank's position here is its index in the group.
    pub ranks: Vec<usize>,
    /// Name in timelines and messages.
    pub label: String,
}

impl Collective {
    /// Returns the number of bytes: all buffers of one rank for an all-reduce or a broadcast, all
    /// samples that move between ranks for a redistribution.
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

/// The operation of a collective.
#[derive(Debug, Clone, PartialEq)]
pub enum CollectiveOp {
    /// Sums each of the step's `writes` over the ranks in place. Several buffers are one bucket.
    AllReduce {
        /// Number of elements of all buffers.
        elements: usize,
    },
    /// Copies the step's `writes` from the first rank of the group to the others.
    Broadcast {
        /// Number of elements of all buffers.
        elements: usize,
    },
    /// Moves samples from `reads[0]`, the rank's samples before, to `writes[0]`, its samples after.
    Redistribute {
        /// The samples that move, with their ranks.
        redistribution: Arc<Redistribution>,
        /// Number of elements of one sample.
        sample_elements: usize,
    },
}

/// Bytes of an element in the precision of programs, for costs.
pub const ELEMENT_BYTES: u64 = 4;
