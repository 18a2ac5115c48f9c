//! Programs: the steps of every rank in one or more iterations. The runtime executes them, and the
//! simulator computes their times.
//!
//! A *placement* is the ranks of each layer and the order of the layers. *State* is the buffers
//! that outlive an iteration: parameters, velocities (momentum of the optimiser) and running
//! statistics. A *pass* is one kernel of a layer's forward or backward step, and a buffer that it
//! reads or writes is an *operand*. A *rotation* is the iterations after which the roles of partial
//! backpropagation repeat; without it, one iteration.
//!
//! Buffers consist of *scalars* of 4 bytes: elements in single precision, or, with
//! [`Precision::Bf16`], two elements of 16 bits each where
//! [`Role::storage`](layer_engine::Role::storage) says so.

mod arena;
mod builder;
mod dtensor;
mod export;
mod in_place;
mod iteration_schedule;
mod launch_order;
mod lower;
mod lowered_training;
mod memory;
mod partial;
mod placement;
#[cfg(feature = "train")]
mod rank_tensors;
mod recompute;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use collectives::{Move, Redistribution};
use layer_engine::{Pass, Precision, Role, Sgd, Shard, Storage};
use layer_graph::{Layer, LayerGraph, LayerId, LayerPart};

use crate::Error;

#[cfg(feature = "train")]
pub(crate) use arena::check_offsets;
pub use arena::{ARENA_ALIGNMENT, BUCKET_ALIGNMENT};
/// The two lanes of a rank. Each runs its steps in order, and the two run concurrently.
pub use gpu_mux::Lane;
pub(crate) use in_place::{backward_passes, forward_passes};
pub use iteration_schedule::IterationSchedule;
pub use launch_order::Launch;
pub use lower::{LowerOptions, lower_evaluation, lower_for_simulation, lower_rotation, lower_training};
pub(crate) use lower::{tensor_boxes, view_of_scalars};
pub use lowered_training::LoweredTraining;
pub use memory::{FullestMoment, LayerMemory, RankMemory, rotation_memory};
pub use partial::{PartialBackpropagation, PartialDepth};
pub use placement::Placement;
#[cfg(feature = "train")]
pub(crate) use rank_tensors::RedistributionWrites;
pub use recompute::possible_checkpoints;
pub(crate) use recompute::{backward_reads, checkpoints, is_read_once};

/// The programs of all ranks, and their collectives.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Number of samples of the global batch.
    pub batch: usize,
    /// Precision of the layers, and number format of the buffers that their kernels need.
    pub precision: Precision,
    /// Number of iterations in the program: 1 for execution, all of the rotation for simulation.
    pub iterations: usize,
    /// The programs of the ranks: one per rank for execution, one per class of ranks with the same
    /// steps for simulation.
    pub ranks: Vec<RankProgram>,
    /// All collectives, in the order in which every rank issues those that it belongs to, so that
    /// overlapping groups cannot deadlock. A [`CollectiveId`] is an index into this list.
    pub collectives: Vec<Collective>,
}

impl Program {
    /// Returns the number of all ranks, idle ones included.
    #[must_use]
    pub fn world(&self) -> usize {
        self.ranks.iter().map(|program| program.represented_ranks.len()).sum()
    }

    /// Returns the program of a rank, given by its number.
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

/// The steps and buffers of one rank, or of a class of ranks, in the iterations of a [`Program`].
#[derive(Debug, Clone, PartialEq)]
pub struct RankProgram {
    /// The rank; the first of a class.
    pub rank: usize,
    /// The ranks of the class, `rank` included, in ascending order: they run the same steps for the
    /// same numbers of samples, with the same parts in the same collectives. Only `rank` if the
    /// program is for execution.
    pub represented_ranks: Vec<usize>,
    /// The parts of split layers that the rank runs; of each layer at most one.
    pub parts: BTreeMap<LayerId, Arc<LayerPart>>,
    /// All buffers. A [`BufferId`] is an index into this list. State comes first, in an order that
    /// all programs of the same network and placement share.
    pub buffers: Vec<BufferSpec>,
    /// Number of state buffers.
    pub state_buffers: usize,
    /// Number of scalars of the arena, which holds all buffers but the state.
    pub arena_elements: usize,
    /// The steps. Each lane runs its steps in this order; a [`StepId`] is an index into this list.
    pub steps: Vec<Step>,
    /// The first step of each iteration but the first. The rank ends an iteration before it begins
    /// the next one. Empty if the program is for execution.
    pub later_iterations: Vec<StepId>,
}

impl RankProgram {
    /// Returns a layer as the rank runs it: its part of a split layer.
    #[must_use]
    pub fn layer<'p>(&'p self, network: &'p LayerGraph, id: LayerId) -> &'p Layer {
        self.parts.get(&id).map_or_else(|| network.layer(id), |part| &part.layer)
    }
}

/// Index of a step in [`RankProgram::steps`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId(pub usize);

/// Index of a buffer in [`RankProgram::buffers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub usize);

/// Index of a collective in [`Program::collectives`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CollectiveId(pub usize);

/// One step of a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The operation that the step performs.
    pub op: Op,
    /// Name in timelines and messages, such as `forward conv1`.
    pub label: String,
    /// The steps of the same rank that must finish before this one starts.
    pub after: Vec<StepId>,
    /// Buffers that the step reads, in the order that the operation defines.
    pub reads: Vec<BufferId>,
    /// Buffers that the step writes or updates in place, in the order that the operation defines.
    ///
    /// If a collective writes several buffers, they are a *bucket*: they lie one after another in
    /// the arena, each at the next multiple of [`BUCKET_ALIGNMENT`] scalars, and are transferred as
    /// one buffer. A buffer belongs to one bucket at most, of which other collectives may transfer
    /// consecutive parts. All buffers of a bucket take their memory while any of them is in use.
    pub writes: Vec<BufferId>,
}

impl Step {
    /// Returns the lane that runs the step: communication for a collective, compute for everything
    /// else.
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
    /// Loads the features or the labels of samples into `writes[0]`.
    LoadBatch {
        /// Features or labels.
        part: BatchPart,
        /// The samples of the rank, by their positions in the global batch.
        shard: Shard,
        /// The elements of each sample that are loaded: those of an input of the network or the
        /// labels of a loss, or some of them if a layer is split by positions. If the loss ignores
        /// a label, the weight of each sample follows its labels (see [`Layer::label_elements`]).
        elements: Range<usize>,
    },
    /// Runs a pass of a layer's forward step. The loss is also a layer.
    Forward {
        /// The layer that runs.
        layer: LayerId,
        /// The pass of its forward step.
        pass: Pass,
        /// The samples of the rank, by their positions in the global batch.
        shard: Shard,
    },
    /// Runs a pass of a layer's backward step.
    Backward {
        /// The layer that runs.
        layer: LayerId,
        /// The pass of its backward step.
        pass: Pass,
        /// The samples of the rank, by their positions in the global batch.
        shard: Shard,
    },
    /// Writes the sum of `reads` to `writes[0]`: the gradient of an output that several layers
    /// read, or of parameters that several layers use.
    SumGradients,
    /// Writes the sum of the consecutive terms in `reads[0]` to `writes[0]`: a tensor of which
    /// ranks held addends.
    SumAddends {
        /// Number of terms.
        terms: usize,
    },
    /// Adds `reads[0]` to `writes[0]` in place: a sum over micro-batches.
    AddGradient,
    /// Multiplies ranges of `writes[0]` by factors in place, such as the gradient of a layer's
    /// output in partial backpropagation. A factor of 0 gives 0 for any previous value.
    ScaleGradient {
        /// The layer whose gradient is scaled.
        layer: LayerId,
        /// Number of elements of one sample in `writes[0]`.
        sample_elements: usize,
        /// Consecutive ranges of the rank's samples, each as a number of samples and their factor.
        factors: Vec<(usize, f64)>,
    },
    /// Takes part in a collective of the program.
    Collective(CollectiveId),
    /// Writes the sum of the squares of all elements of `reads` to `writes[0]`: this rank's part of
    /// the squared gradient norm.
    SquaredNorm,
    /// Updates the parameters of a layer. Reads the gradient and, with clipping, the squared norm
    /// of all gradients; updates parameters, master parameters (if there are any) and velocity in
    /// place.
    OptimizerStep {
        /// The layer that owns the parameters.
        layer: LayerId,
        /// The update rule: stochastic gradient descent with its constants.
        rule: Sgd,
    },
}

/// The part of each sample that a step loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchPart {
    /// The features: the elements of all inputs of the network, in order.
    Features,
    /// The labels, which the loss layers read: classes, or numbers. Those of all loss layers, in
    /// the network's order (see [`LayerGraph::loss_labels`]).
    Labels,
}

/// Size and contents of a buffer of a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferSpec {
    /// Number of elements.
    pub elements: usize,
    /// Number format of the elements.
    pub storage: Storage,
    /// The values that the buffer holds.
    pub contents: Contents,
    /// Position in the [arena](RankProgram::arena_elements), in scalars; `None` for state, which
    /// has separate memory. Buffers share parts of the arena if no two of them are in use at the
    /// same time.
    pub offset: Option<usize>,
}

impl BufferSpec {
    /// Returns the size of the buffer in scalars.
    #[must_use]
    pub fn scalars(&self) -> usize {
        self.storage.scalars(self.elements)
    }
}

/// The values that a buffer holds. A [`Role`] is the use of a buffer by the passes of a layer, such
/// as its output or the gradient of its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Contents {
    /// An operand of a layer's passes. Parameters and statistics are state. After the last step,
    /// the metrics of each loss layer (summed loss and number of correct samples) are those of the
    /// global batch.
    Operand(LayerId, Role),
    /// The optimiser's velocity for a layer's parameters. It is state.
    Velocity(LayerId),
    /// The parameters of a layer in single precision, of which the operand [`Role::Parameters`] is
    /// rounded to 16 bits. It is state.
    Master(LayerId),
    /// The given value in every element, set once: the gradient of the weighted mean loss with
    /// respect to the loss of a sample.
    Constant(f64),
    /// A copy of a layer's output, or of a part of its gradient, for the samples that the rank has
    /// in another layer; or the addends of such a tensor.
    Moved(LayerId),
    /// Values of a layer's output, or of a part of its gradient, that are not consecutive where
    /// they come from or go to, while a redistribution moves them.
    Packed(LayerId),
    /// The squared norm of all gradients: one element.
    SquaredNorm,
}

/// A collective between ranks of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Collective {
    /// The operation that the ranks perform.
    pub op: CollectiveOp,
    /// The ranks of all groups, one group after another. The position of a rank in its group is its
    /// number there.
    pub ranks: Vec<usize>,
    /// Number of groups, which have equally many ranks. Each performs the operation on its own, all
    /// at the same time: the parts of a split layer reduce their gradients in one collective.
    pub groups: usize,
    /// Name in timelines and messages, such as `all-reduce conv1+conv2`.
    pub label: String,
}

impl Collective {
    /// Returns the groups of ranks, each in its order.
    pub fn groups(&self) -> impl Iterator<Item = &[usize]> {
        self.ranks.chunks((self.ranks.len() / self.groups.max(1)).max(1))
    }

    /// Returns the group of a rank, in its order; empty if the rank does not take part.
    #[must_use]
    pub fn group_of(&self, rank: usize) -> &[usize] {
        self.groups().find(|group| group.contains(&rank)).unwrap_or_default()
    }

    /// Returns the number of bytes that are reduced or moved: the buffers of one rank for an
    /// all-reduce or a broadcast, and all samples that move between ranks for a redistribution.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let scalars = match &self.op {
            CollectiveOp::AllReduce { elements } | CollectiveOp::Broadcast { elements } => *elements,
            CollectiveOp::Redistribute { redistribution, item_elements, storage } => {
                redistribution.moves().iter().map(Move::items).sum::<usize>()
                    * storage.scalars(*item_elements)
            }
        };
        scalars as u64 * ELEMENT_BYTES
    }
}

/// The operation of a collective.
#[derive(Debug, Clone, PartialEq)]
pub enum CollectiveOp {
    /// Sums each buffer of the step's `writes` over the ranks, in place, in single
    /// precision. Several buffers are a [bucket](Step::writes).
    AllReduce {
        /// Number of elements of all buffers of one rank, in the group where it is the largest.
        elements: usize,
    },
    /// Copies the buffers of the step's `writes` from the first rank of the group to the others.
    Broadcast {
        /// Number of elements of all buffers of one rank, in the group where it is the largest.
        elements: usize,
    },
    /// Moves items of an array between ranks: from `reads[0]`, which has the rank's box of them
    /// before, to the first of `writes`, which has its box after. A rank may lack one of them. The
    /// other buffers of `writes`, with the contents [`Contents::Packed`], gather what the rank
    /// sends and receives if it does not lie together (see
    /// [`Redistribution::packed_len`]).
    Redistribute {
        /// The boxes that each rank holds before and after, and their movements. Its first
        /// dimension is the samples, numbered within the micro-batch. If layers divide more than
        /// samples, further dimensions divide a sample (see
        /// [`TensorView`](layer_graph::TensorView)), and addends are an outermost dimension.
        redistribution: Arc<Redistribution>,
        /// Number of elements of one item. Items consist of whole scalars. Without further
        /// dimensions an item is a sample.
        item_elements: usize,
        /// Number format of the elements.
        storage: Storage,
    },
}

/// Size of a scalar of a buffer in bytes: that of an element of single precision.
pub const ELEMENT_BYTES: u64 = 4;
