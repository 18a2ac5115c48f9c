//! The search for arrangements that are fast and take little GPU time.

mod archive;
mod levels;
mod moves;
mod seeds;
mod shape;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::costs::TrainingCosts;
use super::evaluator::{Evaluator, Numbered};
use super::{Arrangement, TrainingProblem, TrainingTime};
use crate::{Error, Result};
use archive::Archive;
use moves::Moves;
use seeds::Chain;
use shape::Shape;

/// Multiples of the single-GPU time that the search keeps GPU time within, in turns.
const BUDGETS: [f64; 10] = [f64::INFINITY, 1.02, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.5];

/// How long to search.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TrainingSearch {
    /// How many arrangements are tried, as a multiple of the usual number. 1 by default.
    pub effort: f64,
}

impl Default for TrainingSearch {
    fn default() -> Self {
        Self { effort: 1.0 }
    }
}

/// One arrangement of a [`TrainingFrontier`].
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingPoint {
    /// What it takes.
    pub time: TrainingTime,
    /// The arrangement.
    pub arrangement: Arrangement,
}

/// Arrangements worth choosing from: none of those that were met is at least as good as one of them in iteration time and GPU
/// time, and better in one.
#[derive(Debug, Clone)]
pub struct TrainingFrontier {
    points: Vec<TrainingPoint>,
    single_gpu_us: f64,
    evaluations: u64,
}

/// Searches for all arrangements worth choosing from.
pub fn search_training<C: TrainingCosts>(
    problem: &TrainingProblem,
    costs: C,
    options: &TrainingSearch,
) -> Result<TrainingFrontier> {
    let mut evaluator = Evaluator::new(problem, costs)?;
    let single_gpu_us = evaluator.single_gpu_us()?;
    let mut search = Search::new(&mut evaluator, single_gpu_us, options);
    for level in levels::up_to(problem) {
        search.climb(level)?;
    }
    for gpus in 1..=problem.gpus {
        search.data_parallel(gpus)?;
    }
    let entries = search.archive.into_entries();
    let evaluations = evaluator.evaluations;
    let points = entries
        .into_iter()
        .map(|entry| TrainingPoint { time: entry.time, arrangement: evaluator.arrangement(&entry.numbered) })
        .collect();
    Ok(TrainingFrontier { points, single_gpu_us, evaluations })
}

struct Search<'e, 'p, C> {
    evaluator: &'e mut Evaluator<'p, C>,
    single_gpu_us: f64,
    effort: f64,
    shape: Shape,
    chain: Chain,
    archive: Archive,
}

impl<'e, 'p, C: TrainingCosts> Search<'e, 'p, C> {
    fn new(evaluator: &'e mut Evaluator<'p, C>, single_gpu_us: f64, options: &TrainingSearch) -> Self {
        let problem = evaluator.problem();
        let shape = Shape::new(problem, evaluator.structure());
        let counts = problem.nodes.iter().flat_map(|node| node.gpu_counts.iter().copied());
        let mut counts: Vec<usize> = counts.filter(|&count| count <= problem.gpus).collect();
        counts.sort_unstable();
        counts.dedup();
        let chain = Chain::new(evaluator, &counts);
        Self { evaluator, single_gpu_us, effort: options.effort, shape, chain, archive: Archive::default() }
    }

    fn offer(&mut self, numbered: &Numbered) -> Result<TrainingTime> {
        let (time, _) = self.evaluator.time(numbered)?;
        self.archive.offer(time, numbered);
        Ok(time)
    }

    /// Every node on the first ranks, where the costs know so many.
    fn data_parallel(&mut self, gpus: usize) -> Result<()> {
        let group = self.evaluator.group(&(0..gpus).collect::<Vec<_>>());
        let nodes = self.evaluator.problem().nodes.len();
        if (0..nodes).all(|node| self.evaluator.knows(node, group)) {
            let order = self.evaluator.structure().order.iter().map(|&node| node as u32).collect();
            self.offer(&Numbered { groups: vec![group; nodes], order })?;
        }
        Ok(())
    }

    /// Searches with the first `gpus` ranks, going on from what was found with fewer.
    fn climb(&mut self, gpus: usize) -> Result<()> {
        self.data_parallel(gpus)?;
        for seed in self.chain.best(gpus) {
            self.offer(&seed)?;
            self.spread_branches(seed, gpus)?;
        }
        // The same draws whatever the number of GPUs that there are.
        let mut random = ChaCha8Rng::seed_from_u64(gpus as u64);
        let steps = self.steps(gpus);
        for round in 0..2 {
            for budget in BUDGETS {
                self.improve(gpus, budget * self.single_gpu_us, steps / 2, round, &mut random)?;
            }
        }
        Ok(())
    }

    /// How many changes are tried for each budget.
    fn steps(&self, gpus: usize) -> usize {
        let nodes = self.evaluator.problem().nodes.len() as f64;
        let share = gpus.min(8) as f64 / 8.0;
        (self.effort * share * 60_000.0 / nodes.sqrt() / BUDGETS.len() as f64).ceil() as usize
    }

    /// Lets branches run at the same time where that makes the iteration shorter.
    fn spread_branches(&mut self, mut from: Numbered, gpus: usize) -> Result<()> {
        let mut best = self.offer(&from)?;
        for index in 0..self.shape.parallels.len() {
            let parallel = &self.shape.parallels[index];
            let moves = Moves { shape: &self.shape, gpus };
            let branches = parallel.branches.len();
            let spread: Vec<Numbered> = (2..=branches)
                .filter_map(|lanes| moves.in_lanes(self.evaluator, &from, parallel, gpus, lanes))
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

    /// Changes the best arrangement within a budget of GPU time over and over. A change that makes it a little worse is kept at
    /// first, later only those that make it better (threshold accepting: G. Dueck, T. Scheuer, J. of Computational Physics 90,
    /// 1990).
    fn improve(&mut self, gpus: usize, budget_us: f64, steps: usize, round: usize, random: &mut ChaCha8Rng) -> Result<()> {
        let Some(best) = self.archive.within(budget_us).or(self.archive.entries().last()) else { return Ok(()) };
        let score = |time: TrainingTime| {
            let over = (time.gpu_time_us / budget_us).max(1.0);
            time.iteration_us * over.powi(3)
        };
        let (mut now, mut now_score) = (best.numbered.clone(), score(best.time));
        let threshold = if round == 0 { 0.02 } else { 0.005 };
        for step in 0..steps {
            let moves = Moves { shape: &self.shape, gpus };
            let Some(changed) = moves.draw(self.evaluator, &now, random) else { continue };
            let changed_score = score(self.offer(&changed)?);
            let left = 1.0 - step as f64 / steps as f64;
            if changed_score < now_score * (1.0 + threshold * left * left) {
                (now, now_score) = (changed, changed_score);
            }
        }
        Ok(())
    }
}

impl TrainingFrontier {
    /// The arrangements, by rising iteration time and falling GPU time.
    #[must_use]
    pub fn points(&self) -> &[TrainingPoint] {
        &self.points
    }

    /// The time of everything on one GPU, which amplification is a multiple of.
    #[must_use]
    pub fn single_gpu_us(&self) -> f64 {
        self.single_gpu_us
    }

    /// How many arrangements were evaluated.
    #[must_use]
    pub fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// The fastest arrangement whose amplification is at most `limit`, at 1e-9 relative.
    ///
    /// # Errors
    /// [`Error::BadLimit`] and [`Error::LimitUnreachable`].
    pub fn fastest_within(&self, limit: f64) -> Result<&TrainingPoint> {
        crate::search::limit_error(limit)?;
        let budget_us = crate::search::tolerant(limit * self.single_gpu_us);
        let first = self.points.partition_point(|point| point.time.gpu_time_us > budget_us);
        self.points.get(first).ok_or_else(|| {
            let smallest_us = self.points.last().map_or(f64::INFINITY, |point| point.time.gpu_time_us);
            Error::LimitUnreachable { limit, smallest: smallest_us / self.single_gpu_us }
        })
    }
}
