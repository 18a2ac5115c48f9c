//! One problem that is searched: what was found, and how it is changed.

use std::rc::Rc;

use rand_chacha::ChaCha8Rng;

use super::super::costs::TrainingCosts;
use super::super::evaluator::{Evaluator, Numbered, TrainingTime};
use super::archive::Archive;
use super::moves::{Moves, below, in_lanes};
use super::shape::Shape;
use crate::Result;

/// Multiples of the single-GPU time that GPU time is kept within, in turns.
const BUDGETS: [f64; 10] = [f64::INFINITY, 1.02, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.5];

/// After so many changes that nothing came of, none are tried.
const PATIENCE: usize = 3_000;
/// How much slower, counted in arrangements of the archive, the other one may be where two are joined.
const NEIGHBOURS: usize = 4;

/// A problem with what has been found for it so far.
pub(super) struct Stage<'p, C> {
    pub(super) evaluator: Evaluator<'p, C>,
    pub(super) shape: Shape,
    pub(super) archive: Archive,
    single_gpu_us: f64,
}

impl<'p, C: TrainingCosts> Stage<'p, C> {
    pub(super) fn new(evaluator: Evaluator<'p, C>, single_gpu_us: f64) -> Self {
        let shape = Shape::new(evaluator.problem(), evaluator.structure());
        Self { evaluator, shape, archive: Archive::default(), single_gpu_us }
    }

    pub(super) fn offer(&mut self, numbered: &Numbered) -> Result<TrainingTime> {
        let (time, _) = self.evaluator.time(numbered)?;
        self.archive.offer(time, numbered);
        Ok(time)
    }

    /// Every node on the first ranks, where the costs know so many, and if wished only where all nodes have it as an option.
    pub(super) fn data_parallel(&mut self, gpus: usize, only_options: bool) -> Result<()> {
        let group = self.evaluator.range(0, gpus);
        let nodes = self.evaluator.problem().nodes.len();
        let can_run = |node: usize| {
            if only_options {
                self.evaluator.is_option(node, group)
            } else {
                self.evaluator.knows(node, group)
            }
        };
        if (0..nodes).all(can_run) {
            let order = Rc::clone(self.evaluator.own_order());
            self.offer(&Numbered { groups: vec![group; nodes], order })?;
        }
        Ok(())
    }

    /// Lets branches run at the same time where that makes the iteration shorter.
    pub(super) fn spread_branches(&mut self, mut from: Numbered, gpus: usize) -> Result<()> {
        let mut best = self.offer(&from)?;
        for index in 0..self.shape.parallels.len() {
            let parallel = &self.shape.parallels[index];
            let branches = parallel.branches.len();
            let spread: Vec<Numbered> = (2..=branches)
                .filter_map(|lanes| in_lanes(&mut self.evaluator, &from, parallel, gpus, lanes))
                .collect();
            for candidate in spread {
                let time = self.offer(&candidate)?;
                if time.iteration_us < best.iteration_us {
                    (best, from) = (time, candidate);
                }
            }
        }
        Ok(())
    }

    /// Changes the best arrangements within budgets of GPU time, `steps` times in all. A change that makes an arrangement worse by
    /// less than `threshold`, relatively, is kept at first, later only what makes it better (threshold accepting: G. Dueck,
    /// T. Scheuer, Journal of Computational Physics 90, 1990).
    pub(super) fn improve(
        &mut self,
        gpus: usize,
        steps: usize,
        threshold: f64,
        random: &mut ChaCha8Rng,
    ) -> Result<()> {
        for budget in BUDGETS {
            self.improve_within(
                gpus,
                budget * self.single_gpu_us,
                steps.div_ceil(BUDGETS.len()),
                threshold,
                random,
            )?;
        }
        Ok(())
    }

    fn improve_within(
        &mut self,
        gpus: usize,
        budget_us: f64,
        steps: usize,
        threshold: f64,
        random: &mut ChaCha8Rng,
    ) -> Result<()> {
        let Some(best) = self.archive.within(budget_us).or(self.archive.entries().last()) else {
            return Ok(());
        };
        let score = |time: TrainingTime| {
            let over = (time.gpu_time_us / budget_us).max(1.0);
            time.iteration_us * over.powi(3)
        };
        let (mut now, mut now_score) = (best.numbered.clone(), score(best.time));
        for step in 0..steps {
            let moves = Moves { shape: &self.shape, gpus };
            let Some(changed) = moves.draw(&mut self.evaluator, &now, random) else { continue };
            let changed_score = score(self.offer(&changed)?);
            let left = 1.0 - step as f64 / steps as f64;
            if changed_score < now_score * (1.0 + threshold * left * left) {
                (now, now_score) = (changed, changed_score);
            }
        }
        Ok(())
    }

    /// Changes arrangements of the archive, drawn by chance: by one, two or more changes at once (a simple evolutionary multi-objective
    /// optimizer: O. Giel, Congress on Evolutionary Computation, 2003), or by joining the first nodes of one and the others of one
    /// that is nearly as fast (path relinking: F. Glover, Interfaces in Computer Science and Operations Research, 1997). What is worth
    /// choosing comes into the archive, and is changed in its turn. It ends early when nothing has for long.
    pub(super) fn evolve(&mut self, gpus: usize, steps: usize, random: &mut ChaCha8Rng) -> Result<()> {
        let mut in_vain = 0;
        for _ in 0..steps {
            if in_vain >= PATIENCE {
                break;
            }
            in_vain += 1;
            let entries = self.archive.entries();
            if entries.is_empty() {
                return Ok(());
            }
            let at = below(random, entries.len());
            let from = &entries[at].numbered;
            let changed = if below(random, 3) == 0 {
                let other = (at + 1 + below(random, NEIGHBOURS)).min(entries.len() - 1);
                let place = below(random, from.order.len());
                let pair = [from, &entries[other].numbered];
                let [first, second] = if below(random, 2) == 0 { pair } else { [pair[1], pair[0]] };
                Some(joined(first, second, place)).filter(|joined| joined != from)
            } else {
                self.changed(from.clone(), gpus, random)
            };
            if let Some(changed) = changed {
                let (time, _) = self.evaluator.time(&changed)?;
                if self.archive.offer(time, &changed) {
                    in_vain = 0;
                }
            }
        }
        Ok(())
    }

    /// With one, two or more random changes.
    fn changed(&mut self, mut from: Numbered, gpus: usize, random: &mut ChaCha8Rng) -> Option<Numbered> {
        let moves = Moves { shape: &self.shape, gpus };
        let mut is_changed = false;
        loop {
            if let Some(next) = moves.draw(&mut self.evaluator, &from, random) {
                (from, is_changed) = (next, true);
            }
            if below(random, 2) == 0 {
                return is_changed.then_some(from);
            }
        }
    }
}

/// The nodes up to a place in the order where the first arrangement has them, and all others where the second one has.
fn joined(first: &Numbered, second: &Numbered, place: usize) -> Numbered {
    let mut groups = second.groups.clone();
    for &node in &first.order[..place] {
        groups[node as usize] = first.groups[node as usize];
    }
    Numbered { groups, order: Rc::clone(&first.order) }
}
