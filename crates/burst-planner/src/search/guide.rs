//! Cheapest completions under fixed prices: what a partial choice costs at least when it is completed.
//!
//! One pass over the tables in elimination order gives the cheapest value of everything below a state (*inside*),
//! a second one in reverse the cheapest value of everything else (*outside*). Their sum is a lower bound for every
//! complete choice that goes through the state. Time of a pass: table entries times children.

use super::cost::{Cost, Prices};
use super::history::History;
use super::tables::{Bucket, Tables};

/// Lower bounds for every state under one set of prices.
pub(crate) struct Guide {
    pub(crate) prices: Prices,
    /// By state.
    pub(crate) inside: Vec<f64>,
    /// By state.
    pub(crate) outside: Vec<f64>,
    /// For the entries of all buckets, the last bucket's first: the least that a complete choice with it costs.
    through: Vec<f64>,
}

impl Guide {
    pub(crate) fn new(tables: &Tables, prices: Prices) -> Self {
        let inside = inside(tables, prices);
        let mut outside = vec![f64::INFINITY; tables.states];
        if let Some(root) = outside.last_mut() {
            *root = 0.0;
        }
        let mut through = Vec::with_capacity(tables.entries());
        for bucket in tables.buckets.iter().rev() {
            let first = through.len();
            append_values(bucket, prices, &inside, &mut through);
            let totals = &mut through[first..];
            // Children stand before their parents, so this bucket's own states are final.
            let outside_own = &outside[bucket.first_state..bucket.first_state + bucket.states()];
            for (of, outside) in bucket.first.windows(2).zip(outside_own) {
                for total in &mut totals[of[0] as usize..of[1] as usize] {
                    *total += outside;
                }
            }
            for child in &bucket.children {
                for (&total, &state) in totals.iter().zip(&child.state) {
                    let without = total - inside[state as usize];
                    let best = &mut outside[state as usize];
                    if without < *best {
                        *best = without;
                    }
                }
            }
        }
        Self { prices, inside, outside, through }
    }

    /// For every entry of every bucket, buckets in elimination order: the least that a complete choice with it costs.
    pub(crate) fn through<'g>(&'g self, tables: &'g Tables) -> impl Iterator<Item = &'g [f64]> {
        let mut end = self.through.len();
        tables.buckets.iter().map(move |bucket| {
            let from = end - bucket.entries();
            &self.through[from..std::mem::replace(&mut end, from)]
        })
    }
}

/// A choice that minimises the priced sum, as an entry of the history, what it costs, and its value.
/// Ties go to the entry that comes first. `None` when there is no choice.
pub(crate) fn cheapest(tables: &Tables, prices: Prices, history: &mut History) -> Option<(f64, Cost, u32)> {
    let inside = inside(tables, prices);
    let optimum = *inside.last()?;
    if optimum.is_infinite() {
        return None;
    }
    let mut chosen = vec![0; tables.buckets.len()];
    let mut cost = Cost::ZERO;
    let mut all: Option<u32> = None;
    for (index, bucket) in tables.buckets.iter().enumerate().rev() {
        let mut best = (f64::INFINITY, 0);
        for entry in bucket.entries_of(chosen[index]) {
            let below = bucket.children.iter().map(|child| inside[child.state[entry] as usize]);
            let value = prices.of(bucket.costs.get(entry)) + below.sum::<f64>();
            if value < best.0 {
                best = (value, entry);
            }
        }
        let entry = best.1;
        cost = cost.plus(bucket.costs.get(entry));
        let decision = bucket.decision[entry];
        all = Some(all.map_or(decision, |all| history.join(all, decision)));
        for child in &bucket.children {
            chosen[child.bucket] = child.state[entry] as usize - tables.buckets[child.bucket].first_state;
        }
    }
    all.map(|all| (optimum, cost, all))
}

fn inside(tables: &Tables, prices: Prices) -> Vec<f64> {
    let mut inside: Vec<f64> = Vec::with_capacity(tables.states);
    let mut values = Vec::new();
    for bucket in &tables.buckets {
        values.clear();
        append_values(bucket, prices, &inside, &mut values);
        let smallest = |of: &[u32]| {
            let least = |best: f64, &value: &f64| if value < best { value } else { best };
            values[of[0] as usize..of[1] as usize].iter().fold(f64::INFINITY, least)
        };
        inside.extend(bucket.first.windows(2).map(smallest));
    }
    inside
}

/// Every entry's own cost and the cheapest values below it.
fn append_values(bucket: &Bucket, prices: Prices, inside: &[f64], values: &mut Vec<f64>) {
    let first = values.len();
    bucket.costs.append_priced(prices, values);
    for child in &bucket.children {
        for (value, &state) in values[first..].iter_mut().zip(&child.state) {
            *value += inside[state as usize];
        }
    }
}
