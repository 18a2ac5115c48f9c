//! What steps and collectives take.

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

    /// The steps of a node on one of its `ranks`; `None` if it cannot run on so many.
    fn compute(&self, node: usize, ranks: usize, share: Share) -> Option<StepTimes>;

    /// Moving the output of `producer`, or its gradient, from the ranks `from` to the ranks `to`, once all of both have
    /// arrived. The order of the ranks is that of their samples. Never asked for two equal lists.
    fn transfer(&self, producer: usize, from: &[usize], to: &[usize]) -> f64;

    /// Summing `bytes` on each of two or more ranks, once all have arrived.
    fn reduce(&self, bytes: u64, ranks: &[usize]) -> f64;

    /// What moving a node's output takes at least, from `from` ranks to `to` others than those, whichever they are. Only bounds
    /// depend on it: the closer it is, the closer they are.
    fn least_transfer(&self, _producer: usize, _from: usize, _to: usize) -> f64 {
        0.0
    }

    /// What `bytes` add at least to an all-reduce over so many ranks, however many go with them. Only bounds depend on it.
    fn least_reduce(&self, _bytes: u64, _ranks: usize) -> f64 {
        0.0
    }
}

impl<C: TrainingCosts + ?Sized> TrainingCosts for &C {
    fn larger_shares(&self, ranks: usize) -> usize {
        (**self).larger_shares(ranks)
    }

    fn compute(&self, node: usize, ranks: usize, share: Share) -> Option<StepTimes> {
        (**self).compute(node, ranks, share)
    }

    fn transfer(&self, producer: usize, from: &[usize], to: &[usize]) -> f64 {
        (**self).transfer(producer, from, to)
    }

    fn reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        (**self).reduce(bytes, ranks)
    }

    fn least_transfer(&self, producer: usize, from: usize, to: usize) -> f64 {
        (**self).least_transfer(producer, from, to)
    }

    fn least_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        (**self).least_reduce(bytes, ranks)
    }
}
