//! Durations of steps and collectives, and the memory of nodes.

use crate::NodeId;
use crate::splits::{TensorLayout, Values};

/// Durations of a node's steps on one rank, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepTimes {
    /// Duration of the forward step.
    pub forward_us: f64,
    /// Duration of the backward step.
    pub backward_us: f64,
    /// Duration of the optimizer's step over the node's own parameters.
    pub update_us: f64,
}

impl StepTimes {
    /// Returns the sum of the three durations, microseconds.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.forward_us + self.backward_us + self.update_us
    }

    /// Returns the minimum of each duration.
    pub(crate) fn min(self, other: Self) -> Self {
        Self {
            forward_us: self.forward_us.min(other.forward_us),
            backward_us: self.backward_us.min(other.backward_us),
            update_us: self.update_us.min(other.update_us),
        }
    }
}

/// Memory that a node needs on one rank, bytes, besides its parameters with their
/// [state](crate::Node::state_bytes) and gradients. The gradient of an output has the size of the
/// output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeMemory {
    /// Memory that is in use during the whole iteration.
    pub held_bytes: u64,
    /// Size of the rank's samples, if the node reads them from the data set; otherwise 0. Nodes on
    /// the same list of ranks load them once. In use until the last of these nodes has read them.
    pub samples_bytes: u64,
    /// Size of the values that the forward step saves besides the output. In use until the node's
    /// backward step.
    pub saved_bytes: u64,
    /// Size of the memory that is in use only during a step of the node.
    pub step_bytes: u64,
    /// Size of the rank's shard of the node's output. If n other ranks have a copy of the output,
    /// the copy has the size that is returned for n ranks.
    pub output_bytes: u64,
}

impl NodeMemory {
    /// Returns the maximum of each field.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            held_bytes: self.held_bytes.max(other.held_bytes),
            samples_bytes: self.samples_bytes.max(other.samples_bytes),
            saved_bytes: self.saved_bytes.max(other.saved_bytes),
            step_bytes: self.step_bytes.max(other.step_bytes),
            output_bytes: self.output_bytes.max(other.output_bytes),
        }
    }
}

/// Size of a rank's shard of a node's samples.
///
/// If the batch does not divide evenly, the first ranks have one sample more than the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ShardSize {
    /// Number of samples divided by the number of ranks, rounded up.
    Larger,
    /// One sample less. No rank has this size if the batch divides evenly.
    Smaller,
}

/// The durations of the steps and collectives of a training program, and the memory that its nodes
/// need.
///
/// [`compute`](Self::compute), [`transfer`](Self::transfer) and [`all_reduce`](Self::all_reduce)
/// are required. All durations are in microseconds, finite and not negative. A method returns the
/// same value whenever it is called with the same arguments. [`TableCosts`](crate::TableCosts)
/// reads the durations from tables; the crate `deeppool` computes them from layer times and a model
/// of the links.
pub trait CostModel {
    /// Returns the durations of a node's steps on one of its `ranks` ranks with a shard of size
    /// `shard_size`, or `None` if it cannot run on that number of ranks.
    fn compute(&self, node: NodeId, ranks: usize, shard_size: ShardSize) -> Option<StepTimes>;

    /// Returns the duration of moving the output of `producer`, or its gradient, from the ranks
    /// `from` to the ranks `to`, microseconds, once all of them are ready. Ranks are listed in the
    /// order of their samples. The two lists are never equal.
    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64;

    /// Returns the sum of the durations of moving the output of `producer` from the ranks `from` to
    /// the ranks `to` and its gradient back, microseconds: by default, the sum of both transfers.
    fn round_trip(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        self.transfer(producer, from, to) + self.transfer(producer, to, from)
    }

    /// Returns a key of the size of a node's output: nodes with equal keys have equal durations of
    /// all transfers, and equal bounds of them, so they are queried once. The default is different
    /// for all nodes.
    fn transfer_key(&self, producer: NodeId) -> u64 {
        producer.0 as u64
    }

    /// Returns the duration of an all-reduce over two or more ranks that have `bytes` bytes each,
    /// including the ranks of all [replicas](Self::replicas), microseconds, once all of them are
    /// ready.
    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64;

    /// Returns the duration of all-reduces in several groups of ranks at the same time, over
    /// `bytes` bytes on each rank, microseconds, once all ranks are ready. `ranks` has one group
    /// after another, `groups` groups of the same length. It is at least that of each all-reduce
    /// alone. The default is the longest of the
    /// [all-reduces](Self::all_reduce), each on its own.
    fn grouped_all_reduce(&self, bytes: u64, ranks: &[usize], groups: usize) -> f64 {
        let ranks_of_group = (ranks.len() / groups.max(1)).max(1);
        let durations = ranks.chunks(ranks_of_group).map(|group| self.all_reduce(bytes, group));
        durations.fold(0.0, f64::max)
    }

    /// Returns the memory that a node needs on one of `ranks` ranks with a shard of size
    /// `shard_size`. By default, all sizes are 0.
    ///
    /// It is also called with counts on which only the node's consumers can run; then only the
    /// output's size is used.
    fn memory(&self, _node: NodeId, _ranks: usize, _share: ShardSize) -> NodeMemory {
        NodeMemory::default()
    }

    /// Returns the number of ranks, out of `ranks`, that have the [larger shard](ShardSize::Larger)
    /// of a node's samples. They are the first ones in its list. The default is all of them.
    fn ranks_with_larger_shard(&self, ranks: usize) -> usize {
        ranks
    }

    /// Returns the number of [replicas](crate::Arrangement::replicated) of an arrangement that run
    /// side by side and all-reduce their gradients together. The default is 1.
    ///
    /// With more than one, an evaluation is of one replica, and [`all_reduce`](Self::all_reduce) is
    /// also called with a single rank.
    fn replicas(&self) -> usize {
        1
    }

    /// Returns the costs of [split](crate::NodeSplit) nodes. The default is `None`: no node can be
    /// split.
    fn splits(&self) -> Option<&dyn SplitCosts> {
        None
    }

    /// Returns lower bounds of the durations, from which the planner derives a lower bound of the
    /// iteration time. The default is `None`: every transfer and all-reduce is bounded by 0.
    fn bounds(&self) -> Option<&dyn CostBounds> {
        None
    }
}

/// Costs of split nodes and their tensors, as methods of a [cost model](crate::CostModel). A split
/// is given by its index in [`Node::splits`](crate::Node::splits). Durations are in microseconds,
/// finite and not negative.
pub trait SplitCosts {
    /// Returns the durations of the steps of a node with a split on one of its `ranks` ranks, those
    /// of the largest part, with a shard of size `shard_size`; `None` if it cannot run on that
    /// number of ranks. Shards are those of as many sample ranges as there are ranks per part.
    fn compute(&self, node: NodeId, split: usize, ranks: usize, shard_size: ShardSize) -> Option<StepTimes>;

    /// Returns the memory that a node with a split needs on one of `ranks` ranks, that of the
    /// largest part, with a shard of size `shard_size`. `output_bytes` is not used. By default, all
    /// sizes are 0.
    fn memory(&self, _node: NodeId, _split: usize, _ranks: usize, _shard_size: ShardSize) -> NodeMemory {
        NodeMemory::default()
    }

    /// Returns the duration of moving the output of `producer`, or its gradient, from one layout to
    /// another, microseconds, once all ranks of both are ready. One of the layouts has several
    /// parts, and they are not equal. The addends of a source are moved to every target rank, which
    /// then adds them without a duration, unless they are
    /// [all-reduced](Self::reduces_addends_in_place).
    fn transfer(&self, producer: NodeId, from: TensorLayout<'_>, to: TensorLayout<'_>) -> f64;

    /// Returns whether addends become copies on the same ranks by an
    /// [all-reduce](TensorLayout::is_all_reduced_to) in place of the addends. Otherwise they are
    /// moved and added as to any other layout. The default is `true`.
    fn reduces_addends_in_place(&self) -> bool {
        true
    }

    /// Returns the size of the output of `producer` on one of `ranks` ranks with a shard of size
    /// `shard_size`, in a layout of these parts and values, bytes. The default is 0.
    fn output_bytes(
        &self,
        _producer: NodeId,
        _ranks: usize,
        _parts: usize,
        _values: Values,
        _shard_size: ShardSize,
    ) -> u64 {
        0
    }
}

/// Lower bounds of a [`CostModel`]'s transfers and all-reduces over all ranks that they may use, in
/// microseconds.
///
/// Tighter values give a tighter lower bound of the iteration time. They do not change the time of
/// any plan.
pub trait CostBounds {
    /// Returns the minimum duration of moving a node's output from `from` ranks to `to` ranks, if
    /// the two sets of ranks differ, microseconds. The default is 0.
    fn min_transfer(&self, _producer: NodeId, _from: usize, _to: usize) -> f64 {
        0.0
    }

    /// Returns the minimum duration that `bytes` bytes add to an all-reduce over `ranks` ranks,
    /// microseconds, whichever other bytes are reduced with them. The default is 0.
    fn min_marginal_all_reduce(&self, _bytes: u64, _ranks: usize) -> f64 {
        0.0
    }

    /// Returns the minimum duration of an all-reduce of `bytes` bytes over `ranks` ranks, two or
    /// more, microseconds. The default is
    /// [`min_marginal_all_reduce`](Self::min_marginal_all_reduce).
    fn min_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        self.min_marginal_all_reduce(bytes, ranks)
    }
}

/// The bounds of a model that has none.
struct NoBounds;

impl CostBounds for NoBounds {}

/// Returns the bounds of a model, or bounds of 0 if it has none.
pub(crate) fn bounds_of(costs: &dyn CostModel) -> &dyn CostBounds {
    costs.bounds().unwrap_or(&NoBounds)
}

impl<C: CostModel + ?Sized> CostModel for &C {
    fn compute(&self, node: NodeId, ranks: usize, shard_size: ShardSize) -> Option<StepTimes> {
        (**self).compute(node, ranks, shard_size)
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        (**self).transfer(producer, from, to)
    }

    fn round_trip(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        (**self).round_trip(producer, from, to)
    }

    fn transfer_key(&self, producer: NodeId) -> u64 {
        (**self).transfer_key(producer)
    }

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        (**self).all_reduce(bytes, ranks)
    }

    fn grouped_all_reduce(&self, bytes: u64, ranks: &[usize], groups: usize) -> f64 {
        (**self).grouped_all_reduce(bytes, ranks, groups)
    }

    fn splits(&self) -> Option<&dyn SplitCosts> {
        (**self).splits()
    }

    fn memory(&self, node: NodeId, ranks: usize, shard_size: ShardSize) -> NodeMemory {
        (**self).memory(node, ranks, shard_size)
    }

    fn ranks_with_larger_shard(&self, ranks: usize) -> usize {
        (**self).ranks_with_larger_shard(ranks)
    }

    fn replicas(&self) -> usize {
        (**self).replicas()
    }

    fn bounds(&self) -> Option<&dyn CostBounds> {
        (**self).bounds()
    }
}
