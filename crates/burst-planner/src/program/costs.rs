//! What steps and collectives take.

use crate::NodeId;

/// The steps of a node on one rank, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepTimes {
    /// The forward step.
    pub forward_us: f64,
    /// The backward step.
    pub backward_us: f64,
    /// The optimiser's step over the node's own parameters.
    pub update_us: f64,
}

impl StepTimes {
    /// All three.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.forward_us + self.backward_us + self.update_us
    }
}

/// What a node needs on one rank, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeMemory {
    /// Whatever is around it: what its forward step leaves for the backward pass, its output among it, and the gradients that its
    /// backward step writes. Its [state](super::TrainingNode::state_bytes) is not in it.
    pub held_bytes: u64,
    /// The samples that it reads, where it reads any. Nodes on the same list of ranks load them once.
    pub samples_bytes: u64,
    /// Of that what its forward step leaves beside its output.
    pub saved_bytes: u64,
    /// Its output. A copy for consumers on other ranks is as large as theirs is there, and so is the gradient that comes back.
    pub output_bytes: u64,
}

impl NodeMemory {
    /// The larger one of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            held_bytes: self.held_bytes.max(other.held_bytes),
            samples_bytes: self.samples_bytes.max(other.samples_bytes),
            saved_bytes: self.saved_bytes.max(other.saved_bytes),
            output_bytes: self.output_bytes.max(other.output_bytes),
        }
    }
}

/// Which part of a node's samples a rank has.
///
/// Where a batch does not divide evenly, some ranks have one sample more than the others; they come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Share {
    /// As many samples as any rank.
    Larger,
    /// One sample less.
    Smaller,
}

/// What the steps and collectives of a training program take. All times are in microseconds, finite and not negative; the same
/// question has the same answer.
///
/// Tables in a file are one implementation ([`TableCosts`](super::TableCosts)); layer times and a model of links of any shape are
/// another, in the crate `deeppool`.
pub trait TrainingCosts {
    /// How many of the first ranks of a node have the [larger share](Share::Larger); all of them unless said otherwise.
    fn larger_shares(&self, ranks: usize) -> usize {
        ranks
    }

    /// How many [replicas](super::Arrangement::replicated) of an arrangement there are, which all take the same and reduce their gradients
    /// together; 1 unless said otherwise. An evaluation is then of one of them beside the others:
    /// [`reduce`](Self::reduce) is about its ranks and theirs, and is also asked for a single rank.
    fn replicas(&self) -> usize {
        1
    }

    /// The steps of a node on one of its `ranks`; `None` if it cannot run on so many.
    fn compute(&self, node: NodeId, ranks: usize, share: Share) -> Option<StepTimes>;

    /// Moving the output of `producer`, or its gradient, from the ranks `from` to the ranks `to`, once all of both have
    /// arrived. The order of the ranks is that of their samples. Never asked for two equal lists.
    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64;

    /// Summing `bytes` on each of two or more ranks, those of all [replicas](Self::replicas) together, once all have arrived.
    fn reduce(&self, bytes: u64, ranks: &[usize]) -> f64;

    /// What a node needs on each of so many ranks; nothing unless said otherwise. It is also asked for numbers of ranks that the
    /// node cannot run on, where consumers do: then it is about the output alone.
    fn memory(&self, _node: NodeId, _ranks: usize, _share: Share) -> NodeMemory {
        NodeMemory::default()
    }

    /// What moving a node's output takes at least, from `from` ranks to `to` others than those, whichever they are. Only bounds
    /// depend on it: the closer it is, the closer they are.
    fn least_transfer(&self, _producer: NodeId, _from: usize, _to: usize) -> f64 {
        0.0
    }

    /// The same where neither of the two lists is a part of the other: some rank then sends or receives all its samples.
    fn least_transfer_apart(&self, producer: NodeId, from: usize, to: usize) -> f64 {
        self.least_transfer(producer, from, to)
    }

    /// The same where the shorter one of the lists is chosen from the longer one, `wide`, and so many of its ranks have the larger share
    /// there; in either direction.
    fn least_transfer_among(&self, producer: NodeId, wide: usize, narrow: usize, _larger: usize) -> f64 {
        self.least_transfer(producer, wide, narrow)
    }

    /// What `bytes` add at least to an all-reduce over so many ranks, however many go with them. Only bounds depend on it.
    fn least_reduce(&self, _bytes: u64, _ranks: usize) -> f64 {
        0.0
    }

    /// What an all-reduce of `bytes` takes at least over so many ranks, two or more, whichever they are. Only bounds depend on it.
    fn least_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        self.least_reduce(bytes, ranks)
    }
}

impl<C: TrainingCosts + ?Sized> TrainingCosts for &C {
    fn larger_shares(&self, ranks: usize) -> usize {
        (**self).larger_shares(ranks)
    }

    fn replicas(&self) -> usize {
        (**self).replicas()
    }

    fn compute(&self, node: NodeId, ranks: usize, share: Share) -> Option<StepTimes> {
        (**self).compute(node, ranks, share)
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        (**self).transfer(producer, from, to)
    }

    fn reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        (**self).reduce(bytes, ranks)
    }

    fn memory(&self, node: NodeId, ranks: usize, share: Share) -> NodeMemory {
        (**self).memory(node, ranks, share)
    }

    fn least_transfer(&self, producer: NodeId, from: usize, to: usize) -> f64 {
        (**self).least_transfer(producer, from, to)
    }

    fn least_transfer_apart(&self, producer: NodeId, from: usize, to: usize) -> f64 {
        (**self).least_transfer_apart(producer, from, to)
    }

    fn least_transfer_among(&self, producer: NodeId, wide: usize, narrow: usize, larger: usize) -> f64 {
        (**self).least_transfer_among(producer, wide, narrow, larger)
    }

    fn least_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        (**self).least_reduce(bytes, ranks)
    }

    fn least_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        (**self).least_all_reduce(bytes, ranks)
    }
}
