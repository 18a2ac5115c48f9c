//! Splits: ways to divide the work of a node on each sample among several ranks.

/// A way to divide the work of a node on a range of samples among several ranks, its *parts*.
///
/// A node with a split runs on a list of ranks that is a grid of sample ranges and parts: the first
/// `parts` ranks have the first range of samples, each with another part, and so on. Every
/// all-reduce of the node, of gradients, statistics and metrics, is between the ranks that have the
/// same part, unless it [sums parts](Self::sums_parts); the all-reduces of all parts are one
/// collective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSplit {
    /// Number of ranks of each range of samples, at least 2.
    pub parts: usize,
    /// Values of the inputs that the node reads.
    pub input: Values,
    /// Values of the gradients of its inputs that the node computes.
    pub input_gradient: Values,
    /// Values of the output. Its backward step reads the gradient of the output with the same
    /// values, or with [`Values::Copies`] if these are [`Values::Addends`].
    pub output: Values,
    /// Whether all parts have the same parameters and compute addends of their gradients, and of
    /// the metrics, which are all-reduced between all ranks.
    pub sums_parts: bool,
    /// Size of the gradient of the parameters of the largest part, bytes.
    pub gradient_bytes: u64,
    /// Size of the parameters and optimizer state of the largest part, bytes.
    pub state_bytes: u64,
    /// Bytes that a rank all-reduces within the node's steps, those of the largest part; `None` if
    /// there is no such all-reduce.
    pub synchronized: Option<SynchronizedBytes>,
}

impl NodeSplit {
    /// Creates a split of a node without parameters.
    #[must_use]
    pub fn new(parts: usize, input: Values, input_gradient: Values, output: Values) -> Self {
        Self {
            parts,
            input,
            input_gradient,
            output,
            sums_parts: false,
            gradient_bytes: 0,
            state_bytes: 0,
            synchronized: None,
        }
    }

    /// Returns the values of the gradient of the output that the backward step reads.
    #[must_use]
    pub fn output_gradient(&self) -> Values {
        if self.output == Values::Addends { Values::Copies } else { self.output }
    }
}

/// Bytes that a node's ranks all-reduce within its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynchronizedBytes {
    /// Bytes before the forward step; 0 is none.
    pub forward: u64,
    /// Bytes after the backward step, before the gradient of the inputs is available; 0 is none.
    pub backward: u64,
}

/// Values of a tensor on the ranks that have the same samples and different parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Values {
    /// Every rank has all values.
    Copies,
    /// Each rank has a range of the values.
    Ranges,
    /// Each rank has a tensor of full size. The values are the sums of these tensors.
    Addends,
    /// Each rank has a range of the values, along another dimension than for [`Self::Ranges`].
    Positions,
}

/// Layout of a tensor: its ranks, and the values that each of them has. Two layouts with one part
/// are equal if their ranks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorLayout<'r> {
    /// Ranks, in the order of their samples; the ranks of a range of samples in the order of their
    /// parts.
    pub ranks: &'r [usize],
    /// Number of ranks of each range of samples.
    pub parts: usize,
    /// Values on the ranks of a range; [`Values::Copies`] with one part.
    pub values: Values,
}

impl<'r> TensorLayout<'r> {
    /// Returns the layout of a tensor that is divided by samples only.
    #[must_use]
    pub fn whole(ranks: &'r [usize]) -> Self {
        Self { ranks, parts: 1, values: Values::Copies }
    }

    /// Returns whether a tensor in this layout becomes one in the layout `to` by an all-reduce
    /// between the ranks of each range of samples.
    #[must_use]
    pub fn is_all_reduced_to(&self, to: &Self) -> bool {
        let is_sum = (self.values, to.values) == (Values::Addends, Values::Copies);
        is_sum && self.parts == to.parts && self.ranks == to.ranks
    }
}

/// Packed layout of a tensor of an arrangement: the slot or the id of a group, with [`Values`] in
/// the two highest bits. That of a tensor with one part is the group itself.
pub(crate) type Layout = u32;

/// Layouts and sizes of the tensors of an arrangement's nodes, each by node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeTensors<'a> {
    /// Whether any node is split.
    pub(crate) are_split: bool,
    /// Whether [addends are all-reduced](crate::SplitCosts::reduces_addends_in_place).
    pub(crate) reduces_addends: bool,
    /// Layout of the output that the node computes.
    pub(crate) outputs: &'a [Layout],
    /// Layout of the gradient of its output that the node reads.
    pub(crate) output_gradients: &'a [Layout],
    /// Layout of the inputs that the node reads.
    pub(crate) inputs: &'a [Layout],
    /// Layout of the gradients of its inputs that the node computes.
    pub(crate) input_gradients: &'a [Layout],
    /// Size of the gradient of its parameters on a rank, bytes.
    pub(crate) gradient_bytes: &'a [u64],
    /// Size of its parameters and optimizer state on a rank, bytes.
    pub(crate) state_bytes: &'a [u64],
    /// Bytes that its ranks all-reduce within its steps; 0 if there are none.
    pub(crate) synchronized: &'a [SynchronizedBytes],
}

impl NodeTensors<'_> {
    /// Returns whether a tensor in one layout is all-reduced to another one.
    pub(crate) fn is_all_reduced(&self, from: Layout, to: Layout) -> bool {
        self.reduces_addends && values_of(from) == Values::Addends && to == group_of(from)
    }

    /// Returns whether the ranks of a layout add up what they receive from another one.
    pub(crate) fn are_added_up(&self, from: Layout, to: Layout) -> bool {
        values_of(from) == Values::Addends && !self.is_all_reduced(from, to)
    }
}

/// Number of bits of the group in a [`Layout`].
const GROUP_BITS: u32 = 30;

/// Returns the layout of a tensor on a group, which has several parts unless `values` is
/// [`Values::Copies`].
pub(crate) fn layout(group: u32, values: Values) -> Layout {
    group | (values as u32) << GROUP_BITS
}

/// Returns the slot or the id of the group of a layout.
#[inline]
pub(crate) fn group_of(layout: Layout) -> u32 {
    layout & ((1 << GROUP_BITS) - 1)
}

/// Returns the values of a layout.
pub(crate) fn values_of(layout: Layout) -> Values {
    match layout >> GROUP_BITS {
        0 => Values::Copies,
        1 => Values::Ranges,
        2 => Values::Addends,
        _ => Values::Positions,
    }
}

/// Returns the layout with another group: the slot in place of the id, or the reverse.
#[inline]
pub(crate) fn with_group(layout: Layout, group: u32) -> Layout {
    layout & !((1 << GROUP_BITS) - 1) | group
}
