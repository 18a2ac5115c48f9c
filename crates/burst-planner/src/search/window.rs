//! The exact search inside a window: every choice that its bounds leave over, dominated ones left out.

use super::elimination::{Bucket, Model};
use super::guide::Guide;
use super::labels::{Candidate, History, Label, Slack, keep_nondominated};

/// A bound is a sum that was added up in another order than what it is compared with.
pub(crate) const ROUNDING: f64 = 1e-11;

/// Candidates that a state collects before the dominated ones are thrown out for the first time.
const COMPACT_FROM: usize = 1 << 16;

/// Only choices whose priced sum is at most the bound are looked for.
pub(crate) struct Fence<'g> {
    guide: &'g Guide,
    bound: f64,
}

impl<'g> Fence<'g> {
    /// Lets through what costs at most `bound` under the guide's prices, to rounding.
    pub(crate) fn new(guide: &'g Guide, bound: f64) -> Self {
        Self { guide, bound: bound + ROUNDING * bound }
    }
}

/// A search has at most this many fences: one for each criterion and one for their priced sum.
const FENCES: usize = 4;

/// The search kept more labels than it may.
pub(crate) struct TooManyLabels;

/// Finds all nondominated choices within the fences, sorted by time, with the history to read them from.
///
/// For every choice within the fences a label is returned that is worse by no more than `slack` for each of the
/// [`steps`]. At most [`FENCES`] fences are heeded. Time and memory grow with the labels that the fences leave
/// over, up to `max_labels`.
pub(crate) fn search(
    model: &Model,
    fences: &[Fence],
    slack: Slack,
    max_labels: usize,
) -> Result<(History, Vec<Label>), TooManyLabels> {
    let mut search = Search {
        history: History::new(model.problem.nodes.iter().map(|node| node.options.len())),
        done: Vec::with_capacity(model.buckets.len()),
        fences,
        slack,
        // History entries are numbered with 32 bits.
        max_labels: max_labels.min(u32::MAX as usize / 2),
    };
    for index in 0..model.buckets.len() {
        let bucket = &model.buckets[index];
        let states = (0..bucket.states).map(|state| search.state(index, bucket, state));
        let states = states.collect::<Result<Vec<_>, _>>()?;
        for child in &bucket.children {
            search.done[child.bucket] = Vec::new();
        }
        search.done.push(states);
    }
    let labels = search.done.pop().and_then(|mut root| root.pop()).unwrap_or_default();
    Ok((search.history, labels))
}

/// How often dominated labels are dropped on the way to a complete choice, at most; once more for the choices.
pub(crate) fn steps(model: &Model) -> usize {
    2 * model.buckets.len() + 1
}

struct Search<'s> {
    history: History,
    /// For every bucket eliminated so far and every state, its labels.
    done: Vec<Vec<Vec<Label>>>,
    fences: &'s [Fence<'s>],
    slack: Slack,
    max_labels: usize,
}

impl Search<'_> {
    fn state(&mut self, index: usize, bucket: &Bucket, state: usize) -> Result<Vec<Label>, TooManyLabels> {
        let hopeless = |fence: &Fence| {
            fence.guide.inside[index][state] + fence.guide.outside[index][state] > fence.bound
        };
        if self.fences.iter().any(hopeless) {
            return Ok(Vec::new());
        }
        let mut pool = Pool::new();
        for option in 0..bucket.options {
            self.entry(index, bucket, state * bucket.options + option, &mut pool)?;
        }
        self.settle(pool)
    }

    /// Combines the labels of all children with the entry's own cost.
    fn entry(
        &mut self,
        index: usize,
        bucket: &Bucket,
        entry: usize,
        pool: &mut Pool,
    ) -> Result<(), TooManyLabels> {
        let (state, option) = (entry / bucket.options, entry % bucket.options);
        let base = bucket.base[entry];
        // What a partial choice may cost, given the cheapest completion: outside, and in children yet to come.
        let mut room = [0.0; FENCES];
        for (room, fence) in room.iter_mut().zip(self.fences) {
            let guide = fence.guide;
            let below =
                bucket.children.iter().map(|child| guide.inside[child.bucket][child.state[entry] as usize]);
            let left = fence.bound - guide.outside[index][state] - below.sum::<f64>();
            if guide.prices.of(base) > left {
                return Ok(());
            }
            *room = left;
        }
        let leaf = self.history.leaf(bucket.node, option);
        let mut parts: Vec<(usize, usize)> =
            bucket.children.iter().map(|child| (child.bucket, child.state[entry] as usize)).collect();
        // The longest list first: it is added to the short ones, one after the other.
        parts.sort_by_key(|&(child, state)| std::cmp::Reverse(self.done[child][state].len()));
        let Some(last) = parts.pop() else {
            // A decision that stands alone is paired with itself.
            pool.candidates.push(Candidate { cost: base, parts: (leaf, leaf) });
            return Ok(());
        };
        let mut partial = vec![Label { cost: base, history: leaf }];
        for part in parts {
            let mut sums = Pool::new();
            self.add(&partial, part, &mut room, &mut sums)?;
            partial = self.settle(sums)?;
        }
        self.add(&partial, last, &mut room, pool)
    }

    /// All sums of a partial label and a label of `part` that still fit into the room.
    fn add(
        &self,
        partial: &[Label],
        part: (usize, usize),
        room: &mut [f64],
        pool: &mut Pool,
    ) -> Result<(), TooManyLabels> {
        for (room, fence) in room.iter_mut().zip(self.fences) {
            *room += fence.guide.inside[part.0][part.1];
        }
        let within =
            |cost| self.fences.iter().zip(&*room).all(|(fence, &room)| fence.guide.prices.of(cost) <= room);
        for one in partial {
            for other in &self.done[part.0][part.1] {
                let cost = one.cost.plus(other.cost);
                if within(cost) {
                    pool.candidates.push(Candidate { cost, parts: (one.history, other.history) });
                }
            }
            pool.compact(self.max_labels)?;
        }
        Ok(())
    }

    fn settle(&mut self, mut pool: Pool) -> Result<Vec<Label>, TooManyLabels> {
        keep_nondominated(&mut pool.candidates, |candidate| candidate.cost, self.slack);
        if self.history.len() + pool.candidates.len() > self.max_labels {
            return Err(TooManyLabels);
        }
        Ok(pool.candidates.iter().map(|candidate| self.history.record(candidate)).collect())
    }
}

/// Candidates of one state, compacted now and then so that a large sum of sets does not fill the memory.
struct Pool {
    candidates: Vec<Candidate>,
    compact_at: usize,
}

impl Pool {
    fn new() -> Self {
        Self { candidates: Vec::new(), compact_at: COMPACT_FROM }
    }

    fn compact(&mut self, max_labels: usize) -> Result<(), TooManyLabels> {
        if self.candidates.len() < self.compact_at {
            return Ok(());
        }
        // Without slack: how often this happens is no part of `steps`.
        keep_nondominated(&mut self.candidates, |candidate| candidate.cost, Slack::NONE);
        self.compact_at = COMPACT_FROM.max(2 * self.candidates.len());
        if self.candidates.len() > max_labels { Err(TooManyLabels) } else { Ok(()) }
    }
}
