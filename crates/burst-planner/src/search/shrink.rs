//! Smaller tables for a smaller question: what cannot be part of an answer is left out.

use super::cost::Cost;
use super::guide::Guide;
use super::history::History;
use super::labels::{Slack, keep_nondominated};
use super::tables::{Bucket, Child, Costs, Tables};

/// The new number of a state that is no more.
const GONE: u32 = u32::MAX;

/// The part of the tables that choices of at most `bound` under the guide's prices consist of.
///
/// Every such choice is kept; others that are made of the same entries remain, too. Linear in the table entries.
pub(crate) fn within(tables: &Tables, guide: &Guide, bound: f64) -> Tables {
    let mut buckets: Vec<Bucket> = Vec::with_capacity(tables.buckets.len());
    // By old state: the new number within its bucket.
    let mut renumbered = vec![GONE; tables.states];
    let mut kept: Vec<u32> = Vec::new();
    for (bucket, totals) in tables.buckets.iter().zip(guide.through(tables)) {
        kept.clear();
        let mut first = Vec::with_capacity(bucket.states() + 1);
        first.push(0);
        for state in 0..bucket.states() {
            let before = kept.len();
            kept.extend(bucket.entries_of(state).filter_map(|entry| {
                let alive = |child: &Child| renumbered[child.state[entry] as usize] != GONE;
                (totals[entry] <= bound && bucket.children.iter().all(alive)).then_some(entry as u32)
            }));
            if kept.len() > before {
                renumbered[bucket.first_state + state] = first.len() as u32 - 1;
                first.push(kept.len() as u32);
            }
        }
        let pick = |values: &[f64]| kept.iter().map(|&entry| values[entry as usize]).collect();
        let costs = Costs {
            time: pick(&bucket.costs.time),
            gpu: pick(&bucket.costs.gpu),
            memory: bucket.costs.memory.as_deref().map(pick),
        };
        let child = |child: &Child| Child {
            bucket: child.bucket,
            state: kept.iter().map(|&entry| renumbered[child.state[entry as usize] as usize]).collect(),
        };
        buckets.push(Bucket {
            first_state: 0,
            first,
            costs,
            decision: kept.iter().map(|&entry| bucket.decision[entry as usize]).collect(),
            children: bucket.children.iter().map(child).collect(),
        });
    }
    Tables::number(buckets)
}

/// Decides variables for good where that makes the tables smaller.
///
/// A bucket without children is reduced to what nothing else in the same state dominates; then, if few entries are
/// left, they are added to those of its parent, and the bucket is gone. What is decided with a parent is recorded in
/// the history. No optimal choice is lost.
pub(crate) fn fold(tables: Tables, history: &mut History) -> Tables {
    let mut buckets: Vec<Option<Bucket>> = tables.buckets.into_iter().map(Some).collect();
    let mut parent = vec![usize::MAX; buckets.len()];
    for (index, bucket) in buckets.iter_mut().enumerate() {
        let Some(bucket) = bucket else { continue };
        for child in &mut bucket.children {
            parent[child.bucket] = index;
        }
    }
    // States of children are relative from here on.
    let firsts: Vec<u32> = buckets.iter().flatten().map(|bucket| bucket.first_state as u32).collect();
    for bucket in buckets.iter_mut().flatten() {
        for child in &mut bucket.children {
            child.state.iter_mut().for_each(|state| *state -= firsts[child.bucket]);
        }
    }
    for index in 0..buckets.len() {
        let Some(mut bucket) = buckets[index].take() else { continue };
        if bucket.children.is_empty() {
            bucket = undominated(bucket);
        }
        let above = parent[index];
        let folded = match buckets.get(above) {
            Some(Some(parent)) => into_parent(index, &bucket, parent, history),
            _ => None,
        };
        if let Some(folded) = folded {
            for child in &bucket.children {
                parent[child.bucket] = above;
            }
            buckets[above] = Some(folded);
        } else {
            buckets[index] = Some(bucket);
        }
    }
    let mut number = vec![0; buckets.len()];
    let mut kept: Vec<Bucket> = Vec::new();
    for (index, bucket) in buckets.into_iter().enumerate() {
        let Some(mut bucket) = bucket else { continue };
        number[index] = kept.len();
        for child in &mut bucket.children {
            child.bucket = number[child.bucket];
        }
        kept.push(bucket);
    }
    Tables::number(kept)
}

fn undominated(bucket: Bucket) -> Bucket {
    let mut first = vec![0];
    let mut costs = Costs::with_capacity(bucket.entries(), bucket.costs.memory.is_some());
    let mut decision = Vec::with_capacity(bucket.entries());
    let mut entries: Vec<(Cost, u32)> = Vec::new();
    for state in 0..bucket.states() {
        entries.clear();
        entries
            .extend(bucket.entries_of(state).map(|entry| (bucket.costs.get(entry), bucket.decision[entry])));
        if entries.len() > 1 {
            keep_nondominated(&mut entries, |entry| entry.0, Slack::NONE);
        }
        for &(cost, entry) in &entries {
            costs.push(cost);
            decision.push(entry);
        }
        first.push(decision.len() as u32);
    }
    Bucket { first, costs, decision, ..bucket }
}

/// The parent with the child's entries added to its own, unless that takes more room than both do now.
fn into_parent(index: usize, child: &Bucket, parent: &Bucket, history: &mut History) -> Option<Bucket> {
    let link = parent.children.iter().find(|link| link.bucket == index)?;
    let entries: usize = link.state.iter().map(|&state| child.entries_of(state as usize).len()).sum();
    if entries > parent.entries() + child.entries() {
        return None;
    }
    let mut folded = Bucket {
        first_state: 0,
        first: vec![0],
        costs: Costs::with_capacity(entries, parent.costs.memory.is_some()),
        decision: Vec::with_capacity(entries),
        children: Vec::new(),
    };
    // By new entry, the entries of both that it is made of.
    let mut parts: Vec<(u32, u32)> = Vec::with_capacity(entries);
    for state in 0..parent.states() {
        for entry in parent.entries_of(state) {
            let own = parent.costs.get(entry);
            for below in child.entries_of(link.state[entry] as usize) {
                folded.costs.push(own.plus(child.costs.get(below)));
                folded.decision.push(history.join(parent.decision[entry], child.decision[below]));
                parts.push((entry as u32, below as u32));
            }
        }
        folded.first.push(parts.len() as u32);
    }
    let kept = parent.children.iter().filter(|link| link.bucket != index).map(|link| Child {
        bucket: link.bucket,
        state: parts.iter().map(|&(entry, _)| link.state[entry as usize]).collect(),
    });
    let adopted = child.children.iter().map(|link| Child {
        bucket: link.bucket,
        state: parts.iter().map(|&(_, below)| link.state[below as usize]).collect(),
    });
    folded.children = kept.chain(adopted).collect();
    Some(folded)
}
