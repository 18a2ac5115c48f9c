//! Initial arrangements with fewer and fewer GPUs along the order. With slow communication, late
//! nodes with many parameters belong on few ranks. A *border* is a place in the order at which the
//! ranks change.

use std::rc::Rc;

use super::seeds::SUFFIX_LENGTHS;
use super::stage::SearchStage;
use crate::Result;
use crate::evaluator::{Evaluator, NumberedArrangement};
use crate::groups::GroupId;

/// Maximum number of places at which a border is tried.
const MAX_BORDERS: usize = 36;

/// An arrangement in which the first nodes in topological order run on the first group, the next
/// ones on a smaller one and the last ones on the smallest one. Each group is a list of the first
/// ranks. The search moves the two borders between the nodes.
#[derive(Clone)]
pub(super) struct Staircase {
    order: Rc<[u32]>,
    groups: [GroupId; 3],
    /// Numbers of nodes before the second and before the third group.
    borders: [usize; 2],
}

impl Staircase {
    /// Returns staircases whose first group has `gpus` ranks. There is one list for each pair of
    /// the three largest powers of two in `counts` below `gpus`, which are the sizes of the other
    /// two groups. The staircases of a list differ in the number of last nodes, which are on the
    /// smallest group; no nodes are on the middle one. Sizes that a node cannot run on are left
    /// out.
    pub(super) fn all(evaluator: &mut Evaluator<'_>, gpus: usize, counts: &[usize]) -> Vec<Vec<Self>> {
        let order = Rc::clone(evaluator.own_order());
        let powers = counts.iter().copied().filter(|&count| count < gpus && count.is_power_of_two());
        // The largest counts; smaller ones were tried with fewer GPUs.
        let narrow: Vec<usize> = powers.clone().skip(powers.count().saturating_sub(3)).collect();
        let mut all = Vec::new();
        for (index, &minimum) in narrow.iter().enumerate() {
            for &middle in &narrow[index + 1..] {
                let groups = [gpus, middle, minimum].map(|count| evaluator.range(0, count));
                let is_option =
                    |&group: &GroupId| (0..order.len()).all(|node| evaluator.is_option(node, group));
                if groups.iter().all(is_option) {
                    let lengths = SUFFIX_LENGTHS.into_iter().take_while(|&length| length < order.len());
                    let borders = lengths.map(|length| [order.len() - length; 2]);
                    let with = |borders| Self { order: Rc::clone(&order), groups, borders };
                    all.push(borders.map(with).collect());
                }
            }
        }
        all
    }

    /// Returns the arrangement of all nodes.
    pub(super) fn arrangement(&self) -> NumberedArrangement {
        let mut groups = vec![self.groups[0]; self.order.len()];
        for (place, &node) in self.order.iter().enumerate() {
            groups[node as usize] =
                self.groups[self.borders.iter().filter(|&&border| place >= border).count()];
        }
        NumberedArrangement { groups, splits: None, order: Rc::clone(&self.order) }
    }

    /// Returns staircases with the first border at each place before the second one, or at up to
    /// `maximum` of these places, evenly spaced.
    pub(super) fn with_first_border_anywhere(&self, maximum: usize) -> impl Iterator<Item = Self> + use<> {
        let (staircase, end) = (self.clone(), self.borders[1]);
        let places = (0..end).step_by(end.div_ceil(maximum).max(1));
        places.map(move |first| Self { borders: [first, end], ..staircase.clone() })
    }

    /// Returns the staircase with the first and the second border moved by `by` places, or `None`
    /// if a border would then be outside the order or they would cross.
    pub(super) fn moved(&self, by: [isize; 2]) -> Option<Self> {
        let first = self.borders[0].checked_add_signed(by[0])?;
        let second = self.borders[1].checked_add_signed(by[1])?;
        (first <= second && second <= self.order.len())
            .then(|| Self { borders: [first, second], ..self.clone() })
    }
}

impl SearchStage<'_> {
    /// Finds the best of the given staircases and moves its borders while that shortens the
    /// iteration. The first border is tried everywhere: gradients fill whole buckets, so a border
    /// can be good at one place and bad at the next one. All arrangements that are tried are
    /// offered to the archive.
    pub(super) fn place_borders(&mut self, staircases: Vec<Staircase>) -> Result<()> {
        let mut best: Option<(f64, Staircase)> = None;
        for staircase in staircases {
            let time_us = self.evaluate(&staircase.arrangement())?.iteration_us();
            if best.as_ref().is_none_or(|&(best_us, _)| time_us < best_us) {
                best = Some((time_us, staircase));
            }
        }
        let Some(mut best) = best else { return Ok(()) };
        for everywhere in best.1.with_first_border_anywhere(MAX_BORDERS) {
            let time_us = self.evaluate(&everywhere.arrangement())?.iteration_us();
            if time_us < best.0 {
                best = (time_us, everywhere);
            }
        }
        self.climb(&mut best)
    }

    /// Moves borders by long steps, then by short ones.
    fn climb(&mut self, (best_us, staircase): &mut (f64, Staircase)) -> Result<()> {
        let mut by = 1_isize;
        while by.unsigned_abs() * 24 <= staircase.order.len() {
            by *= 2;
        }
        while by > 0 {
            for by in [[by, 0], [-by, 0], [0, by], [0, -by], [by, by], [-by, -by]] {
                while let Some(moved) = staircase.moved(by) {
                    let time_us = self.evaluate(&moved.arrangement())?.iteration_us();
                    if time_us >= *best_us {
                        break;
                    }
                    (*best_us, *staircase) = (time_us, moved);
                }
            }
            by /= 2;
        }
        Ok(())
    }
}
