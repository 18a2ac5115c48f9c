//! Partial choices, compared: a label is what a partial choice costs and how it came about.

use super::cost::Cost;

/// A partial choice that nothing dominates so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label {
    pub(crate) cost: Cost,
    /// Its entry in the [`History`].
    pub(crate) history: u32,
}

/// Two partial choices put together, not yet recorded: most of them are dominated at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) cost: Cost,
    pub(crate) parts: (u32, u32),
}

/// How labels came about: a forest of pairs whose leaves are single decisions.
pub(crate) struct History {
    /// Index of a node's first leaf.
    first_leaf: Vec<u32>,
    leaves: Vec<(usize, usize)>,
    pairs: Vec<(u32, u32)>,
}

impl History {
    /// A history with a leaf for every option of every node; `options[n]` is the number of options of node `n`.
    pub(crate) fn new(options: impl Iterator<Item = usize>) -> Self {
        let mut first_leaf = Vec::new();
        let mut leaves = Vec::new();
        for (node, options) in options.enumerate() {
            first_leaf.push(leaves.len() as u32);
            leaves.extend((0..options).map(|option| (node, option)));
        }
        Self { first_leaf, leaves, pairs: Vec::new() }
    }

    /// The history of one decision.
    pub(crate) fn leaf(&self, node: usize, option: usize) -> u32 {
        self.first_leaf[node] + option as u32
    }

    pub(crate) fn record(&mut self, candidate: &Candidate) -> Label {
        self.pairs.push(candidate.parts);
        Label { cost: candidate.cost, history: (self.leaves.len() + self.pairs.len() - 1) as u32 }
    }

    pub(crate) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// The decisions behind a label of the root: an option index for each node.
    pub(crate) fn choice(&self, label: &Label) -> Vec<usize> {
        let mut choice = vec![0; self.first_leaf.len()];
        let mut open = vec![label.history as usize];
        while let Some(entry) = open.pop() {
            if let Some(&(node, option)) = self.leaves.get(entry) {
                choice[node] = option;
            } else {
                let (left, right) = self.pairs[entry - self.leaves.len()];
                open.extend([left as usize, right as usize]);
            }
        }
        choice
    }
}

/// How much worse a label may be than one that it displaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slack {
    pub(crate) time: f64,
    pub(crate) gpu: f64,
}

impl Slack {
    pub(crate) const NONE: Self = Self { time: 0.0, gpu: 0.0 };
}

/// Keeps, sorted by time (to `slack.time`), what nothing dominates: for every item dropped, one is kept whose
/// time is at most `slack.time` larger, whose GPU time at most `slack.gpu` larger, and whose memory is no larger.
///
/// Among equals the one that comes first stays. Time `O(n log n)` for two criteria; for three, the usual
/// staircase (H. Kung, F. Luccio and F. Preparata, J. ACM 22, 1975), with insertion by shifting.
pub(crate) fn keep_nondominated<T>(items: &mut Vec<T>, cost: impl Fn(&T) -> Cost, slack: Slack) {
    let by_gpu = |a: &Cost, b: &Cost| a.gpu.total_cmp(&b.gpu).then(a.memory.total_cmp(&b.memory));
    items.sort_by(|a, b| {
        let (a, b) = (cost(a), cost(b));
        a.time.total_cmp(&b.time).then_with(|| by_gpu(&a, &b))
    });
    // The lower envelope of what was kept: GPU time ascending, memory descending.
    let mut stairs: Vec<(f64, f64)> = Vec::new();
    let mut kept = 0;
    let mut start = 0;
    while start < items.len() {
        let latest = cost(&items[start]).time + slack.time;
        let mut end = start + 1;
        while end < items.len() && cost(&items[end]).time <= latest {
            end += 1;
        }
        // Times of one run count as equal, so the cheapest goes first.
        items[start..end].sort_by(|a, b| by_gpu(&cost(a), &cost(b)));
        for index in start..end {
            let Cost { gpu, memory, .. } = cost(&items[index]);
            let below = stairs.partition_point(|stair| stair.0 <= gpu + slack.gpu);
            if below > 0 && stairs[below - 1].1 <= memory {
                continue;
            }
            let from = stairs.partition_point(|stair| stair.0 < gpu);
            let covered = stairs[from..].iter().take_while(|stair| stair.1 >= memory).count();
            stairs.splice(from..from + covered, [(gpu, memory)]);
            items.swap(kept, index);
            kept += 1;
        }
        start = end;
    }
    items.truncate(kept);
}
