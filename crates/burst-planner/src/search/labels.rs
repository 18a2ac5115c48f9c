//! Labels of partial choices: what each costs, and the decisions that it is made of.

use super::cost::Cost;

/// A partial choice that nothing dominates so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label {
    pub(crate) cost: Cost,
    /// Its entry in the history.
    pub(crate) history: u32,
}

/// Two partial choices put together, not yet recorded: most of them are dominated at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) cost: Cost,
    /// Entries of the history.
    pub(crate) parts: (u32, Option<u32>),
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
/// Time `O(n log n)` for two criteria; for three, the usual staircase (H. Kung, F. Luccio and F. Preparata, J. ACM
/// 22, 1975), with insertion by shifting.
pub(crate) fn keep_nondominated<T: Copy>(items: &mut Vec<T>, cost: impl Fn(&T) -> Cost, slack: Slack) {
    if items.len() < 2 {
        return;
    }
    let by_gpu = |a: &Cost, b: &Cost| a.gpu.total_cmp(&b.gpu).then(a.memory.total_cmp(&b.memory));
    items.sort_by(|a, b| {
        let (a, b) = (cost(a), cost(b));
        a.time.total_cmp(&b.time).then_with(|| by_gpu(&a, &b))
    });
    let with_memory = items.iter().any(|item| cost(item).memory > 0.0);
    let mut envelope = Envelope::default();
    let mut kept = 0;
    let mut start = 0;
    while start < items.len() {
        let latest = cost(&items[start]).time + slack.time;
        let mut end = start + 1;
        while end < items.len() && cost(&items[end]).time <= latest {
            end += 1;
        }
        // Times of one run count as equal, so the cheapest goes first. Without memory it is the only one of use.
        let run = &mut items[start..end];
        if with_memory {
            run.sort_by(|a, b| by_gpu(&cost(a), &cost(b)));
        } else if let Some(cheapest) = (0..run.len()).min_by(|&a, &b| by_gpu(&cost(&run[a]), &cost(&run[b])))
        {
            run.swap(0, cheapest);
        }
        let useful = if with_memory { end } else { start + 1 };
        for index in start..useful {
            if envelope.admits(cost(&items[index]), slack.gpu) {
                items.swap(kept, index);
                kept += 1;
            }
        }
        start = end;
    }
    items.truncate(kept);
}

/// The lower envelope of what was kept.
#[derive(Default)]
struct Envelope {
    /// GPU time ascending, memory descending.
    stairs: Vec<(f64, f64)>,
}

impl Envelope {
    /// Whether nothing kept so far is as good, but for the slack. What is admitted becomes part of the envelope.
    fn admits(&mut self, Cost { gpu, memory, .. }: Cost, slack: f64) -> bool {
        let below = self.stairs.partition_point(|stair| stair.0 <= gpu + slack);
        if below > 0 && self.stairs[below - 1].1 <= memory {
            return false;
        }
        let from = self.stairs.partition_point(|stair| stair.0 < gpu);
        let covered = self.stairs[from..].iter().take_while(|stair| stair.1 >= memory).count();
        self.stairs.splice(from..from + covered, [(gpu, memory)]);
        true
    }
}
