//! How the branches of a region are packed into waves.

use super::front::{Front, Times};
use super::plans::{Apart, BranchFronts, ByWidth};
use super::solve::Outermost;
use super::trace::NOTHING;
use crate::Result;

/// One pair of options of fork and join: the plans of each branch.
struct Branches<'b, F> {
    first: Vec<&'b ByWidth<F>>,
    other: Vec<&'b ByWidth<F>>,
    skip: Option<usize>,
}

/// All plans, and those of exactly the width of the region.
type Fronts<F> = [F; 2];

impl<F: Front> Branches<'_, F> {
    /// One branch that has all ranks of the region.
    fn alone(&self, branch: usize, gpus: usize, exactly: bool) -> Fronts<F> {
        let ByWidth { useful, exact } = self.first[branch];
        let mut all = F::default();
        for (_, front) in useful.iter().filter(|(width, _)| *width <= gpus) {
            all.unite(front, Times::default());
        }
        let exact = exact.iter().find(|(width, _)| exactly && *width == gpus);
        [all, exact.map_or_else(F::default, |(_, front)| front.clone())]
    }
}

impl<F: Front> Outermost<'_, F> {
    /// All ways to run branches within `gpus`: those that are as wide as that, too, where it is asked for.
    ///
    /// Sets of branches are bit masks. A set is one wave, or a wave that holds its first branch and a smaller set; a wave
    /// is a first branch and others, added one at a time.
    ///
    /// # Errors
    /// [`Error::TooManyLabels`](crate::Error::TooManyLabels).
    pub(super) fn pack(
        &mut self,
        branches: &[BranchFronts<F>],
        gpus: usize,
        apart: Apart,
        pair: usize,
        exactly: bool,
        can_gain: bool,
    ) -> Result<Fronts<F>> {
        let branches = Branches {
            first: branches.iter().map(|branch| &branch.first[apart.index()][pair]).collect(),
            other: branches.iter().map(|branch| &branch.other[pair]).collect(),
            skip: branches.iter().position(|branch| branch.is_skip),
        };
        let count = branches.first.len();
        if !can_gain {
            let mut all: Fronts<F> = [self.nothing(), F::default()];
            for branch in 0..count {
                let alone = branches.alone(branch, gpus, exactly);
                all = self.one_more_wave([F::default(), F::default()], &all, &alone)?;
                self.finish(&mut all);
            }
            return Ok(all);
        }
        let sets = 1 << count;
        let others = self.others(&branches, gpus)?;
        let mut waves: Vec<Fronts<F>> = vec![Fronts::default(); sets];
        let mut plans: Vec<Fronts<F>> = vec![Fronts::default(); sets];
        plans[0][0] = self.nothing();
        for set in 1..sets {
            let lowest = set & set.wrapping_neg();
            let is_alone = set == lowest;
            let wave = if is_alone {
                branches.alone(set.trailing_zeros() as usize, gpus, exactly)
            } else {
                self.together(&branches, &others, set, gpus, exactly)?
            };
            let mut found = Fronts::default();
            // Smaller waves first: what is better without this wave, this wave is not needed for.
            let rest = set ^ lowest;
            let mut part = rest;
            while part > 0 {
                part = (part - 1) & rest;
                let (first, then) = (&waves[part | lowest], &plans[rest ^ part]);
                found = self.one_more_wave(found, then, first)?;
            }
            waves[set] = wave;
            for (wave, found) in waves[set].iter_mut().zip(&found) {
                wave.drop_dominated_by(found);
            }
            for (found, wave) in found.iter_mut().zip(&waves[set]) {
                found.unite(wave, Times::default());
            }
            self.finish(&mut found);
            plans[set] = found;
        }
        Ok(plans.pop().unwrap_or_default())
    }

    fn nothing(&self) -> F {
        F::one(Times::default(), NOTHING, self.ranks)
    }

    fn finish(&mut self, fronts: &mut Fronts<F>) {
        for front in fronts {
            front.thin(self.tolerance.step);
            front.settle(&mut self.traces);
        }
    }

    fn one_more_wave(&self, mut found: Fronts<F>, plans: &Fronts<F>, wave: &Fronts<F>) -> Result<Fronts<F>> {
        let [all, exact] = &mut found;
        let (step, most) = (self.tolerance.step, self.most);
        let fits = all.unite_sums(&plans[0], &wave[0], step, most)
            && exact.unite_sums(&plans[1], &wave[0], step, most)
            && exact.unite_sums(&plans[0], &wave[1], step, most);
        if fits { Ok(found) } else { Err(self.too_many_labels()) }
    }

    /// For each set of branches, what they can be beside a first one: by width, ascending.
    fn others(&mut self, branches: &Branches<F>, gpus: usize) -> Result<Vec<Vec<(usize, F)>>> {
        let count = branches.first.len();
        let mut sets: Vec<Vec<(usize, F)>> = vec![vec![(0, self.nothing())]];
        // The set of all leaves no first one.
        for set in 1..(1_usize << count) - 1 {
            let mut found: Vec<(usize, F)> = Vec::new();
            for branch in (0..count).rev().filter(|branch| set >> branch & 1 == 1) {
                for (before, front) in &sets[set ^ (1 << branch)] {
                    for (width, plans) in &branches.other[branch].useful {
                        let total = before + width;
                        if total > gpus || front.is_empty() || plans.is_empty() {
                            continue;
                        }
                        let place = found.partition_point(|(width, _)| *width < total);
                        if found.get(place).is_none_or(|(width, _)| *width > total) {
                            found.insert(place, (total, F::default()));
                        }
                        if !found[place].1.unite_waves(front, plans, *before, self.most) {
                            return Err(self.too_many_labels());
                        }
                    }
                }
                // Which branch comes last is all the same unless it matters on which ranks each one is.
                if !F::BY_RANK {
                    break;
                }
            }
            for index in 0..found.len() {
                let (smaller, rest) = found.split_at_mut(index);
                let Some((_, front)) = rest.first_mut() else { continue };
                if !F::BY_RANK {
                    for (_, smaller) in smaller {
                        front.drop_dominated_by(smaller);
                    }
                }
                front.settle(&mut self.traces);
            }
            sets.push(found);
        }
        Ok(sets)
    }

    /// Two or more branches in one wave.
    fn together(
        &mut self,
        branches: &Branches<F>,
        others: &[Vec<(usize, F)>],
        set: usize,
        gpus: usize,
        exactly: bool,
    ) -> Result<Fronts<F>> {
        let mut fronts = Fronts::<F>::default();
        let mut fits = true;
        for first in (0..branches.first.len()).filter(|first| set >> first & 1 == 1) {
            for (width, plans) in &branches.first[first].useful {
                for (beside, front) in &others[set ^ (1 << first)] {
                    if width + beside <= gpus {
                        fits &= fronts[0].unite_waves(plans, front, *width, self.most);
                    }
                }
            }
        }
        // As wide as the region is one branch alone, but for a skip connection.
        if let Some(skip) =
            branches.skip.filter(|skip| exactly && set.count_ones() == 2 && set >> skip & 1 == 1)
        {
            let wide = (set ^ (1 << skip)).trailing_zeros() as usize;
            let of_width = |plans: &[(usize, F)], gpus: usize| {
                plans
                    .iter()
                    .find(|(width, _)| *width == gpus)
                    .map_or_else(F::default, |(_, front)| front.clone())
            };
            for (first, width, other, beside) in [(wide, gpus, skip, 0), (skip, 0, wide, gpus)] {
                let first = of_width(&branches.first[first].exact, width);
                let other = of_width(&branches.other[other].exact, beside);
                fits &= fronts[1].unite_waves(&first, &other, width, self.most);
            }
        }
        if !fits {
            return Err(self.too_many_labels());
        }
        self.finish(&mut fronts);
        Ok(fronts)
    }
}
