//! The search when a memory limit can bind and branches run at once: what a rank holds depends on where branches sit.
//!
//! Partial plans carry what every rank holds, and only those that are no worse on any rank dominate others. There are no
//! bounds to guide this search, so it is for small problems; [`SearchOptions::max_labels`](super::SearchOptions) ends it.

use super::cost::Cost;
use super::history::{Decision, History};
use super::tables::Tables;
use crate::PlanProblem;
use crate::waves::RegionTable;

/// The search kept more labels than it may.
pub(crate) struct TooManyLabels;

/// A partial plan.
#[derive(Clone)]
struct Label {
    cost: Cost,
    /// By rank.
    bytes: Vec<u64>,
    history: u32,
}

/// All plans within the limit that nothing dominates in both times, by their cost and their entry in the history.
pub(crate) fn search(
    problem: &PlanProblem,
    tables: &Tables,
    regions: &[RegionTable],
    decisions: &[Decision],
    history: &mut History,
    limit_bytes: u64,
    max_labels: usize,
) -> Result<Vec<(Cost, u32)>, TooManyLabels> {
    let mark = history.mark();
    let mut done: Vec<Vec<Label>> = vec![Vec::new(); tables.states];
    for bucket in &tables.buckets {
        for state in 0..bucket.states() {
            let mut labels: Vec<Label> = Vec::new();
            for entry in bucket.entries_of(state) {
                let decision = bucket.decision[entry];
                let bytes = held(problem, regions, decisions[decision as usize]);
                let mut partial = vec![Label { cost: bucket.costs.get(entry), bytes, history: decision }];
                for child in &bucket.children {
                    let below = &done[child.state[entry] as usize];
                    let sums = partial.iter().flat_map(|one| below.iter().map(move |other| (one, other)));
                    let sums = sums.filter_map(|(one, other)| {
                        let bytes: Vec<u64> =
                            one.bytes.iter().zip(&other.bytes).map(|(a, b)| a.saturating_add(*b)).collect();
                        let cost = one.cost.plus(other.cost);
                        bytes.iter().all(|&bytes| bytes <= limit_bytes).then(|| Label {
                            cost,
                            bytes,
                            history: history.join(one.history, other.history),
                        })
                    });
                    partial = sums.collect();
                    keep_nondominated(&mut partial);
                }
                labels.extend(
                    partial.into_iter().filter(|label| label.bytes.iter().all(|&b| b <= limit_bytes)),
                );
            }
            keep_nondominated(&mut labels);
            if history.since(mark) > max_labels {
                return Err(TooManyLabels);
            }
            done[bucket.first_state + state] = labels;
        }
    }
    let root = done.pop().unwrap_or_default();
    Ok(root.into_iter().map(|label| (label.cost, label.history)).collect())
}

/// What a decision puts on every rank.
fn held(problem: &PlanProblem, regions: &[RegionTable], decision: Decision) -> Vec<u64> {
    let (variable, value) = (decision.variable as usize, decision.value as usize);
    let mut bytes = vec![0; problem.gpus];
    if let Some(node) = problem.nodes.get(variable) {
        let option = &node.options[value];
        bytes[..option.gpus].fill(option.memory_bytes.unwrap_or(0));
    } else if let Some(of_region) = regions[variable - problem.nodes.len()].bytes(value) {
        bytes.copy_from_slice(of_region);
    }
    bytes
}

fn keep_nondominated(labels: &mut Vec<Label>) {
    labels.sort_by(|a, b| a.cost.time.total_cmp(&b.cost.time).then(a.cost.gpu.total_cmp(&b.cost.gpu)));
    let mut kept: Vec<Label> = Vec::with_capacity(labels.len());
    for label in labels.drain(..) {
        let dominates = |other: &Label| {
            other.cost.gpu <= label.cost.gpu && other.bytes.iter().zip(&label.bytes).all(|(a, b)| a <= b)
        };
        if !kept.iter().any(dominates) {
            kept.push(label);
        }
    }
    *labels = kept;
}
