//! The bound of a graph that begins with one node: the nodes that all paths go through one after another, and the parts between
//! them.

use super::branches::{Branches, Prices};
use super::{Bound, BoundNode};

/// How often another price of GPU time is tried.
const PRICINGS: usize = 8;

/// What follows on one another.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Node(usize),
    Part(Branches),
}

/// The items of a graph; none where it does not begin with one node that learns.
pub(super) fn items(nodes: &[BoundNode], parts: &[Vec<usize>]) -> Vec<Item> {
    let begins = matches!(parts.first(), Some(part) if part.len() == 1 && nodes[part[0]].learns);
    if !begins {
        return Vec::new();
    }
    let mut items = Vec::with_capacity(parts.len());
    let mut fork = 0;
    for (index, part) in parts.iter().enumerate() {
        if let [only] = part[..] {
            fork = only;
            items.push(Item::Node(only));
        } else {
            let join = parts.get(index + 1).map(|next| next[0]);
            items.push(Item::Part(Branches::new(nodes, part, fork, join)));
        }
    }
    items
}

impl Bound {
    /// No arrangement whose first node takes this option, and whose GPU time is within the budget, is faster. It is not looked for
    /// beyond `enough`.
    pub(super) fn series_within_case(&self, first: usize, budget_us: f64, enough: f64) -> f64 {
        let ranks = self.nodes[0].options[first].larger;
        let at = |gpu_time: f64| {
            let value = self.series_value(first, Prices { gpu_time, ranks });
            if gpu_time > 0.0 { value - gpu_time * budget_us } else { value }
        };
        let mut best = at(0.0);
        // The value is concave in the price, nearly: the price goes up while that helps, and then down by smaller steps.
        let (mut price, mut factor) = (0.02 / self.gpus, 6.0);
        let mut best_price = 0.0;
        for _ in 0..PRICINGS {
            if best >= enough {
                break;
            }
            let value = at(price);
            if value > best {
                (best, best_price) = (value, price);
                price *= factor;
            } else if best_price <= 0.0 {
                break;
            } else {
                factor = f64::sqrt(factor);
                price = best_price * factor;
            }
        }
        best
    }

    /// The least value of the series at these prices.
    fn series_value(&self, first: usize, prices: Prices) -> f64 {
        let own = |place: usize| {
            let options = self.nodes[place].options.iter();
            options
                .map(|option| option.forward_us + option.backward_us + self.added(option, prices, 0.0))
                .collect::<Vec<f64>>()
        };
        let mut values = own(0);
        values
            .iter_mut()
            .enumerate()
            .filter(|(option, _)| *option != first)
            .for_each(|(_, value)| *value = f64::INFINITY);
        let mut pending: Option<Vec<Vec<f64>>> = None;
        for item in &self.items[1..] {
            match item {
                Item::Part(part) => pending = Some(self.part_values(part, prices)),
                Item::Node(place) => {
                    let part = pending.take();
                    let mut next = own(*place);
                    for (to, own) in next.iter_mut().enumerate() {
                        let between = |from: usize| match &part {
                            Some(part) => part[from][to],
                            None => {
                                let (there, back) = self.nodes[*place].transfers[from][to];
                                there + back
                            }
                        };
                        let arrive = values.iter().enumerate().map(|(from, value)| value + between(from));
                        *own += arrive.fold(f64::INFINITY, f64::min);
                    }
                    values = next;
                }
            }
        }
        if let Some(part) = pending {
            values.iter_mut().zip(&part).for_each(|(value, row)| *value += row[0]);
        }
        values.into_iter().fold(f64::INFINITY, f64::min)
    }
}
