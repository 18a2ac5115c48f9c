//! Initial arrangements for nodes that share parameters, such as a recurrent layer at the steps of
//! a sequence: all users of the same parameters are on one rank, so that these need no all-reduce.
//! A *unit* has all users of the same parameters, with nodes without parameters next to them.

use std::rc::Rc;

use super::stage::SearchStage;
use crate::Result;
use crate::evaluator::{Evaluator, NumberedArrangement};
use crate::groups::GroupId;

/// Minimum number of users of the same parameters. With fewer, moves of single nodes find the same
/// arrangements.
const MIN_USERS: usize = 3;

/// Returns the unit of each node: all users of the same parameters, with nodes without parameters
/// after them, or before. `None` if no parameters have `MIN_USERS` users.
fn units(evaluator: &Evaluator<'_>) -> Option<Vec<usize>> {
    let structure = evaluator.structure();
    let nodes = structure.order.len();
    let mut units: Vec<Option<usize>> = vec![None; nodes];
    let shared = structure.users.iter().filter(|users| users.len() >= MIN_USERS);
    for (unit, users) in shared.enumerate() {
        for &user in users {
            units[user] = Some(unit);
        }
    }
    let mut count = units.iter().flatten().max()? + 1;
    for &node in &structure.order {
        let has_own = !structure.users[node].is_empty();
        let before = structure.producers[node].last().filter(|_| !has_own).and_then(|&before| units[before]);
        let after = structure.consumers[node].first().filter(|_| !has_own).and_then(|&after| units[after]);
        units[node] = units[node].or(before).or(after).or_else(|| {
            count += 1;
            Some(count - 1)
        });
    }
    units.into_iter().collect()
}

impl SearchStage<'_> {
    /// Evaluates arrangements with each unit on one of the first `gpus` ranks. Starts with all
    /// units on one rank, with a cyclic assignment and with equal parts of their order, and moves
    /// units while that shortens the iteration. Does nothing if no parameters have at least three
    /// users. O(units x ranks) evaluations per round. Fails as an evaluation does.
    pub(super) fn place_parameter_users(&mut self, gpus: usize) -> Result<()> {
        let Some(units) = units(&self.evaluator) else { return Ok(()) };
        let count = units.iter().max().map_or(0, |&last| last + 1);
        let ranks: Vec<GroupId> = (0..gpus.min(count)).map(|rank| self.evaluator.range(rank, 1)).collect();
        let can_run = |node: usize| ranks.iter().all(|&rank| self.evaluator.is_option(node, rank));
        if gpus < 2 || !(0..units.len()).all(can_run) {
            return Ok(());
        }
        let order = Rc::clone(self.evaluator.own_order());
        let numbered = |places: &[usize]| NumberedArrangement {
            groups: units.iter().map(|&unit| ranks[places[unit]]).collect(),
            splits: None,
            order: Rc::clone(&order),
        };
        let all = ranks.len();
        let starts: [fn(usize, usize, usize) -> usize; 3] =
            [|_, _, _| 0, |unit, _, all| unit % all, |unit, count, all| unit * all / count];
        for start in starts {
            let mut places: Vec<usize> = (0..count).map(|unit| start(unit, count, all)).collect();
            let mut best_us = self.evaluate(&numbered(&places))?.iteration_us();
            loop {
                let before_us = best_us;
                for unit in 0..count {
                    for place in 0..all {
                        let now = std::mem::replace(&mut places[unit], place);
                        if now == place {
                            continue;
                        }
                        let tried_us = self.evaluate(&numbered(&places))?.iteration_us();
                        if tried_us < best_us {
                            best_us = tried_us;
                        } else {
                            places[unit] = now;
                        }
                    }
                }
                if best_us >= before_us {
                    break;
                }
            }
        }
        Ok(())
    }
}
