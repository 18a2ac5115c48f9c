//! The tables that searches run over: for every variable, what deciding it costs.

use super::cost::{Cost, Prices};

/// A problem, or what is left of it, made ready for searches: its tables in elimination order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables {
    /// In elimination order; every child stands before its parent, and the last is the root of all.
    pub(crate) buckets: Vec<Bucket>,
    /// States of all buckets together.
    pub(crate) states: usize,
}

/// The elimination of one variable.
///
/// Its *states* are the combinations of options of its separator: the variables that it is tied to and that are
/// decided after it. Its *entries* are the ways to decide it in each state, contiguous by state.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// The number of its first state; states are numbered through all buckets.
    pub(crate) first_state: usize,
    /// Where the entries of each state begin, and at the end their number.
    pub(crate) first: Vec<u32>,
    /// What each entry costs: the variable's own cost, and that of its edges to the separator.
    pub(crate) costs: Costs,
    /// What each entry decides, as an entry of the history.
    pub(crate) decision: Vec<u32>,
    pub(crate) children: Vec<Child>,
}

/// An earlier bucket whose states this one decides.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) bucket: usize,
    /// For every entry of the parent, the state of the child, as numbered through all buckets.
    pub(crate) state: Vec<u32>,
}

/// Costs by criterion, which passes over all entries are fastest on.
#[derive(Debug, Clone)]
pub(crate) struct Costs {
    pub(crate) time: Vec<f64>,
    pub(crate) gpu: Vec<f64>,
    /// Absent where memory is no criterion.
    pub(crate) memory: Option<Vec<f64>>,
}

impl Bucket {
    pub(crate) fn states(&self) -> usize {
        self.first.len() - 1
    }

    pub(crate) fn entries(&self) -> usize {
        self.decision.len()
    }

    /// The entries of a state, as numbered in this bucket.
    pub(crate) fn entries_of(&self, state: usize) -> std::ops::Range<usize> {
        self.first[state] as usize..self.first[state + 1] as usize
    }
}

impl Tables {
    /// Numbers the states through all buckets; `state` of every child is relative to its bucket until then.
    pub(crate) fn number(mut buckets: Vec<Bucket>) -> Self {
        let mut states = 0;
        for index in 0..buckets.len() {
            buckets[index].first_state = states;
            states += buckets[index].states();
            let mut children = std::mem::take(&mut buckets[index].children);
            for child in &mut children {
                let first = buckets[child.bucket].first_state as u32;
                child.state.iter_mut().for_each(|state| *state += first);
            }
            buckets[index].children = children;
        }
        Self { buckets, states }
    }

    pub(crate) fn entries(&self) -> usize {
        self.buckets.iter().map(Bucket::entries).sum()
    }

    /// Whether no complete choice is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.buckets.last().is_none_or(|root| root.entries() == 0)
    }
}

impl Costs {
    pub(crate) fn with_capacity(entries: usize, with_memory: bool) -> Self {
        Self {
            time: Vec::with_capacity(entries),
            gpu: Vec::with_capacity(entries),
            memory: with_memory.then(|| Vec::with_capacity(entries)),
        }
    }

    pub(crate) fn push(&mut self, cost: Cost) {
        self.time.push(cost.time);
        self.gpu.push(cost.gpu);
        if let Some(memory) = &mut self.memory {
            memory.push(cost.memory);
        }
    }

    pub(crate) fn get(&self, entry: usize) -> Cost {
        let memory = self.memory.as_ref().map_or(0.0, |memory| memory[entry]);
        Cost { time: self.time[entry], gpu: self.gpu[entry], memory }
    }

    /// Appends the priced cost of every entry to `values`.
    pub(crate) fn append_priced(&self, prices: Prices, values: &mut Vec<f64>) {
        let first = values.len();
        values
            .extend(self.time.iter().zip(&self.gpu).map(|(time, gpu)| prices.time * time + prices.gpu * gpu));
        if let Some(memory) = &self.memory {
            for (value, memory) in values[first..].iter_mut().zip(memory) {
                *value += prices.memory * memory;
            }
        }
    }
}
