//! Cheapest completions under fixed prices: what a partial choice costs at least when it is completed.
//!
//! One pass over the tables in elimination order gives the cheapest value of everything below a state (*inside*),
//! a second one in reverse the cheapest value of everything else (*outside*). Their sum is a lower bound for every
//! complete choice that goes through the state. Time of a pass: table entries times children.

use super::cost::Prices;
use super::elimination::{Bucket, Model};

/// Lower bounds for every state of every bucket under one set of prices.
pub(crate) struct Guide {
    pub(crate) prices: Prices,
    pub(crate) inside: Vec<Vec<f64>>,
    pub(crate) outside: Vec<Vec<f64>>,
}

impl Guide {
    pub(crate) fn new(model: &Model, prices: Prices) -> Self {
        let inside = inside(model, prices);
        let mut outside: Vec<Vec<f64>> =
            inside.iter().map(|states| vec![f64::INFINITY; states.len()]).collect();
        if let Some(root) = outside.last_mut() {
            root.fill(0.0);
        }
        for (index, bucket) in model.buckets.iter().enumerate().rev() {
            // Children stand before their parents, so this bucket's own row is final.
            let (below, own) = outside.split_at_mut(index);
            for entry in 0..bucket.base.len() {
                let total = own[0][entry / bucket.options] + value(bucket, entry, prices, &inside);
                for child in &bucket.children {
                    let state = child.state[entry] as usize;
                    let without = total - inside[child.bucket][state];
                    let best = &mut below[child.bucket][state];
                    *best = best.min(without);
                }
            }
        }
        Self { prices, inside, outside }
    }
}

/// A choice that minimises the priced sum, and its value. Ties go to the option that comes first.
pub(crate) fn cheapest(model: &Model, prices: Prices) -> (f64, Vec<usize>) {
    let inside = inside(model, prices);
    let value_of_all = inside.last().map_or(0.0, |root| root[0]);
    let mut choice = vec![0; model.buckets.len()];
    let mut state = vec![0; model.buckets.len()];
    for (index, bucket) in model.buckets.iter().enumerate().rev() {
        let first = state[index] * bucket.options;
        let mut best = (f64::INFINITY, first);
        for entry in first..first + bucket.options {
            let value = value(bucket, entry, prices, &inside);
            if value < best.0 {
                best = (value, entry);
            }
        }
        choice[bucket.node] = best.1 - first;
        for child in &bucket.children {
            state[child.bucket] = child.state[best.1] as usize;
        }
    }
    (value_of_all, choice)
}

fn inside(model: &Model, prices: Prices) -> Vec<Vec<f64>> {
    let mut inside: Vec<Vec<f64>> = Vec::with_capacity(model.buckets.len());
    for bucket in &model.buckets {
        let best = |state: usize| {
            let entries = state * bucket.options..(state + 1) * bucket.options;
            entries.map(|entry| value(bucket, entry, prices, &inside)).fold(f64::INFINITY, f64::min)
        };
        let states = (0..bucket.states).map(best).collect();
        inside.push(states);
    }
    inside
}

/// The entry's own cost and the cheapest values below it.
fn value(bucket: &Bucket, entry: usize, prices: Prices, inside: &[Vec<f64>]) -> f64 {
    let below = bucket.children.iter().map(|child| inside[child.bucket][child.state[entry] as usize]);
    prices.of(bucket.base[entry]) + below.sum::<f64>()
}
