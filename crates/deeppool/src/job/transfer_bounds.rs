//! What redistributing a batch loads on some rank at least, whichever ranks have it.

use std::ops::Range;

/// Samples, and the messages that they are sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) samples: usize,
    pub(super) messages: usize,
}

/// What the busiest rank sends or receives at least when a batch goes from some ranks to others, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeastLoad {
    /// Whichever ranks these are.
    pub(super) any: Load,
    /// Where neither are all among the others.
    pub(super) apart: Load,
}

impl LeastLoad {
    /// Of two different lists with so many ranks, at most as many as there are samples. O((`from` + `to`) x most samples of a rank).
    pub(super) fn new(batch: usize, from: usize, to: usize) -> Self {
        let (narrow, wide) = (from.min(to), from.max(to));
        let overlaps = overlaps(batch, narrow, wide);
        // A rank of the shorter list has one of the shares that its own one meets, or none of them; all others come to it one by one.
        let messages = |shares: &[(usize, usize)]| shares.len() - 1;
        let most = overlaps.iter().map(|shares| messages(shares)).max().unwrap_or(0).max(1);
        let fewest = overlaps.iter().map(Vec::len).min().unwrap_or(1);
        // Some rank of the longer list is not in the other one, or at another place.
        let mut samples = batch / wide;
        let share = |ranks: usize, rank: usize| batch / ranks + usize::from(rank < batch % ranks);
        while !is_possible(&overlaps, samples, |rank| share(narrow, rank), |rank| share(wide, rank)) {
            samples += 1;
        }
        Self {
            any: Load { samples, messages: most },
            // A rank that is in the shorter list alone has nothing of what it gets.
            apart: Load { samples: samples.max(batch / narrow), messages: most.max(fewest) },
        }
    }

    /// Where the shorter one of the lists is chosen from the longer one, and so many of its ranks have the larger share there.
    pub(super) fn among(self, batch: usize, (narrow, wide): (usize, usize), larger: usize) -> Load {
        let Load { mut samples, messages } = self.any;
        let overlaps = overlaps(batch, narrow, wide);
        while !is_possible_among(&overlaps, samples, (batch % wide, larger)) {
            samples += 1;
        }
        Load { samples, messages }
    }
}

/// By rank of the shorter list: the ranks of the longer one with whose shares its own one has samples in common, and how many.
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

/// Whether the shorter list could be chosen from the longer one so that no rank sends or receives more than so many samples.
///
/// Each of its ranks then keeps all but as many, and a rank that has more is in it. Both can be if each of them can be: two matchings of
/// a bipartite graph, one of which covers some nodes on one side and the other one some on the other side, are as good as one that
/// covers all of these (N. Mendelsohn, A. Dulmage, Canadian Journal of Mathematics 10, 1958). As shares are in order, so are the partners
/// that they may have: each takes the first that is free.
fn is_possible(
    overlaps: &[Vec<(usize, usize)>],
    most: usize,
    narrow: impl Fn(usize) -> usize,
    wide: impl Fn(usize) -> usize,
) -> bool {
    let is_kept = |rank: usize, kept: usize| kept > 0 && narrow(rank) - kept <= most;
    if !have_partners(&keeping(overlaps, most), 0..usize::MAX, most) {
        return false;
    }
    let mut is_taken = vec![false; overlaps.len()];
    let pairs = overlaps
        .iter()
        .enumerate()
        .flat_map(|(rank, shares)| shares.iter().map(move |&(other, kept)| (other, rank, kept)));
    let mut pairs: Vec<(usize, usize, usize)> =
        pairs.filter(|&(other, rank, kept)| wide(other) > most && is_kept(rank, kept)).collect();
    pairs.sort_unstable();
    let many = overlaps.iter().flatten().map(|&(other, _)| other).filter(|&other| wide(other) > most);
    let mut many: Vec<usize> = many.collect();
    many.dedup();
    many.into_iter().all(|other| {
        let begin = pairs.partition_point(|&(first, ..)| first < other);
        let mut own = pairs[begin..].iter().take_while(|&&(first, ..)| first == other);
        let partner = own.find(|&&(_, rank, _)| !is_taken[rank]);
        partner.map(|&(_, rank, _)| is_taken[rank] = true).is_some()
    })
}

/// Ranks of the shorter list that must have samples of their own already, not to receive more than so many: their overlaps.
fn keeping(overlaps: &[Vec<(usize, usize)>], most: usize) -> Vec<&[(usize, usize)]> {
    overlaps.iter().map(Vec::as_slice).filter(|shares| share(shares) > most).collect()
}

/// The samples of a rank of the shorter list.
fn share(shares: &[(usize, usize)]) -> usize {
    shares.iter().map(|&(_, kept)| kept).sum()
}

/// Whether these ranks of the shorter list can be ranks of the longer one at these places, each of which has all but `most` of its samples.
/// As shares are in order, each takes the first that is free.
fn have_partners(ranks: &[&[(usize, usize)]], places: Range<usize>, most: usize) -> bool {
    let mut next = places.start;
    ranks.iter().all(|shares| {
        let own = share(shares);
        let is_partner =
            |&&(other, kept): &&(usize, usize)| (next..places.end).contains(&other) && own - kept <= most;
        let partner = shares.iter().find(is_partner);
        partner.map(|&(other, _)| next = other + 1).is_some()
    })
}

/// Whether the shorter list could be chosen from the longer one so that no rank of it receives more than so many samples, and `larger` of
/// its ranks are among the `first` ones of the longer list.
///
/// As shares are in order, the first ranks of the shorter list have these.
fn is_possible_among(overlaps: &[Vec<(usize, usize)>], most: usize, (first, larger): (usize, usize)) -> bool {
    // The others may be anywhere.
    let keeping = keeping(overlaps, most);
    let others = overlaps.len() - keeping.len();
    (larger.saturating_sub(others)..=larger.min(keeping.len())).any(|of_first| {
        have_partners(&keeping[..of_first], 0..first, most)
            && have_partners(&keeping[of_first..], first..usize::MAX, most)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lists of so many ranks out of `gpus`.
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

    /// The most samples and the most messages that a rank sends or receives.
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
        let most = |figure: fn(&Load) -> usize| all.iter().map(figure).max().unwrap_or(0);
        Load { samples: most(|load| load.samples), messages: most(|load| load.messages) }
    }

    #[test]
    fn nothing_loads_ranks_less() {
        let mut closest = 0;
        for (gpus, batch) in [(3, 3), (3, 7), (4, 4), (4, 6), (4, 9), (5, 5), (5, 8), (5, 12)] {
            for (a, b) in (1..=gpus).flat_map(|a| (1..=gpus).map(move |b| (a, b))) {
                let least = LeastLoad::new(batch, a, b);
                // Which ranks are which does not matter.
                let from: Vec<usize> = (0..a).collect();
                let mut fewest = usize::MAX;
                for to in lists(gpus, b).into_iter().filter(|to| *to != from) {
                    let load = load(batch, &from, &to);
                    let is_part =
                        |one: &[usize], other: &[usize]| one.iter().all(|rank| other.contains(rank));
                    let bound =
                        if is_part(&from, &to) || is_part(&to, &from) { least.any } else { least.apart };
                    assert!(bound.samples <= load.samples, "{batch} from {a} to {to:?}: {bound:?} {load:?}");
                    assert!(
                        bound.messages <= load.messages,
                        "{batch} from {a} to {to:?}: {bound:?} {load:?}"
                    );
                    fewest = fewest.min(load.samples);
                    if is_part(&to, &from) && b < a && batch % a > 0 {
                        let larger = to.iter().filter(|&&rank| rank < batch % a).count();
                        let among = least.among(batch, (b, a), larger);
                        assert!(
                            among.samples <= load.samples,
                            "{batch} from {a} to {to:?}: {among:?} {load:?}"
                        );
                        closest = closest.max(among.samples - least.any.samples);
                    }
                }
                assert!(fewest == usize::MAX || fewest == least.any.samples, "{batch} from {a} to {b}");
            }
        }
        assert!(closest > 0, "it matters how many have the larger share");
    }
}
