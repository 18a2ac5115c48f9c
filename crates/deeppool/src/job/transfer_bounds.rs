//! Lower bounds on the load of the busiest rank when a batch is redistributed from one list of
//! ranks to another, for any choice of ranks. The *shorter* list has the smaller number of ranks.

/// Samples that a rank sends or receives, and the messages that carry them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    /// Number of samples.
    pub(super) samples: usize,
    /// Number of messages.
    pub(super) messages: usize,
}

impl Load {
    /// Returns a lower bound on the load of the busiest rank when a batch of `batch` samples moves
    /// between two different lists of `from` and `to` ranks, both at most `batch`, in either
    /// direction. O((`from` + `to`) x maximum samples per rank).
    pub(super) fn minimum(batch: usize, from: usize, to: usize) -> Self {
        let (narrow, wide) = (from.min(to), from.max(to));
        let overlaps = overlaps(batch, narrow, wide);
        // A rank of the shorter list holds at most one of the shards that its own shard overlaps.
        // Each of the others arrives in one message.
        let messages = overlaps.iter().map(|shares| shares.len() - 1).max().unwrap_or(0).max(1);
        // Some rank of the longer list is not in the shorter one, or at another position.
        let mut samples = batch / wide;
        let share = |ranks: usize, rank: usize| batch / ranks + usize::from(rank < batch % ranks);
        while !is_possible(&overlaps, samples, |rank| share(narrow, rank), |rank| share(wide, rank)) {
            samples += 1;
        }
        Self { samples, messages }
    }
}

/// Returns, for each rank of the shorter list, the ranks of the longer list whose shards overlap
/// its own, with the number of common samples.
fn overlaps(batch: usize, narrow: usize, wide: usize) -> Vec<Vec<(usize, usize)>> {
    let begin = |ranks: usize, rank: usize| rank * (batch / ranks) + rank.min(batch % ranks);
    let mut first = 0;
    let of_rank = |rank: usize| {
        let (from, to) = (begin(narrow, rank), begin(narrow, rank + 1));
        while begin(wide, first + 1) <= from {
            first += 1;
        }
        let others = (first..wide).take_while(|&other| begin(wide, other) < to);
        others.map(|other| (other, begin(wide, other + 1).min(to) - begin(wide, other).max(from))).collect()
    };
    (0..narrow).map(of_rank).collect()
}

/// Returns whether some shorter list lets no rank send or receive more than `max` samples.
///
/// Each rank of the shorter list must then keep all but `max` samples of its shard, and each rank
/// of the longer list with more than `max` samples must be in the shorter one. Both conditions can
/// hold together if each can hold alone: if one matching of a bipartite graph covers some nodes on
/// one side, and another matching covers some nodes on the other side, one matching covers all of
/// them (N. Mendelsohn, A. Dulmage, Canadian Journal of Mathematics 10, 1958). Shards are in order,
/// and so are the partners that they may have: each takes the first free one.
fn is_possible(
    overlaps: &[Vec<(usize, usize)>],
    max: usize,
    narrow: impl Fn(usize) -> usize,
    wide: impl Fn(usize) -> usize,
) -> bool {
    let is_kept = |rank: usize, kept: usize| kept > 0 && narrow(rank) - kept <= max;
    if !can_all_match(&keeping(overlaps, max), max) {
        return false;
    }
    let mut is_taken = vec![false; overlaps.len()];
    let pairs = overlaps
        .iter()
        .enumerate()
        .flat_map(|(rank, shares)| shares.iter().map(move |&(other, kept)| (other, rank, kept)));
    let mut pairs: Vec<(usize, usize, usize)> =
        pairs.filter(|&(other, rank, kept)| wide(other) > max && is_kept(rank, kept)).collect();
    pairs.sort_unstable();
    let many = overlaps.iter().flatten().map(|&(other, _)| other).filter(|&other| wide(other) > max);
    let mut many: Vec<usize> = many.collect();
    many.dedup();
    many.into_iter().all(|other| {
        let begin = pairs.partition_point(|&(first, ..)| first < other);
        let mut own = pairs[begin..].iter().take_while(|&&(first, ..)| first == other);
        let partner = own.find(|&&(_, rank, _)| !is_taken[rank]);
        partner.map(|&(_, rank, _)| is_taken[rank] = true).is_some()
    })
}

/// Returns the overlaps of those ranks of the shorter list that must already hold some of their
/// samples, so as not to receive more than `max`.
fn keeping(overlaps: &[Vec<(usize, usize)>], max: usize) -> Vec<&[(usize, usize)]> {
    overlaps.iter().map(Vec::as_slice).filter(|shares| share(shares) > max).collect()
}

/// Returns the number of samples of a rank of the shorter list.
fn share(shares: &[(usize, usize)]) -> usize {
    shares.iter().map(|&(_, kept)| kept).sum()
}

/// Returns whether each of these ranks of the shorter list can be a different rank of the longer
/// one that holds all but `max` of its samples. Shards are in order: each takes the first free one.
fn can_all_match(ranks: &[&[(usize, usize)]], max: usize) -> bool {
    let mut next = 0;
    ranks.iter().all(|shares| {
        let own = share(shares);
        let is_partner = |&&(other, kept): &&(usize, usize)| other >= next && own - kept <= max;
        let partner = shares.iter().find(is_partner);
        partner.map(|&(other, _)| next = other + 1).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lists of `count` distinct ranks below `gpus`.
    fn lists(gpus: usize, count: usize) -> Vec<Vec<usize>> {
        let mut lists = vec![Vec::new()];
        for _ in 0..count {
            let longer = |list: &Vec<usize>| {
                let list = list.clone();
                let others = (0..gpus).filter(move |rank| !list.contains(rank));
                others.collect::<Vec<_>>()
            };
            lists = lists
                .iter()
                .flat_map(|list| longer(list).into_iter().map(|rank| [&list[..], &[rank]].concat()))
                .collect();
        }
        lists
    }

    /// The maximum number of samples, and of messages, that a rank sends or receives.
    fn load(batch: usize, from: &[usize], to: &[usize]) -> Load {
        let begin = |ranks: usize, rank: usize| rank * (batch / ranks) + rank.min(batch % ranks);
        let mut of_rank = [[Load { samples: 0, messages: 0 }; 2]; 8];
        for (a, &sender) in from.iter().enumerate() {
            for (b, &receiver) in to.iter().enumerate() {
                let end = begin(from.len(), a + 1).min(begin(to.len(), b + 1));
                let samples = end.saturating_sub(begin(from.len(), a).max(begin(to.len(), b)));
                if sender != receiver && samples > 0 {
                    for (rank, end) in [(sender, 0), (receiver, 1)] {
                        let load: &mut Load = &mut of_rank[rank][end];
                        (load.samples, load.messages) = (load.samples + samples, load.messages + 1);
                    }
                }
            }
        }
        let all = of_rank.as_flattened();
        let max = |figure: fn(&Load) -> usize| all.iter().map(figure).max().unwrap_or(0);
        Load { samples: max(|load| load.samples), messages: max(|load| load.messages) }
    }

    #[test]
    fn bound_is_the_minimum_of_all_assignments() {
        for (gpus, batch) in [(3, 3), (3, 7), (4, 4), (4, 6), (4, 9), (5, 5), (5, 8), (5, 12)] {
            for (a, b) in (1..=gpus).flat_map(|a| (1..=gpus).map(move |b| (a, b))) {
                let bound = Load::minimum(batch, a, b);
                // The load does not depend on the names of the ranks.
                let from: Vec<usize> = (0..a).collect();
                let mut min = usize::MAX;
                for to in lists(gpus, b).into_iter().filter(|to| *to != from) {
                    let load = load(batch, &from, &to);
                    assert!(
                        bound.messages <= load.messages,
                        "{batch} from {a} to {to:?}: {bound:?} {load:?}"
                    );
                    min = min.min(load.samples);
                }
                assert!(min == usize::MAX || min == bound.samples, "{batch} from {a} to {b}");
            }
        }
    }
}
