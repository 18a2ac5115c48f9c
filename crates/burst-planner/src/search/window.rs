//! The exact search inside a window: every choice that its bounds leave over, dominated ones left out.

use super::guide::Guide;
use super::history::{History, Mark};
use super::labels::{Candidate, Label, Slack, keep_nondominated};
use super::tables::{Bucket, Tables};

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

/// Finds all nondominated choices within the fences, sorted by time.
///
/// For every choice within the fences a label is returned that is worse by no more than `slack` for each of the
/// [`steps`]. At most [`FENCES`] fences are used. Time and memory grow with the labels that the fences leave
/// over, up to `max_labels`.
pub(crate) fn search(
    tables: &Tables,
    fences: &[Fence],
    slack: Slack,
    max_labels: usize,
    history: &mut History,
) -> Result<Vec<Label>, TooManyLabels> {
    let mark = history.mark();
    let mut search = Search {
        history,
        mark,
        done: vec![Vec::new(); tables.states],
        fences,
        slack,
        // History entries are numbered with 32 bits.
        max_labels: max_labels.min(u32::MAX as usize / 4),
        pool: Pool::default(),
    };
    let found = search.all(tables);
    let mut labels = search.done.pop().unwrap_or_default();
    if found.is_err() {
        history.forget(mark);
        return Err(TooManyLabels);
    }
    history.keep_only(mark, labels.iter_mut().map(|label| &mut label.history));
    Ok(labels)
}

/// How often dominated labels are dropped on the way to a complete choice, at most; once more for the choices.
pub(crate) fn steps(tables: &Tables) -> usize {
    2 * tables.buckets.len() + 1
}

struct Search<'s> {
    history: &'s mut History,
    mark: Mark,
    /// For every state of the buckets eliminated so far, its labels.
    done: Vec<Vec<Label>>,
    fences: &'s [Fence<'s>],
    slack: Slack,
    max_labels: usize,
    /// Empty between states; kept for its memory.
    pool: Pool,
}

impl Search<'_> {
    fn all(&mut self, tables: &Tables) -> Result<(), TooManyLabels> {
        for bucket in &tables.buckets {
            for state in 0..bucket.states() {
                let labels = self.state(bucket, state)?;
                self.done[bucket.first_state + state] = labels;
            }
            for child in &bucket.children {
                let child = &tables.buckets[child.bucket];
                self.done[child.first_state..child.first_state + child.states()].fill(Vec::new());
            }
        }
        Ok(())
    }

    fn state(&mut self, bucket: &Bucket, state: usize) -> Result<Vec<Label>, TooManyLabels> {
        let number = bucket.first_state + state;
        let hopeless = |fence: &Fence| fence.guide.inside[number] + fence.guide.outside[number] > fence.bound;
        if self.fences.iter().any(hopeless) {
            return Ok(Vec::new());
        }
        let mut pool = std::mem::take(&mut self.pool);
        for entry in bucket.entries_of(state) {
            self.entry(bucket, number, entry, &mut pool)?;
        }
        let labels = self.settle(&mut pool);
        self.pool = pool;
        labels
    }

    /// Combines the labels of all children with the entry's own cost.
    fn entry(
        &mut self,
        bucket: &Bucket,
        number: usize,
        entry: usize,
        pool: &mut Pool,
    ) -> Result<(), TooManyLabels> {
        let base = bucket.costs.get(entry);
        // What a partial choice may cost, given the cheapest completion: outside, and in children yet to come.
        let mut room = [0.0; FENCES];
        for (room, fence) in room.iter_mut().zip(self.fences) {
            let guide = fence.guide;
            let below = bucket.children.iter().map(|child| guide.inside[child.state[entry] as usize]);
            let left = fence.bound - guide.outside[number] - below.sum::<f64>();
            if guide.prices.of(base) > left {
                return Ok(());
            }
            *room = left;
        }
        let decision = bucket.decision[entry];
        let own = Label { cost: base, history: decision };
        if let [child] = &bucket.children[..] {
            return self.add(&[own], child.state[entry] as usize, &mut room, pool);
        }
        let mut parts: Vec<usize> = bucket.children.iter().map(|child| child.state[entry] as usize).collect();
        // The longest list first: it is added to the short ones, one after the other.
        parts.sort_by_key(|&state| std::cmp::Reverse(self.done[state].len()));
        let Some(last) = parts.pop() else {
            pool.candidates.push(Candidate { cost: base, parts: (decision, None) });
            return Ok(());
        };
        let mut partial = vec![own];
        for part in parts {
            let mut sums = Pool::default();
            self.add(&partial, part, &mut room, &mut sums)?;
            partial = self.settle(&mut sums)?;
        }
        self.add(&partial, last, &mut room, pool)
    }

    /// All sums of a partial label and a label of the state `part` that still fit into the room.
    fn add(
        &self,
        partial: &[Label],
        part: usize,
        room: &mut [f64],
        pool: &mut Pool,
    ) -> Result<(), TooManyLabels> {
        for (room, fence) in room.iter_mut().zip(self.fences) {
            *room += fence.guide.inside[part];
        }
        let within =
            |cost| self.fences.iter().zip(&*room).all(|(fence, &room)| fence.guide.prices.of(cost) <= room);
        for one in partial {
            for other in &self.done[part] {
                let cost = one.cost.plus(other.cost);
                if within(cost) {
                    pool.candidates.push(Candidate { cost, parts: (one.history, Some(other.history)) });
                }
            }
            pool.compact(self.max_labels)?;
        }
        Ok(())
    }

    /// Turns the candidates that nothing dominates into labels, and empties the pool.
    fn settle(&mut self, pool: &mut Pool) -> Result<Vec<Label>, TooManyLabels> {
        keep_nondominated(&mut pool.candidates, |candidate| candidate.cost, self.slack);
        if self.history.since(self.mark) + pool.candidates.len() > self.max_labels {
            return Err(TooManyLabels);
        }
        let mut record = |candidate: &Candidate| {
            let (left, right) = candidate.parts;
            let history = right.map_or(left, |right| self.history.join(left, right));
            Label { cost: candidate.cost, history }
        };
        let labels = pool.candidates.iter().map(&mut record).collect();
        pool.candidates.clear();
        pool.compact_at = COMPACT_FROM;
        Ok(labels)
    }
}

/// Candidates of one state, compacted now and then so that a large sum of sets does not fill the memory.
struct Pool {
    candidates: Vec<Candidate>,
    compact_at: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self { candidates: Vec::new(), compact_at: COMPACT_FROM }
    }
}

impl Pool {
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
